"""Runs inside Spark: queries that fail before or behind the state of a batch. Called by `RunningSpark.call`."""

from __future__ import annotations

import time
from pathlib import Path

DEADLINE_SECONDS = 120
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def wait(is_so):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def look(spark, told):
    """What is said of the run of a query that has failed."""
    from lastgood.spark.agent.left_state import find_unsettled
    from lastgood.spark.agent.tasks import has_active_tasks, is_running

    if told["provider"] == "rocksdb":
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    folder = Path(told["folder"]) / "a[1]{2}*"  # signs that mean something to a pattern
    folder.mkdir()
    query = start(spark, told["kind"], folder)
    wait(lambda: query.lastProgress is not None and query.lastProgress["batchId"] >= 1)
    (folder / f"fails {told['where']}").touch()
    wait(lambda: not query.isActive)
    wait(lambda: not is_running(query._jsq) and not has_active_tasks(query._jsq, query.id))
    committed = max(int(each.name) for each in (folder / "chk" / "commits").iterdir() if each.name.isdecimal())
    error = str(query.exception())
    return {"found": find_unsettled(spark._jvm, query._jsq), "failed": committed + 1, "error": error}


def start(spark, kind, folder):
    from pyspark.sql import functions

    before, behind = str(folder / "fails before"), folder / "fails behind"

    def check(value):
        if Path(before).exists():
            raise ValueError("before")
        return value

    def take(batch, number):
        batch.collect()
        if behind.exists():
            raise ValueError("behind")

    def read():
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("numPartitions", 2).load()
        checked = functions.udf(check, "long", useArrow=False)("value")
        return rows.select("timestamp", checked.alias("value"))

    rows = read()
    if kind == "counts":
        rows = rows.groupBy((functions.col("value") % 5).alias("digit")).count()
    if kind == "join":
        rows = rows.join(read(), ["timestamp", "value"])
    writer = rows.writeStream.foreachBatch(take).outputMode("complete" if kind == "counts" else "append")
    return writer.option("checkpointLocation", str(folder / "chk")).start()
