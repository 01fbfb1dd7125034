"""Between callbacks that must not wait and a sink that may be slow, full or gone: a bounded queue and a thread."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

QUEUE_BYTES_MAX = 16 * 1024 * 1024
BATCH_MAX = 100
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
PATIENCE_SECONDS = 600.0

Make = Callable[[], Sequence[dict[str, Any]]]
"""Gives the records of an event; called in the thread of the writer, where it may take its time."""


class RecordTaker(Protocol):
    """Takes records. Its methods are called by one thread, one at a time, and may block."""

    @property
    def pause_seconds(self) -> float:
        """How long records may be collected before the next `write`; 0 to get each at once."""

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Store them, all or none.

        Raise only where a later try may pass: the same records are offered again for ten minutes, then dropped.
        A record may come twice (same `kind`, `run_id` and `batch_id`) where storing it was answered with an error.
        """

    def close(self) -> None:
        """No more will come."""


class Writer:
    """Records on their way to a sink; the caller of `put` never waits and never sees an error."""

    def __init__(self, sink: RecordTaker, *, queue_bytes_max: int = QUEUE_BYTES_MAX) -> None:
        """Write to `sink`, while no more than `queue_bytes_max` wait."""
        self._sink = sink
        self._queue_bytes_max = queue_bytes_max
        self._queue: deque[tuple[int, Make]] = deque()
        self._queue_bytes = 0
        self._changed = threading.Condition()
        self._busy = False
        self._closing = False
        self._flushing = False
        self._pid = os.getpid()
        self.recorded = 0
        """Records that the sink has taken."""
        self.dropped = 0
        """Events without a record: too many waited, the sink refused them for long, or they could not be read."""
        self.trouble: str | None = None
        """What went wrong last; None if nothing ever did."""
        self._thread = threading.Thread(target=self._run, name="lastgood-recorder", daemon=True)
        self._thread.start()

    def put(self, make: Make, size: int) -> None:
        """Have the records of an event written; where too many wait, the oldest go.

        Args:
            make: Gives its records.
            size: How many bytes it takes while it waits, roughly.
        """
        with self._changed:
            self._queue.append((size, make))
            self._queue_bytes += size
            while self._queue_bytes > self._queue_bytes_max and len(self._queue) > 1:
                self._queue_bytes -= self._queue.popleft()[0]
                self.dropped += 1
            self._changed.notify_all()

    def report(self, error: BaseException) -> None:
        """Note what went wrong; it stops nothing."""
        self.trouble = f"{type(error).__name__}: {error}"[:1000]

    def flush(self, seconds: float) -> bool:
        """Wait until all is written, at most `seconds`; whether it is."""
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._queue and not self._busy, seconds)
            finally:
                self._flushing = False

    def close(self, seconds: float) -> None:
        """Write what waits, then let the sink go; after `seconds` the rest is given up."""
        if os.getpid() != self._pid:
            return  # a fork has our queue, but not our thread
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                events = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
                self._queue_bytes -= sum(size for size, _ in events)
                self._busy = bool(events)
            if not events:
                break
            self._write([record for _, make in events for record in self._made(make)])
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closing or self._flushing, self._sink.pause_seconds)
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - any sink, any error
            self.report(error)

    def _made(self, make: Make) -> Sequence[dict[str, Any]]:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - an event that Spark tells in another way than we know
            self.report(error)
            self._drop(1)
            return ()

    def _write(self, records: Sequence[dict[str, Any]]) -> None:
        """Offer them until they are taken; at the end of the process once more."""
        begun = time.monotonic()
        tries = 0
        while records:
            last = self._closing
            try:
                self._sink.write(records)
            except Exception as error:  # noqa: BLE001 - any sink, any error
                self.report(error)
            else:
                self.recorded += len(records)
                return
            if last or time.monotonic() - begun > PATIENCE_SECONDS:
                self._drop(len(records))
                return
            with self._changed:
                self._changed.wait_for(lambda: self._closing, RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            tries += 1

    def _drop(self, count: int) -> None:
        with self._changed:
            self.dropped += count
