from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lastgood.errors import ExtraMissingError, StorageError
from lastgood.storage import reading as storage
from lastgood.storage.reading import (
    Entry,
    FsspecStorage,
    LocalStorage,
    Location,
    LocationInvalidError,
    Storage,
    StorageDeniedError,
    open_storage,
    parse_location,
)
from lastgood.storage.services import make_s3_settings

ABFSS = "abfss://lake@acme.dfs.core.windows.net"
WASBS = "wasbs://lake@acme.blob.core.windows.net"
ACME = {"account_name": "acme", "account_host": "acme.blob.core.windows.net"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data/chk", Location("file", "", "/data/chk")),
        ("/data//x/../chk/.", Location("file", "", "/data/chk")),
        ("//data", Location("file", "", "/data")),
        ("/a%20b?c#d", Location("file", "", "/a%20b?c#d")),
        ("file:/data/chk/", Location("file", "", "/data/chk")),
        ("file:///data/chk", Location("file", "", "/data/chk")),
        ("file://localhost/data", Location("file", "", "/data")),
        ("s3a://lake/chk/orders", Location("s3a", "lake", "/chk/orders")),
        ("S3://lake", Location("s3", "lake", "/")),
        ("s3n://lake//a", Location("s3n", "lake", "/a")),
        ("gs://lake/a?b", Location("gs", "lake", "/a?b")),
        ("hdfs://nn:8020/chk", Location("hdfs", "nn:8020", "/chk")),
        ("webhdfs://nn:9870/chk", Location("webhdfs", "nn:9870", "/chk")),
        (f"{ABFSS}/chk", Location("abfss", "lake@acme.dfs.core.windows.net", "/chk")),
        (f"{WASBS}/chk", Location("wasbs", "lake@acme.blob.core.windows.net", "/chk")),
        ("dbfs:/chk/orders", Location("dbfs", "", "/chk/orders")),
        ("dbfs:///chk", Location("dbfs", "", "/chk")),
        ("dbfs:/Volumes/main/x/y", Location("file", "", "/Volumes/main/x/y")),
        ("/Volumes/main/x/y", Location("file", "", "/Volumes/main/x/y")),
    ],
)
def test_a_location_is_read_as_spark_reads_it(text: str, expected: Location) -> None:
    assert parse_location(text) == expected


def test_a_relative_path_counts_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_location("chk/orders") == Location("file", "", f"{tmp_path}/chk/orders")
    assert parse_location("a/b:c") == Location("file", "", f"{tmp_path}/a/b:c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a path"),
        ("  ", "a path"),
        ("a\0b", "a path"),
        ("ftp://host/x", "one of file:"),
        ("C:\\data", "one of file:"),
        ("s3a:/lake/chk", "s3a://BUCKET/FOLDER"),
        ("gs:///chk", "gs://BUCKET/FOLDER"),
        ("hdfs:///chk", "hdfs://HOST/FOLDER"),
        *((f"hdfs://nn{odd}x/chk", "hdfs://HOST/FOLDER") for odd in "#?\\@ \t\n\x1b\u202e\u0663,[]%"),
        ("webhdfs://nn:http/chk", "webhdfs://HOST/FOLDER"),
        ("hdfs://nn:1:2/chk", "hdfs://HOST/FOLDER"),
        *((f"s3a://la{odd}ke/chk", "s3a://BUCKET/FOLDER") for odd in "#?\\ \t\n\x1b\u2028"),
        *((f"abfss://c@a{odd}c.dfs.x/chk", "abfss://CONTAINER@ACCOUNT") for odd in "#?\\@ \n\u202e"),
        *((f"abfss://c{odd}@ac.dfs.x/chk", "abfss://CONTAINER@ACCOUNT") for odd in "#?\\@ \n\u202e"),
        ("abfss://lake/chk", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"),
        ("wasbs://lake/chk", "wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/FOLDER"),
        ("file://server/share", "file:/FOLDER"),
        ("file:chk", "file:/FOLDER"),
        ("dbfs://x/y", "dbfs:/FOLDER"),
    ],
)
def test_what_is_no_location_is_refused_with_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(LocationInvalidError) as caught:
        parse_location(text)
    assert str(caught.value.expected).startswith(expected)
    assert caught.value.subject == (text or "(empty)")


