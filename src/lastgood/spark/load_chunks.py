"""The chunks of files, handed to a program one by one: by a query whose batches wait until it is done with them."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from lastgood.frozen import dataclass
from lastgood.load.begun import read_end, read_planned
from lastgood.load.specification import ParseMode
from lastgood.spark.load_job import Job, count_rows, select_column, set_up
from lastgood.spark.load_table import TableRows

_IS_CORRUPT = "__lastgood_is_corrupt"
_POLL_SECONDS = 0.2


class ChunkLeftError(Exception):
    """The program has left a chunk before it was done with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some records of a job: those of one batch of its checkpoint, in Spark's cache until the next is taken."""

    number: int
    """Of the batch; the first is 0."""
    key: str
    """The same whenever this chunk is handed, and that of no other, of whatever job."""
    rows: DataFrame
    count: int
    """How many rows it has."""
    corrupt: int
    """How many of its records are not what the schema says; of these `dropmalformed` makes no rows."""
    is_again: bool
    """Whether it may have been handed before: a run has ended before it was done with."""
    begin: int
    """Bytes of all files before it; of a table rows, as they were counted when the job began."""
    end: int
    """The same, with it."""
    size: int
    """Of all."""


@dataclass(frozen=True, slots=True)
class _Handed:
    """What a batch has."""

    number: int
    cached: DataFrame
    rows: DataFrame
    count: int
    corrupt: int


class ChunkJob(Job):
    """A load whose chunks a program takes."""

    def __init__(self, spark: SparkSession, question: Mapping[str, Any], name: str) -> None:
        super().__init__(spark, question, lambda _: None)
        self.name = name
        self._handed: queue.SimpleQueue[_Handed] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Whether the program is done with what was handed."""

    def give_chunks(self) -> Iterator[Chunk]:
        """Those that nobody is done with yet; a program is done with one when it asks for the next.

        Raises:
            LoadRefusedError: Spark does not take the schema or the options.
            PySparkException: the query has failed.
        """
        planned = read_planned(self.storage, self.checkpoint)
        with set_up(self.spark):
            running = self._start()
        try:
            while (handed := self._wait(running)) is not None:
                end = read_end(self.storage, self.checkpoint, handed.number)
                try:
                    yield Chunk(
                        number=handed.number,
                        key=f"{running.id}/{handed.number}",
                        rows=handed.rows,
                        count=handed.count,
                        corrupt=handed.corrupt,
                        is_again=end == planned,
                        begin=self._count_bytes_before(handed.number),
                        end=self.spec.count_bytes_before(end.file, end.position),
                        size=self.spec.size,
                    )
                finally:
                    handed.cached.unpersist()  # not by `_hand`, which whoever stops the query may interrupt in Java
                self._answers.put(True)  # noqa: FBT003 - the queue's item
            running.awaitTermination()
            self.finish()
        finally:
            self._answers.put(False)  # noqa: FBT003 - one that is not done with is not committed
            running.stop()

    def _start(self) -> StreamingQuery:
        schema = self.begin()
        writer = self.open_stream(schema).writeStream.queryName(self.name).foreachBatch(partial(self._hand, schema))
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def _hand(self, schema: StructType, records: DataFrame, number: int) -> None:
        """Hand a batch to the program, and wait until it is done with it; only then Spark commits it."""
        rows, is_corrupt = self.take_batch(records, schema, number)
        marked = rows.select(*map(select_column, schema.fieldNames()), is_corrupt.alias(_IS_CORRUPT))
        cached = marked.persist(StorageLevel.MEMORY_AND_DISK)
        ((count, corrupt),) = cached.agg(*count_rows(sf.col(_IS_CORRUPT))).collect()
        handed = _Handed(number, cached, cached.drop(_IS_CORRUPT), count, corrupt)
        if self.spec.mode is ParseMode.DROPMALFORMED:
            whole = cached.where(~sf.col(_IS_CORRUPT))
            handed = _Handed(number, cached, whole.drop(_IS_CORRUPT), count - corrupt, corrupt)
        self._handed.put(handed)
        if not self._answers.get():
            raise ChunkLeftError(f"the program has left chunk {number}, which comes again")
        self.keep(number, count, corrupt)

    def _wait(self, running: StreamingQuery) -> _Handed | None:
        """The next chunk; None where there is none any more."""
        while True:
            try:
                return self._handed.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if not running.isActive and self._handed.empty():
                    return None

    def _count_bytes_before(self, number: int) -> int:
        if number == 0:
            return 0
        before = read_end(self.storage, self.checkpoint, number - 1)
        return self.spec.count_bytes_before(before.file, before.position)


class TableChunkJob(TableRows, ChunkJob):
    """The same, of a table."""


def choose_chunk_job(spark: SparkSession, question: Mapping[str, Any], name: str, frame: DataFrame | None) -> ChunkJob:
    """The job whose chunks a program takes.

    Args:
        spark: A session.
        question: As `load_main` reads it.
        name: Of the job.
        frame: What is read; None: what the question names.
    """
    if question["spec"]["order_by"] is None:
        return ChunkJob(spark, question, name)
    job = TableChunkJob(spark, question, name)
    job.frame = frame
    return job
