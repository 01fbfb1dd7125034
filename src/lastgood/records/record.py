"""The records of a recorder, field by field. Pure; knows nothing of Spark but its words.

A record is one JSON object; in a file, one line. `kind` tells which class it is. Fields that are not known are left out
when a record is read, fields that are missing are None, so that older and newer recorders can be read.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

FORMAT_VERSION = 1
"""In each record as `format_version`."""
_LONG_END = 2**63
_TIME_MS_END = 253_402_214_400_000
TEMPORARY_CHECKPOINT = "temporary-"
"""Begins the name of a folder that Spark makes up where the application names no checkpoint; it outlives no query."""


@functools.cache
def _kinds_of(cls: type) -> Mapping[str, Any]:
    """The types of the fields that a JSON object may have."""
    hints = typing.get_type_hints(cls)
    return {each.name: hints[each.name] for each in dataclasses.fields(cls)}


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value is of the type of its field: who writes beside a checkpoint may write down anything."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(each, value) for each in arguments)
    if origin is Mapping:
        return isinstance(value, dict) and all(_fits(arguments[1], each) for each in value.values())
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(arguments[0], each) for each in value)
    if origin is typing.Literal:
        return isinstance(value, str)  # a newer recorder may know more of them
    if kind is int:
        return type(value) is int and abs(value) < _LONG_END
    return kind is Any or isinstance(value, kind)


def _is_no_time(name: str, value: Any) -> bool:
    """Whether it is to be a time, or how long something took, and lies beyond the year 9999."""
    return name.endswith("_ms") and isinstance(value, int) and abs(value) >= _TIME_MS_END


def _texts(told: Any) -> Any:
    """Metrics, which are whatever a source or sink makes of them."""
    return {name: each if isinstance(each, str) else str(each) for name, each in told.items()}


class _FromJson:
    """Reading a value from its JSON: each field from the key of its name."""

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The value that `told` stands for.

        Raises:
            TypeError, ValueError, AttributeError: it stands for none.
        """
        kinds = _kinds_of(cls)  # type: ignore[arg-type]  # a class can be hashed
        read = {name: cls._read(name, value) for name, value in told.items() if name in kinds}
        wrong = [name for name, value in read.items() if not _fits(kinds[name], value) or _is_no_time(name, value)]
        if wrong:
            raise ValueError(f"{cls.__name__}: {', '.join(wrong)}")
        return cls(**read)

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        del name
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(_FromJson):
    """What a Kafka source reads."""

    kind: Literal["subscribe", "subscribe_pattern", "assign"]
    value: str
    """Topics, pattern or partitions, as Spark shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(_FromJson):
    """One source in one batch. Offsets are Spark's JSON values: an object, a number, a text, or None."""

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

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name == "metrics":
            return _texts(value)
        return Subscription.from_json(value) if name == "subscription" and value is not None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOperator(_FromJson):
    """One stateful operator in one batch."""

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
class Sink(_FromJson):
    """The sink in one batch."""

    description: str | None = None
    num_output_rows: int | None = None
    """None where the sink does not tell."""
    metrics: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        return _texts(value) if name == "metrics" else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(_FromJson):
    """One exception of a chain."""

    language: Literal["java", "python"]
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
class Failure(_FromJson):
    """Why something ended, or did not start."""

    condition: str | None = None
    """Spark's name of it: of the query's end, else of the innermost cause that has one; never `STREAM_FAILED`."""
    message: str | None = None
    """Of the outermost exception."""
    causes: tuple[Cause, ...] = ()
    """Outermost first, through Java and Python alike."""
    start_offsets: tuple[Any, ...] = ()
    """Per source, where the failed batch begins; empty where nobody told."""
    end_offsets: tuple[Any, ...] = ()

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name == "causes":
            return tuple(Cause.from_json(each) for each in value)
        return tuple(value) if name in {"start_offsets", "end_offsets"} else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(_FromJson):
    """What all records have."""

    kind: ClassVar[str]

    recorded_at_ms: int
    """When the event reached the recorder, milliseconds since 1970, as all times here."""
    query_id: str | None = None
    run_id: str | None = None
    query_name: str | None = None
    checkpoint: str | None = None
    """As Spark names it (`file:/data/chk`); None where Spark does not tell."""

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if value is None:
            return None
        if name == "failure":
            return Failure.from_json(value)
        if name == "sink":
            return Sink.from_json(value)
        if name == "sources":
            return tuple(Source.from_json(each) for each in value)
        return tuple(StateOperator.from_json(each) for each in value) if name == "state_operators" else value

    def to_json(self) -> dict[str, Any]:
        """The object that a line of a record file holds."""
        return {"kind": self.kind, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Record):
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
    sources: tuple[Source, ...] = ()
    state_operators: tuple[StateOperator, ...] = ()
    sink: Sink = field(default_factory=Sink)

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
    failure: Failure | None = None
    """None if it was stopped, or was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed(Record):
    """`start` raised an exception: there was no query. `query_id` is None."""

    kind = "start_failed"
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(Record):
    """An exception that nobody caught ended the driver; `query_id` and `run_id` tell if it was the end of a query."""

    kind = "crashed"
    failure: Failure


_KINDS: Mapping[str, type[Record]] = {each.kind: each for each in (Started, Progress, Terminated, StartFailed, Crashed)}


def record_from_json(told: object) -> Record | None:
    """The record that a JSON value stands for; None for one that nobody knows, of a newer recorder, say."""
    if not isinstance(told, Mapping):
        return None
    try:
        return _KINDS[told["kind"]].from_json(told)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
