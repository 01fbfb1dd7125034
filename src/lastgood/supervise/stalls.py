"""Queries that run and commit nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from lastgood.failures.ending import Cause
from lastgood.frozen import dataclass
from lastgood.observe.progress import LogProgress


@dataclass(frozen=True, slots=True)
class Stall:
    """A query that is to be started again though its driver runs."""

    checkpoint: str
    cause: Cause


class Stalls:
    """Knows since when each query of a running command has not moved; belongs to one thread."""

    def __init__(
        self,
        after_seconds: float | None,
        is_ahead: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            after_seconds: How long a query may stand still; None: for ever.
            is_ahead: Whether the sources of a query hold more than is planned; may take seconds, and is asked seldom.
            clock: Seconds.
        """
        self._after = after_seconds
        self._is_ahead = is_ahead
        self._clock = clock
        self._seen: dict[str, LogProgress] = {}
        self._moved_at: dict[str, float] = {}

    def begin(self) -> None:
        """A new run begins: what it was before does not count."""
        now = self._clock()
        self._moved_at = dict.fromkeys(self._seen, now)

    def restart(self, checkpoint: str) -> None:
        """A query begins anew: how long it has stood still does not count."""
        self._moved_at[checkpoint] = self._clock()

    def note(self, checkpoint: str, progress: LogProgress) -> None:
        """A query was looked at."""
        if self._seen.get(checkpoint) != progress or checkpoint not in self._moved_at:
            self._seen[checkpoint] = progress
            self._moved_at[checkpoint] = self._clock()

    def find_stalled(self) -> Stall | None:
        """The first query that has stood still for too long while there is something to do."""
        if self._after is None:
            return None
        for checkpoint, progress in self._seen.items():
            stood = self._clock() - self._moved_at[checkpoint]
            if stood < self._after:
                continue
            batch = progress.in_flight
            if batch is not None:
                return Stall(checkpoint, Cause(line=f"batch {batch} was not committed within {self._after:g} s"))
            if self._is_ahead(checkpoint):
                told = f"no batch was planned for {self._after:g} s, and the sources hold more"
                return Stall(checkpoint, Cause(line=told))
            self._moved_at[checkpoint] = self._clock()  # nothing to do: asked again after as long
        return None