@pytest.mark.parametrize(
    "text", ["/data/chk", "s3a://lake/chk", "dbfs:/chk", f"{ABFSS}/chk", "hdfs://nn:8020/chk", "s3://lake/"]
)
def test_a_location_is_shown_as_it_can_be_pasted(text: str) -> None:
    assert str(parse_location(text)) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://lake/chk", "s3://lake//chk/"),
        ("s3n://lake/chk", "s3://lake/chk"),
        ("file:///data/chk", "/data/chk"),
        ("dbfs:/chk", "/dbfs/chk"),
        ("dbfs:/Volumes/a/b", "/Volumes/a/b"),
        ("hdfs://NN:8020/chk", "hdfs://nn/chk"),
        (f"{ABFSS}/chk".replace("abfss", "abfs"), f"{ABFSS}/chk"),
        (f"{WASBS}/chk", f"{ABFSS}/chk"),
        (f"{WASBS}/chk".replace("wasbs", "wasb"), f"{ABFSS}/chk"),
    ],
)
def test_the_same_place_has_one_identity(one: str, other: str) -> None:
    assert parse_location(one).identity == parse_location(other).identity


def test_other_places_have_other_identities() -> None:
    texts = ["/chk", "s3://chk/", "s3://a/chk", "gs://a/chk", "hdfs://nn:9000/chk", "hdfs://nn/chk", "dbfs:/chk"]
    assert len({parse_location(text).identity for text in texts}) == len(texts)


def test_a_location_is_joined_and_has_siblings() -> None:
    location = parse_location("s3a://lake/chk/orders")
    assert str(location / "offsets/7") == "s3a://lake/chk/orders/offsets/7"
    assert (str(location.sibling(".lastgood")), location.name) == ("s3a://lake/chk/orders.lastgood", "orders")
    assert parse_location("s3a://lake/") / "metadata" == Location("s3a", "lake", "/metadata")


@pytest.mark.parametrize("text", ["/", "s3a://lake", "dbfs:/"])
def test_the_root_has_no_sibling(text: str) -> None:
    with pytest.raises(LocationInvalidError, match="no neighbour"):
        parse_location(text).sibling(".lastgood")


