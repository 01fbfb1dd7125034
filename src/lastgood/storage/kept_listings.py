"""What was made of the listings of folders that are looked at again and again, as long as they stay as they are."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from lastgood.frozen import dataclass
from lastgood.storage.own_disks import find_own_disk
from lastgood.storage.reading import Entry, Location, Storage

_Made = TypeVar("_Made")

_KEPT_SECONDS = 5.0
"""After so long a folder is listed anyway: a file that is written over in its place changes no folder."""
_SETTLED_MS = 100
"""Longer than a tick of the clock of a disk: two changes within one leave the same time."""


def follow_numbers(storage: Storage, folder: Location, begin: int) -> Iterator[tuple[int, Entry]]:
    """The files of a folder that are named by numbers, from `begin` on, as far as one follows the other.

    Each is asked for: on a disk that costs less than to list a folder in which hundreds lie.
    """
    for number in itertools.count(begin):
        there = storage.stat(folder / str(number))
        if there is None or there.is_folder:
            return
        yield number, there


@dataclass(frozen=True, slots=True)
class _Kept(Generic[_Made]):
    made: _Made
    modified_ms: int
    until: float


class KeptListings(Generic[_Made]):
    """Lists a folder again only when its time tells that a name in it came, went, or was replaced.

    That is believed of this machine's own disks alone: a share tells times from its memory, a store that is mounted as
    a disk may tell none, and so is one whose times are whole seconds. There everything is listed each time. Belongs to
    one thread.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        find_disk: Callable[[Location], str | None] = find_own_disk,
    ) -> None:
        """Begin without any.

        Args:
            storage: Of the folders.
            now: The clock of the disk, in seconds since 1970.
            clock: Seconds, by which nothing is kept for too long.
            find_disk: Which of this machine's own disks a folder is on; None: on none.
        """
        self._storage = storage
        self._now = now
        self._clock = clock
        self._find_disk = find_disk
        self._kept: dict[Location, _Kept[_Made]] = {}
        self._is_own: dict[Location, bool] = {}

    def get(self, folder: Location, make: Callable[[Location], _Made]) -> _Made:
        """What `make` has made of a folder; the same object as long as it is not made again.

        Raises:
            StorageError: the folder cannot be looked at; so may `make`.
        """
        modified_ms = self._find_time(folder)  # before it is listed: what comes after that changes it again
        if modified_ms is None:
            return make(folder)
        kept, clock = self._kept.get(folder), self._clock()
        if kept is not None and kept.modified_ms == modified_ms and clock < kept.until:
            return kept.made
        is_settled = self._now() * 1000 - modified_ms > _SETTLED_MS
        made = make(folder)
        if is_settled:
            self._kept[folder] = _Kept(made, modified_ms, clock + _KEPT_SECONDS)
        return made

    def forget(self) -> None:
        """List every folder again."""
        self._kept.clear()

    def _find_time(self, folder: Location) -> int | None:
        """When a folder has changed, if that can be believed."""
        if folder not in self._is_own:
            self._is_own[folder] = self._find_disk(folder) is not None
        if not self._is_own[folder]:
            return None
        found = self._storage.stat(folder)
        if found is None or found.modified_ms is None or found.modified_ms % 1000 == 0:
            return None
        return found.modified_ms
