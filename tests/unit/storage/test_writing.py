from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lastgood.errors import NoSpaceError, StorageError
from lastgood.storage.reading import Location, StorageDeniedError, parse_location
from lastgood.storage.writing import (
    ExclusiveCreateUnsupportedError,
    FsspecWriter,
    LocalWriter,
    MoveRefusedError,
    S3Writer,
    WritableStorage,
    append,
    estimate_late_write_seconds,
    open_writable,
    require_exclusive_create,
)
from lastgood.testing.storage import MemoryWriter


@pytest.fixture(params=["local", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[WritableStorage, Location]:
    """Every writable storage, and an empty folder on it."""
    if request.param == "local":
        return open_writable(parse_location(str(tmp_path))), parse_location(str(tmp_path))
    return MemoryWriter(), parse_location("s3://bucket/folder")


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


def test_a_file_is_removed_and_may_be_gone_already(place: tuple[WritableStorage, Location]) -> None:
    storage, root = place
    storage.write(root / "7", b"x")
    storage.remove(root / "7")
    storage.remove(root / "7")
    assert storage.read(root / "7", limit=1) is None


def test_bytes_are_put_behind_those_of_a_file_on_a_disk(tmp_path: Path) -> None:
    storage, root = LocalWriter(), parse_location(str(tmp_path))
    storage.write(root / "7", b"one\n")
    assert append(storage, root / "7", b"two\n")
    assert (tmp_path / "7").read_bytes() == b"one\ntwo\n"
    assert not append(storage, root / "8", b"x")
    assert not append(MemoryWriter(), parse_location("s3://bucket/7"), b"x")
    assert inside(tmp_path) == ["7"]


def test_nothing_is_put_behind_a_file_that_stands_elsewhere_too_nor_into_a_pipe(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"whoever's")
    os.link(other, tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for name in ("link", "pipe"):
            assert not append(LocalWriter(), parse_location(str(tmp_path / name)), b"x")
    finally:
        os.close(reader)
    assert other.read_bytes() == b"whoever's"
    with pytest.raises(StorageError):  # nobody reads from it any more
        append(LocalWriter(), parse_location(str(tmp_path / "pipe")), b"x")


def test_nobody_ever_sees_half_a_file_nor_a_draft_that_spark_would_read(tmp_path: Path) -> None:
    """Killed while it writes: the old content stays, and what is left over has the name of Spark's own left-overs."""
    (tmp_path / "7").write_bytes(b"old")
    code = (
        "import os, sys\n"
        "from lastgood.storage.reading import parse_location\n"
        "from lastgood.storage.writing import LocalWriter\n"
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
    with pytest.raises(expected) as refused:
        LocalWriter().write(parse_location(str(tmp_path / "7")), b"x")
    assert (type(refused.value), refused.value.subject) == (expected, str(tmp_path / "7"))
    assert refused.value.__cause__ is cause
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mirror").write_bytes(b"")
    for act in acts(LocalWriter(), parse_location(str(tmp_path / "mirror/parts/1"))):
        with pytest.raises(StorageError):
            act()


def acts(storage: WritableStorage, file: Location) -> list[Callable[[], object]]:
    return [
        lambda: storage.write(file, b""),
        lambda: storage.create(file, b""),
        lambda: storage.remove(file),
    ]


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
    for kind in (FsspecWriter, S3Writer):
        for act in acts(kind(DeadFilesystem(cause)), parse_location("s3://bucket/7")):
            with pytest.raises(expected) as refused:
                act()
            assert refused.value.subject == "s3://bucket/7"


def test_a_bucket_that_does_not_exist_is_an_error_to_write_to() -> None:
    with pytest.raises(StorageError):
        FsspecWriter(DeadFilesystem(FileNotFoundError("no bucket"))).write(parse_location("s3://bucket/7"), b"")


def links_refused(monkeypatch: pytest.MonkeyPatch, code: int = errno.EPERM) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(code, "no links here")

    monkeypatch.setattr(os, "link", refuse)


def inside(folder: Location | Path | str) -> list[str]:
    return sorted(path.name for path in Path(str(folder)).iterdir())


@pytest.fixture(params=["links", "no links"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A folder on a filesystem that has hard links, or none."""
    if request.param == "no links":
        links_refused(monkeypatch)
    return parse_location(str(tmp_path))


def test_a_file_is_created_once_and_leaves_no_draft(root: Location) -> None:
    storage = LocalWriter()
    for content in (b"", b"first"):
        file = root / f"a/b/{len(content)}"
        assert storage.create(file, content)
        assert not storage.create(file, b"second")
        assert storage.read(file, limit=100) == content
    assert inside(f"{root}/a/b") == ["0", "5"]


def test_of_many_who_create_one_file_exactly_one_does(root: Location) -> None:
    with ThreadPoolExecutor(4) as pool:
        for number in range(100):
            made = list(pool.map(lambda _, file: LocalWriter().create(file, b"x"), range(4), [root / str(number)] * 4))
            assert made.count(True) == 1


def test_a_dead_link_and_a_folder_are_in_the_way_too(root: Location) -> None:
    Path(f"{root}/dead").symlink_to("nowhere")
    Path(f"{root}/folder").mkdir()
    LocalWriter().write(root / "file", b"x")
    for name in ("dead", "folder"):
        assert not LocalWriter().create(root / name, b"")
        with pytest.raises(MoveRefusedError):
            LocalWriter().move(root / "file", root / name)
    assert inside(root) == ["dead", "file", "folder"]


def test_a_file_moves_and_overwrites_nothing(root: Location) -> None:
    storage = LocalWriter()
    storage.write(root / "a", b"1")
    storage.move(root / "a", root / "deep/b")
    assert storage.read(root / "deep/b", limit=9) == b"1"
    storage.write(root / "a", b"2")
    for source, target in (("a", "deep/b"), ("none", "c"), ("deep", "c"), ("a", "a")):
        with pytest.raises(MoveRefusedError):
            storage.move(root / source, root / target)
    assert (inside(root), inside(f"{root}/deep")) == (["a", "deep"], ["b"])


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_moves_to_another_disk_whole(has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, link = parse_location(str(tmp_path)), os.link
    content = os.urandom(3_000_000)
    LocalWriter().write(root / "a", content)

    def other_disk(old: str, new: str, **folders: object) -> None:
        if Path(old).parent != Path(new).parent:
            raise OSError(errno.EXDEV, "another disk")
        if not has_links:
            raise OSError(errno.EPERM, "no links here")
        link(old, new, **folders)

    monkeypatch.setattr(os, "link", other_disk)
    LocalWriter().move(root / "a", root / "disk/a")
    assert LocalWriter().read(root / "disk/a", limit=10**7) == content
    LocalWriter().write(root / "a", b"other")
    with pytest.raises(MoveRefusedError):
        LocalWriter().move(root / "a", root / "disk/a")
    assert (inside(tmp_path), inside(tmp_path / "disk")) == (["a", "disk"], ["a"])


def test_what_else_a_link_is_refused_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = parse_location(str(tmp_path))
    LocalWriter().write(root / "a", b"1")
    links_refused(monkeypatch, errno.EIO)
    for act in (lambda: LocalWriter().create(root / "b", b""), lambda: LocalWriter().move(root / "a", root / "b")):
        with pytest.raises(StorageError) as refused:
            act()
        assert refused.value.subject == f"{root}/b"
    assert inside(tmp_path) == ["a"]


def test_without_links_a_file_that_could_not_be_filled_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:  # the draft found room
            raise OSError(errno.ENOSPC, "full")

    links_refused(monkeypatch)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpaceError):
        LocalWriter().create(parse_location(str(tmp_path / "7")), b"x")
    assert inside(tmp_path) == []


@pytest.mark.parametrize("location", ["dbfs:/x", "/dbfs/x", "/Volumes/x"])
def test_nothing_is_repaired_where_no_repair_was_ever_tested(location: str) -> None:
    storage = DeadFilesystem(AssertionError("asked"))
    with pytest.raises(ExclusiveCreateUnsupportedError):
        require_exclusive_create(FsspecWriter(storage), parse_location(location))


def test_create_is_seen_to_be_exclusive_and_nothing_is_left(root: Location) -> None:
    require_exclusive_create(LocalWriter(), root / "leases")
    assert inside(f"{root}/leases") == []


class Pretender(MemoryWriter):
    """Lets everybody create everything."""

    def create(self, file: Location, content: bytes) -> bool:
        self.write(file, content)
        return True


class Overwriter(MemoryWriter):
    """Knows that a file is there, and replaces it all the same."""

    def create(self, file: Location, content: bytes) -> bool:
        made = super().create(file, content)
        self.write(file, content)
        return made


class Denier(MemoryWriter):
    """Creates nothing."""

    def create(self, file: Location, content: bytes) -> bool:
        return False


@pytest.mark.parametrize("kind", [Pretender, Overwriter, Denier])
def test_a_storage_that_only_pretends_is_found_out(kind: type[MemoryWriter]) -> None:
    storage, folder = kind(), parse_location("s3://bucket/x")
    with pytest.raises(ExclusiveCreateUnsupportedError) as refused:
        require_exclusive_create(storage, folder)
    assert refused.value.subject == "s3://bucket/x"
    assert storage.walk(folder) is None


@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [("fuse.s3fs", True), ("fuse", True), ("macfuse", True), ("fuseblk", False), ("nfs4", False)],
)
def test_a_mounted_store_without_links_is_refused(
    kind: str, is_refused: bool, root: Location, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    mounts = [("/", "ext4"), (os.path.realpath(str(root)), kind), (f"{root}/elsewhere", "fuse")]
    shown = [SimpleNamespace(mountpoint=place, fstype=each) for place, each in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **options: shown)
    has_links = request.node.callspec.params["root"] == "links"
    if is_refused and not has_links:
        with pytest.raises(ExclusiveCreateUnsupportedError):
            require_exclusive_create(LocalWriter(), root)
    else:
        require_exclusive_create(LocalWriter(), root)
    assert inside(root) == []


def test_a_file_that_was_not_copied_whole_keeps_its_old_name() -> None:
    class Torn(MemoryFileSystem):
        def cp_file(self, path1: str, path2: str, **options: Any) -> None:
            self.pipe_file(path2, self.cat_file(path1)[:-1])

    filesystem = Torn(skip_instance_cache=True)
    filesystem.store, filesystem.pseudo_dirs = {}, [""]
    storage, place = FsspecWriter(filesystem), parse_location("s3://bucket/a")
    storage.write(place, b"whole")
    with pytest.raises(StorageError) as failed:
        storage.move(place, parse_location("s3://bucket/b"))
    assert (failed.value.found, failed.value.expected) == ("4 bytes", "5 bytes")
    assert storage.read(place, limit=9) == b"whole"


class RefusingS3:
    """Refuses to put anything, under some of S3's own names."""

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)
        self.asked = 0

    def pipe_file(self, path: str, content: bytes, **options: Any) -> None:
        self.asked += 1
        if self.codes:
            refusal = OSError(errno.EIO, "refused")
            refusal.__cause__ = SimpleS3Error({"Error": {"Code": self.codes.pop(0)}})
            raise refusal

    def metadata(self, path: str, *, refresh: bool) -> dict[str, str]:
        raise FileNotFoundError(path)


class SimpleS3Error(Exception):
    def __init__(self, response: dict[str, Any]) -> None:
        super().__init__()
        self.response = response


CONFLICT = "ConditionalRequestConflict"


def test_s3_is_asked_again_after_a_conflict_and_not_for_ever() -> None:
    place = parse_location("s3://bucket/7")
    assert S3Writer(busy := RefusingS3(CONFLICT, CONFLICT)).create(place, b"x")
    assert busy.asked == 3
    with pytest.raises(StorageError):
        S3Writer(busy := RefusingS3(*[CONFLICT] * 9)).create(place, b"x")
    assert busy.asked == 5


@pytest.mark.parametrize(
    ("code", "expected"), [("NotImplemented", ExclusiveCreateUnsupportedError), ("InternalError", StorageError)]
)
def test_what_else_s3_refuses_is_told(code: str, expected: type[StorageError]) -> None:
    with pytest.raises(StorageError) as refused:
        S3Writer(RefusingS3(code)).create(parse_location("s3://bucket/7"), b"x")
    assert type(refused.value) is expected


def test_a_file_that_was_there_and_is_gone_again_was_not_ours() -> None:
    assert not S3Writer(RefusingS3("PreconditionFailed")).create(parse_location("s3://bucket/7"), b"x")


@pytest.mark.parametrize(
    ("location", "is_at_once"),
    [
        ("/lake/chk", True),
        ("hdfs://names/chk", True),
        ("s3a://lake/chk", False),
        ("abfss://c@a.dfs.core.windows.net/chk", False),
    ],
)
def test_on_an_object_store_a_driver_may_still_write_over_what_was_created(location: str, is_at_once: bool) -> None:
    assert (estimate_late_write_seconds(parse_location(location)) == 0) is is_at_once


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_root_makes_is_its_users_as_the_one_above_is(tmp_path: Path) -> None:
    above = tmp_path / "lake"
    above.mkdir()
    os.chown(above, 12345, 12346)
    LocalWriter().write(parse_location(str(above / "chk" / "offsets" / "0")), b"v1")
    for made in (above / "chk", above / "chk" / "offsets", above / "chk" / "offsets" / "0"):
        assert (made.stat().st_uid, made.stat().st_gid) == (12345, 12346)
