"""Starts a query that writes nothing on a copy of a checkpoint, and says what Spark made of it: a PySpark script.

    spark-submit proof_job.py SPEC ANSWER

SPEC and ANSWER are JSON files. The query has the sources of the real one and a sink that looks at no row, so nothing is
read: Spark only plans its first batch. It runs on the pyspark of this very Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lastgood.spark.agent.failures import make_failure_of_error, make_failure_of_query

START_SECONDS = 60
"""How long a batch waits for the `start` that it runs by."""


class SecondBatchError(Exception):
    """The first batch has told all."""


class ProofSink:
    """Notes down the first batch, looks at no row, and lets there be no second one."""

    def __init__(self) -> None:
        self.batch: int | None = None
        self.query: Future[StreamingQuery] = Future()
        self.begins: list[tuple[Any, Any]] = []
        """Where sources begin, and where they end."""

    def __call__(self, _: DataFrame, batch_id: int) -> None:
        """What Spark calls for each batch."""
        if self.batch is not None:
            raise SecondBatchError
        self.batch = batch_id
        if batch_id == 0:
            self.begins = list(find_begins(self.query.result(START_SECONDS)))


def find_begins(query: StreamingQuery) -> Iterator[tuple[Any, Any]]:
    """Where the batch that runs begins and ends in its sources: of a first one progress tells the end alone."""
    leaves = query._jsq.streamingQuery().lastExecution().sparkPlan().collectLeaves()  # noqa: SLF001 - Java's own plan
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "MicroBatchScanExec":
            yield json.loads(leaf.start().json()), json.loads(leaf.end().json())


def stub(spark: SparkSession, source: dict[str, Any]) -> DataFrame:
    """A source of the real query, as far as its logs tell of it."""
    reader = spark.readStream.format(source["format"]).options(**source["options"])
    frame = reader.load(*source["paths"])
    return frame.selectExpr("1 AS stub")


def watch_query(spark: SparkSession, spec: dict[str, Any]) -> dict[str, Any]:
    """What became of the query."""
    sink = ProofSink()
    frame = reduce(DataFrame.unionAll, [stub(spark, source) for source in spec["sources"]])
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", spec["checkpoint"])
    query = writer.trigger(availableNow=True).start()
    sink.query.set_result(query)
    told: dict[str, Any] = {"ended": "finished", "causes": []}
    try:
        if not query.awaitTermination(spec["seconds"]):
            told["ended"] = "hangs" if sink.batch is None else "finished"
            query.stop()
    except StreamingQueryException:
        if sink.batch is None:
            failed = make_failure_of_query(query._jsq.exception().get(), query.id, None)  # noqa: SLF001 - the causes in Java
            told.update(ended="failed", causes=failed["causes"])
    progress = [json.loads(each.json()) for each in query._jsq.recentProgress()]  # noqa: SLF001 - as it is in Java
    first = next((each for each in progress if each["batchId"] == sink.batch), None)
    told["batch"] = sink.batch
    if progress and sink.batch is None:
        told["idle_at"] = progress[-1]["batchId"]
    else:
        told["idle_at"] = None
    told["sources"] = [
        [format_offset(find_begin(each, sink.begins)), format_offset(each["endOffset"])]
        for each in (first or {"sources": []})["sources"]
    ]
    return told


def find_begin(source: dict[str, Any], begun: list[tuple[Any, Any]]) -> Any:
    """Where a source of a batch begins; None if nobody tells."""
    if source["startOffset"] is not None:
        return source["startOffset"]
    return next((start for start, end in begun if end == source["endOffset"]), None)


def format_offset(offset: Any) -> str | None:
    """An offset as it stands in a log: Spark shows it as JSON where it is JSON."""
    if offset is None:
        return None
    if isinstance(offset, str):
        return offset
    return json.dumps(offset)


def main(question: str, answer: str) -> None:
    """Run the job."""
    spec = json.loads(Path(question).read_text(encoding="utf-8"))
    spark = SparkSession.builder.appName("lastgood plan --prove").getOrCreate()
    try:
        told = watch_query(spark, spec)
    except PySparkException as error:
        told = {"ended": "failed", "batch": None, "sources": [], "causes": make_failure_of_error(error)["causes"]}
    Path(answer).write_text(json.dumps({"spark": spark.version, **told}), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
