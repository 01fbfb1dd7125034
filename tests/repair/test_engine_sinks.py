"""A plan that takes a sink back is carried out whole or taken back whole, wherever it is killed."""

from __future__ import annotations

import pytest
from repair.engine_cases import Killed, TakenOver, changes, moments
from repair.sink_cases import KINDS, Q, SinkCase, added

from lastgood.delta_log.actions import FENCE, PUT_BACK, TAKE_BACK
from lastgood.journal.lease import LeaseLostError
from lastgood.journal.room import RecoveryStage, Room, find_open_recovery
from lastgood.recovery.engine import PlanStaleError
from lastgood.steps.carrying import CheckpointChangedError, UndoRefusedError
from lastgood.storage.reading import parse_location
from lastgood.testing.storage import FaultyWriter


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> SinkCase:
    return SinkCase(request.param)


def require_whole(case: SinkCase) -> None:
    """Either a driver that starts dies, or logs and sink are both as before or both as planned."""
    before, then = (case.before, case.shown_before), (case.wanted, case.shown_then)
    assert case.is_sealed() or (case.files(), case.shown()) in (before, then)
    if case.files() == case.wanted:
        assert case.shown() == case.shown_then  # the sink is never ahead of the logs


def killed(case: SinkCase, verb: str, **moment: int) -> None:
    engine = case.engine(FaultyWriter(case.storage, error=Killed(), between=lambda _: require_whole(case), **moment))
    with pytest.raises(Killed):
        engine.apply("proof") if verb == "apply" else engine.undo("proof")
    require_whole(case)


def test_sink_goes_back_and_is_shown_again_by_undo(case: SinkCase) -> None:
    assert case.engine().apply("proof").already is False
    assert (case.files(), case.shown()) == (case.wanted, case.shown_then)
    told = dict(case.storage.filesystem.store)  # type: ignore[attr-defined]
    assert case.engine().apply("proof").already is True
    assert told.keys() == case.storage.filesystem.store.keys()  # type: ignore[attr-defined]
    assert case.engine().undo("proof").already is False
    assert (case.files(), case.shown()) == (case.before, case.shown_before)
    assert case.engine().undo("proof").already is True


@pytest.mark.parametrize("ending", ["apply", "undo"])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_change_of_apply_it_is_finished_or_taken_back(kind: str, ending: str) -> None:
    count = len(changes(SinkCase(kind), lambda engine: engine.apply("proof")))
    for moment in moments(count):
        case = SinkCase(kind)
        killed(case, "apply", **moment)
        if ending == "apply":
            case.engine().apply("proof")
            assert (case.files(), case.shown()) == (case.wanted, case.shown_then), moment
        else:
            case.engine().undo("proof")
            assert (case.files(), case.shown()) == (case.before, case.shown_before), moment
        assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_change_of_undo_it_is_taken_back(kind: str) -> None:
    counted = SinkCase(kind)
    counted.engine().apply("proof")
    count = len(changes(counted, lambda engine: engine.undo("proof")))
    for moment in moments(count):
        case = SinkCase(kind)
        case.engine().apply("proof")
        killed(case, "undo", **moment)
        case.engine().undo("proof")
        assert (case.files(), case.shown()) == (case.before, case.shown_before), moment
        assert find_open_recovery(case.storage, case.location) is None


def test_others_may_write_to_the_table_all_the_time() -> None:
    case = SinkCase("rows")

    def write(_: int) -> None:
        if "_delta_log" in storage.changes[-1] and case.newest_version() < 20:
            case.next_version([added(f"foreign-{case.newest_version() + 1}")])

    storage = FaultyWriter(case.storage, between=write)
    case.engine(storage).apply("proof")
    files, mark = case.shown()
    assert ("part-8" in files, mark) == (False, 7)
    assert sum(name.startswith("foreign") for name in files) == 12
    case.engine().undo("proof")
    assert case.shown() == ({*files, "part-8"}, 8)


