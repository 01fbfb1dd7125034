"""One file that a step writes: in the checkpoint, or the one outside of it that its user has named."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.journal.room import Room
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import FileStep, compute_digest
from lastgood.steps.carrying import Carrying, CheckpointChangedError, Site, UndoRefusedError
from lastgood.steps.kinds import open_carrying
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable

OLD, NEW = b"as it was", b"as it will be"


@pytest.fixture(params=["inside", "outside"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the file of a step lies."""
    (tmp_path / "chk").mkdir()
    return tmp_path / ("chk/metadata" if request.param == "inside" else "app/start.json")


def written(place: Path, before: bytes | None, after: bytes = NEW) -> Carrying:
    root = next(folder for folder in place.parents if (folder / "chk").is_dir())
    checkpoint = parse_location(str(root / "chk"))
    room = Room(checkpoint, "20261121-160058-7f3a", open_writable(checkpoint))
    site = Site(
        recovery=room.recovery,
        checkpoint=checkpoint,
        storage=room.storage,
        kept=room.before,
        now_ms=0,
        open_other=open_writable,
    )
    place.parent.mkdir(exist_ok=True)
    if before is not None:
        place.write_bytes(before)
    if place.name == "metadata":
        return open_carrying(FileStep("metadata", compute_digest(before), after, "why"), site)
    return open_carrying(StartFileStep(str(place), compute_digest(before), after, "why"), site)


def test_file_is_changed_once_and_put_back_as_it_was(place: Path) -> None:
    file = written(place, OLD)
    assert file.is_as_planned(())
    file.back_up()
    for _ in range(2):
        file.do(())
        assert place.read_bytes() == NEW
    assert file.is_done(())
    file.require_backup()
    for _ in range(2):
        file.undo(())
        assert place.read_bytes() == OLD


def test_file_that_was_not_there_goes_again(place: Path) -> None:
    file = written(place, None)
    file.back_up()
    file.do(())
    assert place.read_bytes() == NEW
    file.undo(())
    assert not place.exists()


def test_file_that_somebody_else_has_changed_is_not_touched(place: Path) -> None:
    file = written(place, OLD)
    place.write_bytes(b"of somebody else")
    assert not file.is_as_planned(())
    for act in (file.do, file.undo, file.is_done):
        with pytest.raises(CheckpointChangedError):
            act(())
    with pytest.raises(CheckpointChangedError, match="backup"):
        file.back_up()
    assert place.read_bytes() == b"of somebody else"


def test_change_without_a_backup_is_known(place: Path) -> None:
    file = written(place, OLD)
    file.back_up()
    file.do(())
    root = next(folder for folder in place.parents if (folder / "chk").is_dir())
    (kept,) = [path for path in (root / "chk.lastgood").rglob("*") if path.is_file()]
    kept.unlink()
    with pytest.raises(UndoRefusedError, match="backup"):
        file.require_backup()


def test_part_of_a_seal_counts_as_no_file(tmp_path: Path) -> None:
    (tmp_path / "chk").mkdir()
    file = written(tmp_path / "chk/metadata", None)
    Path(tmp_path / "chk/metadata").write_bytes(b"")
    assert not file.is_done(("metadata",))
    file.do(("metadata",))
    file.undo(("metadata",))
    assert (tmp_path / "chk/metadata").read_bytes() == b""
