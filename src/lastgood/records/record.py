"""The records of a recorder, field by field. Pure; knows nothing of Spark but its words.

A record is one JSON object; in a file, one line. `kind` tells which class it is. Fields that are not known are left out
when a record is read, fields that are missing are None, so that older and newer recorders can be read.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, Literal, TypeAlias

from lastgood.frozen import dataclass
from lastgood.values import Codec, ShapeError, make_form, to_json

FORMAT_VERSION = 1
"""In each record as `format_version`."""
_LONG_END = 2**63
_TIME_MS_END = 253_402_214_400_000
TEMPORARY_CHECKPOINT = "temporary-"
"""Begins the name of a folder that Spark makes up where the application names no checkpoint; it outlives no query."""


def _parse_number(told: Any) -> int:
    if type(told) is not int or abs(told) >= _LONG_END:
        raise ShapeError(told, "number of 64 bits")
    return told


def _parse_word(told: Any) -> str:
    """One of some words; a newer recorder may know more of them."""
    if not isinstance(told, str):
        raise ShapeError(told, "word")
    return told


_SubscriptionKind: TypeAlias = Literal["subscribe", "subscribe_pattern", "assign"]
_Language: TypeAlias = Literal["java", "python"]
_CODEC: Final = Codec({int: _parse_number, _SubscriptionKind: _parse_word, _Language: _parse_word})


def _require_times(value: Any) -> None:
    """See that what is to be a time, or how long something took, lies within the years up to 9999."""
    for name in _list_time_names(type(value)):  # type: ignore[arg-type]  # a class can be hashed
        time_ms = getattr(value, name)
        if isinstance(time_ms, int) and abs(time_ms) >= _TIME_MS_END:
            raise ValueError(f"{name} is {time_ms}")


@functools.cache
def _list_time_names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind) if each.name.endswith("_ms"))


def _make_texts(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metrics are whatever a source or sink makes of them."""
    metrics = told.get("metrics")
    if not isinstance(metrics, dict):
        return told
    return {**told, "metrics": {name: str(each) for name, each in metrics.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a Kafka source reads."""

    kind: _SubscriptionKind
    value: str
    """Topics, pattern or partitions, as Spark shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSource:
    """One source in one batch. Offsets are Spark's JSON values: an object, a number, a text, or None."""

    json = make_form(prepare=_make_texts, check=_require_times)

    description: str
    subscription: Subscription | None = None
    """None unless it is Kafka."""
    start_offset: Any = None
    """None in the first batch of a query."""
    end_offset: Any = None
    latest_offset: Any = None
    """The source's newest, as it was when the batch was planned; None where the source does not tell."""
    num_input_rows: int | None = None
    topic_ids: Mapping[str, str | None] | None = None
    """Topic → id, as the broker said last; None if it was not asked or did not say.

    Base64 as in confluent-kafka and `KafkaFacts`; Kafka's own tools write `-` and `_` for its `+` and `/`.
    """
    topic_ids_at_ms: int | None = None
    """When it said so: with the same id before and after a batch, the batch is of that topic."""
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOperator:
    """One stateful operator in one batch."""

    json = make_form(check=_require_times)

    operator_name: str
    num_rows_total: int | None = None
    num_rows_updated: int | None = None
    num_rows_removed: int | None = None
    num_rows_dropped_by_watermark: int | None = None
    """Late rows that were left out."""
    memory_used_bytes: int | None = None
    num_shuffle_partitions: int | None = None
    num_state_store_instances: int | None = None
    commit_time_ms: int | None = None
    custom_metrics: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSink:
    """The sink in one batch."""

    json = make_form(prepare=_make_texts)

    description: str | None = None
    num_output_rows: int | None = None
    """None where the sink does not tell."""
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedException:
    """One exception of a chain."""

    language: _Language
    class_name: str | None = None
    """With its package or module; None where only a text is known."""
    condition: str | None = None
    """Spark's name of the error, such as `KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE`."""
    message: str = ""
    """At most 65,536 characters."""
    message_parameters: Mapping[str, str] = field(default_factory=dict)
    traceback: str | None = None
    """Of a Python exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFailure:
    """Why something ended, or did not start."""

    condition: str | None = None
    """Spark's name of it: of the query's end, else of the innermost cause that has one; never `STREAM_FAILED`."""
    message: str | None = None
    """Of the outermost exception."""
    causes: tuple[ChainedException, ...] = ()
    """Outermost first, through Java and Python alike."""
    start_offsets: tuple[Any, ...] = ()
    """Per source, where the failed batch begins; empty where nobody told."""
    end_offsets: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What all records have."""

    json = make_form(check=_require_times)

    kind: ClassVar[str]

    recorded_at_ms: int
    """When the event reached the recorder, milliseconds since 1970, as all times here."""
    query_id: str | None = None
    run_id: str | None = None
    query_name: str | None = None
    checkpoint: str | None = None
    """As Spark names it (`file:/data/chk`); None where Spark does not tell."""

    def to_json(self) -> dict[str, Any]:
        """The object that a line of a record file holds."""
        fields = {each.name: to_json(getattr(self, each.name)) for each in dataclasses.fields(self)}
        return {"kind": self.kind, "format_version": FORMAT_VERSION, **fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStarted(Record):
    """A run of a query began."""

    kind = "started"
    started_at_ms: int | None = None
    """None if it ran already when recording began."""
    spark_version: str | None = None
    application_id: str | None = None
    """None with Spark Connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Record):
    """A batch was committed."""

    kind = "progress"
    batch_id: int
    trigger_at_ms: int | None = None
    batch_duration_ms: int | None = None
    duration_ms: Mapping[str, int] = field(default_factory=dict)
    """Per phase, in Spark's words: `latestOffset`, `walCommit`, `addBatch`, …"""
    num_input_rows: int | None = None
    batch_watermark_ms: int | None = None
    """The watermark that held in this batch; None without one."""
    event_time_min_ms: int | None = None
    event_time_max_ms: int | None = None
    event_time_avg_ms: int | None = None
    sources: tuple[RecordedSource, ...] = ()
    state_operators: tuple[RecordedOperator, ...] = ()
    sink: RecordedSink = field(default_factory=RecordedSink)

    @property
    def num_rows_dropped_by_watermark(self) -> int:
        """Late rows that the operators left out."""
        return sum(each.num_rows_dropped_by_watermark or 0 for each in self.state_operators)

    @property
    def num_state_rows(self) -> int:
        """Rows in all state stores."""
        return sum(each.num_rows_total or 0 for each in self.state_operators)

    @property
    def state_memory_used_bytes(self) -> int:
        """What all state stores take."""
        return sum(each.memory_used_bytes or 0 for each in self.state_operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminated(Record):
    """A run of a query ended."""

    kind = "terminated"
    batch_id: int | None = None
    """The batch that it was at; None before the first, and with Spark Connect."""
    failure: RecordedFailure | None = None
    """None if it was stopped, or was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed(Record):
    """`start` raised an exception: there was no query. `query_id` is None."""

    kind = "start_failed"
    failure: RecordedFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(Record):
    """An exception that nobody caught ended the driver; `query_id` and `run_id` tell if it was the end of a query."""

    kind = "crashed"
    failure: RecordedFailure


_KINDS: Mapping[str, type[Record]] = {
    each.kind: each for each in (QueryStarted, Progress, Terminated, StartFailed, Crashed)
}


def parse_record(told: object) -> Record | None:
    """The record that a JSON value stands for; None for one that nobody knows, of a newer recorder, say."""
    if not isinstance(told, Mapping):
        return None
    try:
        found: Record = _CODEC.read(_KINDS[told["kind"]], told)
    except (KeyError, TypeError, ValueError):
        return None
    return found