class Memory(MemoryFileSystem):
    """A store of its own for each test."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store = {}
        self.pseudo_dirs = [""]


@pytest.fixture(params=["local", "fsspec"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, Location]:
    """A folder `chk` with files, an empty folder, and a folder of folders."""
    files = {
        "metadata": b"{}",
        "offsets/0": b"v1",
        "offsets/1": b"",
        "offsets/.1.crc": b"crc",
        "state/0/1/SSTs/x.sst": b"12345",
    }
    if request.param == "local":
        for name, content in files.items():
            (tmp_path / "chk" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "chk" / name).write_bytes(content)
        (tmp_path / "chk" / "empty").mkdir()
        return LocalStorage(), parse_location(str(tmp_path / "chk"))
    memory = Memory()
    for name, content in files.items():
        memory.pipe_file(f"/chk/{name}", content)
    memory.mkdir("/chk/empty")
    return FsspecStorage(memory), Location("file", "", "/chk")


def names(entries: Iterator[Entry] | None) -> set[str]:
    assert entries is not None
    return {entry.name for entry in entries}


def test_a_folder_is_listed(opened: tuple[Storage, Location]) -> None:
    on, chk = opened
    assert set(on.names(chk) or ()) == {"metadata", "offsets/", "empty/", "state/"}
    found = {entry.name: entry for entry in on.scan(chk) or ()}
    assert {name: (entry.is_folder, entry.size) for name, entry in found.items()} == {
        "metadata": (False, 2),
        "offsets": (True, None),
        "empty": (True, None),
        "state": (True, None),
    }
    assert found["metadata"].modified_ms is not None
    assert names(on.scan(chk / "offsets", facts=False)) == {"0", "1", ".1.crc"}


def test_a_folder_that_is_not_there_is_told_from_an_empty_one(opened: tuple[Storage, Location]) -> None:
    on, chk = opened
    assert on.names(chk / "empty") is not None
    assert list(on.names(chk / "empty") or "x") == list(on.scan(chk / "empty") or "x") == []
    assert on.names(chk / "nothing") is None
    assert on.scan(chk / "nothing") is None
    assert on.walk(chk / "nothing") is None
    assert on.scan(chk / "metadata") is None  # a file is no folder


def test_a_tree_is_walked(opened: tuple[Storage, Location]) -> None:
    on, chk = opened
    walked = {entry.name: entry.size for entry in on.walk(chk) or ()}
    assert walked.keys() == {"metadata", "offsets/0", "offsets/1", "offsets/.1.crc", "state/0/1/SSTs/x.sst"}
    assert (walked["offsets/1"], walked["state/0/1/SSTs/x.sst"]) == (0, 5)
    assert names(on.walk(chk / "state/0/1")) == {"SSTs/x.sst"}


def test_a_file_is_read_up_to_the_limit(opened: tuple[Storage, Location]) -> None:
    on, chk = opened
    file = chk / "state/0/1/SSTs/x.sst"
    assert [on.read(file, limit=limit) for limit in (2, 5, 99)] == [b"12", b"12345", b"12345"]
    assert on.read(chk / "offsets/1", limit=9) == b""


def test_what_is_not_there_or_no_file_reads_as_nothing(opened: tuple[Storage, Location]) -> None:
    on, chk = opened
    assert [on.read(chk / name, limit=9) for name in ("nothing", "offsets", "metadata/x")] == [None] * 3


def test_one_file_or_folder_is_looked_up(opened: tuple[Storage, Location]) -> None:
    on, chk = opened
    file, folder = on.stat(chk / "metadata"), on.stat(chk / "offsets")
    assert file is not None
    assert folder is not None
    assert (file.name, file.is_folder, file.size) == ("metadata", False, 2)
    assert (folder.name, folder.is_folder, folder.size) == ("offsets", True, None)
    assert on.stat(chk / "nothing") is None


def test_a_storage_says_how_many_requests_pay_off(opened: tuple[Storage, Location]) -> None:
    assert opened[0].parallel > 1


def test_local_side_files_are_listed_without_looking_at_them(tmp_path: Path) -> None:
    (tmp_path / ".7.crc").write_bytes(b"crc")
    assert list(LocalStorage().scan(parse_location(str(tmp_path))) or ()) == [Entry(".7.crc", False, None, None)]


def test_pipes_and_dangling_links_are_neither_listed_nor_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    (tmp_path / "0").write_bytes(b"x")
    here = parse_location(str(tmp_path))
    assert set(LocalStorage().names(here) or ()) == names(LocalStorage().scan(here)) == {"0"}
    assert LocalStorage().read(here / "pipe", limit=9) is None  # and does not wait for a writer
    assert LocalStorage().read(here / "link", limit=9) is None


def test_a_circle_of_links_is_walked_for_a_while_and_no_longer(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"x")
    (tmp_path / "again").symlink_to(tmp_path)
    walked = names(LocalStorage().walk(parse_location(str(tmp_path))))
    assert walked == {"again/" * deep + "0" for deep in range(5)}


def test_a_file_that_vanishes_while_it_is_listed_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        name = "5"

        def is_dir(self) -> bool:
            return False

        def is_file(self) -> bool:
            return True

        def stat(self) -> os.stat_result:
            raise FileNotFoundError

    class Listing(list[Gone]):
        def close(self) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda _: Listing([Gone()]))
    assert list(LocalStorage().scan(parse_location(str(tmp_path))) or ()) == [Entry("5", False, None, None)]


def test_a_mounted_filesystem_is_read_below_its_mount(tmp_path: Path) -> None:
    (tmp_path / "chk").mkdir()
    (tmp_path / "chk" / "metadata").write_bytes(b"{}")
    mounted = LocalStorage(mount=str(tmp_path))
    location = parse_location("dbfs:/chk")
    assert list(mounted.names(location) or ()) == ["metadata"]
    assert mounted.read(location / "metadata", limit=9) == b"{}"
    assert mounted.stat(location / "metadata") is not None


def refuse(error: Exception) -> Any:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


@pytest.mark.parametrize("operation", ["names", "scan", "walk", "read", "stat"])
def test_a_local_folder_that_we_may_not_enter_is_an_error(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "scandir", refuse(PermissionError(13, "denied")))
    monkeypatch.setattr(os, "open", refuse(PermissionError(13, "denied")))
    monkeypatch.setattr(os, "stat", refuse(PermissionError(13, "denied")))
    location = Location("file", "", f"{tmp_path}/chk")
    with pytest.raises(StorageDeniedError) as caught:
        getattr(LocalStorage(), operation)(location, **({"limit": 9} if operation == "read" else {}))
    assert caught.value.subject == f"{tmp_path}/chk"


class Broken(Memory):
    """Answers every question with the same exception."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.ls = self.find = self.cat_file = self.info = refuse(error)


