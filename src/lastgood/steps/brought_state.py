"""One file of the state that a step brings from where it was made anew; what was there is kept by moving it."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.planning.steps import BringStep
from lastgood.steps.carrying import Site
from lastgood.steps.moved_file import MovedFile
from lastgood.steps.state_version import ReplacedState
from lastgood.storage.reading import are_same
from lastgood.storage.rights import WORK_SUFFIX


class BroughtState(ReplacedState):
    """The file of one step: where it was made, or in its place; and what was in its place, there or where it is kept.

    A move takes a file away from where it was only when it is whole in its place. So as long as there is something
    where it was made, the step is not done.
    """

    def __init__(self, step: BringStep, site: Site) -> None:
        """Find it; nothing is looked at yet."""
        super().__init__(step, site)
        self._source = site.checkpoint.sibling(WORK_SUFFIX) / step.source
        self._brought_size = step.brought_size

    def is_as_planned(self, seal: Collection[str]) -> bool:
        """Whether the new file lies where it was made, and in its place what the plan has found."""
        is_made = self._measure(self._source) == self._brought_size
        return is_made and self._measure(self._place) == self._size

    def do(self, seal: Collection[str]) -> None:
        """Set aside what is there, and bring the new file.

        Raises:
            CheckpointChangedError: what is there is not as the step found it, or the new file is gone.
        """
        if self.is_done(seal):
            return
        if self._size is not None and not self._is_half_brought():
            self._moved(self._size).do(seal)
        self._moved_in().do(seal)

    def is_done(self, seal: Collection[str]) -> bool:
        """Whether it was brought, and has gone from where it was made."""
        return self._measure(self._source) is None and self._measure(self._place) == self._brought_size

    def undo(self, seal: Collection[str]) -> None:
        """Move it back where it was made, set aside what a batch has made since, and put back what was there."""
        self._set_aside_made_since()
        if self.is_done(seal):
            self._storage.move(self._place, self._source)
        elif self._is_half_brought():
            # Safe: byte for byte the same lies where it was made.
            self._storage.remove(self._place)
        if self._size is not None:
            self._moved(self._size).undo(seal)

    def _is_half_brought(self) -> bool:
        """Whether a move was interrupted that leaves the new file in its place, and also where it was made."""
        if not self._measure(self._source) == self._measure(self._place) == self._brought_size:
            return False
        if self._size is not None and self._measure(self._kept) != self._size:
            return False  # what was there has not been moved yet
        return are_same(self._storage, self._source, self._place, self._brought_size)

    def _moved_in(self) -> MovedFile:
        return MovedFile(self._storage, self._source, self._place, self._brought_size)
