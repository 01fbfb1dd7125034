"""Constructed worlds (logs x sink x Kafka x times): what is promised in each, held against what Spark would do in it.

Each world has a truth that no verb is told: which records stand in the sink, and of which topic. The verbs see what a
sink, a broker and the logs would show of it. Then the plan is carried out and the query runs on as Spark does, and
every record is counted.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from planning import carried_out, read
from rotated import ALL, rotated

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.diagnosis.engine import diagnose as judge
from lastgood.diagnosis.findings import Severity
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.planner import draft
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts, TopicFacts
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, KafkaInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
TOPIC = "orders"
PER_BATCH, COMMITTED, PRODUCED = 5, 3, 30
"""Each batch reads five records; three are committed; there are thirty."""
ORPHAN_MS = STARTED_MS + 1000 * COMMITTED
OLD, NEW = "id-old", "id-new"
LOSS = {
    "SINK_WOULD_SKIP",
    "SINK_WOULD_REPEAT",
    "SINK_ROLLED_BACK",
    "SINK_BEHIND",
    "SINK_BATCHES_SKIPPED",
    "SINK_BATCHES_MISSING",
    "SOURCE_RANGE_EXPIRED",
    "SOURCE_TOPIC_RECREATED",
    "SOURCE_TOPIC_GONE",
    "SOURCE_PARTITIONS_GONE",
    "SOURCE_OFFSET_WENT_BACK",
    "ORPHAN_UNREPLAYABLE",
}
"""What is found where something is, or will be, lost or written twice."""


@dataclass(frozen=True)
class Truth:
    """One world."""

    orphan: str
    """`none`, `planned`; `anew`: somebody had dropped an older plan of that number, which the sink holds."""
    sink: str
    """`has` the newest plan (the older one, if it was planned anew), `lacks` it; `skipped`: it dropped batch 2 before,
    since it had it of an older plan."""
    older_end: int
    """Where the older plan ended."""
    age_ms: int | None
    """How much older than the plan the sink's commit of the older one is; None: nobody can tell."""
    kind: str
    earliest: int
    """What Kafka has deleted."""
    topic: str
    """`same`; `ahead`: the same, whose newest records have a clock that is ahead; `soon`, `late`: deleted, and created
    again two seconds or half an hour after the last batch."""
    ids: str
    """`none`, `recorded`."""
    is_asked: bool


def worlds() -> Iterator[Truth]:
    logs = [("none", "has"), ("none", "skipped"), ("planned", "has"), ("planned", "lacks"), ("anew", "has")]
    for (orphan, sink), topic in itertools.product(logs, ("same", "ahead", "soon", "late")):
        is_older = "skipped" in sink or orphan == "anew"
        ages = (1, 2000, 600_000) if is_older else (500,)
        ages += (None,) if orphan == "anew" else ()  # that it happened before nobody can tell then
        ends = (17, 20, 24) if orphan == "anew" else (13,)
        kafkas = [(0, "none", True), (15, "none", True), (18, "none", True), (0, "none", False), (0, "recorded", True)]
        for age_ms, older_end, kind, (earliest, ids, is_asked) in itertools.product(
            ages, ends, ("delta", "file"), kafkas
        ):
            is_untold = earliest > 0 or not is_asked  # nothing is left, or nobody is asked, that could tell
            if not (topic in ("soon", "late") and is_untold):
                yield Truth(orphan, sink, older_end, age_ms, kind, earliest, topic, ids, is_asked)


Record = tuple[str, int]
"""Which topic, and the offset."""


