"""Reads the JSON of what is noted down where others may write: whatever they put there has its bounds. Pure."""

from __future__ import annotations

import json
from typing import Any

_DIGITS_MAX = 100
"""More than any number of ours has, and so few that it can be reckoned with as a float."""


def read_json(raw: bytes | str) -> Any:
    """A value of JSON, of any type.

    Raises:
        ValueError: it is none, is nested too deeply, or holds a number of too many digits.
    """
    try:
        return json.loads(raw, parse_int=_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _number(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)
