"""The ledger of a load: it gets the chunks while the load goes on, and all of them at its end."""

from __future__ import annotations

import time

from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.url import LedgerPlace
from lastgood.observe.ledger import fill_with, take_snapshot
from lastgood.storage.reading import Location
from lastgood.supervise.load_driver import LoadProgress

_PAUSE_SECONDS = 10.0
"""From one filling to the next, at least: others can ask it what is loaded so far."""
_PAUSE_SHARE = 20
"""So many times as long as a filling took is the pause behind it: each reads all plans."""
_REFUSED_SECONDS = 300.0


@dataclass(slots=True)
class LoadLedger:
    """Where a load tells what it has loaded."""

    place: LedgerPlace
    checkpoint: Location
    next_at: float = 0.0

    def fill_now_and_then(self, progress: LoadProgress) -> None:
        """Give it what is planned and committed, if that was done some time ago.

        It takes a twentieth of the time of a load at most, and what one refusal takes each five minutes.

        Args:
            progress: Where the load stands.
        """
        began = time.monotonic()
        if not progress.chunks or began < self.next_at:
            return
        pause_seconds = _PAUSE_SECONDS
        try:
            self.fill()
        except LastgoodError:  # at the end it is filled once more, and what it says then is told
            pause_seconds = _REFUSED_SECONDS
        now = time.monotonic()
        self.next_at = now + max(pause_seconds, _PAUSE_SHARE * (now - began))

    def fill(self) -> None:
        """Give it where the chunks end, and which are committed.

        Raises:
            LedgerError, NoSpaceError: it refuses; everything that is loaded stays.
            StorageError: the checkpoint cannot be read (subclasses).
        """
        with open_ledger(self.place) as opened:
            fill_with(self.checkpoint, take_snapshot(self.checkpoint), opened)
