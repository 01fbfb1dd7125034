"""Storages for tests: slow ones, ones that refuse, ones that fail at a given call, and one in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from fsspec.implementations.memory import MemoryFileSystem

from lastgood.errors import StorageError
from lastgood.storage.reading import PARALLEL_REMOTE, Entry, LocalStorage, Location, Storage
from lastgood.storage.writing import FsspecWriter, WritableStorage

_Answer = TypeVar("_Answer")


class SlowStorage:
    """A storage that takes its time for each request, as an object store does, and counts them."""

    def __init__(self, storage: Storage | None = None, *, seconds: float = 0.03) -> None:
        """Answer as `storage` (files of this machine if None), each time after so many seconds."""
        self._storage = LocalStorage() if storage is None else storage
        self._seconds = seconds
        self._lock = threading.Lock()
        self.requests = 0
        """How many were made."""
        self.round_trips = 0
        """The longest chain of requests of which each began after the one before it had ended."""

    @property
    def parallel(self) -> int:
        """How many requests at once pay off."""
        return PARALLEL_REMOTE

    def names(self, folder: Location) -> Iterator[str] | None:
        """See `Storage.names`."""
        return self._ask(lambda: _take_all(self._storage.names(folder)))

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """See `Storage.scan`."""
        return self._ask(lambda: _take_all(self._storage.scan(folder, facts=facts)))

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """See `Storage.walk`."""
        return self._ask(lambda: _take_all(self._storage.walk(folder)))

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """See `Storage.read`."""
        return self._ask(lambda: self._storage.read(file, limit=limit))

    def stat(self, location: Location) -> Entry | None:
        """See `Storage.stat`."""
        return self._ask(lambda: self._storage.stat(location))

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        with self._lock:
            self.requests += 1
            chain = self.round_trips + 1
        time.sleep(self._seconds)
        answer = question()
        with self._lock:
            self.round_trips = max(self.round_trips, chain)
        return answer


class RefusingStorage(LocalStorage):
    """Files of this machine, some of which do not answer."""

    def __init__(self, *silent: Location) -> None:
        """Raise StorageError for everything at and below these locations."""
        super().__init__()
        self._silent = silent

    def names(self, folder: Location) -> Iterator[str] | None:
        """See `Storage.names`."""
        self._check(folder)
        return super().names(folder)

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """See `Storage.scan`."""
        self._check(folder)
        return super().scan(folder, facts=facts)

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """See `Storage.read`."""
        self._check(file)
        return super().read(file, limit=limit)

    def stat(self, location: Location) -> Entry | None:
        """See `Storage.stat`."""
        self._check(location)
        return super().stat(location)

    def _check(self, location: Location) -> None:
        for silent in self._silent:
            if location == silent or str(location).startswith(f"{silent}/"):
                raise StorageError("the storage does not answer", subject=str(location))


class FaultyWriter:
    """A storage that fails at one of its changes, and from then on at everything: so a killed process leaves it.

    Changes are the calls of `write`, `create`, `move` and `remove`, counted from 1.

    Example, which kills `work` at each of its changes, before and after::

        counting = FaultyWriter(LocalWriter())
        work(counting)
        for number in range(1, len(counting.changes) + 1):
            for moment in ({"before": number}, {"after": number}):
                with pytest.raises(Killed):
                    work(FaultyWriter(LocalWriter(), error=Killed(), **moment))
    """

    def __init__(
        self,
        storage: WritableStorage,
        *,
        before: int | None = None,
        after: int | None = None,
        error: BaseException | None = None,
        lasts: bool = True,
        between: Callable[[int], None] | None = None,
    ) -> None:
        """Change `storage`, and fail at one call.

        Args:
            storage: What is changed.
            before: Fail at the change of this number, before it is done.
            after: Fail at the change of this number, once it is done.
            error: What is raised; StorageError if None. One that is no `Exception` passes through every handler.
            lasts: Whether everything fails from then on, reading too; else only that one call.
            between: Gets the number of each change right before it is done, to look around or to interfere.
        """
        self._storage = storage
        self._before = before
        self._after = after
        self._error = error
        self._lasts = lasts
        self._between = between
        self._is_dead = False
        self._lock = threading.Lock()
        self.changes: list[str] = []
        """What was asked for: `create /lake/chk/offsets/8`, …, the failing one included."""

    @property
    def parallel(self) -> int:
        """How many requests at once pay off."""
        return self._storage.parallel

    def names(self, folder: Location) -> Iterator[str] | None:
        """See `Storage.names`."""
        self._require_alive(folder)
        return self._storage.names(folder)

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """See `Storage.scan`."""
        self._require_alive(folder)
        return self._storage.scan(folder, facts=facts)

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """See `Storage.walk`."""
        self._require_alive(folder)
        return self._storage.walk(folder)

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """See `Storage.read`."""
        self._require_alive(file)
        return self._storage.read(file, limit=limit)

    def stat(self, location: Location) -> Entry | None:
        """See `Storage.stat`."""
        self._require_alive(location)
        return self._storage.stat(location)

    def write(self, file: Location, content: bytes) -> None:
        """See `WritableStorage.write`."""
        self._change(file, f"write {file}", lambda: self._storage.write(file, content))

    def create(self, file: Location, content: bytes) -> bool:
        """See `WritableStorage.create`."""
        return self._change(file, f"create {file}", lambda: self._storage.create(file, content))

    def move(self, source: Location, target: Location) -> None:
        """See `WritableStorage.move`."""
        self._change(source, f"move {source} {target}", lambda: self._storage.move(source, target))

    def move_folder(self, source: Location, target: Location) -> None:
        """See `WritableStorage.move_folder`."""
        self._change(source, f"move {source} {target}", lambda: self._storage.move_folder(source, target))

    def copy(self, source: Location, target: Location) -> None:
        """See `WritableStorage.copy`."""
        self._change(target, f"copy {source} {target}", lambda: self._storage.copy(source, target))

    def remove(self, file: Location) -> None:
        """See `WritableStorage.remove`."""
        self._change(file, f"remove {file}", lambda: self._storage.remove(file))

    def _change(self, location: Location, told: str, change: Callable[[], _Answer]) -> _Answer:
        self._require_alive(location)
        with self._lock:
            self.changes.append(told)
            number = len(self.changes)
        if number == self._before:
            self._fail(location)
        if self._between is not None:
            self._between(number)
        answer = change()
        if number == self._after:
            self._fail(location)
        return answer

    def _require_alive(self, location: Location) -> None:
        if self._is_dead:
            self._fail(location)

    def _fail(self, location: Location) -> None:
        self._is_dead = self._lasts
        raise self._error or StorageError("the storage does not answer", subject=str(location))


class MemoryWriter(FsspecWriter):
    """Files in memory, nobody else's; any location names one of them. As exclusive as S3 is."""

    def __init__(self) -> None:
        """Hold nothing."""
        filesystem = MemoryFileSystem(skip_instance_cache=True)
        filesystem.store, filesystem.pseudo_dirs = {}, [""]  # its own are shared by all
        super().__init__(filesystem)
        self._creating = threading.Lock()

    def create(self, file: Location, content: bytes) -> bool:
        """See `WritableStorage.create`."""
        with self._creating:
            return super().create(file, content)


def _take_all(found: Iterator[_Answer] | None) -> Iterator[_Answer] | None:
    if found is None:
        return None
    return iter(list(found))
