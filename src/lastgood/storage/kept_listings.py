"""What was made of the listings of folders that are looked at again and again, as long as they stay as they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from lastgood.frozen import dataclass
from lastgood.storage.reading import Location, Storage

_Made = TypeVar("_Made")

_KEPT_SECONDS = 5.0
"""After so long a folder is listed anyway: a store that is mounted as a disk may not tell that a folder has changed."""
_SETTLED_MS = 100
"""Longer than a tick of the clock of any disk: two changes within one leave the same time."""


@dataclass(frozen=True, slots=True)
class _Kept(Generic[_Made]):
    made: _Made
    modified_ms: int
    until: float


class KeptListings(Generic[_Made]):
    """Lists a folder of this machine again only when its time tells that a name in it came, went, or was replaced.

    On an object store, where folders have no times, everything is listed each time. Belongs to one thread.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], float] = time.time) -> None:
        """Begin without any; `now` is the clock of the disk, in seconds since 1970."""
        self._storage = storage
        self._now = now
        self._kept: dict[Location, _Kept[_Made]] = {}

    def get(self, folder: Location, make: Callable[[Location], _Made]) -> _Made:
        """What `make` has made of a folder; the same object as long as it is not made again.

        Raises:
            StorageError: the folder cannot be looked at; so may `make`.
        """
        modified_ms = self._find_time(folder)  # before it is listed: what comes after that changes it again
        if modified_ms is None:
            return make(folder)
        kept, now = self._kept.get(folder), self._now()
        if kept is not None and kept.modified_ms == modified_ms and now < kept.until:
            return kept.made
        made = make(folder)
        if now * 1000 - modified_ms > _SETTLED_MS:
            self._kept[folder] = _Kept(made, modified_ms, now + _KEPT_SECONDS)
        return made

    def forget(self) -> None:
        """List every folder again."""
        self._kept.clear()

    def _find_time(self, folder: Location) -> int | None:
        if folder.scheme != "file":
            return None
        found = self._storage.stat(folder)
        return None if found is None else found.modified_ms
