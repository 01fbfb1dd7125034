"""The queries that run in this driver, and what becomes of each event: a record, made in the writer's thread."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from . import events
from .failures import find_run, make_failure_as_told, make_failure_of_error
from .writer import Writer

_EVENT_BYTES = 1024
_ENDED_MAX = 1000


class Query(Protocol):
    """One run of a query, however Spark lets us see it. Methods may wait for Spark, and may raise what it raises."""

    query_id: str
    run_id: str
    query_name: str | None
    checkpoint: str | None
    """As Spark names it, such as `file:/data/chk`; None where Spark does not tell."""

    def is_active(self) -> bool:
        """Whether it still runs."""

    def batch_id(self) -> int | None:
        """The batch that it is or was at; None before the first, and where Spark does not tell."""

    def failure(self, condition: str | None) -> dict[str, Any] | None:
        """Why it ended; None if it was stopped, or has nothing more to do."""

    def fill_in_topic_ids(self, sources: Sequence[dict[str, Any]]) -> None:
        """Write the topic ids into the Kafka sources of a progress record."""

    def close(self) -> None:
        """It has ended."""


class Queries:
    """All runs that have started and not ended, by run id. Its methods return at once and raise nothing of Spark's."""

    def __init__(self, writer: Writer) -> None:
        """Give the records to `writer`."""
        self.writer = writer
        self.on_failure: Callable[[str], None] = lambda _: None
        """Gets the id of each run that has failed, at once."""
        self._lock = threading.Lock()
        self._running: dict[str, Query] = {}
        self._ended: deque[str] = deque(maxlen=_ENDED_MAX)

    def running(self) -> list[Query]:
        """Those that have not ended, oldest first."""
        with self._lock:
            return list(self._running.values())

    def knows(self, run_id: str) -> bool:
        """Whether this run has started and has not ended."""
        with self._lock:
            return run_id in self._running

    def note_start(self, query: Query, *, started_at_ms: int | None, spark: Mapping[str, str | None]) -> None:
        """A run begins; `spark` holds `spark_version` and `application_id`."""
        with self._lock:
            self._running[query.run_id] = query
        fields = {**_get_names(query), "started_at_ms": started_at_ms, **spark}
        self._put("started", query.query_id, query.run_id, fields)

    def note_progress(self, run_id: str, progress_json: str) -> None:
        """A batch has ended; `progress_json` is its StreamingQueryProgress."""
        at_ms = _read_clock_ms()
        with self._lock:
            query = self._running.get(run_id)
        self.writer.put(lambda: [self._progress(query, progress_json, at_ms)], _EVENT_BYTES + len(progress_json))

    def note_end(self, query_id: str, run_id: str, *, message: str | None, condition: str | None) -> None:
        """A run has ended; `message` and `condition` are those of its event. Only the first call for a run counts."""
        at_ms = _read_clock_ms()
        with self._lock:
            query = self._running.pop(run_id, None)
            if run_id in self._ended:
                return
            self._ended.append(run_id)
        if query is not None:
            ended = query
            self.writer.put(lambda: [self._terminated(ended, message, condition, at_ms)], _EVENT_BYTES)
            if message is not None:
                self.on_failure(run_id)
            return
        failure = None
        if message is not None:
            failure = make_failure_as_told(message, condition)
        told = {"query_name": None, "checkpoint": None, "batch_id": None, "failure": failure}
        self._put("terminated", query_id, run_id, told)

    def start_failed(self, query_name: str | None, checkpoint: str | None, error: Exception) -> None:
        """A query could not even be started."""
        self._fail("start_failed", query_name, checkpoint, error)

    def note_crash(self, error: BaseException) -> None:
        """An exception that nobody caught ends the driver."""
        self._fail("crashed", None, None, error)

    def _fail(self, kind: str, query_name: str | None, checkpoint: str | None, error: BaseException) -> None:
        at_ms = _read_clock_ms()

        def make() -> list[dict[str, Any]]:
            failure = make_failure_of_error(error)
            told = {"query_name": query_name, "checkpoint": checkpoint, "failure": failure}
            query_id, run_id = find_run(failure)
            return [events.make_record(kind, at_ms, query_id=query_id, run_id=run_id, **told)]

        self.writer.put(make, _EVENT_BYTES)

    def _put(self, kind: str, query_id: str | None, run_id: str | None, fields: dict[str, Any]) -> None:
        made = events.make_record(kind, _read_clock_ms(), query_id=query_id, run_id=run_id, **fields)
        self.writer.put(lambda: [made], _EVENT_BYTES)

    def _progress(self, query: Query | None, progress_json: str, at_ms: int) -> dict[str, Any]:
        made = events.make_progress(json.loads(progress_json), None if query is None else query.checkpoint, at_ms)
        if query is not None:
            try:
                query.fill_in_topic_ids(made["sources"])
            except Exception as error:  # noqa: BLE001 - whatever the broker or Java says: the record goes without ids
                self.writer.report(error)
        return made

    def _terminated(self, query: Query, message: str | None, condition: str | None, at_ms: int) -> dict[str, Any]:
        failure = None
        if message is not None:
            failure = make_failure_as_told(message, condition)
        batch_id = None
        try:
            failure = query.failure(condition) or failure
            batch_id = query.batch_id()
            query.close()
        except Exception as error:  # noqa: BLE001 - Java may be gone: what the event says has to do
            self.writer.report(error)
        fields = {**_get_names(query), "batch_id": batch_id, "failure": failure}
        return events.make_record("terminated", at_ms, query_id=query.query_id, run_id=query.run_id, **fields)


def _get_names(query: Query) -> dict[str, Any]:
    return {"query_name": query.query_name, "checkpoint": query.checkpoint}


def _read_clock_ms() -> int:
    return int(time.time() * 1000)
