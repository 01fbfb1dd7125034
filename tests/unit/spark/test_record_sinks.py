"""Where records go: objects, and beside checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lastgood.errors import StorageError
from lastgood.records.files import in_order, parse_records
from lastgood.records.record import Terminated
from lastgood.spark import record_sinks
from lastgood.spark.agent.files import FileSink
from lastgood.spark.record_sinks import BesideCheckpoints, ObjectSink, sink_for
from lastgood.storage import Location, parse_location
from lastgood.writing import FsspecWriter

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
    names = in_order(entry.name for entry in storage.scan(LAKE) or ())
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
    assert isinstance(sink_for(parse_location("/records")), FileSink)


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
