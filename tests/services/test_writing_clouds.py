"""Writing on emulators of Azure and Google when answers are lost, and one whole repair on each; see `test_writing`."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from emulators import WRONG_KEY, Azurite, FakeGcs
from repair.engine_cases import Case, first_step, killed

from lastgood.errors import StorageError
from lastgood.journal.room import find_open_recovery
from lastgood.storage.reading import Location, StorageDeniedError, parse_location
from lastgood.storage.writing import (
    ExclusiveCreateUnsupportedError,
    MarkingWriter,
    open_writable,
    require_exclusive_create,
)
from lastgood.testing.network import Proxy

pytestmark = pytest.mark.services

Emulator = Azurite | FakeGcs
WRITERS, ROUNDS = 4, 10


@pytest.fixture(params=["azure", "gcs"])
def emulator(request: pytest.FixtureRequest) -> Emulator:
    running: Emulator = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def root(emulator: Emulator) -> Location:
    return parse_location(f"{emulator.root}/{uuid.uuid4().hex}")


def writer(emulator: Emulator, port: int | None = None, **more: object) -> MarkingWriter:
    opened = open_writable(parse_location(f"{emulator.root}/x"), {**emulator.options(port), **more})
    assert isinstance(opened, MarkingWriter)
    return opened


def test_of_several_that_create_one_file_exactly_one_does(emulator: Emulator, root: Location) -> None:
    storage, at_once = writer(emulator), threading.Barrier(WRITERS)
    require_exclusive_create(storage, root)

    def create(name: str, number: int) -> bool:
        at_once.wait()
        return storage.create(root / str(number), name.encode())

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(ROUNDS):
            made = list(pool.map(create, "abcd", [number] * WRITERS))
            assert made.count(True) == 1, number
            assert storage.read(root / str(number), limit=9) == "abcd"[made.index(True)].encode()
    assert len(list(storage.names(root) or ())) == ROUNDS


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError(), FileExistsError("asked twice")])
def test_an_object_whose_answer_was_lost_is_ours_and_no_others_is(
    error: Exception, emulator: Emulator, root: Location
) -> None:
    storage = writer(emulator, skip_instance_cache=True)
    put = storage.filesystem.pipe_file

    def lossy(*arguments: Any, **settings: Any) -> None:
        storage.filesystem.pipe_file = put
        put(*arguments, **settings)
        raise error

    storage.filesystem.pipe_file = lossy
    assert storage.create(root / "1", b"")
    assert not storage.create(root / "1", b"")
    storage.write(root / "2", b"")  # has no mark
    storage.filesystem.pipe_file = put
    assert not storage.create(root / "2", b"")


class LosesFirstAnswer(Proxy):
    """Cuts its first connection within the answer, and no other."""

    cuts = (1,)

    @property
    def cut_after(self) -> int | None:
        left, self.cuts = self.cuts, ()
        return left[0] if left else None

    @cut_after.setter
    def cut_after(self, value: int | None) -> None:
        """It is always the first."""


def test_an_object_that_is_put_twice_because_an_answer_was_lost_is_ours(emulator: Emulator, root: Location) -> None:
    with LosesFirstAnswer(emulator.port) as proxy:
        storage = writer(emulator, proxy.port)
        assert storage.create(root / "1", b"x")
        assert proxy.requests > 1
        assert not storage.create(root / "1", b"y")


def test_where_no_answer_comes_at_all_it_is_an_error_and_the_next_one_is_told_the_truth(
    emulator: Emulator, root: Location
) -> None:
    with Proxy(emulator.port, cut_after=1) as proxy, pytest.raises(StorageError):
        writer(emulator, proxy.port).create(root / "1", b"x")
    assert not writer(emulator).create(root / "1", b"y")
    assert writer(emulator).read(root / "1", limit=9) == b"x"


def test_a_container_that_is_not_there_is_not_made(emulator: Emulator) -> None:
    root = parse_location(emulator.root.replace("lake", "pond", 1) + "/x")
    storage = writer(emulator)
    for change in (
        lambda: storage.write(root / "x", b""),
        lambda: storage.create(root / "x", b""),
        lambda: require_exclusive_create(storage, root),
    ):
        with pytest.raises(StorageError):
            change()
    assert storage.names(root) is None


def test_nothing_is_written_to_azure_with_a_key_that_is_wrong(azure: Azurite) -> None:
    file = parse_location(f"{azure.root}/{uuid.uuid4().hex}")
    denied = open_writable(file, {"connection_string": azure.connection(key=WRONG_KEY)})
    for change in (denied.write, denied.create):
        with pytest.raises(StorageDeniedError):
            change(file, b"")
    with pytest.raises(StorageDeniedError):
        denied.remove(file)
    assert writer(azure).stat(file) is None


class Forgetful:
    """A server that knows no conditions, and says nothing of it."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def pipe_file(self, path: str, content: bytes, mode: str = "overwrite", **settings: Any) -> None:
        self._filesystem.pipe_file(path, content, **settings)


def test_a_server_that_only_pretends_is_found_out(emulator: Emulator, root: Location) -> None:
    honest = writer(emulator)
    with pytest.raises(ExclusiveCreateUnsupportedError):
        require_exclusive_create(MarkingWriter(Forgetful(honest.filesystem)), root)
    assert honest.walk(root) is None


def test_a_repair_is_killed_finished_and_taken_back_to_the_byte(emulator: Emulator, root: Location) -> None:
    case = Case("drop", writer(emulator), root / "orders")
    killed(case, lambda engine: engine.apply("proof"), watch=False, after=first_step("drop"))
    case.engine().apply("proof")
    assert case.files() == case.wanted
    case.engine().undo("proof")
    assert case.files() == case.before
    assert find_open_recovery(case.storage, case.location) is None
