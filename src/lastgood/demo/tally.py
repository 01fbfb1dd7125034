"""Every record that was ever sent, against the rows of the table; and what was said of it beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from lastgood.audit.spark_job import run_audit
from lastgood.demo.stage import TOPIC, DemoStage
from lastgood.frozen import dataclass
from lastgood.sources.kafka.ranges import Ranges, count_offsets, intersect, ranges_to_json, unite
from lastgood.sources.kafka.reader import OffsetRange
from lastgood.spark.audit import Audit, AuditSpec, Difference, SinkTable, parse_columns
from lastgood.values import JsonValue, make_form

ARCHIVE = f"{TOPIC}-archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One range that was said to differ, or does."""

    kind: str
    """`lost` or `doubled`."""
    partition: int
    start: int
    end: int
    said: int
    """How many of its offsets were said to differ so."""
    counted: int
    """How many do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTally(JsonValue):
    """What was said, and what was counted."""

    json = make_form("as_said=is_as_said exact=_exact sent said=_said counted=_counted audit")
    """Both, per topic and partition, as `[from, to)` in offsets."""

    sent: int
    """Records that were ever sent to the topic."""
    audit: Audit
    said_lost: Ranges = field(default_factory=dict)
    said_doubled: Ranges = field(default_factory=dict)

    @property
    def lost(self) -> Ranges:
        """The offsets of which no row is in the table."""
        return _collect_ranges(self.audit.lost)

    @property
    def doubled(self) -> Ranges:
        """The offsets of which more than one row is in the table."""
        return _collect_ranges(self.audit.duplicated)

    @property
    def is_as_said(self) -> bool:
        """Whether all that was sent was counted, and is there once, but for exactly what was said."""
        audit = self.audit
        return (
            audit.source_records == self.sent
            and not (audit.changed.total or audit.unknown.total)
            and _is_just(audit.lost, self.said_lost)
            and _is_just(audit.duplicated, self.said_doubled)
        )

    def compare(self) -> Iterator[Compared]:
        """Every range that was said to differ, or does, by kind and partition."""
        kinds = {"lost": (self.said_lost, self.lost), "doubled": (self.said_doubled, self.doubled)}
        for kind, (told, counted) in kinds.items():
            for partition, spans in sorted(unite(told, counted).get(TOPIC, {}).items()):
                for start, end in spans:
                    here: Ranges = {TOPIC: {partition: ((start, end),)}}
                    both = [count_offsets(intersect(each, here)) for each in (told, counted)]
                    yield Compared(kind=kind, partition=partition, start=start, end=end, said=both[0], counted=both[1])

    @property
    def _exact(self) -> bool:
        return self.audit.is_exact and self.audit.source_records == self.sent

    @property
    def _said(self) -> dict[str, Any]:
        return {"lost": ranges_to_json(self.said_lost), "doubled": ranges_to_json(self.said_doubled)}

    @property
    def _counted(self) -> dict[str, Any]:
        return {"lost": ranges_to_json(self.lost), "doubled": ranges_to_json(self.doubled)}


def count(
    stage: DemoStage,
    *,
    lost: Ranges | None = None,
    doubled: Ranges | None = None,
    progress: Callable[[str], None] | None = None,
) -> DemoTally:
    """Compare every record that was ever sent with the table, by a Spark job; everything has to be settled.

    Args:
        stage: Where it all happened.
        lost: What was said to be lost.
        doubled: What was said to come twice, each offset once.
        progress: Is told, in a few words, what is being done.

    Raises:
        AuditFailedError: the Spark job failed.
        DemoFailedError: records of which Kafka has deleted some cannot be sent once more.
    """
    topic = TOPIC
    if any(stage.broker.earliest_offsets(TOPIC).values()):
        topic = ARCHIVE
        stage.send_again(topic)
    ends = stage.committed()
    spec = AuditSpec(
        checkpoint=str(stage.checkpoint),
        last_committed=stage.application.progress.committed or 0,
        kafka_options={"kafka.bootstrap.servers": stage.broker.bootstrap},
        ranges=tuple(OffsetRange("0", topic, each, 0, 0, end) for each, end in sorted(ends.items())),
        is_start_known=True,
        sink=SinkTable("delta", str(stage.table)),
        keys=parse_columns(["id"]),
        compare=parse_columns(["partition", "offset"]),
    )
    audit = run_audit(spec, progress=progress)
    return DemoTally(sent=stage.sent, audit=audit, said_lost=lost or {}, said_doubled=doubled or {})


def _collect_ranges(found: Difference) -> Ranges:
    if not found.partitions:
        return {}
    return {TOPIC: {each.partition: each.ranges for each in found.partitions}}


def _is_just(found: Difference, said: Ranges) -> bool:
    """Whether the differences are those offsets, each once."""
    is_whole = not any(each.ranges_left_out for each in found.partitions)
    return (
        is_whole
        and found.total == count_offsets(said)
        and ranges_to_json(_collect_ranges(found)) == ranges_to_json(said)
    )
