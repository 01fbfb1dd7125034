"""What a waiting driver does meanwhile, so that Java has met what the query will need: small, and stopped at once.

It runs in a session of its own, which shares nothing with the application's but the engine: no listener of the
application hears of it. Nothing but a temporary folder is written; of a topic of Kafka what came last is read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import shape
from .driver import report_trouble

_BATCHES = 3
_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.05
_KAFKA_MS = 1000
"""Records of so long ago are read."""
_NAME = "lastgood-standby"
_LISTENERS = "spark.sql.streaming.streamingQueryListeners"
_CATALOG, _DELTA = "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_COPIED = (
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
)
"""Settings of the application's session that decide which classes its query will need."""
_KAFKA_OF_STREAMS = (
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
)


class Warming:
    """Warms in a thread of its own."""

    def __init__(self, session: Any, writer: Any, tell: Callable[[list[str]], None]) -> None:
        """Begin.

        Args:
            session: The application's.
            writer: Of the query that waits.
            tell: Is told, in a few words each, what is warm, when all is.
        """
        self._session = session
        self._writer = writer
        self._tell = tell
        self._is_stopped = threading.Event()
        threading.Thread(target=self._run, name="lastgood-warming", daemon=True).start()

    def stop(self) -> None:
        """Do nothing more; returns at once."""
        self._is_stopped.set()

    def _run(self) -> None:
        warmed: list[str] = []
        try:
            for name, warm in self._choose():
                if not self._is_stopped.is_set():
                    warm()
                    warmed.append(name)
        except Exception as error:  # noqa: BLE001 - it will be slower, and that is all
            if not self._is_stopped.is_set():
                report_trouble(error)
        if not self._is_stopped.is_set():
            self._tell(warmed)

    def _choose(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What is done, one after the other, and what each is called."""
        frame = self._writer._df  # noqa: SLF001 - a writer has no other way to its DataFrame
        is_stateful = shape.may_keep_state(frame)
        yield "its plan", lambda: self._plan(frame)
        if self._session.conf.get(_LISTENERS, None):
            return  # each session makes those of its own, and they would hear of our queries
        own = self._make_session()
        for leaf in shape.list_sources_of_kafka(frame):
            yield "Kafka", lambda leaf=leaf: self._read(own, leaf)  # type: ignore[misc]
        if is_stateful:
            yield "state", lambda: self._stream(own, "noop", is_stateful=True)
        if self._session.conf.get(_CATALOG, None) == _DELTA:
            yield "Delta", lambda: self._stream(own, "delta", is_stateful=False)
        elif not is_stateful:
            yield "streaming", lambda: self._stream(own, "noop", is_stateful=False)

    def _plan(self, frame: Any) -> None:
        shape.describe(frame, shape.find_output_mode(self._writer))

    def _make_session(self) -> Any:
        """A session of our own, by Java's API: Python's would change what it takes for the session."""
        own = self._session._jsparkSession.newSession()  # noqa: SLF001
        for name in _COPIED:
            value = self._session.conf.get(name, None)
            if value is not None:
                own.conf().set(name, value)
        own.conf().set("spark.sql.shuffle.partitions", "2")
        return own

    def _read(self, own: Any, leaf: Any) -> None:
        """What came last, once, by the options of the application's source."""
        jvm = self._session._jvm  # noqa: SLF001
        options = jvm.java.util.HashMap(leaf.extraOptions().asCaseSensitiveMap())
        for name in list(options.keySet()):
            if any(name.lower() == each.lower() for each in _KAFKA_OF_STREAMS):
                options.remove(name)
        since_ms = int(time.time() * 1000) - _KAFKA_MS
        rows = own.read().format("kafka").options(options).option("startingTimestamp", str(since_ms))
        rows.option("startingOffsetsByTimestampStrategy", "latest").load().count()

    def _stream(self, own: Any, sink: str, *, is_stateful: bool) -> None:
        """Some batches of a query of our own."""
        folder = tempfile.mkdtemp(prefix="lastgood-standby-")
        rows = own.readStream().format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
        if is_stateful:
            rows = rows.groupBy("value", self._no_columns()).count()
        writer = rows.writeStream().queryName(_NAME).outputMode("update" if is_stateful else "append")
        writer = writer.format(sink).option("checkpointLocation", os.path.join(folder, "checkpoint"))  # noqa: PTH118
        query = writer.option("path", os.path.join(folder, "table")).start()  # noqa: PTH118
        deadline = time.monotonic() + _SECONDS_MAX
        try:
            while query.isActive() and not self._is_stopped.wait(_LOOK_SECONDS) and time.monotonic() < deadline:
                last = query.lastProgress()
                if last is not None and last.batchId() + 1 >= _BATCHES:
                    break
        finally:
            query.stop()
            # Safe: a folder that was made here, under a name that nobody else has.
            shutil.rmtree(folder, ignore_errors=True)

    def _no_columns(self) -> Any:
        gateway = self._session.sparkContext._gateway  # noqa: SLF001
        return gateway.new_array(gateway.jvm.java.lang.String, 0)