@pytest.mark.parametrize(
    "content",
    [
        [{"remove": {"path": "part-8", "dataChange": False}}, added("optimized")],
        [{"txn": {"appId": Q, "version": 9}}, added("part-9")],
        [{"metaData": {"id": "another", "configuration": {}}}],
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}}],
    ],
    ids=["rewritten", "written by the query", "made again", "another protocol"],
)
def test_table_that_was_changed_is_not_taken_back_and_the_seal_stands(content: list[dict[str, object]]) -> None:
    case = SinkCase("rows")
    told = changes(SinkCase("rows"), lambda engine: engine.apply("proof"))
    first = [number for number, change in enumerate(told, 1) if "_delta_log" in change][1]
    killed(case, "apply", before=first)
    case.next_version(content)
    with pytest.raises(CheckpointChangedError, match="a sink was changed"):
        case.engine().apply("proof")
    assert case.is_sealed()
    shown = case.shown()
    case.engine().undo("proof")
    assert (case.files(), case.shown()) == (case.before, shown)


def test_version_that_spark_has_written_over_ours_is_noticed_before_the_seal_goes() -> None:
    case = SinkCase("number")
    told = changes(SinkCase("number"), lambda engine: engine.apply("proof"))
    last = [number for number, change in enumerate(told, 1) if "_delta_log" in change][-1]

    def write_over(number: int) -> None:
        if number == last + 1:
            case.version(case.newest_version(), [{"txn": {"appId": Q, "version": 8}}, added("late")])

    with pytest.raises(CheckpointChangedError, match="a sink was changed"):
        case.engine(FaultyWriter(case.storage, between=write_over)).apply("proof")
    assert case.is_sealed()


def test_fence_stays_when_all_is_taken_back() -> None:
    case = SinkCase("rows")
    case.engine().apply("proof")
    case.engine().undo("proof")
    infos = [action["commitInfo"]["operation"] for action in case.actions() if "commitInfo" in action]
    assert infos[-3:] == [FENCE, TAKE_BACK, PUT_BACK]
    assert case.shown() == case.shown_before


def test_plan_is_stale_when_the_table_can_no_longer_be_fenced() -> None:
    case = SinkCase("rows")
    feature = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}}
    case.next_version([feature])
    with pytest.raises(PlanStaleError, match="fenced"):
        case.engine().apply("proof")
    assert (case.files(), find_open_recovery(case.storage, case.location)) == (case.before, None)


def test_undo_is_refused_when_the_query_has_written_since() -> None:
    case = SinkCase("rows")
    case.engine().apply("proof")
    case.next_version([{"txn": {"appId": Q, "version": 8}}, added("again")])
    with pytest.raises(UndoRefusedError):
        case.engine().undo("proof")
    case = SinkCase("files")
    case.engine().apply("proof")
    case.storage.write(parse_location(case.plan.steps[0].path), b"v1 again")
    with pytest.raises(UndoRefusedError):
        case.engine().undo("proof")


def test_undo_is_refused_when_vacuum_has_deleted_the_files() -> None:
    case = SinkCase("rows")
    case.engine().apply("proof")
    case.storage.remove(case.table / "part-8")
    with pytest.raises(UndoRefusedError, match="VACUUM"):
        case.engine().undo("proof")
    assert (case.files(), case.shown()) == (case.wanted, case.shown_then)


def test_step_of_who_wakes_up_late_does_not_stand_against_the_undo_of_another(case: SinkCase) -> None:
    room = Room(case.location, case.plan.recovery, case.storage)
    for checks in range(1, 40):
        meanwhile = lambda: case.engine().undo("proof") if room.stage() is not None else None  # noqa: E731
        with pytest.raises(LeaseLostError):
            case.engine(lease=TakenOver(checks, meanwhile)).apply("proof")
        if room.stage() is RecoveryStage.TAKEN_BACK:
            assert (case.files(), case.shown()) == (case.before, case.shown_before)
            return
