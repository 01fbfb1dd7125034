"""A plan that also writes a file outside of the checkpoint, killed at each of its changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from repair.engine_cases import Case, Killed, OurLease, moments

from lastgood.journal.plan_file import parse_plan
from lastgood.journal.room import Room, find_open_recovery
from lastgood.planning.plan import PlanInvalidError
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import compute_digest
from lastgood.recovery.engine import Engine, PlanStaleError, Surveyor
from lastgood.steps.carrying import CheckpointChangedError
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import WritableStorage
from lastgood.testing.storage import FaultyWriter

START = parse_location("/app/start.json")
OLD, NEW = b"earliest\n", b'{"orders":{"0":7}}\n'


class StartCase(Case):
    """A checkpoint that is cut, and the application's configuration beside it."""

    def __init__(self, old: bytes | None) -> None:
        super().__init__("cut")
        if old is not None:
            self.storage.write(START, old)
        step = StartFileStep(str(START), compute_digest(old), NEW, "test")
        self.plan = replace(self.plan, steps=(*self.plan.steps, step), options={"start_file": {}})

    @property
    def wanted(self) -> dict[str, bytes | None]:
        return {path: content for path, content in super().wanted.items() if path != str(START)}

    def start(self) -> bytes | None:
        return self.storage.read(START, limit=1000)

    def working(self, storage: WritableStorage | None = None) -> Engine:
        shown = storage or self.storage
        surveyor = Surveyor(sinks=lambda: self.sinks, promise=self.promise, open_sink=lambda _: shown)
        room = Room(self.location, self.plan.recovery, shown)
        return Engine(room, self.plan, OurLease(), surveyor, lambda _: None, lambda: 0)  # type: ignore[arg-type]


@pytest.fixture(params=[None, OLD], ids=["new", "known"])
def old(request: pytest.FixtureRequest) -> bytes | None:
    """What the file was."""
    found: bytes | None = request.param
    return found


def changes(case: StartCase, work: Callable[[Engine], object]) -> int:
    counting = FaultyWriter(case.storage)
    work(case.working(counting))
    return len(counting.changes)


def apply(engine: Engine) -> object:
    return engine.apply("proof")


def undo(engine: Engine) -> object:
    return engine.undo("proof")


def test_file_is_written_and_put_back_byte_for_byte(old: bytes | None) -> None:
    case = StartCase(old)
    apply(case.working())
    assert (case.files(), case.start()) == (case.wanted, NEW)
    undo(case.working())
    assert (case.files(), case.start()) == (case.before, old)


@pytest.mark.parametrize("ending", [apply, undo])
def test_killed_at_every_change_it_is_finished_or_taken_back(old: bytes | None, ending: Callable[..., object]) -> None:
    for moment in moments(changes(StartCase(old), apply)):
        case = StartCase(old)
        with pytest.raises(Killed):
            apply(case.working(FaultyWriter(case.storage, error=Killed(), **moment)))
        ending(case.working())
        whole = (case.wanted, NEW) if ending is apply else (case.before, old)
        assert (case.files(), case.start()) == whole, moment
        assert find_open_recovery(case.storage, case.location) is None


def test_killed_at_every_change_of_undo_it_is_taken_back(old: bytes | None) -> None:
    counted = StartCase(old)
    apply(counted.working())
    for moment in moments(changes(counted, undo)):
        case = StartCase(old)
        apply(case.working())
        with pytest.raises(Killed):
            undo(case.working(FaultyWriter(case.storage, error=Killed(), **moment)))
        undo(case.working())
        assert (case.files(), case.start()) == (case.before, old), moment


def test_file_that_was_changed_since_is_left_alone(old: bytes | None) -> None:
    case = StartCase(old)
    case.storage.write(START, b"latest\n")
    with pytest.raises(PlanStaleError):
        apply(case.working())
    assert (case.files(), case.start()) == (case.before, b"latest\n")
    case = StartCase(old)
    apply(case.working())
    case.storage.write(START, b"latest\n")
    with pytest.raises(CheckpointChangedError) as caught:
        undo(case.working())
    assert caught.value.subject == str(START)
    assert case.start() == b"latest\n"


def test_plan_that_writes_a_file_which_nobody_named_is_none() -> None:
    case = StartCase(OLD)
    with pytest.raises(PlanInvalidError) as caught:
        parse_plan(replace(case.plan, options={}).to_bytes(), "plan.json")
    assert caught.value.found == f"{START} is outside of the checkpoint, and nobody named it"
