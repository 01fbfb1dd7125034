"""Times, as people type and read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

_DIGITS_MAX = 19
"""Of milliseconds; as many as a long of Spark has."""


class _Time(click.ParamType[int]):
    """`2026-11-21T03:12`, with or without seconds and zone (local if none), or milliseconds since 1970."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value.isdecimal() and len(value) <= _DIGITS_MAX:
            return int(value)
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time such as 2026-11-21T03:12 or 2026-11-21T03:12:00Z", param, ctx)


class _Duration(click.ParamType[int]):
    """`90s`, `15m`, `12h`, `3d`: milliseconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from lastgood.settings.config import parse_duration

        if isinstance(value, int):
            return value
        try:
            return int(parse_duration(value) * 1000)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = _Time()
DURATION = _Duration()


def format_clock(time_ms: int) -> str:
    """A moment in local time, to the second; years beyond what a calendar has are shown as a number."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def format_span(seconds: float) -> str:
    """A length of time, in its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
