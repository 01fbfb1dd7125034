"""How far a query has come, by the file names of its logs alone: cheap enough to ask every half second."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lastgood.checkpoint.layout import find_followed_batch, find_newest_batch
from lastgood.frozen import dataclass
from lastgood.storage.kept_listings import KeptListings, follow_numbers
from lastgood.storage.own_disks import find_own_disk
from lastgood.storage.reading import Location, open_storage

_LOCAL_POLL_SECONDS = 0.25
_REMOTE_POLL_SECONDS = 5.0
_LIST_SECONDS = 10.0
"""So often a log is listed: in between it is only asked for what follows its newest batch."""


@dataclass(frozen=True, slots=True)
class LogProgress:
    """How far a query's logs have come."""

    planned: int | None
    """Newest batch in the offset log; None if there is none."""
    committed: int | None
    """Newest batch in the commit log."""

    @property
    def in_flight(self) -> int | None:
        """The batch that is planned and not committed; None if there is none."""
        committed = -1 if self.committed is None else self.committed
        if self.planned is None or self.planned <= committed:
            return None
        return self.planned


NOTHING = LogProgress(None, None)


class LogWatch:
    """Looks at the offset log and the commit log of one checkpoint."""

    def __init__(self, checkpoint: Location, options: Mapping[str, Any] | None = None) -> None:
        """Watch `checkpoint`; `options` go to its filesystem, of which nothing is asked yet.

        Raises:
            ExtraMissingError: the library for this storage is not installed.
        """
        self._checkpoint = checkpoint
        self._storage = open_storage(checkpoint, options)
        self._kept: KeptListings[int | None] = KeptListings(self._storage)
        self._is_on_own_disk = find_own_disk(checkpoint) is not None  # a share remembers what was not there
        self._known: dict[Location, int] = {}
        self._next_list = 0.0
        self.poll_seconds = _LOCAL_POLL_SECONDS if checkpoint.scheme == "file" else _REMOTE_POLL_SECONDS

    def look(self) -> LogProgress:
        """The newest planned and committed batch; none of a checkpoint that is not there yet.

        Raises:
            StorageError: the checkpoint cannot be listed.
        """
        if time.monotonic() >= self._next_list:
            self._known.clear()
            self._kept.forget()
            self._next_list = time.monotonic() + _LIST_SECONDS
        # Commits first: a batch that is committed between the two looks must not seem to be committed unplanned.
        committed = self._newest("commits")
        return LogProgress(self._newest("offsets"), committed)

    def _newest(self, log: str) -> int | None:
        return self._kept.get(self._checkpoint / log, self._find_newest)

    def _find_newest(self, log: Location) -> int | None:
        known = self._known.pop(log, None)
        if known is not None:
            newest = max((batch for batch, _ in follow_numbers(self._storage, log, known)), default=known)
            if newest > known:  # else something else has happened there
                self._known[log] = newest
                return newest
        names = [name.removesuffix("/") for name in self._storage.names(log) or ()]
        followed = find_followed_batch(names)
        if followed is not None and self._is_on_own_disk:
            self._known[log] = followed
        return find_newest_batch(names)
