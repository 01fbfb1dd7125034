"""Reads the JSON of what is noted down where others may write: whatever they put there has its bounds. Pure."""

from __future__ import annotations

import json
from typing import Any

_DIGITS_MAX = 100
"""More than any number of ours has, and so few that it can be reckoned with as a float."""


VALUES_MAX = 4_000_000
"""A value of a few bytes takes dozens of them in memory; a plan of many thousand steps has a tenth of it."""


def read_json(raw: bytes | str, *, values_max: int | None = VALUES_MAX, is_strict: bool = False) -> Any:
    """A value of JSON, of any type.

    Args:
        raw: Its text.
        values_max: How many values it may hold, counted by the signs that stand between them; None: any number, since
            it is known to be one object of a few texts.
        is_strict: Whether NaN and Infinity, which Python reads and which are no JSON, are refused.

    Raises:
        ValueError: it is none, is nested too deeply, or holds a number of too many digits, or too many values.
    """
    if values_max is not None and len(raw) > values_max:
        values = count_values(raw)
        if values > values_max:
            raise ValueError(f"{values:,} values, of {values_max:,} at most")
    decoder = _STRICT if is_strict else _LENIENT
    try:
        return decoder.decode(raw if isinstance(raw, str) else raw.decode(json.detect_encoding(raw), "surrogatepass"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def count_values(raw: bytes | str) -> int:
    """No fewer than the values of a JSON text, counted without reading it."""
    if isinstance(raw, str):
        return sum(map(raw.count, "[{,"))
    return sum(map(raw.count, (b"[", b"{", b",")))


def _parse_number(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


_LENIENT = json.JSONDecoder(parse_int=_parse_number)
_STRICT = json.JSONDecoder(parse_int=_parse_number, parse_constant=_refuse)
