"""What advice rests on beside the logs: where the checkpoint lies, how its query was seen to run. Values only. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from lastgood.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatch:
    """A committed batch as a recorder saw it; None where it was not told."""

    batch_id: int
    run_id: str | None = None
    query_id: str | None = None
    trigger_at_ms: int | None = None
    duration_ms: int | None = None
    rows: int | None = None
    offsets: int | None = None
    """How many Kafka offsets it read, of all topics."""
    behind: int | None = None
    """How many Kafka offsets were there and were left for later batches."""
    has_watermark: bool = False
    """Whether the query defines a watermark, be it that it never moved."""
    state_rows: int | None = None
    state_bytes: int | None = None
    """What all state stores took in memory."""
    recorded_at_ms: int | None = None
    """When the recorder wrote that down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One start of a query, as far as the newest records tell; times are those of the records."""

    run_id: str
    query_id: str | None
    first_ms: int
    """First sign of its life."""
    last_ms: int
    """Last sign of its life: its start, or a batch."""
    conflict_ms: int | None = None
    """When Spark ended it because another query wrote the same log; None if that did not happen."""
    spark: str | None = None
    """The version of Spark that ran it."""


@dataclass(frozen=True, slots=True)
class TableAround:
    """A table in whose folder the checkpoint lies."""

    location: str
    kind: str
    """`delta`, `file` (a file sink's folder) or `iceberg`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceFacts:
    """What was found out to give advice; by default nothing is known, and no advice rests on it."""

    filesystem: str | None = None
    """Kind of the file system, as the system mounts it (`ext4`); None unless it is one of this machine's own disks."""
    table: TableAround | None = None
    metadata_modified_ms: int | None = None
    """When the checkpoint's `metadata` was written; None if it was not asked."""
    oldest_plan_modified_ms: int | None = None
    """When the oldest file of the offset log was written; None if it was not asked."""
    query_ids: tuple[str, ...] = ()
    """The ids that the checkpoint was seen with, in the order of time; neighbours differ."""
    batches: tuple[RecordedBatch, ...] = ()
    """The newest recorded ones, oldest first."""
    runs: tuple[RecordedRun, ...] = ()
    """Those of the same records, oldest first."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids that the topics have of which the offsets of the query are, as far as anybody has written them down."""
    subscriptions: tuple[str, ...] = ()
    """How the newest recorded batch reads Kafka: `subscribe`, `subscribe_pattern`, `assign`; empty: not recorded."""
    kafka_sources: int | None = None
    """How many sources of the newest recorded batch are Kafka; None: not recorded."""
    is_stateful: bool = False
    """Whether a recorded batch had stateful operators."""
    repaired_at_ms: int | None = None
    """When the newest recovery was begun: what was recorded before it tells nothing of the logs; None without one."""
    max_downtime_ms: int | None = None
    """How long the query may be down without losing anything; None if nobody said."""
    spark: str | None = None
    """The version that is to start the query, such as `4.2`; None if nobody said."""
