"""The recorder in an application: what every batch read, wrote and kept, beside the checkpoint or in a ledger."""

from __future__ import annotations

import atexit
import importlib
import time
from pathlib import Path
from typing import Any, Self

import platformdirs

from lastgood.ledger.url import is_ledger_url, parse_place
from lastgood.spark.agent import starts
from lastgood.spark.agent.queries import Queries
from lastgood.spark.agent.sessions import Attachment, detach, identify_session, is_connect, make_attachment
from lastgood.spark.agent.starts import Start
from lastgood.spark.agent.writer import RecordTaker, Writer
from lastgood.spark.record_sinks import RECORDS_FOLDER, AsTold, BesideCheckpoints, LedgerSink, open_record_taker
from lastgood.storage.reading import parse_location

_CLOSE_SECONDS = 2.0


class Recorder:
    """Records every batch of every query of a Spark session: offsets, event times, rows, durations, state, topic ids.

    It listens from its creation on, to queries that run already, too. Nothing that happens to the records can block or
    fail a query: they wait in memory (16 MB, then the oldest go) for a thread that writes them, and a sink that is
    full, locked, slow or missing is tried again. What is lost that way is counted in `dropped`.

    Under `lastgood run` the same is done from outside; there this class is not needed. Its records are described in
    `lastgood.records`; secrets in them, and rows of the data that an exception quotes, are hidden.

    Example::

        spark = SparkSession.builder.getOrCreate()
        recorder = Recorder(spark)
        query = frame.writeStream.option("checkpointLocation", "s3a://lake/chk/orders").start()
    """

    def __init__(self, spark: Any, to: str | Path | RecordTaker | None = None) -> None:
        """Begin to record.

        Args:
            spark: A session, classic or of Spark Connect (whose queries are looked at once a second, and whose
                checkpoint locations and topics are known only of queries that are started from now on).
            to: A folder for the records; a ledger, as `postgresql://USER@HOST/DATABASE`, `sqlite:///FILE`, or
                `sqlite:` for the file in the user's data folder; or an object with `write(records)`, `close()` and
                `pause_seconds`, called in a thread of its own. None: each query's go to
                `CHECKPOINT.lastgood/records`.

        Raises:
            LocationInvalidError: the folder is none that Spark and lastgood understand.
            LedgerUrlError: the URL of the ledger cannot be understood.
            ExtraMissingError: the library for its kind of storage, or for the ledger, is not installed.
        """
        self._writer = Writer(AsTold(_open_sink(to)))
        queries = Queries(self._writer)
        self._attached = make_attachment(spark, queries)
        self._starts = _Starts(identify_session(spark), self._attached, queries)
        kind = "connect.streaming" if is_connect(spark) else "streaming"
        starts.watch(importlib.import_module(f"pyspark.sql.{kind}.readwriter"))
        starts.observe(self._starts)
        self._attached.attach()
        atexit.register(self.close)

    @property
    def recorded(self) -> int:
        """Records that were written."""
        return self._writer.recorded

    @property
    def dropped(self) -> int:
        """Events without a record: too many waited, their sink refused them for ten minutes, or Spark's was unknown."""
        return self._writer.dropped

    @property
    def trouble(self) -> str | None:
        """What went wrong last; None if nothing ever did."""
        return self._writer.trouble

    def flush(self, seconds: float = 10.0) -> bool:
        """Wait until all that has happened is written, at most `seconds`; whether it is."""
        return self._writer.flush(seconds)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Listen no more and write what waits; after `seconds` the rest is given up. Called at exit, if not before."""
        atexit.unregister(self.close)
        starts.forget(self._starts)
        deadline = time.monotonic() + seconds
        detach([self._attached], self._writer, seconds / 2)
        self._writer.close(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        """Record until the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _open_sink(to: str | Path | RecordTaker | None) -> RecordTaker:
    if to is None:
        return BesideCheckpoints(platformdirs.user_state_path("lastgood") / RECORDS_FOLDER)
    if isinstance(to, str) and is_ledger_url(to):
        return LedgerSink(parse_place(to))
    if not isinstance(to, str | Path):
        return to
    return open_record_taker(parse_location(str(to)))


class _Starts:
    """What a recorder wants to know of starts in its session; see `starts.Observer`."""

    def __init__(self, session: int, attached: Attachment, queries: Queries) -> None:
        self._session = session
        self._attached = attached
        self._queries = queries

    def before_start(self, start: Start) -> None:
        pass

    def after_start(self, start: Start, query: Any) -> None:
        if identify_session(start.session) == self._session:
            self._attached.add(query, start.checkpoint)

    def start_failed(self, start: Start, error: Exception) -> None:
        if identify_session(start.session) == self._session:
            self._queries.start_failed(start.query_name, start.checkpoint, error)

    def report_trouble(self, error: Exception) -> None:
        self._queries.writer.report(error)
