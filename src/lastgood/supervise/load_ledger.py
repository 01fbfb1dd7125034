"""The ledger of a load: it gets the chunks while the load goes on, and all of them at its end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from lastgood.errors import LastgoodError
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.url import LedgerPlace
from lastgood.observe.ledger import fill_with, take_snapshot
from lastgood.storage.reading import Location
from lastgood.supervise.load_driver import LoadProgress

_PAUSE_SECONDS = 10.0
"""From one filling to the next: others can ask it what is loaded so far."""


@dataclass(slots=True)
class LoadLedger:
    """Where a load tells what it has loaded."""

    place: LedgerPlace
    checkpoint: Location
    next_at: float = 0.0

    def fill_now_and_then(self, progress: LoadProgress) -> None:
        """Give it what is committed, if that is some time ago. It holds no load up: refused once, it waits for the end.

        Args:
            progress: Where the load stands.
        """
        if not progress.chunks or time.monotonic() < self.next_at:
            return
        try:
            self.fill()
        except LastgoodError:  # the end, which has more to give, tells of it
            self.next_at = math.inf
        else:
            self.next_at = time.monotonic() + _PAUSE_SECONDS

    def fill(self) -> None:
        """Give it where the chunks end, and which are committed.

        Raises:
            LedgerError, NoSpaceError: it refuses; everything that is loaded stays.
            StorageError: the checkpoint cannot be read (subclasses).
        """
        with open_ledger(self.place) as opened:
            fill_with(self.checkpoint, take_snapshot(self.checkpoint), opened)
