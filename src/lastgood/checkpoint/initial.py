"""`sources/<i>/0` of a source that writes down once where it began: Kafka and rate. Pure."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import field
from typing import Self

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.file_logs import SourceLogEntry, parse_source_log_entry
from lastgood.checkpoint.lines import decode, encode, read_version
from lastgood.checkpoint.source_offsets import JsonOffset, KafkaOffset, SourceOffset, TextOffset, parse_source_offset
from lastgood.frozen import dataclass

VERSION_NEWEST = 1
_VERSION = re.compile(rb"v\+?\d")
_KEYS_OF_FILES = frozenset(("path", "timestamp", "batchId"))
_VERSION_DAMAGE = (
    DamageKind.EMPTY,
    DamageKind.BAD_VERSION_LINE,
    DamageKind.VERSION_TOO_NEW,
    DamageKind.VERSION_LINE_ONLY,
)


@dataclass(frozen=True, slots=True)
class InitialOffset:
    """Where batch 0 starts; read again only while batch 0 is not committed."""

    offset: SourceOffset
    """Rate: the time the source was made, in milliseconds."""
    has_nul: bool
    """Kafka writes a NUL byte before the version, where Spark 2.1 wrote the length of the text."""
    raw: bytes | None = field(default=None, compare=False, repr=False)
    """The bytes it was read from, None if it was made or changed."""

    def to_bytes(self) -> bytes:
        """The file as it was read, or as Spark writes it."""
        if self.raw is not None:
            return self.raw
        return b"\0" * self.has_nul + encode(f"v{VERSION_NEWEST}\n{self.offset.to_text()}")

    def with_offset(self, offset: SourceOffset) -> Self:
        """The same with another start."""
        return type(self)(offset, self.has_nul)


def parse_initial_offset(raw: bytes) -> InitialOffset | Damage:
    """Read the initial offset of a source.

    Kafka's source passes over the first byte, whatever it is; a text without a version line behind it is one of Spark
    2.1. Other sources write no such byte. Which of the two it is shows in what can be read.
    """
    behind = _read(raw[1:], has_nul=True, raw=raw)
    if raw[:1] == b"\0" or (isinstance(behind, InitialOffset) and isinstance(behind.offset, KafkaOffset)):
        return _parse_as_kafka(behind, raw)
    if _lacks_its_byte(raw):
        return make_damage(DamageKind.NO_OFFSETS, raw[1:])
    whole = _read(raw, has_nul=False, raw=raw)
    if isinstance(whole, Damage) and _is_behind_a_byte(raw):
        return _parse_as_kafka(behind, raw)
    return whole


def _is_behind_a_byte(raw: bytes) -> bool:
    """Whether the first byte is followed by what stands there in a file of Kafka's source."""
    return raw[1:2] == b"{" or _VERSION.match(raw, 1) is not None


def _lacks_its_byte(raw: bytes) -> bool:
    """Whether these are offsets of Kafka of which Spark loses the first byte, and with it their sense."""
    if raw[:1] == b"v":
        rest = raw.partition(b"\n")[2]
    else:
        rest = raw
    found = None
    if rest[:1] == b"{":
        found = _read(rest, has_nul=False, raw=raw)
    return isinstance(found, InitialOffset) and isinstance(found.offset, KafkaOffset)


def _parse_as_kafka(found: InitialOffset | Damage, raw: bytes) -> InitialOffset | Damage:
    """Kafka's source has one message for whatever is no text of offsets, be it cut, no JSON or no text at all.

    A pattern that no topic matched when the query began is written as an empty object.
    """
    if isinstance(found, InitialOffset) and found.offset == JsonOffset({}):
        return dataclasses.replace(found, offset=KafkaOffset({}))
    if isinstance(found, InitialOffset) or found.kind in _VERSION_DAMAGE:
        return found
    return make_damage(DamageKind.NO_OFFSETS, found.found or raw[1:], found.line)


def _read(content: bytes, *, has_nul: bool, raw: bytes) -> InitialOffset | Damage:
    text = decode(content)
    if isinstance(text, Damage):
        return text
    line = None
    if text[:1] == "v":
        first, newline, text = text.partition("\n")
        if not newline:  # what the line says is not looked at then
            return Damage(DamageKind.VERSION_LINE_ONLY, line=2)
        version = read_version(first, newest=VERSION_NEWEST)
        if isinstance(version, Damage):
            return version
        line = 2
    offset = parse_source_offset(text, line)
    if isinstance(offset, Damage):
        return offset
    if isinstance(offset, TextOffset):
        return make_damage(DamageKind.NOT_JSON, text, line)
    return InitialOffset(offset, has_nul, raw)


def parse_source_entry(raw: bytes) -> InitialOffset | SourceLogEntry | Damage:
    """Read a file `sources/<i>/<n>` of an unknown source: which of the two it is shows in its first bytes."""
    if raw[:1] == b"\0" or _is_behind_a_byte(raw):
        return parse_initial_offset(raw)
    entry = parse_source_log_entry(raw)
    if not isinstance(entry, Damage):
        return entry
    initial = parse_initial_offset(raw)
    if isinstance(initial, Damage):
        return initial if initial.kind is DamageKind.NO_OFFSETS else entry
    if raw.partition(b"\n")[2][:1] != b"{" or _is_of_another_source(initial.offset):
        return initial
    return entry


def _is_of_another_source(offset: SourceOffset) -> bool:
    """Whether an object has nothing of an entry of files, as the beginning that Hudi and others write down."""
    found = offset.value if isinstance(offset, JsonOffset) else None
    return isinstance(found, dict) and bool(found) and _KEYS_OF_FILES.isdisjoint(found)
