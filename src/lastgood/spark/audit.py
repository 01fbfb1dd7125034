"""What the audit job is asked, and what it found, as values; the job itself is `audit_job.py`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.sinks.kind import SinkReader
from lastgood.sinks.kinds import find_traits
from lastgood.sources.kafka.reader import OffsetRange
from lastgood.values import JsonValue, make_form

ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
NAMED_TABLE = "table"
"""Stands for the kind of a sink that the session knows by a name."""
MARK = "lastgood-audit "
"""Begins each line of the job's output that is meant for us."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the sink, and what it was made from."""

    name: str
    expression: str | None = None
    """SQL over the Kafka record. None: the record's own column of that name, else that field of its JSON value."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `NAME` or `NAME=EXPRESSION`.

        Raises:
            UsageError: the name or the expression is empty.
        """
        name, equals, expression = (part.strip() for part in text.partition("="))
        if not name or (equals and not expression):
            raise UsageError(
                "the column is not understood", found=text or "(empty)", expected="NAME or NAME=EXPRESSION"
            )
        return cls(name, expression or None)


@dataclass(frozen=True, slots=True)
class SinkTable(JsonValue):
    """A table that Spark can read."""

    json = make_form("kind location reader=_reader")
    """The object `sink` that the job reads."""

    kind: str
    """A kind of sink that has a reader, such as `delta` or `file` (a folder of Parquet files, with or without
    `_spark_metadata`); or `table` (a name)."""
    location: str

    def __str__(self) -> str:
        """As it can be given to `--sink`."""
        return f"{self.kind}:{self.location}"

    @property
    def _reader(self) -> SinkReader | None:
        """How Spark reads it; None for a name."""
        return find_traits(self.kind).reader


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSpec(JsonValue):
    """One comparison, as the job is asked for it."""

    json = make_form(
        "mark kafka=kafka_options ranges sink keys compare where isolation_level compacted unserved=_is_unserved"
    )
    """The object that the job reads."""
    mark: ClassVar = MARK

    checkpoint: str
    last_committed: int
    """The newest committed batch, which ends the ranges."""
    kafka_options: Mapping[str, str]
    """Options of Spark's Kafka source, `kafka.bootstrap.servers` among them."""
    ranges: tuple[OffsetRange, ...]
    is_start_known: bool
    """False if the checkpoint no longer tells where the query began."""
    sink: SinkTable
    keys: tuple[Column, ...] = ()
    """None: topic, partition and offset, where the sink has them."""
    compare: tuple[Column, ...] = ()
    where: str | None = None
    """SQL over the Kafka record, true for those that the query keeps."""
    isolation_level: str | None = None
    """None: records of aborted transactions are found out and reported apart."""
    compacted: tuple[str, ...] = ()
    """Topics whose `cleanup.policy` contains `compact`."""

    @property
    def is_all_served(self) -> bool:
        """True if every record that the query ever read can still be in Kafka."""
        return self.is_start_known and not any(each.expired for each in self.ranges)

    @property
    def _is_unserved(self) -> bool:
        return not self.is_all_served


@dataclass(frozen=True, slots=True)
class PartitionDifference(JsonValue):
    """Differences of one kind in one topic partition."""

    topic: str
    partition: int
    total: int
    ranges: tuple[tuple[int, int], ...]
    """`[from, to)` in offsets, ascending; the first 100."""
    ranges_left_out: int


