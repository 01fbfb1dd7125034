"""One file that a step sets aside by moving it, however large: what is kept is the file itself."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.steps.carrying import Carrying, CheckpointChangedError
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage


class MovedFile(Carrying):
    """A file that is at its place, or where it is kept, or for an instant at both.

    It is its own backup; a move back that finds nothing tells so.
    """

    def __init__(
        self, storage: WritableStorage, place: Location, kept: Location, size: int, *, comes_anew: bool = False
    ) -> None:
        """Find it; nothing is looked at yet.

        Args:
            storage: Of both places.
            place: Where it is.
            kept: Where it goes.
            size: Bytes that it had when the plan was made.
            comes_anew: Whether a query that has not gone on may have made it anew, once the recovery is closed.
        """
        self._storage = storage
        self._place = place
        self._kept = kept
        self._size = size
        self._comes_anew = comes_anew

    def do(self, seal: Collection[str]) -> None:
        """Move it where it is kept."""
        self._move(self._place, self._kept)

    def is_done(self, seal: Collection[str]) -> bool:
        """Whether it is gone; where it may come anew, that it is there says nothing."""
        return self._comes_anew or self._storage.stat(self._place) is None

    def undo(self, seal: Collection[str]) -> None:
        """Move it back."""
        self._move(self._kept, self._place)

    def _move(self, source: Location, target: Location) -> None:
        there, here = self._storage.stat(target), self._storage.stat(source)
        is_there = there is not None and there.size == self._size
        is_here = here is not None and here.size == self._size
        if is_there and is_here:
            # A move that was not finished. On the way back both stay: who wakes up late in the middle of its own move
            # still removes the one that it has made the other of.
            if source == self._place:
                # Safe: `undo` takes it from where it is kept, and there it was just seen, in its whole length.
                self._storage.remove(source)
        elif is_here and there is None:
            # Safe: nothing is at the target that would be written over, and a move takes the source away only when the
            # target is whole. Killed in between it leaves both, which is the case above.
            self._storage.move(source, target)
        elif not is_there:
            raise CheckpointChangedError(
                "a file is not as it was when the plan was made",
                subject=str(source),
                found="no such file" if here is None else f"{here.size} bytes",
                expected=f"{self._size} bytes",
            )
