"""Queries of a Spark Connect session, looked at once a second.

No listener: that of Spark 3.5 runs in the server, and since Spark 4.0 one keeps a process alive that forgets to remove
it. The server keeps the last hundred progress reports of a query and how it ended, so that nothing is missed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .failures import make_failure_of_error
from .queries import Queries

POLL_SECONDS = 1.0
_LAST_LOOK_SECONDS = 1.0


class ConnectQuery:
    """A StreamingQuery of Spark Connect; see `queries.Query`."""

    def __init__(self, query: Any, checkpoint: str | None) -> None:
        """Take a running query and the checkpoint location that its writer was given."""
        self._query = query
        self.query_id: str = query.id
        self.run_id: str = query.runId
        self.query_name: str | None = query.name or None
        self.checkpoint = checkpoint
        self._batch_id: int | None = None
        self._failure: dict[str, Any] | None = None

    def is_active(self) -> bool:
        """Whether it still runs."""
        return bool(self._query.isActive)

    def batch_id(self) -> int | None:
        """Nobody tells."""
        return None

    def failure(self, condition: str | None) -> dict[str, Any] | None:
        """Why it ended, as far as `ask_failure` was told."""
        return self._failure

    def ask_failure(self) -> None:
        """Ask the server why it ended."""
        error = self._query.exception()
        if error is None:
            self._failure = None
        else:
            self._failure = make_failure_of_error(error)

    def fill_in_topic_ids(self, sources: Sequence[dict[str, Any]]) -> None:
        """A client of Spark Connect has no way to the broker."""

    def close(self) -> None:
        """It has ended."""

    def new_progress(self) -> Iterator[str]:
        """The batches that have ended since the last call."""
        last = self._query.lastProgress
        if last is None or last["batchId"] == self._batch_id:
            return
        is_next = last["batchId"] == (0 if self._batch_id is None else self._batch_id + 1)
        for told in [last] if is_next else self._query.recentProgress:
            if self._batch_id is None or told["batchId"] > self._batch_id:
                self._batch_id = told["batchId"]
                yield getattr(told, "json", None) or json.dumps(told)


class Poller:
    """Looks at the queries of one session in a thread of its own."""

    def __init__(self, session: Any, queries: Queries, *, poll_seconds: float = POLL_SECONDS) -> None:
        """Look at what `add` brings; `attach` begins."""
        self._session = session
        self._queries = queries
        self._poll_seconds = poll_seconds
        self._facts = {"spark_version": session.version, "application_id": None}
        self._running: list[ConnectQuery] = []
        self._ended = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lastgood-connect", daemon=True)

    def attach(self) -> None:
        """Begin."""
        self._thread.start()
        # At the end of the main thread, earlier than `atexit`: the client's own threads are gone by then.
        before_threads_end = getattr(threading, "_register_atexit", None)
        if before_threads_end is not None:
            before_threads_end(self.detach, _LAST_LOOK_SECONDS)

    def detach(self, seconds: float) -> None:
        """Look a last time, no longer than `seconds`, then no more."""
        self._ended.set()
        self._wake.set()
        self._thread.join(seconds)

    def add(self, query: Any, checkpoint: str | None) -> None:
        """Look at a query from now on; where it checkpoints to is what Spark Connect tells nobody."""
        added = ConnectQuery(query, checkpoint)
        self._running.append(added)
        self._queries.note_start(added, started_at_ms=int(time.time() * 1000), spark=self._facts)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._poll_seconds)
            self._wake.clear()
            is_last = self._ended.is_set()
            try:
                self._look(is_stopped=bool(getattr(self._session, "is_stopped", False)))
            except Exception as error:  # noqa: BLE001 - the server may be away for a while
                self._queries.writer.report(error)

    def _look(self, *, is_stopped: bool) -> None:
        for query in list(self._running):
            is_active = not is_stopped and query.is_active()  # before its progress, so that none comes after the end
            if not is_stopped:
                for progress_json in query.new_progress():
                    self._queries.note_progress(query.run_id, progress_json)
            if not is_active:
                if not is_stopped:
                    query.ask_failure()
                self._running.remove(query)
                self._queries.note_end(query.query_id, query.run_id, message=None, condition=None)
