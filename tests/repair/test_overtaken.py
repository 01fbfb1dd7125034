"""Who is overtaken in the middle of a change, and wakes up late, undoes nothing of what the other one has done.

Every change of a repair is the one at which it stops; another one takes over and ends, and only then is it made.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable

import pytest
from repair.engine_cases import KINDS, STATE, Case, Killed, changes

from lastgood.journal.lease import LeaseLostError
from lastgood.journal.room import RecoveryStage, Room, find_open_recovery
from lastgood.recovery.engine import Engine, PlanStaleError
from lastgood.steps.carrying import CheckpointChangedError, UndoRefusedError
from lastgood.storage.reading import Location
from lastgood.testing.storage import FaultyWriter, MemoryWriter

SEED = os.environ.get("LASTGOOD_SEED", "1")
Work = Callable[[Engine], object]


def apply(engine: Engine) -> object:
    return engine.apply("proof")


def undo(engine: Engine) -> object:
    return engine.undo("proof")


class Lease:
    """Ours, until somebody takes over."""

    number = 1
    is_lost = False

    def check(self) -> None:
        if self.is_lost:
            raise LeaseLostError("another process has taken over")


def overtaken(case: Case, work: Work, at: int, other: Work) -> None:
    """Do `work`, at whose change number `at` another engine takes over and does the other; then it goes on."""
    lease = Lease()

    def take_over(number: int) -> None:
        if number == at:
            lease.is_lost = True
            other(case.engine())

    with pytest.raises(LeaseLostError):
        work(case.engine(FaultyWriter(case.storage, between=take_over), lease))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", [apply, undo])
def test_late_change_of_an_apply_leaves_what_the_other_one_has_made(kind: str, other: Work) -> None:
    for at in range(1, 1 + len(changes(Case(kind), apply))):
        case = Case(kind)
        overtaken(case, apply, at, other)
        assert case.files() == (case.wanted if other is apply else case.before), at
        assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("kind", KINDS)
def test_late_change_of_an_undo_leaves_what_the_other_one_has_made(kind: str) -> None:
    counted = Case(kind)
    apply(counted.engine())
    for at in range(1, 1 + len(changes(counted, undo))):
        case = Case(kind)
        apply(case.engine())
        overtaken(case, undo, at, undo)
        assert case.files() == case.before, at
        assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("kind", ["cut", "lift"])
@pytest.mark.parametrize("other", [apply, undo])
def test_late_change_opens_no_checkpoint_that_the_other_one_has_half_done(kind: str, other: Work) -> None:
    told = changes(Case(kind), apply)
    parts = [f"remove {Case(kind).location / path}" for path in Case(kind).plan.seal]
    rng = random.Random(SEED)
    for at, change in enumerate(told, 1):
        if change in parts:
            continue  # that part may stand again by now: what nobody can prevent
        case, lease, moment = Case(kind), Lease(), rng.randrange(1, len(told))

        def take_over(number: int, case: Case = case, lease: Lease = lease, at: int = at, moment: int = moment) -> None:
            if number == at:
                lease.is_lost = True
                with contextlib.suppress(Killed):
                    other(case.engine(FaultyWriter(case.storage, after=moment, error=Killed())))

        with pytest.raises(LeaseLostError):
            apply(case.engine(FaultyWriter(case.storage, between=take_over), lease))
        assert case.is_sealed() or case.files() in (case.before, case.wanted), (at, moment)
        assert not case.commits_ahead()
        other(case.engine())
        assert case.files() == (case.wanted if other is apply else case.before), (at, moment)


@pytest.mark.parametrize("kind", ["cut", "lift"])
@pytest.mark.parametrize("other", [apply, undo])
def test_who_is_overtaken_while_it_waits_leaves_the_seal_to_the_other_one(kind: str, other: Work) -> None:
    for moment in range(1, 1 + len(changes(Case(kind), apply))):
        case, lease = Case(kind), Lease()

        def take_over(case: Case = case, lease: Lease = lease, moment: int = moment) -> None:
            lease.is_lost = True
            with contextlib.suppress(Killed):
                other(case.engine(FaultyWriter(case.storage, after=moment, error=Killed())))

        with pytest.raises(LeaseLostError):
            apply(case.engine(lease=lease, settle=take_over))
        assert case.is_sealed() or case.files() in (case.before, case.wanted), moment
        other(case.engine())
        assert case.files() == (case.wanted if other is apply else case.before), moment


class StoppedMove(MemoryWriter):
    """A storage that moves by a copy; somebody is stopped before the other name goes."""

    meanwhile: Callable[[], None] | None = None

    def remove(self, file: Location) -> None:
        if self.meanwhile is not None and file.path.endswith(STATE):
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().remove(file)


@pytest.mark.parametrize("other", [apply, undo])
def test_no_file_of_the_state_is_lost_when_its_move_ends_late(other: Work) -> None:
    storage, lease = StoppedMove(), Lease()
    case = Case("drop", storage)

    def take_over() -> None:
        lease.is_lost = True
        other(case.engine())

    storage.meanwhile = take_over
    with pytest.raises(LeaseLostError):
        apply(case.engine(lease=lease))
    assert case.files() == (case.wanted if other is apply else case.before)


def test_who_stumbles_over_what_another_one_has_done_is_told_that_it_was_overtaken() -> None:
    case, lease = Case("cut"), Lease()
    case.put("metadata", b"changed meanwhile")
    lease.is_lost = True
    with pytest.raises(LeaseLostError):
        apply(case.engine(lease=lease))


# A driver that has looked before the seal stood, and writes afterwards.


@pytest.mark.parametrize("path", ["offsets/9", "commits/8"])
def test_plan_is_stale_when_a_driver_puts_its_file_over_the_seal(path: str) -> None:
    case = Case("cut")
    with pytest.raises(PlanStaleError, match="driver"):
        case.engine(settle=lambda: case.put(path, b"of a driver")).apply("proof")
    assert case.files() == {**case.before, path: b"of a driver"}
    assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("path", ["offsets/9", "commits/8"])
def test_undo_is_refused_when_a_driver_puts_its_file_over_the_seal(path: str) -> None:
    case = Case("edit")
    apply(case.engine())
    seal: list[str] = []

    def write() -> None:
        seal.extend(Room(case.location, case.plan.recovery, case.storage).seal())
        case.put(path, b"of a driver")

    with pytest.raises((PlanStaleError, UndoRefusedError)):
        case.engine(settle=write).undo("proof")
    assert path in seal
    assert case.files() == {**case.wanted, path: b"of a driver"}
    assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("kind", KINDS)
def test_file_of_a_driver_that_comes_later_still_stops_the_plan_before_the_seal_goes(kind: str) -> None:
    case = Case(kind)
    told = changes(Case(kind), apply)
    last = next(number for number, change in enumerate(told, 1) if change.endswith("/applied.json"))
    top = case.plan.seal[0]

    def drive(at: int) -> None:
        if at == last - 1:
            case.put(top, b"of a driver")

    with pytest.raises(CheckpointChangedError, match="seal"):
        apply(case.engine(FaultyWriter(case.storage, between=drive)))
    assert case.read(top) == b"of a driver"
    assert Room(case.location, case.plan.recovery, case.storage).stage() is RecoveryStage.APPLYING


# A driver that was started where no seal stood yet.


class EndedError(BaseException):
    """The process is gone."""


def stopped(case: Case, work: Work, after: str) -> None:
    """End `work` right after this change."""
    told = changes_so_far(case, work)
    number = next(number for number, change in enumerate(told, 1) if change.endswith(after))
    with pytest.raises(EndedError):
        work(case.engine(FaultyWriter(case.storage, after=number, error=EndedError())))


def changes_so_far(case: Case, work: Work) -> list[str]:
    """What `work` would do, tried on a copy."""
    copy = MemoryWriter()
    for top in (case.location, case.location.sibling(".lastgood")):
        for entry in case.storage.walk(top) or ():
            content = case.storage.read(top / entry.name, limit=1_000_000)
            copy.write(top / entry.name, content or b"")
    counting = FaultyWriter(copy)
    work(case.engine(counting))
    return counting.changes


def test_begun_before_it_was_sealed_is_taken_back_though_a_driver_has_gone_on() -> None:
    case = Case("cut")
    stopped(case, apply, "/begun.json")
    case.put("offsets/9", b"of a driver")
    undo(case.engine())
    assert case.files() == {**case.before, "offsets/9": b"of a driver"}
    assert find_open_recovery(case.storage, case.location) is None


def test_undo_that_was_killed_before_it_sealed_is_called_off_when_a_driver_has_gone_on() -> None:
    case = Case("edit")
    apply(case.engine())
    stopped(case, undo, "/undoing.json")
    case.put("offsets/9", b"of a driver")
    with pytest.raises((PlanStaleError, UndoRefusedError)):
        undo(case.engine())
    assert case.files() == {**case.wanted, "offsets/9": b"of a driver"}
    assert find_open_recovery(case.storage, case.location) is None


def test_applied_whose_seal_is_gone_is_not_taken_back_where_a_driver_has_gone_on() -> None:
    case = Case("edit")
    told = changes(Case("edit"), apply)
    unsealed = next(number for number, change in enumerate(told, 1) if change.endswith("/closed.json")) - 1
    with pytest.raises(EndedError):
        apply(case.engine(FaultyWriter(case.storage, after=unsealed, error=EndedError())))
    assert Room(case.location, case.plan.recovery, case.storage).stage() is RecoveryStage.APPLIED
    case.put("offsets/9", b"of a driver")
    with pytest.raises(UndoRefusedError):
        undo(case.engine())
    assert case.files() == {**case.wanted, "offsets/9": b"of a driver"}
    assert find_open_recovery(case.storage, case.location) is None
