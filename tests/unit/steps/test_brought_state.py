"""A file of the state that is brought from where it was made anew."""

from __future__ import annotations

import pytest

from lastgood.planning.steps import BringStep
from lastgood.steps.brought_state import BroughtState
from lastgood.steps.carrying import CheckpointChangedError, Site
from lastgood.steps.kinds import parse_step
from lastgood.storage.reading import parse_location
from lastgood.testing.storage import MemoryWriter

CHECKPOINT, BEFORE = parse_location("/lake/orders"), parse_location("/lake/orders.lastgood/before")
PATH = "state/0/0/9.delta"
SOURCE = f"rebuilt/20261127-101500-1a2b/checkpoint/{PATH}"
PLACE, MADE, KEPT = CHECKPOINT / PATH, CHECKPOINT.sibling(".lastgood") / SOURCE, BEFORE / PATH
OLD, NEW = b"as it was", b"made anew"
"""As long as each other: their lengths tell nothing."""


def brought(storage: MemoryWriter, size: int | None = len(OLD)) -> BroughtState:
    step = BringStep(PATH, size, SOURCE, len(NEW), "test")
    return BroughtState(step, Site("r", CHECKPOINT, storage, BEFORE, 0, lambda _: storage))


def held(storage: MemoryWriter) -> tuple[bytes | None, ...]:
    return tuple(storage.read(each, limit=100) for each in (PLACE, MADE, KEPT))


@pytest.fixture
def storage() -> MemoryWriter:
    found = MemoryWriter()
    found.write(MADE, NEW)
    found.write(PLACE, OLD)
    return found


def test_what_was_there_is_kept_and_comes_back(storage: MemoryWriter) -> None:
    file = brought(storage)
    assert (file.is_as_planned(()), file.is_done(())) == (True, False)
    for _ in range(2):
        file.do(())
        assert held(storage) == (NEW, None, OLD)
    assert (file.is_as_planned(()), file.is_done(())) == (False, True)
    file.require_backup()
    for _ in range(2):
        file.undo(())
        assert held(storage) == (OLD, NEW, None)


@pytest.mark.parametrize(
    "left",
    [
        pytest.param((OLD, NEW, OLD), id="the old one copied to where it is kept"),
        pytest.param((None, NEW, OLD), id="the old one moved"),
        pytest.param((NEW, NEW, OLD), id="the new one copied to its place"),
        pytest.param((NEW, None, OLD), id="done"),
    ],
)
def test_killed_between_any_two_changes_it_is_finished_or_taken_back(left: tuple[bytes | None, ...]) -> None:
    for is_finished in (True, False):
        storage = MemoryWriter()
        for place, content in zip((PLACE, MADE, KEPT), left, strict=True):
            if content is not None:
                storage.write(place, content)
        file = brought(storage)
        if is_finished:
            file.do(())
            assert held(storage) == (NEW, None, OLD)
        file.undo(())
        assert held(storage)[:2] == (OLD, NEW)


def test_file_that_was_not_there_goes_back(storage: MemoryWriter) -> None:
    storage.remove(PLACE)
    file = brought(storage, None)
    file.do(())
    assert held(storage) == (NEW, None, None)
    file.undo(())
    assert held(storage) == (None, NEW, None)


def test_what_is_gone_or_another_is_told(storage: MemoryWriter) -> None:
    storage.write(PLACE, b"of somebody else")
    with pytest.raises(CheckpointChangedError):
        brought(storage).do(())
    storage.remove(MADE)
    assert not brought(storage).is_as_planned(())


@pytest.mark.parametrize("source", [f"../{PATH}", f"recoveries/1/before/{PATH}", f"rebuilt/1/checkpoint/x/../{PATH}"])
def test_it_comes_from_nowhere_else(source: str) -> None:
    told = BringStep(PATH, None, SOURCE, 9, "test").to_json()
    assert parse_step(told) == BringStep(PATH, None, SOURCE, 9, "test")
    with pytest.raises(ValueError, match="no place where"):
        parse_step({**told, "source": source})
