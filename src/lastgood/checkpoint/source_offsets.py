"""One source's position, as it stands on its line of the offset log; recognised by its shape, never by its text.

Pure. Two offsets are equal when Spark would take them for the same position, whatever the order of their keys.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.lines import Json, is_long, read_json, to_json
from lastgood.frozen import dataclass

VOID = "-"
"""What Spark writes for a source that has no offset yet."""
OFFSET_LATEST = -1
OFFSET_EARLIEST = -2
_NAMES = {OFFSET_LATEST: "latest", OFFSET_EARLIEST: "earliest"}

DELTA_VERSION_NEWEST = 3
"""Offsets of Delta from this version on can stand at a change of the schema."""
DELTA_VERSIONS = (1, DELTA_VERSION_NEWEST)
"""Forms of Delta's offsets there are."""
_ICEBERG_VERSIONS = (1,)
"""The same of Iceberg; what one of another form says, only a library that knows it can tell."""
DELTA_BEGINNING_WRITTEN = -1
"""What Delta writes for the beginning of a version, in lines of version 1 alone."""
DELTA_BEGINNING = -100
"""What it takes that for: the index below all others."""

_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
_JSON_BEGINNINGS = ("{", "[", '"')
_PARTITION = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)


def name_offset(offset: int) -> int | str:
    """An offset of Kafka as people and JSON are told it: a position is a number, `latest` and `earliest` are none."""
    return _NAMES.get(offset, offset)


@dataclass(frozen=True, slots=True)
class VoidOffset:
    """The source has no offset in this batch."""

    kind: ClassVar[str] = "void"

    def to_text(self) -> str:
        """The line as Spark writes it."""
        return VOID


@dataclass(frozen=True, slots=True)
class KafkaOffset:
    """Kafka, and Event Hubs, whose offsets look the same."""

    kind: ClassVar[str] = "kafka"
    topics: Mapping[str, Mapping[int, int]]
    """Per topic and partition the next offset to read; `OFFSET_LATEST`, `OFFSET_EARLIEST` where somebody put them."""

    def to_text(self) -> str:
        """The line as Spark writes it: partitions ascending, topics in the order they have here."""
        return to_json({topic: _key_by_text(dict(sorted(parts.items()))) for topic, parts in self.topics.items()})


@dataclass(frozen=True, slots=True)
class FileOffset:
    """A folder of files: the newest entry of the source's own log that the batch read."""

    kind: ClassVar[str] = "file"
    log_offset: int

    def to_text(self) -> str:
        """The line as Spark writes it."""
        return to_json({"logOffset": self.log_offset})


@dataclass(frozen=True, slots=True)
class NumberOffset:
    """A bare number: rate (seconds since its start), socket, memory."""

    kind: ClassVar[str] = "number"
    value: int

    def to_text(self) -> str:
        """The line as Spark writes it."""
        return str(self.value)


@dataclass(frozen=True, slots=True)
class RateMicroBatchOffset:
    """The source `rate-micro-batch`."""

    kind: ClassVar[str] = "rate-micro-batch"
    offset: int
    """The next row."""
    timestamp_ms: int

    def to_text(self) -> str:
        """The line as Spark writes it."""
        return to_json({"offset": self.offset, "timestamp": self.timestamp_ms})


@dataclass(frozen=True, slots=True)
class ContinuousRateOffset:
    """The source `rate` in continuous mode."""

    kind: ClassVar[str] = "continuous-rate"
    partitions: Mapping[int, tuple[int, int]]
    """Per partition the last value and its time in milliseconds."""

    def to_text(self) -> str:
        """The line as Spark writes it."""
        return to_json(
            {str(part): {"value": value, "runTimeMs": time} for part, (value, time) in self.partitions.items()}
        )


@dataclass(frozen=True, slots=True)
class DeltaOffset:
    """A Delta table: everything before file `index` of version `table_version` is read; -1 is before its first."""

    kind: ClassVar[str] = "delta"
    source_version: int
    table_id: str
    table_version: int
    index: int
    is_starting_version: bool
    """Whether the first snapshot is still being read."""

    @property
    def place(self) -> tuple[int, int]:
        """Version and index by which Delta orders its offsets: before all else of a version comes its beginning.

        In a line of version 1 the beginning is written as -1, above the change of the schema, which is -20 and -19.
        """
        is_beginning = self.source_version < DELTA_VERSION_NEWEST and self.index == DELTA_BEGINNING_WRITTEN
        return self.table_version, DELTA_BEGINNING if is_beginning else self.index

    def to_text(self) -> str:
        """The line as Delta writes it."""
        return to_json(
            {
                "sourceVersion": self.source_version,
                "reservoirId": self.table_id,
                "reservoirVersion": self.table_version,
                "index": self.index,
                "isStartingVersion": self.is_starting_version,
            }
        )


@dataclass(frozen=True, slots=True)
class IcebergOffset:
    """An Iceberg table: so many files (`position`) of a snapshot are read; -1 is the start marker."""

    kind: ClassVar[str] = "iceberg"
    version: int
    snapshot_id: int
    position: int
    scan_all_files: bool

    def to_text(self) -> str:
        """The line as Iceberg writes it."""
        return to_json(
            {
                "version": self.version,
                "snapshot_id": self.snapshot_id,
                "position": self.position,
                "scan_all_files": self.scan_all_files,
            }
        )


