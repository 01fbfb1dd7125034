"""Writing, the same wherever a query may be repaired: local disk, S3, HDFS, Azure, Google; memory, for fast tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from emulators import Azurite, FakeGcs

from lastgood.errors import StorageError
from lastgood.lab.hdfs import HdfsCluster
from lastgood.lab.s3 import S3Program, S3Server
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import (
    ExclusiveCreateUnsupportedError,
    HdfsWriter,
    LocalWriter,
    MarkingWriter,
    MoveRefusedError,
    S3Writer,
    WritableStorage,
    open_writable,
    require_exclusive_create,
)
from lastgood.testing.network import Proxy
from lastgood.testing.storage import MemoryWriter

pytestmark = pytest.mark.services

ROUNDS = 100
WRITERS = 4
FAR = [pytest.param(kind, marks=pytest.mark.proof) for kind in ("hdfs", "azure", "gcs")]
"""They take their time, so `make proof` goes there."""
NAMES = ["with space", "100%", "%20", "a+b&c=d", "ünï-日本", "#frag?query", "'quoted\"", "[1]{2}", "~tilde"]


@dataclass(frozen=True)
class Place:
    """An empty folder on a storage, and how another process opens that."""

    storage: WritableStorage
    root: Location
    options: dict[str, Any] | None = None


@pytest.fixture(params=["local", "s3", *FAR])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where other processes write too."""
    return made(request.param, request, tmp_path)


@pytest.fixture(params=["local", "memory", "s3", *FAR])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return made(request.param, request, tmp_path)


