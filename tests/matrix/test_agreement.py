"""Every pattern of plans and commits of four batches, held against what a sink shows and a broker serves.

The query of each world has planned four batches; whatever of its logs is missing, somebody removed, and the sink has
come as far as it has. What the verbs say of the world (findings, grade, every plan) is held against what then comes:
the query is started as it stands, and once more for each plan, and every record is counted.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from planning import carried_out, delta, fence, files, read, silent, written_ms

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset
from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade, choose_grade
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.planner import draft
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts, TopicFacts
from lastgood.sources.kafka.ranges import Ranges
from lastgood.testing.checkpoints import CheckpointBuilder, KafkaInput

TOPIC = "orders"
BATCHES, PER_BATCH, PRODUCED = 4, 5, 30


def overwritten(last: int | None) -> SinkEvidence:
    """A Delta table whose rows somebody has replaced by fewer: nobody knows which it lacks."""
    found = delta(last, unclear="its rows were replaced by fewer")
    return replace(found, batches=tuple(replace(each, is_live=None) for each in found.batches))


def remade(last: int | None) -> SinkEvidence:
    """A Delta table that was dropped and created again after batch 1, by a clock that is near that of the driver."""
    found = delta(last, created_at_ms=written_ms(1) + 100)
    return replace(found, batches=tuple(each for each in found.batches if each.batch_id > 1))


def unnamed(last: int | None) -> SinkEvidence:
    """A Delta table that a function writes under a name which nobody gave; another query writes there as well."""
    if last is None:
        return delta(None)
    others = {"etl": last, "11111111-2222-3333-4444-555555555555": 9}
    return delta(None, batches=(), others=others, others_at_ms={"etl": written_ms(last)})


def presumed(last: int | None) -> SinkEvidence:
    """The same, where it is the only name in the table."""
    if last is None:
        return delta(None)
    found = delta(last, presumed_app_id="etl", app_id="etl", marked_at_ms=written_ms(last))
    batches = tuple(replace(each, is_streaming=False) for each in found.batches)
    return replace(found, dedupe_key=DedupeKey.APP_ID, batches=batches)


def function(last: int | None) -> SinkEvidence:
    """The same, where somebody gave it."""
    return replace(presumed(last), presumed_app_id=None)


KINDS: dict[str, Callable[[Any], SinkEvidence] | None] = {
    "delta": delta,
    "file": files,
    "fence": fence,
    "silent": None,
    "overwritten": overwritten,
    "remade": remade,
    "unnamed": unnamed,
    "presumed": presumed,
    "function": function,
}
BY_FUNCTION = ("unnamed", "presumed", "function")
"""A function need not leave a mark of a batch: that one it does not show is missing, nobody says."""
GOALS: tuple[Goal, ...] = (ResumeGoal(), ReplanGoal(), RepositionGoal({}, "it stands"))
SOUND = (Grade.HEALTHY, Grade.IN_FLIGHT, Grade.EMPTY)
RUNS = (Outcome.STARTS, Outcome.RESUMES, Outcome.RERUNS)
EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
SAMPLE = 5
"""So many of the worlds of one kind, sink and broker in every run; all of them are a proof."""


@dataclass(frozen=True)
class Truth:
    """One world."""

    plans: tuple[int, ...]
    """What is left of the log of plans."""
    commits: tuple[int, ...]
    kind: str
    mark: int
    """The newest batch that the sink holds; -1: none."""
    earliest: int
    """What Kafka has deleted."""
    is_lenient: bool = False
    """`failOnDataLoss=false`: Spark leaves out what is gone, and does not say so."""


def subsets() -> list[tuple[int, ...]]:
    numbers = range(BATCHES)
    return [each for count in range(BATCHES + 1) for each in itertools.combinations(numbers, count)]


def worlds(kind: str, mark: int, earliest: int) -> list[Truth]:
    logs = itertools.product(subsets(), subsets())
    found = [
        Truth(plans, commits, kind, mark, earliest, is_lenient)
        for plans, commits in logs
        for is_lenient in (False, True)
    ]
    if kind == "silent":
        return [each for each in found if _is_in_logs(each)]
    if kind == "remade":  # that it was made after a batch tells the plan of that batch, or of the one before
        return [each for each in found if {0, 1} & set(each.plans)]
    return found


def _is_in_logs(truth: Truth) -> bool:
    """Whether the sink is where the logs say: of one that tells nothing, that is an assumption that is printed."""
    return max(truth.commits, default=-1) <= truth.mark <= max(truth.plans, default=-1)


def span_of(batch: int) -> range:
    return range(batch * PER_BATCH, (batch + 1) * PER_BATCH)


@dataclass
class Course:
    """What Spark does from here on, and what stands in the sink then."""

    truth: Truth
    checkpoint: Checkpoint
    mark: int
    """Up to here the sink drops a batch."""
    rows: Counter[int]

    def run(self, limit: int) -> bool:
        """Start the query and let it catch up, so many records a batch; False if Spark stops with an error."""
        restart = predict(observe_as_told(replace(self.truth, mark=self.mark), self.checkpoint), SPARK_4_2)
        batch = restart.batch
        if restart.outcome is Outcome.FAILS_AFTER_SINK and batch is not None:
            self._write(batch, range(self._begin(batch), self._end(batch)))
        if restart.outcome not in RUNS or batch is None:
            return False
        at = self._begin(batch)
        if restart.outcome is Outcome.RERUNS:
            if not self._write(batch, range(at, self._end(batch))):
                return False
            at = self._end(batch)
            batch += 1
        while at < PRODUCED:
            end = min(at + limit, PRODUCED)
            if not self._write(batch, range(at, end)):
                return False
            at = end
            batch += 1
        return True

    def _write(self, number: int, span: range) -> bool:
        is_mute = self.truth.kind != "silent" and number <= self.mark
        if span and span.start < self.truth.earliest and not is_mute:
            if not self.truth.is_lenient:
                return False
            span = range(min(self.truth.earliest, span.stop), span.stop)
        if not is_mute:
            self.mark = number
            self.rows.update(span)
        return True

    def _begin(self, batch: int) -> int:
        return self._end(batch - 1) if batch > 0 else self._first()

    def _end(self, batch: int) -> int:
        entry = self.checkpoint.offsets.entries[batch]
        assert isinstance(entry, OffsetEntry)
        return _position(entry.sources[0].offset)

    def _first(self) -> int:
        initial = self.checkpoint.sources[0].initial
        assert initial is not None
        return _position(initial.offset)


def _position(offset: SourceOffset) -> int:
    assert isinstance(offset, KafkaOffset)
    return offset.topics[TOPIC][0]


def broker(earliest: int) -> KafkaFacts:
    parts = {0: PartitionFacts(earliest, PRODUCED)}
    return KafkaFacts("broker:9092", 1, {TOPIC: TopicFacts(topic_id="one", partitions=parts)})


def sink_of(truth: Truth) -> SinkEvidence:
    make = KINDS[truth.kind]
    if make is None:
        return silent()
    last = truth.mark if truth.mark >= 0 else None
    return make(last)


def observe_as_told(truth: Truth, checkpoint: Checkpoint) -> Observation:
    kafka = broker(truth.earliest)
    strict = not truth.is_lenient
    return Observation(checkpoint, location="/chk", sinks=(sink_of(truth),), kafka=kafka, fail_on_data_loss=strict)


def held(truth: Truth) -> Counter[int]:
    """What stands in the sink: of one that was overwritten without its newest batch, of one made anew without two."""
    lacking = {"overwritten": (truth.mark,), "remade": (0, 1)}.get(truth.kind, ())
    there = (batch for batch in range(truth.mark + 1) if batch not in lacking)
    return Counter(offset for batch in there for offset in span_of(batch))


class Laboratory:
    """Builds worlds, and says what is wrong with what is said of them."""

    def __init__(self, folder: Path) -> None:
        self.whole, self.folder = folder / "whole", folder / "checkpoint"
        CheckpointBuilder(self.whole, KafkaInput(TOPIC, 1, PER_BATCH)).run(BATCHES)

    def build(self, truth: Truth) -> Path:
        if self.folder.exists():
            shutil.rmtree(self.folder)
        shutil.copytree(self.whole, self.folder)
        for batch in range(BATCHES):
            if batch not in truth.plans:
                (self.folder / f"offsets/{batch}").unlink()
            if batch not in truth.commits:
                (self.folder / f"commits/{batch}").unlink()
        return self.folder

    def wrong(self, truth: Truth) -> Iterator[str]:
        folder = self.build(truth)
        observed = observe_as_told(truth, read(folder))
        yield from self._wrong_grade(truth, observed)
        for goal in GOALS:
            try:
                found = draft(observed, goal, SPARK_4_2)
            except RepairRefusedError:
                continue
            for line in _wrong_plan(truth, observed, self.build(truth), found):
                yield f"{truth}: {goal.name} is {found.guarantee.value}, plain {found.is_plain}, {line}"

    def _wrong_grade(self, truth: Truth, observed: Observation) -> Iterator[str]:
        report = diagnose(observed, SPARK_4_2)
        grade = choose_grade(report)
        errors = sorted(each.condition.name for each in report.findings if each.severity is Severity.ERROR)
        told = f"{truth}: {grade.name} {errors}"
        if grade is Grade.DOUBTFUL and not any(each.severity is Severity.WARNING for each in report.findings):
            yield f"{told}, and no warning says why"
        if grade in SOUND and _is_lossy_at_best(observed):
            yield f"{told}, and the plan that goes on is lossy"
        if truth.kind in ("silent", "fence", *BY_FUNCTION) or (truth.kind != "file" and truth.mark == -1):
            return  # nobody tells what it has, or may lack
        comes = [_ends(truth, observed.checkpoint, truth.mark, held(truth), limit) for limit in (PER_BATCH, PRODUCED)]
        if grade in SOUND and not all(went and is_exact(rows) for went, rows in comes):
            yield f"{told}, and started as it stands {[_summed(*each) for each in comes]}"
        is_ahead = max(truth.commits, default=-1) > max(truth.plans, default=-1)  # then it is the plans that are lost
        if grade is Grade.LOSING and not is_ahead and all(went and is_exact(rows) for went, rows in comes):
            yield f"{told}, and started as it stands nothing is lost or doubled"


def _is_lossy_at_best(observed: Observation) -> bool:
    try:
        return draft(observed, ResumeGoal(), SPARK_4_2).guarantee is LOSSY
    except RepairRefusedError:
        return False


def _ends(truth: Truth, checkpoint: Checkpoint, mark: int, rows: Counter[int], limit: int) -> tuple[bool, Counter[int]]:
    course = Course(truth, checkpoint, mark, rows.copy())
    return course.run(limit), course.rows


def is_exact(rows: Counter[int]) -> bool:
    return all(rows[offset] == 1 for offset in range(PRODUCED))


def _summed(went: bool, rows: Counter[int]) -> str:
    lost = [offset for offset in range(PRODUCED) if rows[offset] < 1]
    twice = [offset for offset in range(PRODUCED) if rows[offset] > 1]
    return f"goes on: {went}, lost {lost}, doubled {twice}"


def _wrong_plan(truth: Truth, observed: Observation, folder: Path, found: Draft) -> Iterator[str]:
    report = diagnose(observed, SPARK_4_2)
    errors = sorted(each.condition.name for each in report.findings if each.severity is Severity.ERROR)
    if found.is_plain and found.guarantee is EXACT and choose_grade(report) is Grade.LOSING:
        yield f"and there is {errors}"
    if found.guarantee is EXACT and any("though" in line for line in found.rests_on):
        yield f"and rests on {found.rests_on}"
    rows, mark = held(truth), truth.mark
    for edit in found.sinks:
        for batch in range(edit.batch + 1, mark + 1):
            rows.subtract(span_of(batch))
        mark = min(mark, edit.batch)
    checkpoint = carried_out(folder, found)
    for limit in (PER_BATCH, PRODUCED):
        went, came = _ends(truth, checkpoint, mark, rows, limit)
        if went:
            yield from (f"limit {limit}, and {line}" for line in _wrong_word(found, came))
        elif not found.is_plain:
            yield f"limit {limit}, and Spark does not go on"


def _wrong_word(found: Draft, came: Counter[int]) -> Iterator[str]:
    """What was lost or doubled beyond what was said."""
    lost = {offset for offset in range(PRODUCED) if came[offset] < 1}
    twice = {offset for offset in range(PRODUCED) if came[offset] > 1}
    priced = {offset for price in found.sources for offset in _offsets(price.duplicated)}
    named = {offset for price in found.sources for offset in _offsets(price.lost)}
    if found.guarantee is LOSSY:
        lost -= named
    if lost and not _is_assumed(found):
        yield f"lost {sorted(lost)}, which it does not name"
    if found.guarantee is EXACT and twice:
        yield f"doubled {sorted(twice)}"
    if found.guarantee is TWICE and twice - priced:
        yield f"doubled {sorted(twice - priced)} beyond its price {sorted(priced)}"


def _offsets(ranges: Ranges) -> Iterator[int]:
    for start, end in ranges.get(TOPIC, {}).get(0, ()):
        yield from range(start, end)


def _is_assumed(found: Draft) -> bool:
    """A function need not leave a mark: that it had none to leave is an assumption, which no word exactly once has.

    Nor does anybody know what an overwritten table lacks; where one may lack something no plan is called at least once.
    """
    is_known_to_lack = any("lacks what" in line or "may lack what" in line for line in found.rests_on)
    is_known_to_drop = any("which nobody says (--txn-app-id)" in line for line in found.rests_on)
    is_told = found.guarantee is LOSSY and (is_known_to_lack or is_known_to_drop)
    return is_told or (found.guarantee is not EXACT and any("no mark was due" in line for line in found.rests_on))


PLACES = [
    (kind, mark, earliest)
    for kind, mark, earliest in itertools.product(KINDS, range(-1, BATCHES), (0, 8, 18))
    if kind != "remade" or mark > 1
]


def _sample(chance: random.Random, found: list[Truth]) -> list[Truth]:
    return chance.sample(found, min(SAMPLE, len(found)))


@pytest.mark.parametrize(("kind", "mark", "earliest"), PLACES)
def test_what_the_verbs_say_is_what_comes(tmp_path: Path, kind: str, mark: int, earliest: int) -> None:
    chance = random.Random(f"{kind} {mark} {earliest} {os.environ.get('LASTGOOD_SEED', '1')}")
    laboratory = Laboratory(tmp_path)
    found = [line for truth in _sample(chance, worlds(kind, mark, earliest)) for line in laboratory.wrong(truth)]
    assert found == []


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "mark", "earliest"), PLACES)
def test_what_the_verbs_say_is_what_comes_in_every_world(tmp_path: Path, kind: str, mark: int, earliest: int) -> None:
    laboratory = Laboratory(tmp_path)
    assert [line for truth in worlds(kind, mark, earliest) for line in laboratory.wrong(truth)] == []
