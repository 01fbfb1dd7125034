"""A folder of the file sink is that of one query: Spark passes over batches whose number its log has."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.sinks.files.kind import NOTE
from lastgood.sinks.files.owning import put_aside, reserve
from lastgood.sinks.files.sink import FileSink
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.storage import MemoryWriter

CHECKPOINT = Location("file", "", "/lake/chk")


def ask(folder: Path, *, checkpoint: Location = CHECKPOINT, planned: int | None = None) -> str | None:
    location = parse_location(str(folder))
    return reserve(LocalWriter(root=location), location, checkpoint, planned)


def write_log(folder: Path, *batches: int) -> None:
    (folder / "_spark_metadata").mkdir(parents=True)
    for batch in batches:
        (folder / "_spark_metadata" / str(batch)).write_text("v1")


def test_the_first_has_it_and_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    assert ask(folder) is None
    write_log(folder, 0, 1)
    assert ask(folder) is None
    assert ask(folder, planned=0) is None, "whose it is is noted: nothing else counts"
    other = ask(folder, checkpoint=Location("file", "", "/lake/other"))
    assert other == f"{NOTE}: it is the table of the load on /lake/chk"


def test_a_folder_that_is_only_kept_shows_no_batch(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    assert ask(folder) is None
    location = parse_location(str(folder))
    found = FileSink(LocalWriter(root=location), location).evidence("q", now_ms=0)
    assert (found.known, found.last_batch) == (True, None)


def test_what_was_there_before_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    write_log(folder, 0, 1)
    found = "_spark_metadata with batch 1: another query writes there, and Spark would pass over batches"
    assert (ask(folder), ask(folder, planned=0)) == (found, found)
    assert not (folder / NOTE).exists()
    assert ask(folder, planned=1) is None, "a query that began before such notes were made"
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "_temporary").mkdir()
    assert ask(plain) is None
    (plain / NOTE).unlink()
    (plain / "part-0.parquet").touch()
    assert ask(plain) == "part-0.parquet, which its readers would no longer see"


@pytest.mark.parametrize("note", ["", "{}", '{"checkpoint": 1}', "[" * 99])
def test_a_note_that_is_not_understood_is_nobodys(tmp_path: Path, note: str) -> None:
    (tmp_path / NOTE).write_text(note)
    assert ask(tmp_path) == f"{NOTE}: it is the table of the load on ?"


def test_it_is_put_aside_with_all_that_it_has_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    location = parse_location(str(folder))
    storage = LocalWriter(root=location)
    assert put_aside(storage, location, str(CHECKPOINT), "x") is None
    assert ask(folder) is None
    write_log(folder, 0)
    assert put_aside(storage, location, "/lake/other", "x") is None
    kept = put_aside(storage, location, str(CHECKPOINT), "x")
    assert kept == str(tmp_path / "table.lastgood" / "undone" / "x" / "table")
    assert (folder.exists(), (Path(kept) / "_spark_metadata" / "0").exists()) == (False, True)
    assert put_aside(storage, location, str(CHECKPOINT), "x") == kept
    other = Location("file", "", "/lake/other")
    assert ask(folder, checkpoint=other) is None  # by now it is whoever's comes
    assert put_aside(storage, location, str(CHECKPOINT), "x") == kept
    assert (folder / NOTE).exists()


def test_on_an_object_store_nothing_is_loaded_there_again(tmp_path: Path) -> None:
    storage, folder = MemoryWriter(), parse_location("s3a://lake/t")
    assert reserve(storage, folder, CHECKPOINT, None) is None
    storage.write(folder / "_spark_metadata/0", b"v1")
    kept = put_aside(storage, folder, str(CHECKPOINT), "x")
    assert kept == "s3a://lake/t.lastgood/undone/x/table"
    assert [each.name for each in storage.walk(folder) or ()] == [NOTE]
    storage.write(folder / "_spark_metadata/1", b"v1")  # by one who has slept
    for checkpoint in (CHECKPOINT, Location("s3a", "lake", "/other")):
        why = reserve(storage, folder, checkpoint, None)
        assert why == f"{NOTE}: a load was taken back out of it, and a driver that sleeps may still write there"
    assert put_aside(storage, folder, "/lake/other", "y") is None
    assert storage.stat(folder / "_spark_metadata/1") is not None
    assert put_aside(storage, folder, str(CHECKPOINT), "x") == kept
