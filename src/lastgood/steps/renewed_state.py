"""One version of a state store that a step makes anew: what was there of it is kept by moving it, however large."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lastgood.checkpoint.layout import parse_state_version
from lastgood.planning.steps import StateStep
from lastgood.steps.carrying import Carrying, CheckpointChangedError, Site, UndoRefusedError
from lastgood.steps.moved_file import MovedFile
from lastgood.storage.reading import Location

_MADE_SINCE = "made-since"
"""Beside what is kept of the time before: what a batch has made that is taken back."""


class RenewedState(Carrying):
    """The file of one step: as it was, or set aside and made anew."""

    def __init__(self, step: StateStep, site: Site) -> None:
        """Find it; nothing is looked at yet."""
        self._step = step
        self._storage = site.storage
        self._place = site.checkpoint / step.path
        self._kept = site.kept / step.path
        self._folder = site.checkpoint / step.path.rpartition("/")[0]
        self._made_since = site.kept / _MADE_SINCE / step.path.rpartition("/")[0]

    def is_as_planned(self, seal: Collection[str]) -> bool:
        """Whether a file of that size is there, or none if there was none."""
        return self._measure(self._place) == self._step.size

    def do(self, seal: Collection[str]) -> None:
        """Set aside what is there, and write the new one.

        Raises:
            CheckpointChangedError: what is there is not as the step found it, or another file came in between.
        """
        if self.is_done(seal):
            return
        if self._step.size is not None:
            self._moved(self._step.size).do(seal)
        # Never over another file: who wakes up late, after all was put back, finds what was there and lets it be.
        if not self._storage.create(self._place, self._step.after) and not self.is_done(seal):
            raise CheckpointChangedError(
                "a file came while the checkpoint was sealed",
                subject=str(self._place),
                effect="the checkpoint stays sealed; no driver can start on it",
            )

    def is_done(self, seal: Collection[str]) -> bool:
        """Whether it holds what the step writes."""
        return self._storage.read(self._place, limit=len(self._step.after) + 1) == self._step.after

    def require_backup(self) -> None:
        """See that what was there is kept in its whole length, or still there."""
        if self._step.size is None:
            return
        kept, place = self._measure(self._kept), self._measure(self._place)
        if self._step.size not in (kept, place):
            raise UndoRefusedError(
                "the backup is gone or was changed",
                subject=str(self._kept),
                found="no such file" if kept is None else f"{kept} bytes",
                expected=f"{self._step.size} bytes",
                effect="nothing has been changed",
            )

    def undo(self, seal: Collection[str]) -> None:
        """Take the new one away, with all that a batch has made of it since, and put back what was there.

        Nothing is removed: what goes is kept as well, whoever may have made it.
        """
        for name in list(self._list_made_since()):
            self._set_aside(name)
        own = self._place.name
        if self.is_done(seal) and (self._step.size is None or self._measure(self._kept) is not None):
            self._set_aside(own)
        if self._step.size is None:
            return
        if self._measure(self._kept) is not None:
            self._moved(self._step.size).undo(seal)
        elif self._measure(self._place) is None and self._measure(self._made_since / own) == self._step.size:
            # Who woke up late, right here above, has set aside what had been put back.
            self._storage.move(self._made_since / own, self._place)

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
        own = self._step.path.rpartition("/")[2]
        known = {own, *self._step.found_beside}
        least = parse_state_version(self._step.path)
        for name in self._storage.names(self._folder) or ():
            version = parse_state_version(f"{self._step.path.removesuffix(own)}{name}")
            if name not in known and version is not None and least is not None and version >= least:
                yield name
