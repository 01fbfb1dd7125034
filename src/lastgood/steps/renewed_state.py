"""One version of a state store that a step makes anew: what was there of it is kept by moving it, however large."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.planning.steps import StateStep
from lastgood.steps.carrying import CheckpointChangedError, Site
from lastgood.steps.state_version import ReplacedState


class RenewedState(ReplacedState):
    """The file of one step: as it was, or set aside and made anew."""

    def __init__(self, step: StateStep, site: Site) -> None:
        """Find it; nothing is looked at yet."""
        super().__init__(step, site)
        self._after = step.after

    def is_as_planned(self, seal: Collection[str]) -> bool:
        """Whether a file of that size is there, or none if there was none."""
        return self._measure(self._place) == self._size

    def do(self, seal: Collection[str]) -> None:
        """Set aside what is there, and write the new one.

        Raises:
            CheckpointChangedError: what is there is not as the step found it, or another file came in between.
        """
        if self.is_done(seal):
            return
        if self._size is not None:
            self._moved(self._size).do(seal)
        # Never over another file: who wakes up late, after all was put back, finds what was there and lets it be.
        if not self._storage.create(self._place, self._after) and not self.is_done(seal):
            raise CheckpointChangedError(
                "a file came while the checkpoint was sealed",
                subject=str(self._place),
                effect="the checkpoint stays sealed; no driver can start on it",
            )

    def is_done(self, seal: Collection[str]) -> bool:
        """Whether it holds what the step writes."""
        return self._storage.read(self._place, limit=len(self._after) + 1) == self._after

    def undo(self, seal: Collection[str]) -> None:
        """Take the new one away, with all that a batch has made of it since, and put back what was there.

        Nothing is removed: what goes is kept as well, whoever may have made it.
        """
        self._set_aside_made_since()
        own = self._place.name
        if self.is_done(seal) and (self._size is None or self._measure(self._kept) is not None):
            self._set_aside(own)
        if self._size is None:
            return
        if self._measure(self._kept) is not None:
            self._moved(self._size).undo(seal)
        elif self._measure(self._place) is None and self._measure(self._made_since / own) == self._size:
            # Who woke up late, right here above, has set aside what had been put back.
            self._storage.move(self._made_since / own, self._place)
