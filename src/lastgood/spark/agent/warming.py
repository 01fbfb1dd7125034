"""What a waiting driver does meanwhile, so that Java has met what the query will need: small, and stopped at once.

It runs in a session of its own, of which no listener of a session hears. Nothing but the folder of this standby is
written; of a topic of Kafka one record is read, of a Delta table the log.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import shape
from .driver import report_trouble
from .standby import QUERY_NAME

_BATCHES = 3
_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.05
_KAFKA_MS = 60_000
"""The first record since so long ago is read."""
_LISTENERS = (
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.queryExecutionListeners",
    "spark.extraListeners",
)
"""Settings by which somebody hears of the queries of any session."""
_CATALOG, _DELTA = "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_COPIED = (
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
)
"""Settings of the application's session that decide which classes its query will need."""
_KAFKA_LEFT_OUT = (
    "startingoffsets",
    "startingoffsetsbytimestamp",
    "startingtimestamp",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "minpartitions",
    "maxrecordsperpartition",
    "kafka.group.id",
    "groupidprefix",
)
"""Options of streams, and by which one would be of the group of the query that runs."""


class Warming:
    """Warms in a thread of its own."""

    def __init__(
        self, session: Any, writer: Any, path: str | None, folder: Path, tell: Callable[[list[str]], None]
    ) -> None:
        """Begin.

        Args:
            session: The application's.
            writer: Of the query that waits.
            path: What it writes to, if that is a path.
            folder: Of this standby.
            tell: Is told, in a few words each, what is warm, when all is.
        """
        self._session = session
        self._writer = writer
        self._path = path
        self._folder = folder
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
                self._try(name, warm, warmed)
        except Exception as error:  # noqa: BLE001 - it will be slower, and that is all
            report_trouble(error)
        if not self._is_stopped.is_set():
            self._tell(warmed)

    def _try(self, name: str, warm: Callable[[], None], warmed: list[str]) -> None:
        if self._is_stopped.is_set():
            return
        try:
            warm()
            warmed.append(name)
        except Exception as error:  # noqa: BLE001 - as above
            if not self._is_stopped.is_set():
                report_trouble(error)

    def _choose(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What is done, one after the other, and what each is called."""
        frame = self._writer._df  # noqa: SLF001 - a writer has no other way to its DataFrame
        is_stateful = shape.may_keep_state(frame)
        yield "its plan", lambda: self._plan(frame)
        if self._has_listeners():
            return
        own = self._make_session()
        for leaf in shape.list_sources_of_kafka(frame):
            yield "Kafka", lambda leaf=leaf: self._read(own, leaf)  # type: ignore[misc]
        if not self._session.sparkContext.master.startswith("local"):
            return  # what is written here the executors would not find
        if is_stateful:
            yield "state", lambda: self._stream(own, "noop", "update")
        if self._session.conf.get(_CATALOG, None) == _DELTA:
            is_complete = is_stateful and shape.find_output_mode(self._writer) == "Complete"
            yield "Delta", lambda: self._stream(own, "delta", "complete" if is_complete else "append")
            if self._has_table(own):
                yield "its table", lambda: self._read_log(own)
        elif not is_stateful:
            yield "streaming", lambda: self._stream(own, "noop", "append")

    def _has_listeners(self) -> bool:
        """Whether somebody hears of the queries of any session."""
        return any(map(self._is_set, _LISTENERS))

    def _is_set(self, name: str) -> bool:
        of_context = self._session.sparkContext.getConf()
        return bool(self._session.conf.get(name, None) or of_context.get(name, None))

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
        """One record, by the options of the application's source."""
        options = self._session._jvm.java.util.HashMap(leaf.extraOptions().asCaseSensitiveMap())  # noqa: SLF001
        for name in list(options.keySet()):
            if name.lower() in _KAFKA_LEFT_OUT:
                options.remove(name)
        since_ms = int(time.time() * 1000) - _KAFKA_MS
        rows = own.read().format("kafka").options(options).option("startingTimestamp", str(since_ms))
        rows.option("startingOffsetsByTimestampStrategy", "latest").load().limit(1).collect()

    def _stream(self, own: Any, sink: str, mode: str) -> None:
        """Some batches of a query of our own; it keeps state, unless it appends."""
        folder = Path(tempfile.mkdtemp(prefix="warming-", dir=self._folder)).absolute()
        rows = own.readStream().format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
        if mode != "append":
            rows = rows.groupBy("value", self._no_columns()).count()
        writer = rows.writeStream().queryName(QUERY_NAME).outputMode(mode)
        # Names of this machine, whichever storage Spark takes a path for: the folder goes with that of the standby.
        writer = writer.format(sink).option("checkpointLocation", (folder / "checkpoint").as_uri())
        query = writer.option("path", (folder / "table").as_uri()).start()
        deadline = time.monotonic() + _SECONDS_MAX
        try:
            while query.isActive() and not self._is_stopped.wait(_LOOK_SECONDS) and time.monotonic() < deadline:
                last = query.lastProgress()
                if last is not None and last.batchId() + 1 >= _BATCHES:
                    break
        finally:
            query.stop()

    def _has_table(self, own: Any) -> bool:
        """Whether the query writes to a Delta table that is there, on a disk of this machine.

        On another storage our session may have other keys, and Hadoop keeps what first asked there for the whole Java.
        """
        if self._path is None or self._is_stopped.is_set() or not self._is_local(self._path):
            return False
        return bool(self._session._jvm.io.delta.tables.DeltaTable.isDeltaTable(own, self._path))  # noqa: SLF001

    def _is_local(self, path: str) -> bool:
        scheme, colon, _ = path.partition(":/")
        if colon:
            return scheme.lower() == "file"
        default = self._session._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001 - Python has none of its own
        return str(default).startswith("file:")

    def _read_log(self, own: Any) -> None:
        """What the log of its table says of the newest version, as the first batch will: only what is new is left."""
        self._session._jvm.io.delta.tables.DeltaTable.forPath(own, self._path).detail().collect()  # noqa: SLF001

    def _no_columns(self) -> Any:
        gateway = self._session.sparkContext._gateway  # noqa: SLF001
        return gateway.new_array(gateway.jvm.java.lang.String, 0)
