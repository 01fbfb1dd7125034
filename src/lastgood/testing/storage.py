"""Storages for tests: slow ones, and ones that refuse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from lastgood.errors import StorageError
from lastgood.storage import PARALLEL_REMOTE, Entry, LocalStorage, Location, Storage

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
        return self._ask(lambda: _all(self._storage.names(folder)))

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """See `Storage.scan`."""
        return self._ask(lambda: _all(self._storage.scan(folder, facts=facts)))

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """See `Storage.walk`."""
        return self._ask(lambda: _all(self._storage.walk(folder)))

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


def _all(found: Iterator[_Answer] | None) -> Iterator[_Answer] | None:
    return None if found is None else iter(list(found))