@dataclass(frozen=True, slots=True)
class Difference(JsonValue):
    """All differences of one kind."""

    total: int
    """Lost and changed: records. Duplicated: rows too many. Unknown: rows."""
    partitions: tuple[PartitionDifference, ...] = ()
    """Where they are; empty for unknown rows that do not say from which record they are."""
    samples: tuple[Mapping[str, Any], ...] = ()
    """At most ten: `key` (name → value) with topic, partition and offset of the record, or null."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Read the job's answer."""
        partitions = (
            PartitionDifference(**{**each, "ranges": tuple((begin, end) for begin, end in each["ranges"])})
            for each in found["partitions"]
        )
        return cls(found["total"], tuple(partitions), tuple(found["samples"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(JsonValue):
    """Every record that the query has read and Kafka still serves, against the rows of its sink."""

    json = make_form(
        "checkpoint last_committed exact=is_exact keys source=_source sink=_sink lost duplicated changed unknown "
        "aborted=_aborted seconds=_seconds"
    )
    """The object that `--format json` prints; ranges are `[from, to)` in offsets."""

    checkpoint: str
    last_committed: int
    """The newest committed batch: offsets above its end are not expected in the sink."""
    kafka: str
    sink: str
    sink_version: int | None
    """Version of the Delta table that was compared."""
    sink_rows: int
    keys: tuple[str, ...]
    isolation_level: str
    """How the topics were read: `read_committed`, `read_uncommitted`, or `both` to tell aborted records apart."""
    ranges: tuple[OffsetRange, ...]
    source_records: int
    """Records in the compared ranges that must be in the sink."""
    lost: Difference
    """Records that are not in the sink; of several records with one key, the later ones."""
    duplicated: Difference
    """Rows too many: their key is more often in the sink than in the source."""
    changed: Difference
    """Records whose key is in the sink with other values."""
    unknown: Difference
    """Rows whose key no record has."""
    aborted_records: int
    """Records of aborted transactions; neither lost nor duplicated."""
    aborted_rows: int
    """Rows that were made from them."""
    rows_before: int
    """Rows of offsets before the compared ranges."""
    rows_after: int
    """Rows of offsets after the newest committed batch."""
    rows_not_verifiable: int
    """Rows whose record may be one that Kafka has deleted or compacted away."""
    seconds: float

    @property
    def is_exact(self) -> bool:
        """True if nothing is lost, duplicated, changed or unknown."""
        return not any(difference.total for _, difference in self.differences())

    @property
    def source_offsets(self) -> int:
        """How many offsets were compared; a transaction's markers are offsets without a record."""
        return sum(each.served for each in self.ranges)

    def differences(self) -> Iterator[tuple[str, Difference]]:
        """Kind and differences, worst first."""
        for kind in ("lost", "duplicated", "changed", "unknown"):
            yield kind, getattr(self, kind)

    @classmethod
    def of(cls, result: Mapping[str, Any], spec: AuditSpec, *, seconds: float) -> Self:
        """Read the job's answer."""
        return cls(
            checkpoint=spec.checkpoint,
            last_committed=spec.last_committed,
            kafka=spec.kafka_options["kafka.bootstrap.servers"],
            sink=str(spec.sink),
            sink_version=result["sink_version"],
            sink_rows=result["sink_rows"],
            keys=tuple(result["keys"]),
            isolation_level=result["isolation_level"],
            ranges=spec.ranges,
            source_records=result["source_records"],
            lost=Difference.of(result["lost"]),
            duplicated=Difference.of(result["duplicated"]),
            changed=Difference.of(result["changed"]),
            unknown=Difference.of(result["unknown"]),
            aborted_records=result["aborted"]["records"],
            aborted_rows=result["aborted"]["in_sink"],
            rows_before=result["outside"]["before"],
            rows_after=result["outside"]["after"],
            rows_not_verifiable=result["not_verifiable"],
            seconds=seconds,
        )

    @property
    def _source(self) -> dict[str, Any]:
        return {
            "kafka": self.kafka,
            "isolation_level": self.isolation_level,
            "offsets": self.source_offsets,
            "records": self.source_records,
            "compared": _group_by_topic((each, each.begin, each.end) for each in self.ranges),
            "not_served": _group_by_topic((each, each.start, each.begin) for each in self.ranges),
        }

    @property
    def _sink(self) -> dict[str, Any]:
        return {
            "table": self.sink,
            "version": self.sink_version,
            "rows": self.sink_rows,
            "rows_before": self.rows_before,
            "rows_after": self.rows_after,
            "rows_not_verifiable": self.rows_not_verifiable,
        }

    @property
    def _aborted(self) -> dict[str, int]:
        return {"records": self.aborted_records, "in_sink": self.aborted_rows}

    @property
    def _seconds(self) -> float:
        return round(self.seconds, 1)


def _group_by_topic(ranges: Iterable[tuple[OffsetRange, int, int]]) -> dict[str, dict[str, list[list[int]]]]:
    """Topic → partition → ranges; empty ones are left out."""
    found: dict[str, dict[str, list[list[int]]]] = {}
    for each, begin, end in ranges:
        if begin < end:
            found.setdefault(each.topic, {}).setdefault(str(each.partition), []).append([begin, end])
    return found


def parse_columns(texts: Sequence[str]) -> tuple[Column, ...]:
    """Read `--key` or `--compare`, in their order.

    Raises:
        UsageError: one is not understood, or names a column again.
    """
    columns = tuple(Column.parse(text) for text in texts)
    names = [column.name.lower() for column in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError("a column is named twice", found=twice, expected="each column once")
    return columns
