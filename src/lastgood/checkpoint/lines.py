"""Log files as text: version line, lines as Java splits them, JSON as Jackson accepts it.

Pure; whatever the bytes are, the result is a value or a Damage, and memory stays in proportion to the input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias, TypeGuard

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.frozen import dataclass

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

ENTRY_BYTES_MAX = 8 * 1024 * 1024
"""Largest entry that is looked into; one with 300,000 Kafka partitions has half of it."""
LINES_MAX = 10_000
"""Most lines of an entry that is looked into; each source of a query has one."""
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
TIME_MS_END = 253_402_214_400_000
"""The last day of the year 9999, which every time zone can still show."""

_LINE_END = re.compile("\r\n|\n|\r")
_VERSION = re.compile(r"v\+?(\d{1,10})")
_CUT_ESCAPE = re.compile(r"u[0-9a-fA-F]{0,3}")
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class LogText:
    """A log file split into its lines."""

    version: int
    body: tuple[str, ...]
    """The lines after the version."""


def decode(raw: bytes) -> str | Damage:
    """The text of a file, or why it has none."""
    if not raw:
        return Damage(DamageKind.EMPTY)
    if len(raw) > ENTRY_BYTES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"{len(raw)} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        return make_damage(DamageKind.NOT_UTF8, raw[error.start : error.start + 16])


def split_log(raw: bytes, *, newest: int, trim: bool = False) -> LogText | Damage:
    """Split a log file; `newest` is the highest version that exists, `trim` whether Spark trims the version line."""
    text = decode(raw)
    if isinstance(text, Damage):
        return text
    if "\r" in text:
        lines = _LINE_END.split(text)
    else:
        lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if len(lines) > LINES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"{len(lines)} lines")
    version = read_version(lines[0].strip() if trim else lines[0], newest=newest)
    if isinstance(version, Damage):
        return version
    return LogText(version, tuple(lines[1:]))


def split_byte_lines(raw: bytes) -> Iterator[bytes]:
    """The lines of a file that may be large, one at a time, split as Java does."""
    start = 0
    while start < len(raw):
        end = raw.find(b"\n", start)
        if end < 0:
            end = len(raw)
        yield from raw[start:end].removesuffix(b"\r").split(b"\r")
        start = end + 1


def read_version(line: str, *, newest: int) -> int | Damage:
    """The number of a version line such as `v1`."""
    if line == "v1":  # of a hundred thousand files nearly all
        return 1
    found = _VERSION.fullmatch(line)
    if found:
        version = int(found[1])
    else:
        version = 0
    if not 0 < version < 2**31:
        return make_damage(DamageKind.BAD_VERSION_LINE, line, 1)
    if version <= newest:
        return version
    return make_damage(DamageKind.VERSION_TOO_NEW, line, 1)


def _refuse(constant: str) -> Json:
    raise ValueError(constant)  # NaN and Infinity are no JSON


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def read_json(text: str, line: int | None = None) -> Json | Damage:
    """The first JSON value in `text`; like Spark's reader, not minding what follows it."""
    body = text.lstrip(_SPACE)
    if not body:
        return Damage(DamageKind.TRUNCATED, line=line)
    try:
        value: Json = _DECODER.raw_decode(body)[0]
    except json.JSONDecodeError as error:
        kind = DamageKind.TRUNCATED if _is_early_end(body, error.pos) else DamageKind.NOT_JSON
        return make_damage(kind, body, line)
    except ValueError:
        return make_damage(DamageKind.NOT_JSON, body, line)
    except RecursionError:
        return make_damage(DamageKind.TOO_DEEP, body, line)
    return value


def _is_early_end(text: str, position: int) -> bool:
    """Whether what the decoder stumbled over at `position` is the end of the text."""
    rest = text[position:].lstrip(_SPACE)
    if rest.startswith('"'):
        return '"' not in rest[1:].replace("\\\\", "").replace('\\"', "")
    return not rest or _CUT_ESCAPE.fullmatch(rest) is not None


def read_object(text: str, line: int | None = None) -> dict[str, Json] | Damage:
    """The JSON object in `text`."""
    value = read_json(text, line)
    if isinstance(value, (dict, Damage)):
        return value
    return make_damage(DamageKind.UNEXPECTED_JSON, text, line)


def to_json(value: Json | Mapping[str, Json]) -> str:
    """JSON as Spark writes it: no spaces, nothing escaped that need not be, keys in their order."""
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, separators=(",", ":"), ensure_ascii=False)


def encode(text: str) -> bytes:
    """Bytes of a text; as in Java, half a surrogate pair becomes `?`."""
    return text.encode(errors="replace")


def is_long(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a 64-bit integer."""
    return isinstance(value, int) and not isinstance(value, bool) and LONG_MIN <= value <= LONG_MAX


def is_time_ms(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a time that can be shown, milliseconds since 1970, up to the year 9999."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < TIME_MS_END


def extract_long(fields: Mapping[str, Json], name: str) -> int | None:
    """A number as json4s extracts it: 0 if absent or null; None if it is no 64-bit integer."""
    value = fields.get(name)
    if value is None:
        return 0
    return value if is_long(value) else None
