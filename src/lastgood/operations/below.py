"""Every checkpoint below a folder: told by the same signs by which `diagnose` takes a folder for one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, STATE
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import StorageError
from lastgood.operations.target import resolve_target
from lastgood.recovery.mirror import WORK_SUFFIX, mirror_folder
from lastgood.storage import Location, Storage, open_storage, parse_location

_DEPTH_MAX = 6
_NEVER_INSIDE = ("_delta_log", "_spark_metadata")
_LOGS = frozenset((f"{OFFSETS}/", f"{COMMITS}/"))
_PARTS = frozenset((*_LOGS, f"{SOURCES}/", f"{STATE}/"))


def is_root(target: str) -> bool:
    """True for a folder that is no checkpoint itself, nor was one, and may hold some.

    Raises:
        LocationInvalidError: the location is not understood.
        StorageError: the storage does not answer, or does not let us look (subclasses).
    """
    location = parse_location(resolve_target(target).checkpoint)
    storage = open_storage(location)
    names = list(storage.names(location) or ())
    if not names or _is_checkpoint(storage, location, names):
        return False
    return not location.name or not list(storage.names(mirror_folder(location)) or ())


def checkpoints_below(storage: Storage, folder: Location) -> Iterator[Location]:
    """Every checkpoint below a folder, and whatever may be one.

    That is a folder that cannot be listed, and one whose work folder is still there, whatever it holds. Nothing is
    sought inside a checkpoint or in a work folder.

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

    level, worked_on = [folder], set[Location]()
    with ThreadPoolExecutor(storage.parallel) as pool:
        for _ in range(_DEPTH_MAX):
            found = zip(level, pool.map(listed, level), strict=True)
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


def _may_hold(name: str) -> bool:
    return not name.endswith(WORK_SUFFIX) and not name.startswith(".") and name not in _NEVER_INSIDE


def _is_checkpoint(storage: Storage, place: Location, names: Collection[str]) -> bool:
    """Whether `diagnose` takes a folder for a checkpoint: by its names where they tell, else by what is in it.

    A query that has lost its id and a log is still one. But a folder with a table called `state`, or with a query that
    somebody has called `offsets`, holds no checkpoint but perhaps some.
    """
    present = set(names)
    if METADATA in present or present >= _LOGS:
        return True
    return not present.isdisjoint(_PARTS) and read_checkpoint(storage, place, batches=2).is_there
