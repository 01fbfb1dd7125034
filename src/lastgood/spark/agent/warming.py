"""What a waiting driver does meanwhile, so that Java has met what the query will need: small, and stopped at once.

It runs in a session of its own, which shares nothing with the application's but the engine: no listener of the
application hears of it, and nothing but a temporary folder is written.
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
_NAME = "lastgood-standby"
_LISTENERS = "spark.sql.streaming.streamingQueryListeners"
_COPIED = (
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
)
"""Settings of the application's session that decide which classes its query will need."""
_KAFKA = (
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
    "org.apache.spark.sql.kafka010.KafkaBatchPartitionReader",
    "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer",
    "org.apache.kafka.clients.admin.KafkaAdminClient",
    "org.apache.kafka.clients.consumer.KafkaConsumer",
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
        warmed = []
        try:
            for each in self._warm():
                warmed.append(each)
                if self._is_stopped.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - it will be slower, and that is all
            if not self._is_stopped.is_set():
                report_trouble(error)
        self._tell(warmed)

    def _warm(self) -> Iterator[str]:
        """Do one thing after the other; each is named when it is done."""
        frame = self._writer._df  # noqa: SLF001 - a writer has no other way to its DataFrame
        kinds = {each["kind"] for each in shape.describe_sources(frame)}
        if any("kafka" in kind.lower() for kind in kinds):
            self._load(_KAFKA)
            yield "Kafka's classes"
        if self._session.conf.get(_LISTENERS, None):
            return  # each session makes those of its own, and they would hear of our queries
        folder = tempfile.mkdtemp(prefix="lastgood-standby-")
        try:
            if shape.may_keep_state(frame):
                self._stream(folder, is_stateful=True)
                yield "streaming with state"
            else:
                self._stream(folder, is_stateful=False)
                yield "streaming"
        finally:
            # Safe: a folder that was made here, under a name that nobody else has.
            shutil.rmtree(folder, ignore_errors=True)

    def _load(self, names: tuple[str, ...]) -> None:
        loader = self._session._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # noqa: SLF001
        kind = self._session._jvm.java.lang.Class  # noqa: SLF001
        for name in names:
            kind.forName(name, True, loader)  # noqa: FBT003 - of Java

    def _stream(self, folder: str, *, is_stateful: bool) -> None:
        """Some batches of a query of our own, by Java's API: Python's would change what it takes for the session."""
        java = self._session._jsparkSession  # noqa: SLF001
        own = java.newSession()
        for name in _COPIED:
            value = self._session.conf.get(name, None)
            if value is not None:
                own.conf().set(name, value)
        own.conf().set("spark.sql.shuffle.partitions", "2")
        rows = own.readStream().format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
        if is_stateful:
            rows = rows.groupBy("value", self._no_columns()).count()
        writer = rows.writeStream().queryName(_NAME).outputMode("update" if is_stateful else "append")
        kind = self._find_sink()
        writer = writer.format(kind).option("checkpointLocation", os.path.join(folder, "checkpoint"))  # noqa: PTH118
        query = writer.option("path", os.path.join(folder, "table")).start()  # noqa: PTH118
        deadline = time.monotonic() + _SECONDS_MAX
        try:
            while query.isActive() and not self._is_stopped.wait(_LOOK_SECONDS) and time.monotonic() < deadline:
                last = query.lastProgress()
                if last is not None and last.batchId() + 1 >= _BATCHES:
                    break
        finally:
            query.stop()

    def _find_sink(self) -> str:
        return "noop"

    def _no_columns(self) -> Any:
        gateway = self._session.sparkContext._gateway  # noqa: SLF001
        return gateway.new_array(gateway.jvm.java.lang.String, 0)
