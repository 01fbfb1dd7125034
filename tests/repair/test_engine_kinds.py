"""A kind of sink with a step of its own, which only this file knows, is taken back and put back like any other.

It is registered by one line of a table; the engine, the file of a plan and the warrant ask the step, not its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from repair.engine_cases import SINK, Case, Killed, OurLease, changes, moments

from lastgood.journal.room import Room
from lastgood.observe.sinks_back import find_fenceable, make_sink_steps
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import PlannedSink
from lastgood.planning.steps import sum_sink_edits
from lastgood.recovery.engine import Engine, Surveyor
from lastgood.sinks.changes import SinkChanges
from lastgood.sinks.evidence import DedupeKey, make_unknown_evidence
from lastgood.sinks.kind import SinkKind, SinkTraits
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.steps.carrying import Carrying, CheckpointChangedError, Site, UndoRefusedError
from lastgood.steps.kinds import parse_step
from lastgood.steps.step import Rank, SinkEdit, Step, Turn
from lastgood.storage.reading import Storage, parse_location
from lastgood.storage.writing import WritableStorage
from lastgood.testing.storage import FaultyWriter, MemoryWriter
from lastgood.values import make_form

COUNTER = parse_location("/lake/counter")


@dataclass(frozen=True, slots=True)
class CounterStep(Step):
    """A file that holds nothing but the number of the newest batch gets a lower one."""

    json = make_form("do undo kind path before batch why")
    kind: ClassVar = "counter"

    path: str
    before: int
    batch: int
    why: str

    @property
    def do(self) -> str:
        return f"count {self.path} down to {self.batch}"

    @property
    def undo(self) -> str:
        return f"count {self.path} up to {self.before}"

    @property
    def rank(self) -> Rank:
        return Turn.SINK, 0, 0, self.path

    @property
    def edit(self) -> SinkEdit:
        return SinkEdit("counter", self.path, None, self.batch, self.why)


class CarriedCounterStep(Carrying):
    """The step on its file."""

    def __init__(self, step: CounterStep, site: Site) -> None:
        self._file = parse_location(step.path)
        self._storage = site.open_other(self._file)
        self._before, self._after = b"%d" % step.before, b"%d" % step.batch

    def do(self, seal: Collection[str]) -> None:
        self._reach(self._after, self._before)

    def undo(self, seal: Collection[str]) -> None:
        self._reach(self._before, self._after)

    def is_done(self, seal: Collection[str]) -> bool:
        return self._storage.read(self._file, limit=100) == self._after

    def _reach(self, wanted: bytes, other: bytes) -> None:
        found = self._storage.read(self._file, limit=100)
        if found not in (wanted, other):
            raise CheckpointChangedError("the counter was changed", subject=str(self._file))
        if found == other:
            self._storage.write(self._file, wanted)


def counter_steps(edit: SinkEdit, storage: Storage) -> tuple[CounterStep, ...] | str:
    found = storage.read(parse_location(edit.location), limit=100)
    return "no counter" if found is None else (CounterStep(edit.location, int(found), edit.batch, edit.why),)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    changes = SinkChanges(CounterStep, CarriedCounterStep, counter_steps)
    kind = SinkKind(name="counter", traits=SinkTraits(), changes=lambda: changes)
    monkeypatch.setitem(SINK_KINDS, kind.name, kind)


class CounterCase(Case):
    """A query whose orphan 8 is dropped; before that its counter goes back from 8 to 7."""

    def __init__(self) -> None:
        self.storage: WritableStorage = MemoryWriter()
        self.storage.write(COUNTER, b"8")
        super().__init__("drop", self.storage)

    def planned_sinks(self) -> tuple[PlannedSink, ...]:
        return (replace(SINK, kind="counter", location=str(COUNTER)),)

    def steps(self, kind: str) -> Iterator[Step]:
        yield from super().steps(kind)
        yield CounterStep(str(COUNTER), 8, 7, "test")

    def engine(
        self,
        storage: WritableStorage | None = None,
        lease: object = None,
        settle: Callable[[], None] = lambda: None,
    ) -> Engine:
        used = storage or self.storage
        surveyor = Surveyor(sinks=lambda: self.sinks, promise=self.promise, open_sink=lambda _: used)
        room = Room(self.location, self.plan.recovery, used)
        return Engine(room, self.plan, lease or OurLease(), surveyor, lambda _: None, lambda: 0, settle=settle)  # type: ignore[arg-type]

    @property
    def count(self) -> bytes | None:
        return self.storage.read(COUNTER, limit=100)


def test_step_is_read_out_of_a_plan_and_comes_to_an_edit_of_its_sink() -> None:
    case = CounterCase()
    step = case.plan.steps[0]
    assert isinstance(step, CounterStep)  # with the sinks, before all that is in the checkpoint
    assert parse_step(step.to_json()) == step
    assert sum_sink_edits(case.plan.steps) == (SinkEdit("counter", str(COUNTER), None, 7, "test"),)


def test_plan_of_a_sink_that_nobody_knows_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    told = CounterStep(str(COUNTER), 8, 7, "test").to_json()
    monkeypatch.delitem(SINK_KINDS, "counter")
    with pytest.raises(ValueError, match="not understood"):
        parse_step(told)


def test_edit_is_measured_by_what_is_there(tmp_path: Any) -> None:
    file = tmp_path / "counter"
    edit = SinkEdit("counter", str(file), None, 7, "test")
    with pytest.raises(RepairRefusedError) as refused:
        list(make_sink_steps([edit]))
    assert refused.value.found == "no counter"
    file.write_bytes(b"9")
    assert list(make_sink_steps([edit])) == [CounterStep(str(file), 9, 7, "test")]
    assert find_fenceable(make_unknown_evidence("counter", str(file), DedupeKey.NONE, "test")) is None


@pytest.mark.parametrize("ending", ["apply", "undo"])
def test_killed_at_every_change_it_is_finished_or_taken_back(ending: str) -> None:
    count = len(changes(CounterCase(), lambda engine: engine.apply("proof")))
    for moment in moments(count):
        case = CounterCase()
        with pytest.raises(Killed):
            case.engine(FaultyWriter(case.storage, error=Killed(), **moment)).apply("proof")
        if ending == "apply":
            case.engine().apply("proof")
            assert (case.files(), case.count) == (case.wanted, b"7"), moment
        else:
            case.engine().undo("proof")
            assert (case.files(), case.count) == (case.before, b"8"), moment


def test_undo_is_refused_when_the_query_has_written_since() -> None:
    case = CounterCase()
    case.engine().apply("proof")
    case.storage.write(COUNTER, b"8")
    with pytest.raises(UndoRefusedError):
        case.engine().undo("proof")


def test_what_somebody_else_has_changed_is_not_touched() -> None:
    case = CounterCase()
    told = changes(CounterCase(), lambda engine: engine.apply("proof"))
    at = next(number for number, change in enumerate(told, 1) if "counter" in change)
    with pytest.raises(Killed):
        case.engine(FaultyWriter(case.storage, error=Killed(), before=at)).apply("proof")
    case.storage.write(COUNTER, b"12")
    with pytest.raises(CheckpointChangedError, match="counter"):
        case.engine().apply("proof")
    assert case.is_sealed()
    assert case.count == b"12"
