"""Where records go: objects, and beside checkpoints."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from ledgers import only_query, progress, small_disk

from lastgood.errors import StorageError
from lastgood.ledger import connecting
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.url import LedgerPlace, parse_place
from lastgood.records.files import parse_records, sort_record_files
from lastgood.records.record import Terminated
from lastgood.spark import record_sinks
from lastgood.spark.agent import writer as agent_writer
from lastgood.spark.agent.files import RecordFileWriter
from lastgood.spark.agent.writer import Writer
from lastgood.spark.record_sinks import BesideCheckpoints, LedgerSink, ObjectSink, open_record_taker
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import FsspecWriter

LAKE = Location("s3a", "lake", "/chk.lastgood/records")


def numbered(number: int, checkpoint: str | None = None) -> dict[str, Any]:
    return Terminated(recorded_at_ms=number, checkpoint=checkpoint).to_json()


def numbers(content: bytes) -> list[int]:
    read = parse_records(content)
    assert read.unread == 0
    return [record.recorded_at_ms for record in read.records]


@pytest.fixture
def storage() -> FsspecWriter:
    class Memory(MemoryFileSystem):  # type: ignore[misc]
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]
        cachable = False

    return FsspecWriter(Memory())


def objects(storage: FsspecWriter) -> list[list[int]]:
    names = sort_record_files(entry.name for entry in storage.scan(LAKE) or ())
    return [numbers(storage.read(LAKE / name, limit=10**7) or b"") for name in names]


def test_newest_object_is_put_again_until_it_is_large_then_there_is_another(
    storage: FsspecWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_sinks, "OBJECT_BYTES_MAX", 2 * len(str(numbered(1))) - 60)
    monkeypatch.setattr(record_sinks, "OBJECTS_MAX", 2)
    sink = ObjectSink(LAKE, storage)
    for number in range(1, 8):
        sink.write([numbered(number)])
    assert objects(storage) == [[5, 6], [7]]


def test_records_of_an_object_that_could_not_be_put_are_not_in_the_next(storage: FsspecWriter) -> None:
    sink = ObjectSink(LAKE, storage)
    sink.write([numbered(1)])
    put, storage.filesystem.pipe_file = storage.filesystem.pipe_file, refuse
    with pytest.raises(StorageError):
        sink.write([numbered(2)])
    storage.filesystem.pipe_file = put
    sink.write([numbered(3)])
    assert objects(storage) == [[1, 3]]


def refuse(*_: object, **__: object) -> None:
    raise ConnectionError("no answer")


def test_local_folders_are_appended_to() -> None:
    assert isinstance(open_record_taker(parse_location("/records")), RecordFileWriter)


def files(folder: Path) -> list[int]:
    return [number for file in sorted(folder.iterdir()) for number in numbers(file.read_bytes())]


def test_each_query_has_its_records_beside_its_checkpoint(tmp_path: Path) -> None:
    sink = BesideCheckpoints(tmp_path / "elsewhere")
    records = [
        numbered(1, f"file:{tmp_path}/a"),
        numbered(2, f"{tmp_path}/b"),
        numbered(3, None),
        numbered(4, f"file:{tmp_path}/temporary-8c1f"),
        numbered(5, "viewfs://x/chk"),
        numbered(6, "file:/"),
        numbered(7, f"file:{tmp_path}/a"),
    ]
    sink.write(records)
    assert sink.pause_seconds == 0
    sink.close()
    assert files(tmp_path / "a.lastgood" / "records") == [1, 7]
    assert files(tmp_path / "b.lastgood" / "records") == [2]
    assert files(tmp_path / "elsewhere") == [3, 4, 5, 6]


def test_checkpoint_whose_storage_fails_holds_up_no_other_and_doubles_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.lastgood").touch()
    sink = BesideCheckpoints(tmp_path / "elsewhere")
    records = [numbered(1, f"file:{tmp_path}/a"), numbered(2, f"file:{tmp_path}/b")]
    for _ in range(2):
        with pytest.raises(OSError, match="Not a directory"):
            sink.write(records)
    (tmp_path / "a.lastgood").unlink()
    sink.write(records)
    assert files(tmp_path / "a.lastgood" / "records") == [1]
    assert files(tmp_path / "b.lastgood" / "records") == [2]


WAIT_SECONDS = 60.0


@pytest.fixture
def place(tmp_path: Path) -> LedgerPlace:
    return parse_place(str(tmp_path / "folder" / "ledger.db"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(agent_writer, "RETRY_SECONDS", (0.05,))
    monkeypatch.setattr(LedgerSink, "pause_seconds", 0.05)


@pytest.fixture
def writer(place: LedgerPlace) -> Iterator[Writer]:
    begun = Writer(LedgerSink(place))
    yield begun
    begun.close(WAIT_SECONDS)


def record(writer: Writer, *batch_ids: int) -> None:
    for batch_id in batch_ids:
        writer.put(functools.partial(lambda at: [progress(at).to_json()], batch_id), 1)


def batches(place: LedgerPlace) -> list[int]:
    with open_ledger(place, create=False) as ledger:
        return ledger.batch_ids(only_query(ledger))


def test_ledger_gets_what_is_recorded(place: LedgerPlace, writer: Writer) -> None:
    record(writer, 1, 2, 2)
    assert writer.flush(WAIT_SECONDS)
    assert (batches(place), writer.recorded, writer.dropped, writer.trouble) == ([1, 2], 3, 0, None)


def test_what_is_no_record_of_ours_is_left_out(place: LedgerPlace) -> None:
    sink = LedgerSink(place)
    sink.write([{"kind": "of a newer lastgood"}, progress(1).to_json()])
    sink.close()
    assert batches(place) == [1]


def test_ledger_that_is_locked_gets_everything_once_it_is_free(place: LedgerPlace, writer: Writer) -> None:
    record(writer, 1)
    assert writer.flush(WAIT_SECONDS)
    assert place.path is not None
    other = sqlite3.connect(place.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    record(writer, 2, 3)
    assert not writer.flush(1.0)
    assert writer.trouble == "LedgerLockedError: others write to the ledger"
    other.execute("COMMIT")
    other.close()
    assert writer.flush(WAIT_SECONDS)
    assert (batches(place), writer.dropped) == ([1, 2, 3], 0)


def test_ledger_that_appears_late_or_anew_gets_what_waits(tmp_path: Path, place: LedgerPlace, writer: Writer) -> None:
    (tmp_path / "folder").touch()
    record(writer, 1)
    assert not writer.flush(0.2)
    (tmp_path / "folder").unlink()
    assert writer.flush(WAIT_SECONDS)
    for file in (tmp_path / "folder").iterdir():
        file.unlink()
    record(writer, 2)
    assert writer.flush(WAIT_SECONDS)
    assert (batches(place), writer.dropped) == ([2], 0)


def test_what_a_ledger_does_not_take_until_the_end_is_counted(tmp_path: Path, place: LedgerPlace) -> None:
    (tmp_path / "folder").touch()
    writer = Writer(LedgerSink(place))
    record(writer, 1, 2)
    writer.close(WAIT_SECONDS)
    assert (writer.recorded, writer.dropped) == (0, 2)


def test_ledger_on_a_full_disk_gets_everything_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        place = parse_place(str(disk.folder / "ledger.db"))
        writer = Writer(LedgerSink(place))
        record(writer, 1)
        assert writer.flush(WAIT_SECONDS)
        disk.fill()
        record(writer, 2, 3)
        assert not writer.flush(0.5)
        assert writer.trouble is not None
        disk.make_room()
        assert writer.flush(WAIT_SECONDS)
        writer.close(WAIT_SECONDS)
        assert (batches(place), writer.dropped) == ([1, 2, 3], 0)
