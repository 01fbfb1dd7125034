from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lastgood.errors import StorageError
from lastgood.sinks import opening as module
from lastgood.sinks.evidence import DedupeKey
from lastgood.sinks.opening import normalise_sink, open_sink
from lastgood.storage.reading import LocalStorage, LocationInvalidError, StorageDeniedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def make(folder: Path, *below: str) -> None:
    for name in below:
        (folder / name).mkdir(parents=True)


@pytest.mark.parametrize(("below", "kind"), [("_delta_log", "delta"), ("_spark_metadata", "file")])
def test_kind_is_told_from_what_is_there(folder: Path, below: str, kind: str) -> None:
    make(folder, below)
    assert open_sink(str(folder)).kind == kind
    assert open_sink(f"file:{folder}").kind == kind
    assert open_sink(f"file://{folder}").location == str(folder)


def test_iceberg_table_is_told_from_its_metadata_files(folder: Path) -> None:
    make(folder, "metadata")
    assert open_sink(str(folder)).kind == "unrecognised"
    file = folder / "metadata" / "v1.metadata.json"
    file.write_text("{}")
    assert open_sink(str(folder)).kind == "iceberg"
    assert open_sink(str(file)).kind == "iceberg"
    assert open_sink(f"iceberg:{folder}").kind == "iceberg"


def test_delta_table_counts_before_what_was_there_earlier(folder: Path) -> None:
    make(folder, "_delta_log", "_spark_metadata")
    assert open_sink(str(folder)).kind == "delta"


def test_prefix_settles_the_kind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(folder, "_spark_metadata")
    assert open_sink(f"delta:{folder}").kind == "delta"
    monkeypatch.setattr(module, "open_storage", lambda *_: LocalStorage())  # the others are not installed everywhere
    assert open_sink("delta:s3a://lake/orders").location == "s3a://lake/orders"
    assert open_sink("file:hdfs://name/out").location == "hdfs://name/out"


def test_folder_that_is_not_there_holds_no_batch(folder: Path) -> None:
    sink = open_sink(str(folder))
    found = sink.evidence("q", now_ms=0)
    assert (sink.kind, found.last_batch, found.known, found.would_skip(0)) == ("absent", None, True, False)
    assert found.dedupe_key is DedupeKey.NONE


def test_file_sink_that_has_not_written_yet_is_named_by_its_prefix(folder: Path) -> None:
    sink = open_sink(f"file:{folder}")
    assert (sink.kind, sink.evidence("q", now_ms=0).last_batch) == ("file", None)


def test_folder_of_plain_files_cannot_tell(folder: Path) -> None:
    make(folder, "day=1")
    found = open_sink(str(folder)).evidence("q", now_ms=0)
    assert (found.kind, found.known, found.would_skip(0)) == ("unrecognised", False, None)
    found = open_sink(f"file:{folder}").evidence("q", now_ms=0)
    assert (found.kind, found.known, found.would_skip(0)) == ("file", False, False)


def test_storage_that_does_not_let_us_look_is_an_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Denied(LocalStorage):
        def stat(self, location: object) -> None:
            raise StorageDeniedError("the storage does not let us look", subject=str(location))

    monkeypatch.setattr(module, "open_storage", lambda *_: Denied())
    found = open_sink(str(folder)).evidence("q", now_ms=0)
    assert (found.kind, found.known, found.is_silent) == ("unknown", False, False)
    assert "does not let us look" in found.because


def test_storage_that_does_not_answer_may_do_so_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(LocalStorage):
        def stat(self, location: object) -> None:
            raise StorageError("the storage does not answer", subject=str(location))

    monkeypatch.setattr(module, "open_storage", lambda *_: Silent())
    found = open_sink(str(folder)).evidence("q", now_ms=0)
    assert (found.kind, found.known, found.is_silent) == ("unknown", False, True)


def test_database_is_told_from_its_url(tmp_path: Path) -> None:
    file = tmp_path / "sink.db"
    sqlite3.connect(file).close()
    assert open_sink(f"sqlite:///{file}").kind == "fence"


def test_location_that_is_none_is_refused() -> None:
    with pytest.raises(LocationInvalidError):
        open_sink("ftp://host/out")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("delta:/lake/t", "/lake/t/"),
        ("file:///lake/t", "/lake/t"),
        ("s3://lake/t", "delta:s3a://lake/t"),
        ("postgresql://me:secret@db/x#fence", "postgresql://me@db/x"),
    ],
)
def test_sink_is_the_same_however_it_is_named(one: str, other: str) -> None:
    assert normalise_sink(one) == normalise_sink(other) != normalise_sink("/lake/others")
