"""Ids of what is kept beside a checkpoint: recoveries, incidents, backups. They sort by the time they were made."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}", re.ASCII)
_DRAWN = 65
"""So many marks each millisecond of a second has: 1000 times as many are four hexadecimal digits."""


def make_id(at_ms: int) -> str:
    """An id that nobody else has drawn: `20261121-160058-7f3a`.

    Its last four digits grow within the second: of two recoveries of one second the later one is known as the later.

    Args:
        at_ms: The time, milliseconds since 1970.
    """
    when = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    mark = at_ms % 1000 * _DRAWN + secrets.randbelow(_DRAWN)
    return f"{when}-{mark:04x}"


def parse_time_ms(text: str) -> int:
    """The second in which such an id was made, milliseconds since 1970."""
    return int(datetime.strptime(text[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()) * 1000


def is_id(text: str) -> bool:
    """Whether a text can be such an id."""
    return _ID.fullmatch(text) is not None
