"""`sources/<i>/0` of a source that writes down once where it began: Kafka and rate. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from lastgood.checkpoint.damage import Damage, DamageKind, damaged
from lastgood.checkpoint.file_logs import SourceLogEntry, parse_source_log_entry
from lastgood.checkpoint.lines import decode, encode, read_version
from lastgood.checkpoint.source_offsets import SourceOffset, TextOffset, parse_source_offset

VERSION_NEWEST = 1


@dataclass(frozen=True, slots=True)
class InitialOffset:
    """Where batch 0 starts; read again only while batch 0 is not committed."""

    offset: SourceOffset
    """Rate: the time the source was made, in milliseconds."""
    has_nul: bool
    """Kafka puts a NUL byte before the version, for readers of Spark 2.1."""
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
    """Read the initial offset of a source; without a version line it is one of Spark 2.1."""
    has_nul = raw[:1] == b"\0"
    text = decode(raw[1:] if has_nul else raw)
    if isinstance(text, Damage):
        return text
    line = None
    if text[:1] == "v":
        first, newline, text = text.partition("\n")
        version = read_version(first, newest=VERSION_NEWEST)
        if isinstance(version, Damage):
            return version
        if not newline:
            return Damage(DamageKind.VERSION_LINE_ONLY, line=2)
        line = 2
    offset = parse_source_offset(text, line)
    if isinstance(offset, Damage):
        return offset
    return (
        damaged(DamageKind.NOT_JSON, text, line)
        if isinstance(offset, TextOffset)
        else InitialOffset(offset, has_nul, raw)
    )


def parse_source_entry(raw: bytes) -> InitialOffset | SourceLogEntry | Damage:
    """Read a file `sources/<i>/<n>` of an unknown source: which of the two it is shows in its first bytes."""
    if raw[:1] == b"\0":
        return parse_initial_offset(raw)
    entry = parse_source_log_entry(raw)
    if not isinstance(entry, Damage) or raw.partition(b"\n")[2][:1] == b"{":
        return entry
    initial = parse_initial_offset(raw)
    return entry if isinstance(initial, Damage) else initial
