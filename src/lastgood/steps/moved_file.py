"""One file that a step sets aside by moving it, however large: what is kept is the file itself."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.steps.carrying import Carrying, CheckpointChangedError
from lastgood.storage.reading import Location, are_same
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
        """Move it back; what came anew in its place goes."""
        if self._comes_anew and self._has_come_anew():
            # Safe: what is kept was just seen in its whole length, and it is what the logs fit once they are back. What
            # lies in its place, and is not that, was made since by a batch that did not go on from there.
            self._storage.remove(self._place)
        self._move(self._kept, self._place)

    def _has_come_anew(self) -> bool:
        """Whether another file lies in its place; not the half of a move that was interrupted, which is the same."""
        kept, place = self._storage.stat(self._kept), self._storage.stat(self._place)
        if kept is None or kept.size != self._size or place is None:
            return False
        return place.size != self._size or not are_same(self._storage, self._kept, self._place, self._size)

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