def made(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if kind == "local":
        root = parse_location(str(tmp_path))
        return Place(open_writable(root), root)
    if kind == "hdfs":
        cluster: HdfsCluster = request.getfixturevalue("hdfs")
        root = parse_location(f"{cluster.uri}/lake/{uuid.uuid4().hex}")
        storage = open_writable(root, cluster.options)
        assert isinstance(storage, HdfsWriter)
        return Place(storage, root, cluster.options)
    if kind in ("azure", "gcs"):
        emulator: Azurite | FakeGcs = request.getfixturevalue(kind)
        root = parse_location(f"{emulator.root}/{uuid.uuid4().hex}")
        storage = open_writable(root, emulator.options())
        assert type(storage) is MarkingWriter
        return Place(storage, root, emulator.options())
    root = parse_location(f"s3a://lake/{uuid.uuid4().hex}")
    if kind == "memory":
        return Place(MemoryWriter(), root)
    s3: S3Server = request.getfixturevalue("s3")
    storage = open_writable(root, s3.options)
    assert isinstance(storage, S3Writer)
    return Place(storage, root, s3.options)


def names(place: Place, folder: str = "") -> list[str]:
    return sorted(place.storage.names(place.root / folder if folder else place.root) or ())


def test_a_whole_file_is_written_with_the_folders_above_it_and_read_back(place: Place) -> None:
    for content in (b"", b"\0\xff\r\n" * 1000, os.urandom(3 * 1024 * 1024)):
        place.storage.write(place.root / "a/b/7", content)
        assert place.storage.read(place.root / "a/b/7", limit=10**8) == content
    assert names(place, "a/b") == ["7"]


def test_a_file_that_is_there_is_replaced(place: Place) -> None:
    place.storage.write(place.root / "7", b"a longer content")
    place.storage.write(place.root / "7", b"short")
    assert place.storage.read(place.root / "7", limit=100) == b"short"


def test_a_file_is_created_once_and_stays_as_it_was(place: Place) -> None:
    for content in (b"", b"first"):
        file = place.root / f"a/b/{len(content)}"
        assert place.storage.create(file, content)
        assert not place.storage.create(file, b"second")
        assert place.storage.read(file, limit=100) == content
    assert names(place, "a/b") == ["0", "5"]


def test_what_was_removed_can_be_created_again(place: Place) -> None:
    assert place.storage.create(place.root / "7", b"first")
    place.storage.remove(place.root / "7")
    place.storage.remove(place.root / "7")
    assert place.storage.read(place.root / "7", limit=1) is None
    assert place.storage.create(place.root / "7", b"second")


def test_what_was_written_is_not_created(place: Place) -> None:
    place.storage.write(place.root / "7", b"")
    assert not place.storage.create(place.root / "7", b"x")


def test_a_file_moves_with_its_content_and_leaves_nothing(place: Place) -> None:
    content = os.urandom(100_000)
    place.storage.write(place.root / "state/0/1.delta", content)
    place.storage.move(place.root / "state/0/1.delta", place.root / "aside/deep/1.delta")
    assert place.storage.stat(place.root / "state/0/1.delta") is None
    assert place.storage.read(place.root / "aside/deep/1.delta", limit=10**6) == content


def test_a_file_is_copied_overwrites_nothing_and_stays(place: Place) -> None:
    place.storage.write(place.root / "state/0/1.delta", b"content" * 1000)
    place.storage.copy(place.root / "state/0/1.delta", place.root / "rebuilt/deep/1.delta")
    for path in ("state/0/1.delta", "rebuilt/deep/1.delta"):
        assert place.storage.read(place.root / path, limit=10_000) == b"content" * 1000
    for source, target in (("state/0/1.delta", "rebuilt/deep/1.delta"), ("gone", "other")):
        with pytest.raises(MoveRefusedError):
            place.storage.copy(place.root / source, place.root / target)


def test_a_folder_moves_also_after_it_was_killed_between_two_files_or_within_one(place: Place) -> None:
    for name in ("metadata", "offsets/0", "offsets/1", "commits/0"):
        place.storage.write(place.root / "chk" / name, name.encode())
    if not isinstance(place.storage, LocalWriter):
        place.storage.move(place.root / "chk/metadata", place.root / "kept/metadata")
        place.storage.copy(place.root / "chk/offsets/0", place.root / "kept/offsets/0")
    place.storage.move_folder(place.root / "chk", place.root / "kept")
    assert list(place.storage.walk(place.root / "chk") or ()) == []
    moved = {each.name for each in place.storage.walk(place.root / "kept") or ()}
    assert moved == {"metadata", "offsets/0", "offsets/1", "commits/0"}
    assert place.storage.read(place.root / "kept/offsets/1", limit=100) == b"offsets/1"


def test_a_folder_that_moves_overwrites_nothing(place: Place) -> None:
    place.storage.write(place.root / "chk/metadata", b"ours")
    place.storage.write(place.root / "kept/metadata", b"another's")
    with pytest.raises(MoveRefusedError):
        place.storage.move_folder(place.root / "chk", place.root / "kept")
    assert place.storage.read(place.root / "chk/metadata", limit=100) == b"ours"


def test_an_empty_file_moves(place: Place) -> None:
    place.storage.write(place.root / "a", b"")
    place.storage.move(place.root / "a", place.root / "b")
    assert names(place) == ["b"]


def test_a_move_overwrites_nothing_and_needs_a_file(place: Place) -> None:
    place.storage.write(place.root / "a", b"1")
    place.storage.write(place.root / "folder/b", b"2")
    for source, target in (("a", "folder/b"), ("none", "c"), ("folder", "c")):
        with pytest.raises(MoveRefusedError) as refused:
            place.storage.move(place.root / source, place.root / target)
        assert refused.value.subject
    assert (names(place), names(place, "folder")) == (["a", "folder/"], ["b"])
    assert place.storage.read(place.root / "folder/b", limit=9) == b"2"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_taken_as_it_is(name: str, place: Place) -> None:
    file, other = place.root / f"of {name}/{name}", place.root / f"of {name}/{name}.moved"
    place.storage.write(file, b"0")
    assert not place.storage.create(file, b"1")
    place.storage.move(file, other)
    assert names(place, f"of {name}") == [f"{name}.moved"]
    assert place.storage.create(file, b"2")
    assert [place.storage.read(each, limit=9) for each in (file, other)] == [b"2", b"0"]
    place.storage.remove(file)
    place.storage.remove(other)
    assert place.storage.stat(file) is place.storage.stat(other) is None


def test_of_four_threads_that_create_one_file_exactly_one_does(place: Place) -> None:
    at_once = threading.Barrier(WRITERS)

    def create(writer: int, number: int) -> bool:
        at_once.wait()
        return place.storage.create(place.root / f"race/{number}", f"writer {writer}".encode())

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(ROUNDS):
            made = list(pool.map(create, range(WRITERS), [number] * WRITERS))
            assert made.count(True) == 1, (number, made)
            winner = f"writer {made.index(True)}".encode()
            assert place.storage.read(place.root / f"race/{number}", limit=100) == winner
    assert len(names(place, "race")) == ROUNDS


RACER = """
import json, sys
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
root, options, writer, rounds = json.loads(sys.argv[1])
root = parse_location(root)
storage = open_writable(root, options)
storage.names(root)
print("ready", flush=True)
for number in range(rounds):
    sys.stdin.readline()
    print(int(storage.create(root / f"race/{number}", writer.encode())), flush=True)
"""


def test_of_four_processes_that_create_one_file_exactly_one_does(shared: Place) -> None:
    writers = [f"writer {number}" for number in range(WRITERS)]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, json.dumps([str(shared.root), shared.options, writer, ROUNDS])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for writer in writers
    ]
    try:
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * WRITERS
        for number in range(ROUNDS):
            for racer in racers:
                racer.stdin.write("\n")
                racer.stdin.flush()
            made = [racer.stdout.readline() for racer in racers]
            assert sorted(made) == ["0\n"] * (WRITERS - 1) + ["1\n"], number
            winner = writers[made.index("1\n")].encode()
            assert shared.storage.read(shared.root / f"race/{number}", limit=100) == winner
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_create_is_seen_to_be_exclusive_and_leaves_nothing(place: Place) -> None:
    place.storage.write(place.root / "leases/1.json", b"")
    require_exclusive_create(place.storage, place.root / "leases")
    assert names(place, "leases") == ["1.json"]


