"""Whatever a storage refuses in the middle of a repair, it is told, and the repair is finished or taken back later."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from repair.engine_cases import Case, changes, moments

from lastgood.errors import NoSpaceError, StorageError
from lastgood.journal.room import find_open_recovery
from lastgood.recovery import applying as operation
from lastgood.storage.reading import StorageDeniedError
from lastgood.testing.storage import FaultyWriter

ERRORS = (NoSpaceError, StorageDeniedError)
DAY_MS = 24 * 3600 * 1000


def refusals(error: type[StorageError], kind: str, verb: str) -> Iterator[tuple[Case, dict[str, int]]]:
    """A case for each change of the storage, which is refused, and at which it has stopped."""
    counted = Case(kind)
    if verb == "undo":
        counted.engine().apply("proof")
    count = len(changes(counted, lambda engine: getattr(engine, verb)("proof")))
    for moment in moments(count):
        case = Case(kind)
        if verb == "undo":
            case.engine().apply("proof")
        faulty = FaultyWriter(case.storage, error=error("no", subject="x"), lasts=False, **moment)
        with pytest.raises(error):
            getattr(case.engine(faulty), verb)("proof")
        assert case.is_sealed() or case.files() in (case.before, case.wanted), moment
        assert not case.commits_ahead()
        yield case, moment


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", ["cut", "lift"])
def test_apply_that_is_refused_a_change_is_finished_later(kind: str, error: type[StorageError]) -> None:
    for case, moment in refusals(error, kind, "apply"):
        case.engine().apply("proof")
        assert case.files() == case.wanted, moment
        assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_repair_that_is_refused_a_change_is_taken_back_later(verb: str) -> None:
    for case, moment in refusals(NoSpaceError, "cut", verb):
        case.engine().undo("proof")
        assert case.files() == case.before, moment
        assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("jump_ms", [-3650 * DAY_MS, 3650 * DAY_MS])
def test_clock_that_jumps_meanwhile_changes_nothing(jump_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the lease is told by what changes, not by what a clock says; the recovery is as whole as any."""
    ticks = itertools.count(1_790_000_000_000, jump_ms // 7)
    monkeypatch.setattr(operation, "read_clock_ms", lambda: next(ticks))
    case = Case("cut")
    lease = operation._take_lease(case.storage, case.location.sibling(".lastgood"), case.plan.recovery, print)
    with lease:
        for _ in range(3):
            lease.beat()
        case.engine(lease=lease).apply("proof")
        lease.check()
        assert case.files() == case.wanted
        case.engine(lease=lease).undo("proof")
    assert case.files() == case.before
