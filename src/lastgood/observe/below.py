"""Every checkpoint below a folder: told by the same signs by which `diagnose` takes a folder for one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TypeVar

from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, STATE
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import StorageError
from lastgood.frozen import dataclass
from lastgood.mirror.mirror import locate_mirror
from lastgood.settings.target import Target
from lastgood.storage.reading import LocalStorage, Location, Storage, open_storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.values import JsonValue, make_form

_DEPTH_MAX = 40
"""A lake is not that deep; what is, lists itself without end."""
FOLDERS_MAX = 20_000
SECONDS_MAX = 300.0
_NEVER_INSIDE = ("_delta_log", "_spark_metadata", ".Trash", ".snapshot")
"""The last two hold what was deleted, and what was, of all that is beside them."""
_Found = TypeVar("_Found")
_LOGS = frozenset((f"{OFFSETS}/", f"{COMMITS}/"))
_PARTS = frozenset((*_LOGS, f"{SOURCES}/", f"{STATE}/"))


@dataclass(slots=True)
class Reach(JsonValue):
    """How far below a folder checkpoints were sought; filled while that goes on."""

    json = make_form("folders whole=is_whole ended links=_links")
    """The object `looked` of `status FOLDER --format json`."""

    folders_max: int = FOLDERS_MAX
    seconds_max: float = SECONDS_MAX
    clock: Callable[[], float] = time.monotonic
    folders: int = 0
    """So many were looked into."""
    ended: str | None = None
    """Why it was not looked any further; None: it was, into every folder."""
    links: dict[str, str] = field(default_factory=dict)
    """Links that were met there and not followed; path and text."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return self.ended is None and not self.links

    @property
    def _links(self) -> list[str]:
        return [f"{path} -> {target}" for path, target in sorted(self.links.items())]

    def __str__(self) -> str:
        """One line for a person."""
        found = f"looked into {self.folders:,} folder{'' if self.folders == 1 else 's'}"
        if self.ended is None:
            more = []
        else:
            more = [self.ended]
        if self.links:
            more += [f"{len(self.links)} links not followed, such as {min(self.links)}"]
        return "; ".join((found, *more))


def is_root(target: Target) -> bool:
    """True for a folder that is no checkpoint itself, nor was one, and may hold some.

    Raises:
        LocationInvalidError: the location is not understood.
        StorageError: the storage does not answer, or does not let us look (subclasses).
    """
    location = target.location
    storage = _leave_links_out(open_storage(location))
    names = list(storage.names(location) or ())
    if not names or _is_checkpoint(storage, location, names):
        return False
    return not location.name or not list(storage.names(locate_mirror(location)) or ())


def find_checkpoints_below(storage: Storage, folder: Location, reach: Reach | None = None) -> Iterator[Location]:
    """Every checkpoint below a folder, and whatever may be one.

    That is a folder that cannot be listed, and one whose work folder is still there, whatever it holds. Nothing is
    sought inside a checkpoint or in a work folder, nor behind a link.

    Args:
        storage: From `open_storage(folder)`.
        folder: Where to look.
        reach: How far to look at most; it is told how far that was.

    Raises:
        StorageError: the folder itself cannot be listed.
    """

    def listed(place: Location) -> tuple[list[str] | None, bool]:
        """What is in it, None if that cannot be told; and whether it is a checkpoint."""
        try:
            names = list(storage.names(place) or ())
            return names, _is_checkpoint(storage, place, names)
        except StorageError:
            if place == folder:
                raise
            return None, True

    reach = reach or Reach()
    storage = _leave_links_out(storage)
    level, worked_on, end = [folder], set[Location](), reach.clock() + reach.seconds_max
    with ThreadPoolExecutor(storage.parallel) as pool:
        for _ in range(_DEPTH_MAX):
            looked = level[: max(0, reach.folders_max - reach.folders)]
            if len(looked) < len(level):
                reach.ended = f"not into more than {reach.folders_max:,}"
            found = _take_in_time(zip(looked, pool.map(listed, looked), strict=True), end, reach)
            level = []
            for place, (names, is_one) in found:
                if is_one or place in worked_on:
                    yield place
                if is_one or names is None:
                    continue
                inside = {place / name[:-1] for name in names if name.endswith("/") and _may_hold(name[:-1])}
                suffix = f"{WORK_SUFFIX}/"
                owners = {place / name.removesuffix(suffix) for name in names if name.endswith(suffix)}
                yield from sorted(owners - inside, key=str)
                worked_on |= owners
                level += sorted(inside, key=str)
        if level and reach.ended is None:
            reach.ended = f"not deeper than {_DEPTH_MAX} folders"
        reach.links = dict(storage.left_out) if isinstance(storage, LocalStorage) else {}


def _take_in_time(found: Iterator[_Found], end: float, reach: Reach) -> Iterator[_Found]:
    """The folders that were listed, until time is up."""
    for each in found:
        if reach.clock() > end:
            reach.ended = f"not for longer than {reach.seconds_max:g} s"
            return
        reach.folders += 1
        yield each


def _leave_links_out(storage: Storage) -> Storage:
    if not isinstance(storage, LocalStorage):
        return storage
    return storage.leave_links_out()


def _may_hold(name: str) -> bool:
    return not name.endswith(WORK_SUFFIX) and name not in _NEVER_INSIDE


def _is_checkpoint(storage: Storage, place: Location, names: Collection[str]) -> bool:
    """Whether `diagnose` takes a folder for a checkpoint: by its names where they tell, else by what is in it.

    A query that has lost its id and a log is still one. But a folder with a table called `state`, or with a query that
    somebody has called `offsets`, holds no checkpoint but perhaps some.
    """
    present = set(names)
    if METADATA in present or present >= _LOGS:
        return True
    return not present.isdisjoint(_PARTS) and read_checkpoint(storage, place, batches=2).is_there