def changes(storage: WritableStorage, root: Location) -> list[Callable[[], object]]:
    return [
        lambda: storage.write(root / "x", b""),
        lambda: storage.create(root / "x", b""),
        lambda: require_exclusive_create(storage, root),
    ]


def test_what_lies_beside_a_checkpoint_on_hdfs_is_for_its_owner_alone(
    hdfs: HdfsCluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = made("hdfs", request, tmp_path)
    assert isinstance(place.storage, HdfsWriter)
    room = place.root / "new/chk.lastgood"
    place.storage.write(room / "recoveries/1/plan.json", b"{}")
    assert place.storage.create(room / "leases/1.json", b"{}")
    place.storage.write(place.root / "new/chk/offsets/7", b"v1")
    place.storage.move(place.root / "new/chk/offsets/7", room / "recoveries/1/before/offsets/7")

    def mode(path: str) -> str:
        told: str = place.storage.filesystem.info(f"{place.root.path}/{path}")["permission"]  # type: ignore[attr-defined]
        return told

    ours = ["", "/recoveries", "/recoveries/1", "/recoveries/1/before", "/recoveries/1/before/offsets", "/leases"]
    assert {folder: mode(f"new/chk.lastgood{folder}") for folder in ours} == dict.fromkeys(ours, "700")
    assert [mode(f"new/chk.lastgood/{each}") for each in ("recoveries/1/plan.json", "leases/1.json")] == ["600"] * 2
    # What is not ours has the rights that HDFS gives; a file that is moved keeps its own.
    assert [mode(each) for each in ("new", "new/chk", "new/chk/offsets")] == ["755"] * 3
    assert mode("new/chk.lastgood/recoveries/1/before/offsets/7") == "644"


def test_a_bucket_that_is_not_there_is_not_made(s3: S3Server) -> None:
    root = parse_location("s3a://pond/x")
    storage = open_writable(root, s3.options)
    for change in changes(storage, root):
        with pytest.raises(StorageError):
            change()
    with pytest.raises(StorageError) as refused:
        storage.write(root / "file", b"1")
    assert "bucket does not exist" in (refused.value.found or "")
    assert not storage.filesystem.exists("pond")


def test_nothing_is_written_with_a_key_that_is_wrong(s3: S3Server, s3_program: S3Program) -> None:
    if s3_program.name == "moto":
        pytest.skip("moto lets everybody in")
    root = parse_location("s3a://lake/denied")
    for change in changes(open_writable(root, {**s3.options, "secret": "wrong"}), root):
        with pytest.raises(StorageError):
            change()
    assert open_writable(root, s3.options).walk(root) is None


def lossy(storage: S3Writer, error: Exception) -> None:
    """The next object is put, and the answer lost."""
    put = storage.filesystem.pipe_file

    def pipe_file(*arguments: Any, **settings: Any) -> None:
        storage.filesystem.pipe_file = put
        put(*arguments, **settings)
        raise error

    storage.filesystem.pipe_file = pipe_file


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), FileExistsError("asked twice")])
def test_an_object_whose_answer_was_lost_is_ours_and_no_others_is(error: Exception, s3: S3Server) -> None:
    root = parse_location(f"s3a://lake/{uuid.uuid4().hex}")
    storage = open_writable(root, {**s3.options, "skip_instance_cache": True})
    assert isinstance(storage, S3Writer)
    lossy(storage, error)
    assert storage.create(root / "1", b"")
    assert not storage.create(root / "1", b"")
    storage.write(root / "2", b"")  # has no mark
    assert not storage.create(root / "2", b"")


