"""A ledger while queries run: a thread that tells it what the mirrors copy and the agents record.

Whatever the ledger does, nothing waits for it: what it does not take at once, it gets from mirror and records later.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.checkpoint.copies import Copy
from lastgood.errors import LastgoodError
from lastgood.ledger.facts import Teller
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.url import LedgerPlace
from lastgood.observe.ledger import add_copies, fill_from_mirror, fill_from_records, set_filled_until
from lastgood.spark.record_sinks import locate_records
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.supervise.events import Event, Noticed

if TYPE_CHECKING:
    from lastgood.ledger.store import Ledger

PAUSE_SECONDS = 1.0
RECORDS_SECONDS = 30.0
"""Between two looks for records beside the checkpoints, which an application writes by itself."""
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
LAST_SECONDS = 10.0
"""How long the end of a run may wait for the ledger."""
COPIES_MAX = 5000
"""So many may wait in memory; of a checkpoint that has more, the mirror is read instead."""


class Filling:
    """Fills one ledger. `add` and `copied` return at once, and may be called from any thread."""

    def __init__(self, place: LedgerPlace, *, tell: Callable[[Event], None], agents: Path | None = None) -> None:
        """Prepare; `begin` starts the thread.

        Args:
            place: The ledger.
            tell: Is told, once, that the ledger does not take what it is given.
            agents: Folder with the folders of this pipeline's agents, if it has any.
        """
        self._place = place
        self._tell = tell
        self._agents = agents
        self._changed = threading.Condition()
        self._waiting: dict[Location, list[Copy]] = defaultdict(list)
        self._behind: set[Location] = set()
        self._checkpoints: set[Location] = set()
        self._until_ms: dict[Location, int] = {}
        self._stop_at: float | None = None
        self._ledger: Ledger | None = None
        self._is_told = False
        self._next_records = 0.0
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def begin(self) -> None:
        """Fill from now on."""
        self._thread.start()

    def add(self, checkpoint: Location) -> None:
        """Fill in what is known of this checkpoint, and what comes."""
        with self._changed:
            self._checkpoints.add(checkpoint)
            self._behind.add(checkpoint)

    def note_copied(self, checkpoint: Location, copies: Sequence[Copy]) -> None:
        """These files are in its mirror now."""
        with self._changed:
            if checkpoint in self._behind:
                return  # all of its mirror is to be read anyway
            self._waiting[checkpoint] += copies
            if sum(map(len, self._waiting.values())) > COPIES_MAX:
                self._behind.add(checkpoint)
                del self._waiting[checkpoint]

    def end(self, seconds: float = LAST_SECONDS) -> None:
        """Give the ledger what waits, and stop; after `seconds` the rest is left to the next run."""
        with self._changed:
            self._stop_at = time.monotonic() + seconds
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        tries = 0
        while True:
            with self._changed:
                if tries:
                    pause = RETRY_SECONDS[min(tries, len(RETRY_SECONDS)) - 1]
                else:
                    pause = PAUSE_SECONDS
                is_last = self._changed.wait_for(lambda: self._stop_at is not None, pause)
            try:
                self._pass(is_last=is_last)
                tries = 0
                self._is_told = False
            except Exception as error:  # noqa: BLE001 - a ledger never ends a run, whatever is wrong with it
                tries += 1
                self._close()
                self._notice(error)
            if is_last:
                self._close()
                return

    def _pass(self, *, is_last: bool) -> None:
        ledger = self._ledger = self._ledger or open_ledger(self._place)
        self._fill_behind(ledger)
        with self._changed:
            waiting, self._waiting = self._waiting, defaultdict(list)
        try:
            for checkpoint, copies in waiting.items():
                add_copies(checkpoint, copies, ledger, Teller.MIRROR)
                self._until_ms[checkpoint] = max(copy.seen_ms for copy in copies)
        except BaseException:  # whatever it was, what the ledger was not told is told again
            with self._changed:
                self._behind.update(waiting)
            raise
        self._fill_records(ledger, is_last=is_last)
        if is_last or time.monotonic() >= self._next_records:
            self._next_records = time.monotonic() + RECORDS_SECONDS
            for checkpoint, seen_ms in self._until_ms.items():
                set_filled_until(checkpoint, ledger, seen_ms)
            self._until_ms.clear()

    def _fill_behind(self, ledger: Ledger) -> None:
        """Read the mirrors of checkpoints whose copies were not taken as they came."""
        with self._changed:
            behind = list(self._behind)
        for checkpoint in behind:
            with self._changed:
                self._behind.discard(checkpoint)  # what is copied from now on waits again
            try:
                fill_from_mirror(checkpoint, ledger, open_storage(checkpoint), go_on=self._may_go_on)
            except BaseException:  # as above
                with self._changed:
                    self._behind.add(checkpoint)
                raise

    def _fill_records(self, ledger: Ledger, *, is_last: bool) -> None:
        if self._agents is not None and self._agents.is_dir():
            folders = sorted(self._agents.iterdir())
        else:
            folders = []
        is_time = is_last or time.monotonic() >= self._next_records
        for folder in folders if is_time else folders[-1:]:
            place = parse_location(str(folder))
            fill_from_records(place, ledger, open_storage(place), go_on=self._may_go_on)
        if is_time:
            for checkpoint in sorted(self._checkpoints, key=str):
                storage = open_storage(checkpoint)
                fill_from_records(locate_records(checkpoint), ledger, storage, go_on=self._may_go_on)

    def _may_go_on(self) -> bool:
        return self._stop_at is None or time.monotonic() < self._stop_at

    def _close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = None

    def _notice(self, error: Exception) -> None:
        if self._is_told:
            return
        self._is_told = True
        if isinstance(error, LastgoodError):
            told = f"{error.sentence} ({error.found})"
        else:
            told = type(error).__name__
        self._tell(
            Noticed(
                at=time.time(),
                condition="LEDGER_NOT_WRITTEN",
                sentence=f"the ledger {self._place} is behind: {told}; it is tried again",
            )
        )


@contextlib.contextmanager
def keep_filled(
    place: LedgerPlace | None, tell: Callable[[Event], None], *, agents: Path | None = None
) -> Iterator[Filling | None]:
    """Keep a ledger up to date until the end of the block, and once more there; nothing is done without one."""
    if place is None:
        yield None
        return
    filled = Filling(place, tell=tell, agents=agents)
    filled.begin()
    try:
        yield filled
    finally:
        filled.end()
