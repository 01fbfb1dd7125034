"""The agent of one driver process: every session recorded, a heartbeat, and the exception that ends the driver."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from .driver import Heartbeat
from .files import RecordFileWriter
from .guarding import CodeGuard
from .queries import Queries
from .restarts import VARIABLE, Restarts
from .sessions import Attachment, detach, identify_session, is_connect, make_attachment
from .standby import list_own
from .starts import Start
from .writer import Writer

CLOSE_SECONDS = 2.0
"""How long the end of the application may wait for us, in all."""


class Agent:
    """Observes the starts of queries (see `starts.Observer`); lives as long as the process."""

    def __init__(self, folder: Path, *, is_of_process: bool = True) -> None:
        """Write heartbeat and records to `folder`.

        Args:
            folder: Where to.
            is_of_process: Whether it stays until the process ends, and tells of the exception that ends it.
        """
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._attachments: dict[int, Attachment] = {}
        self._has_connect = False
        self._held: set[str] = set()
        self._has_unheld = False
        self._writer = Writer(RecordFileWriter(folder))
        self._queries = Queries(self._writer)
        self._restarts: Restarts | None = None
        if os.environ.get(VARIABLE):
            self._restarts = Restarts(folder, self._writer.report)
            self._queries.on_failure = self._restarts.note_failure
        self._guard = CodeGuard(folder)
        self._heartbeat = Heartbeat(folder, self._facts)
        self._is_of_process = is_of_process
        self._excepthook = sys.excepthook
        if is_of_process:
            sys.excepthook = self._crash
            atexit.register(self.close)

    def before_start(self, start: Start) -> None:
        """Listen to the session, from before its first query on; see that the query goes with its checkpoint."""
        self._attachment(start.session)
        self._guard.check(start)
        if self._restarts is not None and not is_connect(start.session):
            self._restarts.note_properties(start)

    def after_start(self, start: Start, query: Any) -> None:
        """Have the query looked at where nothing else tells of it."""
        self._attachment(start.session).add(query, start.checkpoint)
        self._held.add(str(query.runId))
        self._note_unheld(start.session)
        if self._restarts is not None and not is_connect(start.session):
            self._restarts.note_start(start, query)
        self._heartbeat.beat_now()

    def start_failed(self, start: Start, error: Exception) -> None:
        """Record that there is no query, and why."""
        self._queries.start_failed(start.query_name, start.checkpoint, error)

    def report_trouble(self, error: Exception) -> None:
        """Note it in the heartbeat."""
        self._writer.report(error)

    def close(self) -> None:
        """Write what there is to write; the end of the application waits for that, but not long."""
        if os.getpid() != self._pid:
            return  # a fork: the driver is somebody else
        deadline = time.monotonic() + CLOSE_SECONDS
        detach(list(self._attachments.values()), self._writer, CLOSE_SECONDS / 2)
        if not self._is_of_process:  # else all that they hold ends with the process
            self._close_queries()
        self._writer.close(max(0.0, deadline - time.monotonic()))
        self._heartbeat.close(max(0.0, deadline - time.monotonic()))

    def _close_queries(self) -> None:
        for query in self._queries.running():
            try:
                query.close()
            except Exception as error:  # noqa: BLE001 - Java may be gone, and with it what would be closed
                self._writer.report(error)

    def _attachment(self, session: Any) -> Attachment:
        with self._lock:
            known = identify_session(session)
            if known not in self._attachments:
                attached = make_attachment(session, self._queries)
                attached.attach()
                self._has_connect = self._has_connect or is_connect(session)
                self._attachments[known] = attached
            return self._attachments[known]

    def _note_unheld(self, session: Any) -> None:
        """Whether a query runs here that was started past us, in whichever session."""
        if is_connect(session):
            return
        with self._lock:
            running = {str(each.runId()) for each in list_own(session)}
            self._has_unheld = not running <= self._held

    def _facts(self) -> dict[str, Any]:
        return {
            "is_classic": bool(self._attachments) and not self._has_connect,
            "queries": [
                {
                    "query_id": query.query_id,
                    "run_id": query.run_id,
                    "query_name": query.query_name,
                    "checkpoint": query.checkpoint,
                }
                for query in self._queries.running()
            ],
            "held": [query.run_id for query in self._queries.running() if query.run_id in self._held],
            "has_unheld": self._has_unheld,
            "recorded": self._writer.recorded,
            "dropped": self._writer.dropped,
            "trouble": self._writer.trouble,
        }

    def _crash(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self._queries.note_crash(error)
        self._excepthook(kind, error, trace)
