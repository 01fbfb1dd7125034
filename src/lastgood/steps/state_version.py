"""One file of the state that a step replaces: what was there is kept by moving it, however large."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.layout import parse_state_version
from lastgood.planning.steps import BringStep, StateStep
from lastgood.steps.carrying import Carrying, Site, UndoRefusedError
from lastgood.steps.moved_file import MovedFile
from lastgood.storage.reading import Location

_MADE_SINCE = "made-since"
"""Beside what is kept of the time before: what a batch has made that is taken back."""


class ReplacedState(Carrying):
    """The file of one step: as it was, or set aside and replaced."""

    def __init__(self, step: StateStep | BringStep, site: Site) -> None:
        """Find it; nothing is looked at yet."""
        self._path = step.path
        self._size = step.size
        self._found_beside = step.found_beside
        self._storage = site.storage
        self._place = site.checkpoint / step.path
        self._kept = site.kept / step.path
        self._folder = site.checkpoint / step.path.rpartition("/")[0]
        self._made_since = site.kept / _MADE_SINCE / step.path.rpartition("/")[0]

    def require_backup(self) -> None:
        """See that what was there is kept in its whole length, or still there."""
        if self._size is None:
            return
        kept, place = self._measure(self._kept), self._measure(self._place)
        if self._size not in (kept, place):
            raise UndoRefusedError(
                "the backup is gone or was changed",
                subject=str(self._kept),
                found="no such file" if kept is None else f"{kept} bytes",
                expected=f"{self._size} bytes",
                effect="nothing has been changed",
            )

    def _set_aside_made_since(self) -> None:
        """Whatever a batch has made of this version and later ones since; nothing of it is removed."""
        for name in list(self._list_made_since()):
            self._set_aside(name)

    def _set_aside(self, name: str) -> None:
        """Whatever has the name, but for what is gone by now."""
        kept = self._made_since / name
        if self._measure(self._folder / name) is None:
            return
        # Safe: it is what another undo has set aside under this name, of a batch that has made the same file since.
        self._storage.remove(kept)
        # Safe: a move loses nothing, and no other step puts a file of this name back.
        self._storage.move(self._folder / name, kept)

    def _measure(self, file: Location) -> int | None:
        found = self._storage.stat(file)
        if found is None:
            return None
        return found.size

    def _moved(self, size: int) -> MovedFile:
        return MovedFile(self._storage, self._place, self._kept, size)

    def _list_made_since(self) -> Iterator[str]:
        """Names of files of this version and later ones, beside it, that were not there when the plan was made."""
        own = self._place.name
        known = {own, *self._found_beside}
        least = parse_state_version(self._path)
        for name in self._storage.names(self._folder) or ():
            version = parse_state_version(f"{self._path.removesuffix(own)}{name}")
            if name not in known and version is not None and least is not None and version >= least:
                yield name
