"""Queries of a classic session: Spark's listener, and the query objects in Java."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql.streaming.listener import StreamingQueryListener

from .events import parse_time_ms
from .failures import keep_foreach_batch_errors, make_failure_of_query
from .queries import Queries
from .topics import KafkaTopics

_LOOK_SECONDS = 0.02


class ClassicQuery:
    """A StreamingQuery in Java; see `queries.Query`."""

    def __init__(self, jvm: Any, java_query: Any) -> None:
        """Take a query of `streams().active()` or `streams().get()`."""
        self._java = java_query
        self._jvm = jvm
        self._topics: KafkaTopics | None = None
        self.query_id: str = java_query.id().toString()
        self.run_id: str = java_query.runId().toString()
        self.query_name: str | None = java_query.name()
        self.checkpoint: str | None = java_query.streamingQuery().resolvedCheckpointRoot()

    def is_active(self) -> bool:
        """Whether it still runs."""
        return bool(self._java.isActive())

    def batch_id(self) -> int | None:
        """The batch that it is or was at."""
        execution = self._java.streamingQuery()
        try:
            context = execution.latestExecutionContext()  # since Spark 4.0
            if context is None:
                batch = -1
            else:
                batch = int(context.batchId())
        except Py4JError:
            batch = int(execution.currentBatchId())
        return batch if batch >= 0 else None

    def failure(self, condition: str | None) -> dict[str, Any] | None:
        """Why it ended."""
        exception = self._java.exception()
        if exception.isDefined():
            return make_failure_of_query(exception.get(), self.query_id, condition)
        return None

    def fill_in_topic_ids(self, sources: Sequence[dict[str, Any]]) -> None:
        """Write the topic ids into its Kafka sources."""
        if any(source["subscription"] for source in sources):
            if self._topics is None:
                self._topics = KafkaTopics(self._jvm, self._java.streamingQuery().analyzedPlan())
            self._topics.fill_in(sources)

    def close(self) -> None:
        """It has ended."""
        if self._topics is not None:
            self._topics.close()


class Listener(StreamingQueryListener):
    """Hands the events of one session on.

    PySpark would read each field of an event with a call to Java of its own, tens of milliseconds for a batch: so Java
    is given an object of ours, which takes the event's JSON. Should pyspark not ask for that object, its own events do.
    """

    def __init__(self, session: Any, queries: Queries) -> None:
        """Listen to `session`; `attach` begins."""
        self._session = session
        self._queries = queries
        self._facts = {"spark_version": session.version, "application_id": session.sparkContext.applicationId}
        self._java_listener: Any = None

    @property
    def _jlistener(self) -> Any:
        if self._java_listener is None:
            wrapper = self._session._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper  # noqa: SLF001
            self._java_listener = wrapper(_JavaEvents(self))
        return self._java_listener

    def attach(self) -> None:
        """Begin, with the queries that run already."""
        keep_foreach_batch_errors()
        self._session.streams.addListener(self)
        for java_query in self._session.streams._jsqm.active():  # noqa: SLF001 - Python's has no way to Java's plan
            query = ClassicQuery(self._session._jvm, java_query)  # noqa: SLF001
            if not self._queries.knows(query.run_id):
                self._queries.note_start(query, started_at_ms=None, spark=self._facts)

    def add(self, query: Any, checkpoint: str | None) -> None:
        """Nothing: Java has told."""

    def detach(self, seconds: float) -> None:
        """Wait for the ends that Spark has not told yet, then hear no more.

        A listener that is gone when Spark has something to tell would be an error in the application's log. A Java
        that was killed has nothing more to tell.
        """
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ConnectionError, Py4JNetworkError):
            while (ended := self._ended()) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            for query in ended:
                self._queries.note_end(query.query_id, query.run_id, message=None, condition=None)
            self._session.streams.removeListener(self)

    def _ended(self) -> list[ClassicQuery]:
        return [each for each in self._queries.running() if isinstance(each, ClassicQuery) and not each.is_active()]

    def begin(self, query_id: Any, started_at: str) -> None:
        """A query starts: it waits for us, so this is the moment to get hold of it."""
        java_query = self._session.streams._jsqm.get(query_id)  # noqa: SLF001
        if java_query is not None:
            query = ClassicQuery(self._session._jvm, java_query)  # noqa: SLF001
            self._queries.note_start(query, started_at_ms=parse_time_ms(started_at), spark=self._facts)

    def progress(self, run_id: str, progress_json: str) -> None:
        """A batch has ended."""
        self._queries.note_progress(run_id, progress_json)

    def end(self, query_id: str, run_id: str, message: str | None, condition: str | None) -> None:
        """A query has ended."""
        self._queries.note_end(query_id, run_id, message=message, condition=condition)

    def report(self, error: Exception) -> None:
        """Note what went wrong in a callback."""
        self._queries.writer.report(error)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """See StreamingQueryListener."""
        self.begin(str(event.id), event.timestamp)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """See StreamingQueryListener."""
        self.progress(str(event.progress.runId), event.progress.json)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """See StreamingQueryListener."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """See StreamingQueryListener."""
        self.end(str(event.id), str(event.runId), event.exception, event.errorClassOnException)


class _JavaEvents:
    """What Java calls. A callback that raises would be logged as an error of the application."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        try:
            self._listener.begin(event.id(), event.timestamp())
        except Exception as error:  # noqa: BLE001 - the query goes on without us
            self._listener.report(error)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        try:
            progress = event.progress()
            self._listener.progress(progress.runId().toString(), progress.json())
        except Exception as error:  # noqa: BLE001
            self._listener.report(error)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        try:
            ids = event.id().toString(), event.runId().toString()
            self._listener.end(*ids, _unwrap(event.exception()), _unwrap(event.errorClassOnException()))
        except Exception as error:  # noqa: BLE001
            self._listener.report(error)

    class Java:
        """How py4j knows which interface of Java this is."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _unwrap(option: Any) -> str | None:
    """What is in an Option of Scala."""
    if option.isDefined():
        return str(option.get())
    return None
