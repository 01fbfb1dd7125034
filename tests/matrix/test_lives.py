"""Whole lives of queries, by chance: several sources, topics and sinks, drivers that die, people who help, and clocks.

What each verb says at the end of a life is held against what then comes: the query runs on as Spark would, and every
record that was ever produced is counted in every sink. `lives.py` says what happens; here is what is tried.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from matrix.lives import DiesError, Life, Partition, Record, Sink, Topic
from planning import carried_out

from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade, choose_grade
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.planner import draft
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sources.kafka.retention import MAX_CLOCK_SKEW_MS

SEED = os.environ.get("LASTGOOD_SEED", "1")
EXACT, TWICE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
GOALS: tuple[Goal, ...] = (ResumeGoal(), ReplanGoal(), RepositionGoal({}, "it stands"))
SOUND = (Grade.HEALTHY, Grade.IN_FLIGHT, Grade.EMPTY)
KINDS = (["delta"], ["delta"], ["file"], ["txn"], ["txn", "txn"], ["txn", "file"], ["delta", "txn"], ["file", "delta"])
KINDS_OF = {
    "sinks that tell little": (*KINDS, ["silent"], ["delta", "silent"], ["txn", "silent"]),
    "mirrors": (*KINDS, ["silent"], ["delta", "silent"], ["silent", "file"]),
}
SKEWS_MS = (0, 0, 100, -100, 3000, -3000, 60_000, -60_000, 100_000, -100_000)
WAITS_MS = (2, 500, 5000, 70_000, 700_000)
ELECTION_MS = 9000
"""How long Kafka waits for a leader that says nothing."""
LIVES, LIVES_PROOF = 20, 600
BY_CLOCKS = "the assumption that no clock was set back"
ALL_READ = 60
"""Batches after which a query has caught up in any of these lives."""


@dataclass
class Fate:
    """What happens to a query, one thing after the other."""

    chance: random.Random
    life: Life
    told: list[str] = field(default_factory=list)
    """One line for each thing."""

    def happen(self, acts: tuple[str, ...]) -> None:
        for name in self.chance.choices(acts, k=self.chance.randint(3, 9)):
            act: Callable[[], str | None] = getattr(self, f"_{name}")
            try:
                told = act()
            except DiesError as error:
                told = f"dies: {error}"
            if told is not None:
                self.told.append(f"{name} {told}")
        self.life.wait(self.chance.choice((10, 5000, 100_000)))

    def _run(self, dies: str | None = None) -> str:
        limit, batches = self.chance.choice((1, 2, 3, 5, 50)), self.chance.randint(1, 3)
        self.life.start(limit, batches, dies)
        return f"{batches} batches of {limit}"

    def _plan(self) -> str:
        return self._run("planned")

    def _write(self) -> str:
        return self._run("written")

    def _write_one(self) -> str:
        """It dies between its sinks."""
        sinks = self.life.sinks
        self.life.sinks = sinks[:1]
        try:
            self.life.start(self.chance.choice((2, 5, 50)), 1, "written")
        finally:
            self.life.sinks = sinks
        return "of its sinks"

    def _drop(self) -> str:
        """Somebody takes the newest plans back by hand; those that tell of the topics stay."""
        newest, count = max(self.life.plans, default=-1), self.chance.choice((1, 1, 2))
        for number in range(newest, max(self.life.floor, newest - count, -1), -1):
            self.life.plans.pop(number, None)
            self.life.commits.discard(number)
        return f"{count} from {newest}"

    def _lose_commit(self) -> str | None:
        newest = max(self.life.commits, default=None)
        if newest is not None:
            self.life.commits.discard(newest)
        return None if newest is None else str(newest)

    def _recreate(self) -> str | None:
        if not self.life.plans:
            return None
        topic, count = self._topic(), self.chance.randint(1, 25)
        is_dated_ahead = any(plan.at_ms > self.life.now_ms for plan in self.life.plans.values())
        if self.life.skew_ms or self.life.producer_ms or is_dated_ahead:  # clocks would hide it
            self._note_ids()
        self.life.recreate(topic)
        self.life.produce(topic, count)
        return f"{topic.name} with {count}"

    def lose_ends(self) -> None:
        """An unclean election, in the end: the newest records go, and others come under their offsets."""
        topic, lost, count = self._topic(), self.chance.randint(1, 8), self.chance.randint(0, 15)
        self.life.lose_ends(topic, lost)
        self.life.wait(ELECTION_MS)
        self.life.produce(topic, count)
        self.told.append(f"{lost} newest of {topic.name} are lost, and {count} come")

    def _retain(self) -> str | None:
        topic = self._topic()
        if topic.created and not self.life.ids_before:  # what would tell that it is another would be gone
            return None
        for each in topic.partitions.values():
            each.earliest = self.chance.randint(each.earliest, each.latest)
        return f"{topic.name} from {[each.earliest for each in topic.partitions.values()]}"

    def _produce(self) -> str:
        topic, count = self._topic(), self.chance.randint(1, 10)
        self.life.produce(topic, count)
        return f"{count} to {topic.name}"

    def _add_partition(self) -> str:
        topic = self._topic()
        topic.partitions[max(topic.partitions) + 1] = Partition()
        self.life.produce(topic, self.chance.randint(0, 3))
        return topic.name

    def _wait(self) -> str:
        ms = self.chance.choice(WAITS_MS)
        self.life.wait(ms)
        return f"{ms} ms"

    def _restore(self) -> str | None:
        sink = self.chance.choice(self.life.sinks)
        if not sink.is_delta or sink.mark < 1:
            return None
        newest = self.chance.randint(0, sink.mark)
        sink.restore(newest)
        return f"{sink.location} to batch {newest}"

    def _make_again(self) -> str | None:
        """A table is dropped and made again, later than clocks differ."""
        sink = self.chance.choice(self.life.sinks)
        if not sink.is_delta:
            return None
        self.life.wait(MAX_CLOCK_SKEW_MS + 1)
        sink.make_again(self.life.now_ms)
        return sink.location

    def _clean_log(self) -> str | None:
        """Old versions go out of the log of a table."""
        sink = self.chance.choice(self.life.sinks)
        if not sink.is_delta:
            return None
        sink.clean_log(self.chance.randint(0, 2))
        return f"of {sink.location} below version {sink.forgotten}"

    def _mirror(self) -> str:
        self.life.mirror = self.life.files()
        return f"with {sorted(self.life.mirror)}"

    def _lose(self) -> str:
        """Files of the checkpoint go."""
        what = self.chance.choice(("all", "plans", "commits", "newest"))
        if what in ("all", "plans"):
            self.life.plans.clear()
        if what in ("all", "commits"):
            self.life.commits.clear()
        if what == "all":
            self.life.begun = None
        for log in (self.life.plans, self.life.commits) if what == "newest" else ():
            newest, count = max(log, default=-1), self.chance.randint(0, 2)
            for number in range(newest, newest - count, -1):
                log.pop(number, None) if isinstance(log, dict) else log.discard(number)
        return what

    def _compact(self) -> str | None:
        topic = self._topic()
        if not topic.is_compacted:
            return None
        gone: dict[int, set[int]] = {}
        for number, each in topic.partitions.items():
            gone[number] = {at for at in range(each.earliest, each.latest - 1) if self.chance.random() < 0.4}
            ends = [end.get((topic.name, number), 0) for plan in self.life.plans.values() for end in plan.ends]
            first = range(each.earliest, min((end for end in ends if end > 0), default=0))
            left = {at for at in first if at not in each.holes}
            if topic.created and left <= gone[number]:  # what would tell that it is another would be gone
                gone[number] -= left
        self.life.compact(topic, gone)
        return f"{topic.name} without {gone}"

    def _note_ids(self) -> str:
        self.life.ids_before = dict(self.life.ids_begun)
        return str(self.life.ids_before)

    def _change_driver(self) -> str:
        self.life.skew_ms = self.chance.choice(SKEWS_MS)
        return f"its clock is {self.life.skew_ms} ms ahead"

    def _topic(self) -> Topic:
        return self.chance.choice(list(self.life.topics.values()))


RUNS = ("run", "run", "run", "plan", "write", "write_one", "drop", "drop", "retain", "produce", "produce", "wait")
PEOPLE = (*RUNS, "restore", "lose_commit", "add_partition")
ACTS = {
    "by hand": PEOPLE,
    "topics created again": (*RUNS, "recreate", "lose_commit", "add_partition"),
    "everything": (*PEOPLE, "recreate", "note_ids"),
    "clocks": (*PEOPLE, "change_driver"),
    "logs of tables": (*PEOPLE, "clean_log", "clean_log"),
    "sinks that tell little": (*PEOPLE, "clean_log"),
    "brokers that are not asked": PEOPLE,
    "mirrors": (*RUNS, "run", "run", "mirror", "mirror", "lose", "restore"),
    "transactions": (*RUNS, "compact", "compact", "recreate", "lose_commit"),
    "ids and clocks": (*PEOPLE, "recreate", "change_driver"),
    "ends of logs": (*PEOPLE, "note_ids"),
    "tables made again": (*PEOPLE, "run", "run", "make_again"),
}


def lived(folder: Path, kind: str, seed: int) -> Fate:
    chance = random.Random(f"{kind} {seed} {SEED}")
    names = iter("abcd")
    sources = [
        [_topic(chance, next(names)) for _ in range(chance.choice((1, 1, 2)))] for _ in range(chance.choice((1, 1, 2)))
    ]
    sinks = [_sink(chance, kind, each, n) for n, each in enumerate(chance.choice(KINDS_OF.get(kind, KINDS)))]
    life = Life(folder, sources, sinks)
    life.is_asked = kind != "brokers that are not asked"
    life.is_strict = chance.random() < 0.8
    if kind in ("clocks", "ids and clocks"):
        life.skew_ms, life.producer_ms = chance.choice(SKEWS_MS), chance.choice(SKEWS_MS)
    for topic in life.topics.values():
        if kind == "transactions":
            topic.is_transactional, topic.is_compacted = chance.random() < 0.5, chance.random() < 0.5
        life.produce(topic, chance.randint(3, 12))
    fate = Fate(chance, life, [f"{kind} {seed}: {[each.kind for each in sinks]}, strict {life.is_strict}"])
    fate.happen(ACTS[kind])
    if kind == "ends of logs":
        fate.lose_ends()
    return fate


def _sink(chance: random.Random, of: str, kind: str, number: int) -> Sink:
    sink = Sink(kind, f"/lake/{number}")
    if of == "sinks that tell little":
        sink.has_times, sink.is_lazy = chance.random() < 0.5, kind == "txn" and chance.random() < 0.5
    return sink


def _topic(chance: random.Random, name: str) -> Topic:
    return Topic(name, {number: Partition() for number in range(chance.choice((1, 1, 2)))})


def wrong(folder: Path, kind: str, seed: int) -> Iterator[str]:
    """What is said of a life and does not come so."""
    fate = lived(folder / "seen", kind, seed)
    if (not fate.life.plans and not fate.life.mirror) or fate.life.is_past_telling():
        return
    if _is_called_sound(fate.life.observed()):
        yield from (f"{fate.told}: called sound, and {line}" for line in _comes(fate.life, EXACT))
    for goal in GOALS:
        fate = lived(folder / goal.name, kind, seed)
        try:
            found = draft(fate.life.known(), goal, SPARK_4_2)
        except RepairRefusedError:
            continue
        if fate.life.is_hidden_by_clocks() and any(BY_CLOCKS in line for line in found.rests_on):
            continue  # it says on what it rests, and that is not so
        fate.life.change_sinks(found)
        fate.life.take_over(carried_out(fate.life.folder, found))
        for line in _comes(fate.life, found.guarantee):
            yield f"{fate.told}: {goal.name} is {found.guarantee.value} by {found.rests_on}, and {line}"


def _is_called_sound(observed: Observation) -> bool:
    """Whether `diagnose` has nothing to say against a plain start."""
    report = diagnose(observed, SPARK_4_2)
    is_warned = any(each.severity >= Severity.WARNING for each in report.findings)
    return choose_grade(report) in SOUND and not is_warned and not report.restart.unknowns


def _comes(life: Life, word: Guarantee) -> Iterator[str]:
    try:
        life.start(50, ALL_READ)
    except DiesError:
        return  # Spark says so
    for sink, rows in zip(life.sinks, life.rows(), strict=True):
        lost = sorted(each for each in life.produced if rows[each] < 1)
        twice: list[Record] = sorted(each for each, count in rows.items() if count > 1)
        if word in (EXACT, TWICE) and lost:
            yield f"{sink.location} lacks {lost}"
        if word is EXACT and twice:
            yield f"{sink.location} has twice {twice}"


def _all_wrong(folder: Path, kind: str, seeds: range) -> list[str]:
    found = []
    for seed in seeds:
        found += wrong(folder / str(seed), kind, seed)
        shutil.rmtree(folder / str(seed), ignore_errors=True)  # of a query that planned nothing there is none
    return found


@pytest.mark.parametrize("kind", ACTS)
def test_what_is_said_of_a_life_comes(tmp_path: Path, kind: str) -> None:
    assert _all_wrong(tmp_path, kind, range(LIVES)) == []


@pytest.mark.proof
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kind", ACTS)
def test_what_is_said_of_very_many_lives_comes(tmp_path: Path, kind: str, part: int) -> None:
    first = LIVES + part * LIVES_PROOF
    assert _all_wrong(tmp_path, kind, range(first, first + LIVES_PROOF)) == []
