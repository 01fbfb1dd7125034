"""What can be wrong with one file of a checkpoint: a value, never an exception."""

from __future__ import annotations

import enum

from lastgood.frozen import dataclass

_FOUND_LENGTH = 80


class DamageKind(enum.Enum):
    """What is wrong, as finely as Spark's own behaviour differs."""

    EMPTY = "empty"
    """No byte at all; Spark: `Incomplete log file`. Also how a sealed checkpoint looks."""
    NOT_UTF8 = "not_utf8"
    BAD_VERSION_LINE = "bad_version_line"
    """The first line is not `v` and a number from 1; Spark: `failed to read correct log version`."""
    VERSION_TOO_NEW = "version_too_new"
    """A version that no Spark up to 4.3 writes here; Spark: `UnsupportedLogVersion`."""
    OTHER_VERSION = "other_version"
    """A version that the Spark which starts does not read, and another does; Spark: `CANNOT_READ_CHECKPOINT`."""
    VERSION_LINE_ONLY = "version_line_only"
    """An entry that ends after its version; Spark: `next on empty iterator`, or `failed to detect` that version."""
    BLANK_METADATA_LINE = "blank_metadata_line"
    """No metadata where a micro-batch needs it; Spark: `NullPointerException` in the watermark tracker."""
    NO_METADATA = "no_metadata"
    """The same in offset log v2; Spark: `VERSION_2 offset log requires metadata`."""
    NO_SOURCE_LINES = "no_source_lines"
    """An offset log entry without any source; Spark: `There are [0] sources in the checkpoint offsets`."""
    NO_SOURCE_ID = "no_source_id"
    """A line `ID:OFFSET` of offset log v2 without its colon; Spark: `Invalid OffsetMap format`."""
    NO_OFFSETS = "no_offsets"
    """What Kafka's source finds behind the first byte of `sources/<i>/0`; Spark: `Expected e.g. {"topicA"…`."""
    TRUNCATED = "truncated"
    """Text or data ends too early; Spark: `JsonEOFException`, `EOFException`."""
    NOT_JSON = "not_json"
    """Spark: `JsonParseException`."""
    UNEXPECTED_JSON = "unexpected_json"
    """JSON, but not the fields that belong here; Spark: `MappingException` or a wrong value."""
    TOO_DEEP = "too_deep"
    """JSON nested deeper than Spark's own reader allows."""
    TOO_LARGE = "too_large"
    """Larger than anything Spark writes here; not looked into."""
    BAD_HEADER = "bad_header"
    """A binary file does not begin as its format does."""
    BAD_ARCHIVE = "bad_archive"
    """A `.zip` of the state that is none, or without its `metadata`."""
    UNKNOWN_CODEC = "unknown_codec"
    """Compressed in a way that lastgood does not read (only lz4); Spark may well read it."""
    CHECKSUM_MISMATCH = "checksum_mismatch"
    """A checksum file and its main file disagree."""
    MISSING_PART = "missing_part"
    """A file that this one needs is not there, or has another size."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with one file, and where in it."""

    kind: DamageKind
    found: str = ""
    """What is there instead, at most 80 characters of it."""
    line: int | None = None
    """Line of a text file, the first is 1; None where lines do not matter."""

    def __str__(self) -> str:
        """As a person says it."""
        if self.line is not None:
            where = f" in line {self.line}"
        else:
            where = ""
        if self.found:
            found = f": {self.found}"
        else:
            found = ""
        return f"{self.kind.value.replace('_', ' ')}{where}{found}"


def make_damage(kind: DamageKind, found: str | bytes = "", line: int | None = None) -> Damage:
    """A damage whose `found` can be shown: printable, and cut to a length that fits a line."""
    part = found[:_FOUND_LENGTH]
    if isinstance(part, str) and part.isprintable():
        text = part
    else:
        text = repr(part).removeprefix("b")[1:-1]
    if len(found) > _FOUND_LENGTH or len(text) > _FOUND_LENGTH:
        text = text[: _FOUND_LENGTH - 1] + "…"
    return Damage(kind, text, line)
