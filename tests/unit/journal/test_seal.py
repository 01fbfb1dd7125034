from __future__ import annotations

import pytest

from lastgood.journal.lease import LeaseLostError
from lastgood.journal.room import RecoveryStage, Room
from lastgood.journal.seal import is_in_place, list_seal_files, put_up, take_down
from lastgood.storage.reading import parse_location
from lastgood.testing.storage import FaultyWriter, MemoryWriter


@pytest.mark.parametrize(
    ("planned", "committed", "then", "seal"),
    [
        (6, 6, 6, ("offsets/7",)),
        (7, 6, 6, ("offsets/8", "commits/7")),
        (7, 6, 7, ("offsets/8", "commits/7")),
        (7, 6, 11, ("offsets/12", "offsets/8", "commits/7")),
        (7, 7, 4, ("offsets/8",)),
        (0, None, None, ("offsets/1", "commits/0")),
        (None, None, 9, ("offsets/10", "offsets/0")),
        (None, 3, 3, ("offsets/4", "offsets/0")),
    ],
)
def test_seal_stands_where_any_driver_would_write_next(
    planned: int | None, committed: int | None, then: int | None, seal: tuple[str, ...]
) -> None:
    assert list_seal_files(planned, committed, then) == seal


def room() -> Room:
    return Room(parse_location("/lake/orders"), "20261121-160058-7f3a", MemoryWriter())


def test_newest_plan_of_a_seal_is_taken_away_last() -> None:
    sealed = room()
    assert put_up(sealed, ("offsets/12", "offsets/8", "commits/7")) is None
    counting = FaultyWriter(sealed.storage)
    take_down(Room(sealed.checkpoint, sealed.recovery, counting), ("offsets/12", "offsets/8", "commits/7"))
    assert [change.rpartition("orders/")[2] for change in counting.changes] == ["commits/7", "offsets/8", "offsets/12"]


def test_seal_is_not_put_where_a_driver_has_written() -> None:
    sealed = room()
    sealed.storage.write(sealed.file("offsets/8"), b"v1")
    assert put_up(sealed, ("offsets/8", "commits/7")) == "offsets/8"
    assert put_up(sealed, ("commits/7",)) is None


def test_part_that_was_written_over_is_no_part_any_more() -> None:
    sealed = room()
    put_up(sealed, ("offsets/9", "offsets/8"))
    sealed.storage.write(sealed.file("offsets/8"), b"v1")
    take_down(sealed, ("offsets/9", "offsets/8"))
    assert not is_in_place(sealed, "offsets/9")
    assert sealed.storage.read(sealed.file("offsets/8"), limit=10) == b"v1"


def late() -> None:
    raise LeaseLostError("somebody else has taken over")


class SoonLate:
    """A check that is passed once."""

    def __init__(self) -> None:
        self._passed = False

    def __call__(self) -> None:
        if self._passed:
            late()
        self._passed = True


@pytest.mark.parametrize(
    "stage", [None, RecoveryStage.APPLIED, RecoveryStage.CLOSED, RecoveryStage.UNDONE, RecoveryStage.TAKEN_BACK]
)
def test_part_that_was_put_up_too_late_goes_again(stage: RecoveryStage | None) -> None:
    sealed = room()
    if stage is not None:
        sealed.enter(stage, {})
    with pytest.raises(LeaseLostError):
        put_up(sealed, ("offsets/8",), SoonLate())
    assert not is_in_place(sealed, "offsets/8")


@pytest.mark.parametrize(
    "stage", [RecoveryStage.BEGUN, RecoveryStage.APPLYING, RecoveryStage.UNDOING, RecoveryStage.TAKING_BACK]
)
def test_part_that_the_one_who_took_over_needs_stays(stage: RecoveryStage) -> None:
    sealed = room()
    sealed.enter(stage, {})
    with pytest.raises(LeaseLostError):
        put_up(sealed, ("offsets/8",), SoonLate())
    assert is_in_place(sealed, "offsets/8")


def test_who_was_overtaken_takes_no_part_of_a_seal_away() -> None:
    sealed = room()
    put_up(sealed, ("offsets/8",))
    with pytest.raises(LeaseLostError):
        take_down(sealed, ("offsets/8",), late)
    assert is_in_place(sealed, "offsets/8")