class Place:
    """One world, built: its checkpoint on disk, and what stands around it."""

    def __init__(self, folder: Path, truth: Truth) -> None:
        self.folder, self.truth = folder, truth
        builder = CheckpointBuilder(folder, KafkaInput(TOPIC, 1, PER_BATCH))
        builder.run(COMMITTED)
        if truth.orphan != "none":
            builder.plan()
        self.is_new = truth.topic in ("soon", "late")
        self.rows: Counter[Record] = Counter()
        self.mark = COMMITTED - 1
        self.held: dict[int, tuple[range, int | None]] = {}
        for number in range(COMMITTED):
            self._hold(number, range(number * PER_BATCH, (number + 1) * PER_BATCH), 500)
        if truth.sink == "skipped":  # batch 2 is [10, 15) by its plan, and the sink has the older [10, 13)
            self._hold(COMMITTED - 1, range(10, truth.older_end), None if truth.age_ms is None else -truth.age_ms)
        if truth.orphan != "none" and truth.sink == "has":
            end = truth.older_end if truth.orphan == "anew" else 20
            after = 500 if truth.orphan == "planned" else None if truth.age_ms is None else -truth.age_ms
            self._hold(COMMITTED, range(15, end), after)
            self.mark = COMMITTED
        for span, _ in self.held.values():
            self.rows.update(("old", offset) for offset in span)

    def _hold(self, number: int, span: range, after_ms: int | None) -> None:
        self.held[number] = span, None if after_ms is None else STARTED_MS + 1000 * number + after_ms

    @property
    def produced(self) -> set[Record]:
        """All that was ever written; what nobody had read of an old topic is gone, which has to be said."""
        old = {("old", offset) for offset in range(PRODUCED)}
        return old | ({("new", offset) for offset in range(PRODUCED)} if self.is_new else set())

    def sink(self) -> SinkEvidence:
        is_delta = self.truth.kind == "delta"
        batches = tuple(
            CommittedBatch(n, n if is_delta else None, row_count=len(span) if is_delta else None, committed_at_ms=at_ms)
            for n, (span, at_ms) in self.held.items()
        )
        return SinkEvidence(
            self.truth.kind,
            "/lake/out",
            DedupeKey.QUERY_ID if is_delta else DedupeKey.DIRECTORY,
            self.mark,
            known=True,
            because="its log",
            skips_up_to=self.mark,
            batches=tuple(replace(each, is_streaming=True) for each in batches),
            complete_from=0,
            times_by_driver=True,
            log_names=() if is_delta else tuple(map(str, self.held)),
        )

    def kafka(self) -> KafkaFacts | None:
        truth = self.truth
        if not truth.is_asked:
            return None
        last_ms = STARTED_MS + 1000 * (COMMITTED - 1)
        first = {
            "same": FoundRecord(15, last_ms + 100),
            "ahead": FoundRecord(14, last_ms + 100),
            "soon": FoundRecord(truth.earliest, last_ms + 2000),
            "late": FoundRecord(truth.earliest, last_ms + 1_800_000),
        }[truth.topic]
        if truth.earliest > (first.offset or 0):
            first = replace(first, offset=truth.earliest)
        topic = TopicFacts(NEW if self.is_new else OLD, {0: PartitionFacts(truth.earliest, PRODUCED)}, {})
        before = {TOPIC: OLD} if truth.ids == "recorded" else {}
        return KafkaFacts("broker:9092", 1, {TOPIC: topic}, {last_ms + 1: {TOPIC: {0: first}}}, topic_ids_before=before)

    def observed(self) -> Observation:
        return Observation(read(self.folder), location="/chk", sinks=(self.sink(),), kafka=self.kafka())

    def run_on(self, found: Draft) -> Counter[Record] | None:
        """What stands in the sink when the plan is carried out and the query has caught up; None if Spark fails."""
        for edit in found.sinks:
            for number in [n for n in self.held if n > edit.batch]:
                self.rows.subtract(("old", offset) for offset in self.held.pop(number)[0])
            self.mark = edit.batch
        checkpoint = carried_out(self.folder, found)
        planned, committed = checkpoint.last_planned, checkpoint.last_committed
        assert planned is not None
        at = self._end(checkpoint.offsets.entries[planned])
        if planned != committed:
            before = self._end(checkpoint.offsets.entries[planned - 1]) if planned else 0
            if not self._write(planned, range(before, at)):
                return None
        return self.rows if self._write(planned + 1, range(at, PRODUCED)) else None

    def _write(self, number: int, span: range) -> bool:
        """Spark runs one batch: the sink takes it or skips it; False if Kafka no longer has all of it."""
        if number <= self.mark:
            return True
        if span and span.start < self.truth.earliest:
            return False
        self.mark = number
        self.rows.update(("new" if self.is_new else "old", offset) for offset in span)
        return True

    @staticmethod
    def _end(entry: object) -> int:
        assert isinstance(entry, OffsetEntry)
        offset = entry.sources[0].offset
        assert isinstance(offset, KafkaOffset)
        return offset.topics[TOPIC][0]


GOALS: tuple[Goal, ...] = (ResumeGoal(), ReplanGoal(), RepositionGoal({}, "it stands"))


def _name(truth: Truth) -> str:
    return f"{truth.orphan}-{truth.sink}-{truth.kind}-{truth.topic}"


GROUPS = sorted({_name(truth) for truth in worlds()})


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("goals", [1, pytest.param(ALL, marks=pytest.mark.proof)])
def test_what_is_promised_is_what_comes(tmp_path: Path, group: str, goals: int) -> None:
    wrong: list[str] = []
    worlds_of_it = (each for each in worlds() if _name(each) == group)
    for number, (truth, asked) in enumerate(rotated(worlds_of_it, GOALS, goals)):
        for goal in asked:
            wrong += _wrong_promises(tmp_path / f"{number}-{goal.name}", truth, goal)
    assert wrong == []


def _wrong_promises(folder: Path, truth: Truth, goal: Goal) -> Iterator[str]:
    place = Place(folder, truth)
    observed = place.observed()
    try:
        found = draft(observed, goal, SPARK_4_2)
    except RepairRefusedError:
        return
    told = f"{truth}: {goal.name} is {found.guarantee.value}"
    errors = {each.condition.name for each in judge(observed, SPARK_4_2).findings if each.severity is Severity.ERROR}
    if found.is_plain and found.guarantee is EXACT and errors & LOSS:
        yield f"{told}, and there is {sorted(errors & LOSS)}"
    if found.guarantee is EXACT and any("though" in line for line in found.rests_on):
        yield f"{told}, and rests on {found.rests_on}"
    rows = place.run_on(found)
    if rows is None:
        return  # Spark says so
    lost = {record for record in place.produced if rows[record] < 1}
    twice = {record for record, count in rows.items() if count > 1}
    if found.guarantee is not LOSSY and lost:
        yield f"{told}, and lost {sorted(lost)}"
    if found.guarantee is EXACT and twice:
        yield f"{told}, and doubled {sorted(twice)}"
    priced = {
        offset
        for price in found.sources
        for spans in price.duplicated.get(TOPIC, {}).values()
        for start, end in spans
        for offset in range(start, end)
    }
    unpriced = {offset for _, offset in twice} - priced
    if found.guarantee is TWICE and truth.is_asked and unpriced:
        yield f"{told}, and doubled {sorted(unpriced)} beyond its price {sorted(priced)}"
