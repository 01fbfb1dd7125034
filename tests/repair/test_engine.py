"""A plan is carried out whole or taken back whole, wherever it is killed; and never while a driver could be at work."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from repair.engine_cases import (
    KINDS,
    RESUMES,
    Case,
    OurLease,
    TakenOver,
    changes,
    first_step,
    killed,
    moments,
)

from lastgood.errors import StorageError
from lastgood.journal.lease import LeaseLostError
from lastgood.journal.room import RecoveryStage, Room, find_open_recovery
from lastgood.journal.seal import list_seal_files
from lastgood.planning.plan import Plan, PlannedSink
from lastgood.planning.price import Guarantee
from lastgood.planning.steps import FileStep, compute_digest
from lastgood.recovery.engine import Engine, PlanStaleError, Surveyor
from lastgood.steps.carrying import CheckpointChangedError, UndoRefusedError
from lastgood.storage.reading import Location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.storage import FaultyWriter


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_plan_is_carried_out_and_taken_back_byte_for_byte(case: Case) -> None:
    assert case.engine().apply("proof").already is False
    assert case.files() == case.wanted
    assert case.engine().apply("proof").already is True
    assert case.engine().undo("proof").already is False
    assert case.files() == case.before
    assert case.engine().undo("proof").already is True


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_change_of_apply_it_is_finished_or_taken_back(kind: str) -> None:
    count = len(changes(Case(kind), lambda engine: engine.apply("proof")))
    for moment in moments(count):
        for ending in ("apply", "undo"):
            case = Case(kind)
            killed(case, lambda engine: engine.apply("proof"), **moment)
            if ending == "apply":
                case.engine().apply("proof")
                assert case.files() == case.wanted, moment
            else:
                case.engine().undo("proof")
                assert case.files() == case.before, moment
            assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_change_of_undo_it_is_taken_back(kind: str) -> None:
    counted = Case(kind)
    counted.engine().apply("proof")
    count = len(changes(counted, lambda engine: engine.undo("proof")))
    for moment in moments(count):
        case = Case(kind)
        case.engine().apply("proof")
        killed(case, lambda engine: engine.undo("proof"), **moment)
        case.engine().undo("proof")
        assert case.files() == case.before, moment
        assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("kind", ["cut", "edit"])
def test_undo_that_was_killed_twice_is_taken_back(kind: str) -> None:
    counted = Case(kind)
    counted.engine().apply("proof")
    count = len(changes(counted, lambda engine: engine.undo("proof")))
    for first in range(1, count + 1):
        for second in range(1, count + 1):
            case = Case(kind)
            case.engine().apply("proof")
            killed(case, lambda engine: engine.undo("proof"), watch=False, after=first)
            with contextlib.suppress(pytest.fail.Exception):  # it had fewer changes left
                killed(case, lambda engine: engine.undo("proof"), before=second)
            case.engine().undo("proof")
            assert case.files() == case.before, (first, second)


def test_seal_that_found_the_world_changed_is_taken_away_by_the_next_apply(case: Case) -> None:
    killed(case, lambda engine: engine.apply("proof"), after=4)
    case.put("metadata", b"changed")
    with pytest.raises(PlanStaleError):
        case.engine().apply("proof")
    assert case.files() == {**case.before, "metadata": b"changed"}


@pytest.mark.parametrize("path", ["offsets/9", "commits/8", "sources/0/9"])
def test_plan_is_stale_when_a_driver_has_gone_on(case: Case, path: str) -> None:
    case.put(path, b"v1")
    before = case.files()
    with pytest.raises(PlanStaleError):
        case.engine().apply("proof")
    assert case.files() == before
    assert find_open_recovery(case.storage, case.location) is None


def test_plan_is_stale_when_a_driver_goes_on_while_it_is_sealed(case: Case) -> None:
    def drive(number: int) -> None:
        if number == 3:  # plan and stage are noted; the seal comes next
            case.put("offsets/9", b"a driver's plan")

    storage = FaultyWriter(case.storage, between=drive)
    with pytest.raises(PlanStaleError):
        case.engine(storage).apply("proof")
    assert case.files() == {**case.before, "offsets/9": b"a driver's plan"}


def test_plan_is_stale_when_a_sink_has_moved(case: Case) -> None:
    case.sinks = (PlannedSink(0, "delta", "/lake/orders", 8, known=True, skips_up_to=8, identity="t"),)
    with pytest.raises(PlanStaleError, match="a sink is not as planned"):
        case.engine().apply("proof")
    assert case.files() == case.before


def test_sink_that_does_not_answer_is_no_stale_plan(case: Case) -> None:
    told = case.sinks
    case.sinks = (PlannedSink(0, "delta", "/lake/orders", None, known=False, skips_up_to=None, identity=None),)
    with pytest.raises(StorageError, match="sink"):
        case.engine().apply("proof")
    case.sinks = told
    case.engine().apply("proof")
    assert case.files() == case.wanted


@pytest.mark.parametrize(("kind", "path"), [("complete", "metadata"), ("cut", "offsets/7"), ("edit", "offsets/7")])
def test_plan_is_stale_when_a_file_was_changed(kind: str, path: str) -> None:
    case = Case(kind)
    case.put(path, b"changed")
    with pytest.raises(PlanStaleError):
        case.engine().apply("proof")


def test_file_that_is_changed_under_the_seal_stops_the_plan_and_the_seal_stands() -> None:
    case = Case("cut")
    killed(case, lambda engine: engine.apply("proof"), after=first_step())
    left = next(step.path for step in case.plan.steps if case.read(step.path) is not None)
    case.put(left, b"changed")
    with pytest.raises(CheckpointChangedError):
        case.engine().apply("proof")
    assert case.is_sealed()


def test_seal_that_was_broken_stops_the_plan() -> None:
    case = Case("drop")
    killed(case, lambda engine: engine.apply("proof"), after=first_step("drop"))
    case.storage.remove(case.location / "offsets/9")
    with pytest.raises(CheckpointChangedError, match="seal"):
        case.engine().apply("proof")


def test_undo_is_refused_when_the_query_has_gone_on(case: Case) -> None:
    case.engine().apply("proof")
    newest = 1 + max(int(n) for n in case.storage.names(case.location / "offsets") or () if n.isdecimal())
    case.put(f"offsets/{newest}", b"v1")
    after = case.files()
    with pytest.raises(UndoRefusedError):
        case.engine().undo("proof")
    assert case.files() == after


def test_undo_is_refused_when_the_backup_is_gone() -> None:
    case = Case("cut")
    case.engine().apply("proof")
    room = Room(case.location, case.plan.recovery, case.storage)
    case.storage.remove(room.before / "offsets/7")
    after = case.files()
    with pytest.raises(UndoRefusedError, match="backup"):
        case.engine().undo("proof")
    assert case.files() == after


def test_step_of_who_wakes_up_late_does_not_stand_against_the_undo_of_another(case: Case) -> None:
    def takeover() -> None:
        case.engine().undo("proof")
        assert case.files() == case.before

    room = Room(case.location, case.plan.recovery, case.storage)
    for checks in range(1, 30):
        lease = TakenOver(checks, lambda: takeover() if room.stage() is not None else None)
        with pytest.raises(LeaseLostError):
            case.engine(lease=lease).apply("proof")
        assert case.files() == case.before or room.stage() is not RecoveryStage.TAKEN_BACK
        if room.stage() is RecoveryStage.TAKEN_BACK:
            return


def test_local_files_too(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(3)
    query.plan()
    storage, location = LocalWriter(), Location("file", "", str(tmp_path / "chk"))
    before = {path: path.read_bytes() for path in (tmp_path / "chk").rglob("*") if path.is_file()}
    content = storage.read(location / "offsets/3", limit=100_000)
    plan = Plan(
        recovery="20261121-160058-7f3a",
        goal="replan",
        checkpoint=str(location),
        query_id=None,
        guarantee=Guarantee.EXACTLY_ONCE,
        rests_on=(),
        position={"planned": 3},
        promise=RESUMES,
        steps=(FileStep("offsets/3", compute_digest(content), None, "test"),),
        seal=list_seal_files(3, 2, 2),
        made_at_ms=0,
        made_by="test",
    )
    room = Room(location, plan.recovery, storage)
    engine = Engine(room, plan, OurLease(), Surveyor(lambda: (), lambda _: RESUMES), lambda _: None, lambda: 0)  # type: ignore[arg-type]
    engine.apply("proof")
    assert not (tmp_path / "chk/offsets/3").exists()
    engine.undo("proof")
    assert before == {path: path.read_bytes() for path in (tmp_path / "chk").rglob("*") if path.is_file()}
