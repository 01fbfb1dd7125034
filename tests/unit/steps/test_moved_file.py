"""A file that is set aside by moving it."""

from __future__ import annotations

import pytest

from lastgood.steps.carrying import CheckpointChangedError
from lastgood.steps.moved_file import MovedFile
from lastgood.storage.reading import parse_location
from lastgood.testing.storage import MemoryWriter

PLACE, KEPT = parse_location("/lake/orders/state/0/0/9.delta"), parse_location("/lake/orders.lastgood/before/9.delta")


@pytest.fixture
def storage() -> MemoryWriter:
    found = MemoryWriter()
    found.write(PLACE, b"state")
    return found


def held(storage: MemoryWriter) -> tuple[bytes | None, bytes | None]:
    return storage.read(PLACE, limit=100), storage.read(KEPT, limit=100)


def test_file_goes_once_and_comes_back_once(storage: MemoryWriter) -> None:
    file = MovedFile(storage, PLACE, KEPT, 5)
    assert not file.is_done(())
    for _ in range(2):
        file.do(())
        assert held(storage) == (None, b"state")
    assert file.is_done(())
    for _ in range(2):
        file.undo(())
        assert held(storage) == (b"state", None)


def test_move_that_was_interrupted_is_finished_forth_and_left_at_both_places_back(storage: MemoryWriter) -> None:
    file = MovedFile(storage, PLACE, KEPT, 5)
    storage.write(KEPT, b"state")
    file.undo(())
    assert held(storage) == (b"state", b"state")
    file.do(())
    assert held(storage) == (None, b"state")


def test_file_of_another_size_is_somebody_elses(storage: MemoryWriter) -> None:
    file = MovedFile(storage, PLACE, KEPT, 6)
    with pytest.raises(CheckpointChangedError) as caught:
        file.do(())
    assert (caught.value.found, caught.value.expected) == ("5 bytes", "6 bytes")
    assert held(storage) == (b"state", None)


def test_nothing_is_written_over(storage: MemoryWriter) -> None:
    storage.write(KEPT, b"of another")
    for act in (MovedFile(storage, PLACE, KEPT, 5).do, MovedFile(storage, PLACE, KEPT, 10).undo):
        with pytest.raises(CheckpointChangedError):
            act(())
    assert held(storage) == (b"state", b"of another")


def test_file_that_is_gone_is_told(storage: MemoryWriter) -> None:
    storage.remove(PLACE)
    with pytest.raises(CheckpointChangedError) as caught:
        MovedFile(storage, PLACE, KEPT, 5).do(())
    assert caught.value.found == "no such file"


def test_file_that_the_query_may_make_anew_says_nothing_of_whether_it_was_moved(storage: MemoryWriter) -> None:
    assert MovedFile(storage, PLACE, KEPT, 5, comes_anew=True).is_done(())


@pytest.mark.parametrize("anew", [b"other", b"of another size"])
def test_what_came_anew_in_its_place_goes_when_it_comes_back(storage: MemoryWriter, anew: bytes) -> None:
    file = MovedFile(storage, PLACE, KEPT, 5, comes_anew=True)
    file.do(())
    storage.write(PLACE, anew)
    for _ in range(2):
        file.undo(())
        assert held(storage) == (b"state", None)


def test_half_of_a_move_is_nothing_that_came_anew(storage: MemoryWriter) -> None:
    storage.write(KEPT, b"state")
    MovedFile(storage, PLACE, KEPT, 5, comes_anew=True).undo(())
    assert held(storage) == (b"state", b"state")