IN_THE_ANSWER = 26
"""One byte more than `100 Continue`, which asks for the body."""


class LosesFirstAnswer(Proxy):
    """Cuts its first connection within the answer, and no other."""

    cuts = (IN_THE_ANSWER,)

    @property
    def cut_after(self) -> int | None:
        left, self.cuts = self.cuts, ()
        return left[0] if left else None

    @cut_after.setter
    def cut_after(self, value: int | None) -> None:
        """It is always the first."""


def test_an_object_that_is_put_twice_because_an_answer_was_lost_is_ours(s3: S3Server) -> None:
    root = parse_location(f"s3a://lake/{uuid.uuid4().hex}")
    with LosesFirstAnswer(int(s3.endpoint.rpartition(":")[2])) as proxy:
        storage = open_writable(root, {**s3.options, "endpoint_url": f"http://127.0.0.1:{proxy.port}"})
        assert storage.create(root / "1", b"x")
        assert proxy.requests > 1
        assert not storage.create(root / "1", b"y")


def test_where_no_answer_comes_at_all_it_is_an_error_and_the_next_one_is_told_the_truth(s3: S3Server) -> None:
    root = parse_location(f"s3a://lake/{uuid.uuid4().hex}")
    with Proxy(int(s3.endpoint.rpartition(":")[2]), cut_after=IN_THE_ANSWER) as proxy:
        storage = open_writable(root, {**s3.options, "endpoint_url": f"http://127.0.0.1:{proxy.port}"})
        with pytest.raises(StorageError):
            storage.create(root / "1", b"x")
        proxy.cut_after = None
        assert not storage.create(root / "1", b"y")
        assert storage.read(root / "1", limit=9) == b"x"


class ForgetfulFilesystem:
    """An S3 server that does not know If-None-Match, and says nothing of it."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def pipe_file(self, path: str, content: bytes, mode: str = "overwrite", **settings: Any) -> None:
        self._filesystem.pipe_file(path, content, **settings)


def test_a_server_that_only_pretends_is_found_out(s3: S3Server) -> None:
    root = parse_location(f"s3a://lake/{uuid.uuid4().hex}")
    honest = open_writable(root, s3.options)
    with pytest.raises(ExclusiveCreateUnsupportedError):
        require_exclusive_create(S3Writer(ForgetfulFilesystem(honest.filesystem)), root)
    assert honest.walk(root) is None