@dataclass(frozen=True, slots=True)
class JsonOffset:
    """JSON of a source that lastgood does not know."""

    kind: ClassVar[str] = "json"
    value: Json

    def to_text(self) -> str:
        """The line in compact form."""
        return to_json(self.value)


@dataclass(frozen=True, slots=True)
class TextOffset:
    """A line that is no JSON and does not pretend to be."""

    kind: ClassVar[str] = "text"
    text: str

    def to_text(self) -> str:
        """The line."""
        return self.text


SourceOffset: TypeAlias = (
    VoidOffset
    | KafkaOffset
    | FileOffset
    | NumberOffset
    | RateMicroBatchOffset
    | ContinuousRateOffset
    | DeltaOffset
    | IcebergOffset
    | JsonOffset
    | TextOffset
)


def parse_source_offset(text: str, line: int | None = None) -> SourceOffset | Damage:
    """Read the offset on one line of the offset log (offset log v2: what follows the first colon).

    A line that begins as JSON and is none is a Damage; one that does not is a TextOffset.
    """
    if text == VOID:
        return VoidOffset()
    if _NUMBER.fullmatch(text) and is_long(int(text)):
        return NumberOffset(int(text))
    if text.strip()[:1] not in _JSON_BEGINNINGS:
        return TextOffset(text)
    value = read_json(text, line)
    if isinstance(value, Damage):
        return value
    return _recognise(value)


def _recognise(value: Json) -> SourceOffset:
    if not isinstance(value, dict) or not value:
        return JsonOffset(value)
    is_nested = isinstance(next(iter(value.values())), dict)
    for shape in _NESTED_SHAPES if is_nested else _SHAPES:
        offset = shape(value)
        if offset is not None:
            return offset
    return JsonOffset(value)


def _parse_file_offset(value: dict[str, Json]) -> FileOffset | None:
    number = value.get("logOffset")
    if value.keys() == {"logOffset"} and is_long(number):
        return FileOffset(number)
    return None


def _parse_rate_micro_batch(value: dict[str, Json]) -> RateMicroBatchOffset | None:
    offset, time = value.get("offset"), value.get("timestamp")
    if value.keys() == {"offset", "timestamp"} and is_long(offset) and is_long(time):
        return RateMicroBatchOffset(offset, time)
    return None


def _parse_delta_offset(value: dict[str, Json]) -> DeltaOffset | None:
    source_version, version, index = (value.get(key) for key in ("sourceVersion", "reservoirVersion", "index"))
    table_id, starting = value.get("reservoirId"), value.get("isStartingVersion", False)
    if not is_long(source_version) or not is_long(version) or not is_long(index):
        return None
    if not isinstance(table_id, str) or not isinstance(starting, bool) or source_version not in DELTA_VERSIONS:
        return None
    return DeltaOffset(source_version, table_id, version, index, starting)


def _parse_iceberg_offset(value: dict[str, Json]) -> IcebergOffset | None:
    version, snapshot, position = (value.get(key) for key in ("version", "snapshot_id", "position"))
    scan = value.get("scan_all_files")
    if version not in _ICEBERG_VERSIONS:
        return None
    if is_long(version) and is_long(snapshot) and is_long(position) and isinstance(scan, bool):
        return IcebergOffset(version, snapshot, position, scan)
    return None


def _parse_kafka_offset(value: dict[str, Json]) -> KafkaOffset | None:
    topics: dict[str, dict[int, int]] = {}
    for topic, parts in value.items():
        if not isinstance(parts, dict) or not parts:
            return None
        ends = topics[topic] = {}
        for part, offset in parts.items():
            number = _parse_partition(part)
            if number is None or not is_long(offset):
                return None
            ends[number] = offset
    return KafkaOffset(topics)


@functools.lru_cache(maxsize=4096)
def _parse_partition(text: str) -> int | None:
    if _PARTITION.fullmatch(text):
        return int(text)
    return None


def _parse_continuous_rate(value: dict[str, Json]) -> ContinuousRateOffset | None:
    partitions: dict[int, tuple[int, int]] = {}
    for part, run in value.items():
        number = _parse_partition(part)
        if number is None or not isinstance(run, dict) or run.keys() != {"value", "runTimeMs"}:
            return None
        last, time = run["value"], run["runTimeMs"]
        if not is_long(last) or not is_long(time):
            return None
        partitions[number] = (last, time)
    return ContinuousRateOffset(partitions)


def _key_by_text(partitions: Mapping[int, Any]) -> dict[str, Any]:
    return {str(part): offset for part, offset in partitions.items()}


_Shape: TypeAlias = "Callable[[dict[str, Json]], SourceOffset | None]"
_SHAPES: tuple[_Shape, ...] = (_parse_file_offset, _parse_rate_micro_batch, _parse_delta_offset, _parse_iceberg_offset)
_NESTED_SHAPES: tuple[_Shape, ...] = (_parse_kafka_offset, _parse_continuous_rate, *_SHAPES)


def get_topics(offset: SourceOffset | None) -> Mapping[str, Mapping[int, int]]:
    """Per topic and partition the offset of a Kafka source; empty for any other."""
    return offset.topics if isinstance(offset, KafkaOffset) else {}
