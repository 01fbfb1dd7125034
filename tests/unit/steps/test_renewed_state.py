"""A version of a state store that is made anew."""

from __future__ import annotations

import pytest

from lastgood.planning.steps import StateStep
from lastgood.steps.carrying import Site, UndoRefusedError
from lastgood.steps.renewed_state import RenewedState
from lastgood.storage.reading import parse_location
from lastgood.testing.storage import MemoryWriter

CHECKPOINT, BEFORE = parse_location("/lake/orders"), parse_location("/lake/orders.lastgood/before")
OURS = b"nothing"


@pytest.fixture
def storage() -> MemoryWriter:
    found = MemoryWriter()
    for name in ("8.delta", "9.delta", "9.snapshot"):
        found.write(CHECKPOINT / f"state/0/0/{name}", name.encode())
    return found


def renewed(storage: MemoryWriter, name: str, size: int | None, beside: tuple[str, ...] = ()) -> RenewedState:
    step = StateStep(f"state/0/0/{name}", size, OURS, "test", beside)
    return RenewedState(step, Site("r", CHECKPOINT, storage, BEFORE, 0, lambda _: storage))


def held(storage: MemoryWriter) -> dict[str, bytes]:
    names = [entry.name for entry in storage.walk(CHECKPOINT / "state/0/0") or ()]
    return {name: storage.read(CHECKPOINT / f"state/0/0/{name}", limit=100) or b"" for name in names}


def test_what_was_there_is_kept_and_comes_back(storage: MemoryWriter) -> None:
    before = held(storage)
    file = renewed(storage, "9.snapshot", 10, ("9.delta",))
    assert (file.is_as_planned(()), file.is_done(())) == (True, False)
    for _ in range(2):
        file.do(())
        assert held(storage) == {**before, "9.snapshot": OURS}
    assert (file.is_as_planned(()), file.is_done(())) == (False, True)
    file.require_backup()
    for _ in range(2):
        file.undo(())
        assert held(storage) == before


def test_file_that_was_not_there_goes_with_what_a_batch_has_made_since(storage: MemoryWriter) -> None:
    """But nothing that another step puts back, and nothing of an older version."""
    before = held(storage)
    file = renewed(storage, "9.zip", None, ("9.delta", "9.snapshot"))
    file.do(())
    for name in ("10.zip", "10.zip.crc", ".10.zip.crc", "9.changelog"):
        storage.write(CHECKPOINT / f"state/0/0/{name}", b"since")
    file.require_backup()
    for _ in range(2):
        file.undo(())
        assert held(storage) == before
    kept = {entry.name for entry in storage.walk(BEFORE / "made-since") or ()}
    assert kept == {f"state/0/0/{name}" for name in ("9.zip", "10.zip", "10.zip.crc", ".10.zip.crc", "9.changelog")}


def test_move_that_was_interrupted_is_finished(storage: MemoryWriter) -> None:
    file = renewed(storage, "9.snapshot", 10)
    storage.write(BEFORE / "state/0/0/9.snapshot", b"9.snapshot")
    file.do(())
    assert held(storage)["9.snapshot"] == OURS
    storage.remove(CHECKPOINT / "state/0/0/9.snapshot")
    file.undo(())
    assert held(storage)["9.snapshot"] == b"9.snapshot"


def test_step_that_was_not_begun_is_taken_back_by_nothing(storage: MemoryWriter) -> None:
    before = held(storage)
    renewed(storage, "9.snapshot", 10, ("9.delta",)).undo(())
    assert held(storage) == before


def test_file_that_is_as_it_will_be_stays(storage: MemoryWriter) -> None:
    storage.write(CHECKPOINT / "state/0/0/9.snapshot", OURS)
    file = renewed(storage, "9.snapshot", len(OURS), ("9.delta",))
    file.do(())
    file.undo(())
    assert held(storage)["9.snapshot"] == OURS


def test_backup_that_is_gone_is_told_before_anything_is_put_back(storage: MemoryWriter) -> None:
    file = renewed(storage, "9.snapshot", 10)
    file.do(())
    storage.remove(BEFORE / "state/0/0/9.snapshot")
    with pytest.raises(UndoRefusedError) as caught:
        file.require_backup()
    assert caught.value.found == "no such file"