class BackendError(Exception):
    """As the exceptions of cloud libraries: no OSError."""


@pytest.mark.parametrize("operation", ["names", "scan", "walk", "read", "stat"])
@pytest.mark.parametrize(
    ("error", "expected", "found"),
    [
        (PermissionError("no"), StorageDeniedError, "no"),
        (BackendError("no route\nto host"), StorageError, "BackendError: no route"),
        (TimeoutError(), StorageError, "TimeoutError"),
    ],
)
def test_a_service_that_does_not_answer_is_an_error(
    operation: str, error: Exception, expected: type[StorageError], found: str | None
) -> None:
    on, location = FsspecStorage(Broken(error)), parse_location("s3a://lake/chk")
    with pytest.raises(StorageError) as caught:
        getattr(on, operation)(location, **({"limit": 9} if operation == "read" else {}))
    assert type(caught.value) is expected
    assert (caught.value.subject, caught.value.found) == ("s3a://lake/chk", found)
    assert caught.value.__cause__ is error


class RefusesRanges(Memory):
    """As S3: a range of an empty object cannot be satisfied."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        info = self.info(path)
        if info["type"] == "directory" or not info["size"]:
            raise BackendError("InvalidRange")
        return bytes(super().cat_file(path, start, end))


def test_an_empty_object_is_read_where_the_service_refuses_ranges_of_it() -> None:
    memory = RefusesRanges()
    memory.pipe_file("/lake/offsets/7", b"")
    memory.pipe_file("/lake/offsets/6", b"v1")
    on, lake = FsspecStorage(memory), Location("file", "", "/lake")
    assert on.read(lake / "offsets/7", limit=9) == b""
    assert on.read(lake / "offsets/6", limit=9) == b"v1"
    assert on.read(lake / "offsets", limit=9) is None


def test_a_folder_that_the_service_reads_as_nothing_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.pipe_file("/lake/offsets/7", b"v1")
    monkeypatch.setattr(memory, "cat_file", lambda *_, **__: b"")  # as WebHDFS does
    assert FsspecStorage(memory).read(Location("file", "", "/lake/offsets"), limit=9) is None


def test_an_object_that_is_there_and_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.pipe_file("/lake/offsets/7", b"v1")
    monkeypatch.setattr(memory, "cat_file", refuse(BackendError("slow down")))
    with pytest.raises(StorageError, match="does not answer"):
        FsspecStorage(memory).read(Location("file", "", "/lake/offsets/7"), limit=9)


class Listed(Memory):
    """Lists what it is given."""

    def __init__(self, *found: Mapping[str, object]) -> None:
        super().__init__()
        self.found = found

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Mapping[str, object]]:
        return list(self.found)


def test_the_marker_of_an_empty_folder_is_no_file_in_it() -> None:
    marker = {"name": "lake/chk/", "size": 0, "type": "file"}
    assert list(FsspecStorage(Listed(marker)).scan(parse_location("s3a://lake/chk")) or "x") == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"LastModified": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, 1767225600000),
        ({"last_modified": None, "mtime": 1767225600.5}, 1767225600500),
        ({"modificationTime": 1767225600000}, 1767225600000),
        ({"updated": "2026-01-01T00:00:00Z"}, 1767225600000),
        ({"updated": "yesterday"}, None),
        ({}, None),
    ],
)
def test_every_service_tells_the_time_in_its_own_way(facts: Mapping[str, object], expected: int | None) -> None:
    found = {"name": "lake/chk/7", "size": 5, "type": "file", **facts}
    listed = FsspecStorage(Listed(found)).scan(parse_location("s3a://lake/chk"))
    assert list(listed or ()) == [Entry("7", is_folder=False, size=5, modified_ms=expected)]


def test_plain_paths_are_read_from_this_machine(tmp_path: Path) -> None:
    assert isinstance(open_storage(parse_location(str(tmp_path))), LocalStorage)


def test_dbfs_is_read_where_it_is_mounted_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "DBFS_MOUNT", str(tmp_path / "dbfs"))
    with pytest.raises(StorageError) as caught:
        open_storage(parse_location("dbfs:/chk"))
    assert caught.value.expected == "the driver of a Databricks cluster"
    (tmp_path / "dbfs" / "chk").mkdir(parents=True)
    assert list(open_storage(parse_location("dbfs:/chk")).names(parse_location("dbfs:/chk")) or "x") == []


@pytest.mark.parametrize(
    ("text", "extra", "module"),
    [
        ("s3a://lake/chk", "s3", "s3fs"),
        ("gs://lake/chk", "gcs", "gcsfs"),
        (f"{ABFSS}/chk", "azure", "adlfs"),
        (f"{ABFSS}/chk".replace("abfss", "abfs"), "azure", "adlfs"),
        (f"{WASBS}/chk", "azure", "adlfs"),
        ("hdfs://nn/chk", "hdfs", "requests"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    text: str, extra: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec, "get_filesystem_class", refuse(ImportError(module)))
    with pytest.raises(ExtraMissingError) as caught:
        open_storage(parse_location(text))
    assert caught.value.next == f"pip install 'lastgood[{extra}]'"
    assert caught.value.found == f"no Python module '{module}'"
    assert text.partition(":")[0] in caught.value.sentence


@pytest.mark.parametrize(
    ("text", "protocol", "expected", "path"),
    [
        ("s3a://lake/chk", "s3", make_s3_settings({}, {}, requests=100), "lake/chk"),
        ("gs://lake/chk", "gs", {}, "lake/chk"),
        (f"{ABFSS}/chk", "abfss", ACME, "lake/chk"),
        (f"{WASBS}/chk", "abfss", ACME, "lake/chk"),
        (
            "abfss://lake@acme.dfs.core.chinacloudapi.cn/chk",
            "abfss",
            {**ACME, "account_host": "acme.blob.core.chinacloudapi.cn"},
            "lake/chk",
        ),
    ],
)
def test_a_service_is_opened_with_what_the_location_says(
    text: str, protocol: str, expected: dict[str, object], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    asked: list[str] = []

    class Recording(Listed):
        def __init__(self, **settings: object) -> None:
            super().__init__()
            made.update(settings)

        def ls(self, path: str, detail: bool = True, **_: object) -> list[Mapping[str, object]]:
            asked.append(path)
            return []

    def find(name: str) -> type[Recording]:
        made["protocol"] = name
        return Recording

    monkeypatch.setattr(fsspec, "get_filesystem_class", find)
    location = parse_location(text)
    on = open_storage(location, {"key": "k"})
    assert made == {"protocol": protocol, "use_listings_cache": False, "key": "k", **expected}
    assert list(on.names(location) or "x") == []
    assert asked == [path]


def test_options_that_the_library_refuses_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda _: refuse(TypeError("unexpected keyword 'kye'")))
    with pytest.raises(StorageError) as caught:
        open_storage(parse_location("gs://lake/chk"), {"kye": "k"})
    assert caught.value.found == "TypeError: unexpected keyword 'kye'"


def test_special_files_stay_what_they_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    LocalStorage().read(parse_location(str(tmp_path / "pipe")), limit=1)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_memory_that_runs_out_is_not_called_a_storage_that_does_not_answer() -> None:
    on = FsspecStorage(Broken(MemoryError()))
    with pytest.raises(MemoryError):
        on.scan(parse_location("s3a://lake/chk"))


def test_markers_of_folders_are_no_files() -> None:

    class Marked(Memory):
        def find(self, path: str, **_: object) -> dict[str, Mapping[str, object]]:
            names = (f"{path}/", f"{path}/0/", f"{path}/0/1.delta")
            return {name: {"name": name, "size": 0, "type": "file"} for name in names}

    found = FsspecStorage(Marked()).walk(parse_location("s3a://lake/chk/state"))
    assert [entry.name for entry in found or ()] == ["0/1.delta"]
