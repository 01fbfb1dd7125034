"""`offsets/N`: what batch N was planned to read. Pure: bytes to values and back to the same bytes."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Self

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import Json, encode, extract_long, read_object, split_log, to_json
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset, TextOffset, parse_source_offset
from lastgood.frozen import dataclass

VERSION_NEWEST = 2
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
STATE_STORE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE_STORE_CODEC = "spark.sql.streaming.stateStore.compression.codec"

_NESTED = frozenset((dict, list))
_CONF = ',"conf":'
_TIMES = re.compile(
    r'\{"batchWatermarkMs":(-?(?:0|[1-9]\d{0,17})),"batchTimestampMs":(-?(?:0|[1-9]\d{0,17}))', re.ASCII
)
_REMEMBERED_LENGTH_MAX = 64 * 1024
# Every Spark pins its whole list of confs, so the keys tell which one planned the batch: since which version, and
# before which. Newest first. The filter's key came in the midst of 3.5, under a wrong name in 3.5.4.
_PINNED: tuple[tuple[str, str | None, str], ...] = (
    ("4.3", None, "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled"),
    ("4.2", "4.3", "spark.sql.streaming.stateStore.rowChecksum.enabled"),
    ("4.0", "4.2", "spark.sql.streaming.stateStore.encodingFormat"),
    ("3.5", "4.0", "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"),
    ("3.5", "4.0", "spark.databricks.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"),
    ("3.3", "4.0", "spark.sql.streaming.statefulOperator.useStrictDistribution"),
)


@dataclass(frozen=True, slots=True)
class SparkVersions:
    """A range of Spark versions, such as 4.0 up to but without 4.2."""

    at_least: str
    below: str | None
    """None: no version known to us bounds it."""

    def __str__(self) -> str:
        """As a person says it."""
        if self.below is None:
            return f"{self.at_least} or newer"
        return f"{self.at_least} up to before {self.below}"


@dataclass(frozen=True, slots=True)
class ControlBatch:
    """Marks a batch that reads nothing but changes the state, such as an offline repartition (Spark 4.2)."""

    operation: str
    fields: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """The second line of an entry."""

    fields: Mapping[str, Json]
    """All of it, in its order, also what lastgood does not know."""
    text: str = field(compare=False, repr=False)
    """The line itself."""

    @property
    def batch_watermark_ms(self) -> int:
        """Event-time watermark while the batch runs; 0 if there is none yet."""
        return extract_long(self.fields, "batchWatermarkMs") or 0

    @property
    def batch_timestamp_ms(self) -> int:
        """Processing time of the batch, the same when it runs again."""
        return extract_long(self.fields, "batchTimestampMs") or 0

    @property
    def conf(self) -> Mapping[str, str]:
        """The confs that Spark pins for the query; they win over those of the session."""
        conf = self.fields.get("conf")
        known = conf if isinstance(conf, dict) else {}
        texts = {}
        for key, value in known.items():
            if isinstance(value, str):
                texts[key] = value
            elif value is not None:
                texts[key] = to_json(value)
        return MappingProxyType(texts)

    @property
    def control(self) -> ControlBatch | None:
        """Set if this is a control batch; offset log v2 only."""
        info = self.fields.get("controlBatchInfo")
        if not isinstance(info, dict):
            return None
        return ControlBatch(str(info.get("operationType", "")), MappingProxyType(info))

    @property
    def spark_versions(self) -> SparkVersions | None:
        """Which Spark planned the batch; None if the confs do not tell, as in a checkpoint made by hand."""
        conf = self.conf
        return next((SparkVersions(version, below) for version, below, key in _PINNED if key in conf), None)

    @property
    def keeps_commits(self) -> bool:
        """Whether the Spark that planned the batch keeps a commit log; 2.2, the first that does, pins confs as well."""
        return "conf" in self.fields

    def with_fields(self, **changed: Json) -> Self:
        """The same with other fields, by their JSON names; the line is written anew, as Spark writes it."""
        fields = {**self.fields, **changed}
        return type(self)(MappingProxyType(fields), to_json(fields))


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The end offset of one source."""

    source_id: str
    """Name given with `name()`, else the index of the source in the plan: `0`, `1`, …"""
    text: str
    """As it stands in the log."""
    _parsed: SourceOffset | None = field(default=None, compare=False, repr=False)

    @property
    def offset(self) -> SourceOffset:
        """The parsed offset."""
        if self._parsed is not None:
            return self._parsed
        offset = parse_source_offset(self.text)
        if not isinstance(offset, Damage):
            return offset
        return TextOffset(self.text)


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One file of the offset log."""

    version: int
    metadata: BatchMetadata | None
    """None for the empty line that continuous mode writes."""
    sources: tuple[SourceLine, ...]
    raw: bytes | None = field(default=None, compare=False, repr=False)
    """The bytes it was read from, None if it was made or changed."""

    @property
    def batch_watermark_ms(self) -> int:
        """Event-time watermark while the batch runs; 0 if there is none."""
        return self.metadata.batch_watermark_ms if self.metadata else 0

    @property
    def conf(self) -> Mapping[str, str]:
        """The pinned confs; empty where there is no metadata."""
        return self.metadata.conf if self.metadata else {}

    @property
    def topics(self) -> dict[str, Mapping[str, Mapping[int, int]]]:
        """Per Kafka source, by its id, the offset of each topic and partition."""
        return {line.source_id: line.offset.topics for line in self.sources if isinstance(line.offset, KafkaOffset)}

    def source(self, source_id: str) -> SourceLine | None:
        """The line of one source."""
        return next((line for line in self.sources if line.source_id == source_id), None)

    def to_bytes(self) -> bytes:
        """The file as it was read; if it was changed, as Spark writes it (unchanged lines stay as they are)."""
        if self.raw is not None:
            return self.raw
        metadata = self.metadata.text if self.metadata else ""
        if self.version > 1:
            lines = [f"{line.source_id}:{line.text}" for line in self.sources]
        else:
            lines = [line.text for line in self.sources]
        return encode("\n".join([f"v{self.version}", metadata, *lines]))

    def with_source_line(self, source_id: str, offset: SourceOffset | str) -> Self:
        """The same with another end offset for one of its sources.

        Raises:
            KeyError: the entry has no such source.
        """
        if self.source(source_id) is None:
            raise KeyError(source_id)
        if isinstance(offset, str):
            text = offset
        else:
            text = offset.to_text()
        changed = []
        for line in self.sources:
            if line.source_id == source_id:
                changed.append(SourceLine(source_id, text))
            else:
                changed.append(line)
        return dataclasses.replace(self, sources=tuple(changed), raw=None)

    def with_watermark(self, batch_watermark_ms: int) -> Self:
        """The same with another watermark.

        Raises:
            ValueError: the entry has no metadata to hold one.
        """
        return dataclasses.replace(
            self, metadata=self._micro_batch().with_fields(batchWatermarkMs=batch_watermark_ms), raw=None
        )

    def with_conf(self, changed: Mapping[str, str]) -> Self:
        """The same with some pinned confs changed or added.

        Raises:
            ValueError: the entry has no metadata to hold them.
        """
        metadata = self._micro_batch()
        old = metadata.fields.get("conf")
        conf: dict[str, Json] = {**(old if isinstance(old, dict) else {}), **changed}
        return dataclasses.replace(self, metadata=metadata.with_fields(conf=conf), raw=None)

    def _micro_batch(self) -> BatchMetadata:
        if self.metadata is None:
            raise ValueError("an entry of continuous mode has no metadata")
        return self.metadata


def parse_offset_entry(raw: bytes) -> OffsetEntry | Damage:
    """Read one file of the offset log.

    An entry without metadata (v1) is what continuous mode writes: a value here, a damage where a micro-batch is
    expected, which only the whole checkpoint tells.
    """
    log = split_log(raw, newest=VERSION_NEWEST)
    if isinstance(log, Damage):
        return log
    if not log.body:
        return Damage(DamageKind.VERSION_LINE_ONLY, line=2)
    metadata: BatchMetadata | Damage | None = None
    if log.body[0].strip():
        metadata = _parse_metadata(log.body[0])
    elif log.version > 1:
        metadata = Damage(DamageKind.NO_METADATA, line=2)
    if isinstance(metadata, Damage):
        return metadata
    if len(log.body) == 1 and log.version == 1:  # version 2 goes by names, and finds none
        return Damage(DamageKind.NO_SOURCE_LINES, line=3)
    sources = []
    for number, text in enumerate(log.body[1:], start=3):
        source = _parse_source(text, number, named=log.version > 1)
        if isinstance(source, Damage):
            return source
        sources.append(source)
    return OffsetEntry(log.version, metadata, tuple(sources), raw)


def _parse_metadata(text: str) -> BatchMetadata | Damage:
    head, _, rest = text.partition(_CONF)
    times = _TIMES.fullmatch(head)
    pinned = None
    if times and len(rest) < _REMEMBERED_LENGTH_MAX:
        pinned = _parse_pinned(rest)
    if times and pinned:
        known = {"batchWatermarkMs": int(times[1]), "batchTimestampMs": int(times[2]), **pinned}
        return BatchMetadata(MappingProxyType(known), text)
    return _parse_any_metadata(text)


@functools.lru_cache(maxsize=16)
def _parse_pinned(rest: str) -> Mapping[str, Json] | None:
    """What a line holds from its confs on, the same text in many batches; None if it is not as it is to be."""
    found = _parse_any_metadata(_CONF.replace(",", "{", 1) + rest)
    return found.fields if isinstance(found, BatchMetadata) else None


def _parse_any_metadata(text: str) -> BatchMetadata | Damage:
    fields = read_object(text, 2)
    if isinstance(fields, Damage):
        return fields
    conf = fields.get("conf")
    numbers = [extract_long(fields, name) for name in ("batchWatermarkMs", "batchTimestampMs")]
    if None in numbers or not (conf is None or isinstance(conf, dict)):
        return make_damage(DamageKind.UNEXPECTED_JSON, text, 2)
    if conf and not _NESTED.isdisjoint(map(type, conf.values())):
        return make_damage(DamageKind.UNEXPECTED_JSON, to_json(conf), 2)
    return BatchMetadata(MappingProxyType(fields), text)


def _parse_source(text: str, number: int, *, named: bool) -> SourceLine | Damage:
    source_id = str(number - 3)
    if named:
        source_id, colon, text = text.partition(":")
        if not colon:
            return make_damage(DamageKind.NO_SOURCE_ID, source_id, number)
    offset = parse_source_offset(text, number)
    if isinstance(offset, Damage):
        return offset
    return SourceLine(source_id, text, offset)
