from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contention import contend_for_files
from fsspec.implementations.memory import MemoryFileSystem

from lastgood.errors import NoSpaceError, StorageError
from lastgood.storage import Location, StorageDeniedError, parse_location
from lastgood.writing import FsspecWriter, LocalWriter, WritableStorage, open_writable


def memory() -> MemoryFileSystem:
    filesystem = MemoryFileSystem()
    filesystem.store = {}
    filesystem.pseudo_dirs = [""]
    return filesystem


@pytest.fixture(params=["local", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[WritableStorage, Location]:
    """Every writable storage, and an empty folder on it."""
    if request.param == "local":
        return open_writable(parse_location(str(tmp_path))), parse_location(str(tmp_path))
    return FsspecWriter(memory()), parse_location("s3://bucket/folder")


def test_a_file_is_put_in_its_place_with_the_folders_above_it(place: tuple[WritableStorage, Location]) -> None:
    storage, root = place
    content = b"\0\xff\r\n" * 1000
    storage.write(root / "a/b/7", content)
    assert storage.read(root / "a/b/7", limit=10**6) == content
    assert list(storage.names(root / "a/b") or ()) == ["7"]


def test_a_file_that_is_there_is_replaced(place: tuple[WritableStorage, Location]) -> None:
    storage, root = place
    storage.write(root / "7", b"a longer content")
    storage.write(root / "7", b"short")
    assert storage.read(root / "7", limit=100) == b"short"


def test_a_file_is_created_only_where_there_is_none(place: tuple[WritableStorage, Location]) -> None:
    storage, root = place
    assert storage.create(root / "a/b/7", b"first")
    assert not storage.create(root / "a/b/7", b"second")
    assert storage.read(root / "a/b/7", limit=100) == b"first"
    assert list(storage.names(root / "a/b") or ()) == ["7"]
    storage.remove(root / "a/b/7")
    assert storage.create(root / "a/b/7", b"third")


def test_out_of_several_who_create_the_same_file_one_does(tmp_path: Path) -> None:
    contend_for_files(parse_location(str(tmp_path)), open_writable)


def test_a_file_is_removed_and_may_be_gone_already(place: tuple[WritableStorage, Location]) -> None:
    storage, root = place
    storage.write(root / "7", b"x")
    storage.remove(root / "7")
    storage.remove(root / "7")
    assert storage.read(root / "7", limit=1) is None


def test_nobody_ever_sees_half_a_file_nor_a_draft_that_spark_would_read(tmp_path: Path) -> None:
    """Killed while it writes: the old content stays, and what is left over has the name of Spark's own left-overs."""
    (tmp_path / "7").write_bytes(b"old")
    code = (
        "import os, sys; from lastgood.storage import parse_location; from lastgood.writing import LocalWriter\n"
        "os.fsync = lambda descriptor: os._exit(9)\n"
        "LocalWriter().write(parse_location(sys.argv[1]), b'new' * 1000)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "7")]).returncode == 9
    assert (tmp_path / "7").read_bytes() == b"old"
    (draft,) = (path.name for path in tmp_path.iterdir() if path.name != "7")
    from lastgood.checkpoint.layout import TemporaryFile, classify

    assert isinstance(classify(f"offsets/{draft}"), TemporaryFile)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (PermissionError(errno.EACCES, "no"), StorageDeniedError),
        (OSError(errno.ENOSPC, "full"), NoSpaceError),
        (OSError(errno.EDQUOT, "quota"), NoSpaceError),
        (OSError(errno.EROFS, "read-only"), StorageError),
    ],
)
def test_what_the_system_refuses_is_told_and_leaves_no_draft(
    cause: OSError, expected: type[StorageError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise cause

    monkeypatch.setattr(os, "fsync", refuse)
    for act in (LocalWriter().write, LocalWriter().create):
        with pytest.raises(expected) as refused:
            act(parse_location(str(tmp_path / "7")), b"x")
        assert (type(refused.value), refused.value.subject) == (expected, str(tmp_path / "7"))
        assert refused.value.__cause__ is cause
        assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mirror").write_bytes(b"")
    for act in acts(LocalWriter(), parse_location(str(tmp_path / "mirror/parts/1"))):
        with pytest.raises(StorageError):
            act()


def acts(storage: WritableStorage, file: Location) -> list[Callable[[], object]]:
    return [lambda: storage.write(file, b""), lambda: storage.create(file, b""), lambda: storage.remove(file)]


class DeadFilesystem:
    """Raises whatever it is told to."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*arguments: Any, **options: Any) -> None:
            raise self.error

        return fail


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (PermissionError("403"), StorageDeniedError),
        (ConnectionError("reset"), StorageError),
        (RuntimeError("whatever a backend raises"), StorageError),
    ],
)
def test_an_object_store_that_does_not_take_it_is_an_error(cause: Exception, expected: type[StorageError]) -> None:
    for act in acts(FsspecWriter(DeadFilesystem(cause)), parse_location("s3://bucket/7")):
        with pytest.raises(expected) as refused:
            act()
        assert refused.value.subject == "s3://bucket/7"


def test_a_bucket_that_does_not_exist_is_an_error_to_write_to() -> None:
    with pytest.raises(StorageError):
        FsspecWriter(DeadFilesystem(FileNotFoundError("no bucket"))).write(parse_location("s3://bucket/7"), b"")
