"""Every stateful operator that a Python query can ask for, on one small input; spread_app.py FOLDER.

FOLDER/NAME is the checkpoint of each, with four partitions pinned, after two batches; FOLDER/refused.json what Spark
refuses, and by which words.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession, functions

WAIT = "60 seconds"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def rows(spark, folder):
    read = spark.readStream.schema("id long, k long, t timestamp").option("maxFilesPerTrigger", 1)
    return read.json(str(folder / "input")).withWatermark("t", WAIT)


def counted(key, frames, state):
    """For `applyInPandasWithState`."""
    import pandas

    total = state.getOption[0] if state.exists else 0
    total += sum(len(frame) for frame in frames)
    state.update((total,))
    yield pandas.DataFrame({"k": [key[0]], "n": [total]})


def processor():
    """For `transformWithStateInPandas`; its base class is of Spark 4 and later."""
    import pandas
    from pyspark.sql.streaming import StatefulProcessor

    class Counting(StatefulProcessor):
        def init(self, handle):
            self.total = handle.getValueState("total", "n long")

        def handleInputRows(self, key, frames, timer_values):  # noqa: N802 - Spark calls it so
            total = self.total.get()[0] if self.total.exists() else 0
            total += sum(len(frame) for frame in frames)
            self.total.update((total,))
            yield pandas.DataFrame({"k": [key[0]], "n": [total]})

        def close(self):
            pass

    return Counting()


def queries(spark, folder):
    frame = rows(spark, folder)
    by_k = frame.groupBy("k")
    right = frame.selectExpr("id as right_id", "t as right_t")
    yield "limit", frame.limit(1_000), "append"
    yield "no-key", frame.groupBy().count(), "complete"
    yield "key", by_k.count(), "complete"
    yield "key-that-is-null", frame.groupBy(functions.lit(None).cast("string").alias("nothing")).count(), "complete"
    yield "window", frame.groupBy(functions.window("t", "2 minutes")).count(), "append"
    yield "session-window", frame.groupBy(functions.session_window("t", "2 minutes"), "k").count(), "append"
    yield "session-window-alone", frame.groupBy(functions.session_window("t", "2 minutes")).count(), "append"
    yield "distinct", frame.select("id", "t").distinct(), "append"
    yield "within-watermark", frame.dropDuplicatesWithinWatermark(["id"]), "append"
    joined = frame.join(
        right, (functions.col("id") == functions.col("right_id")) & (functions.col("t") == functions.col("right_t"))
    )
    yield "join", joined, "append"
    yield "join", joined, "append"  # goes on, though one log stands for two lines of each plan
    shape = "k long, n long"
    yield "apply-in-pandas", by_k.applyInPandasWithState(counted, shape, "n long", "update", "NoTimeout"), "update"
    yield (
        "apply-in-pandas-alone",
        (frame.groupBy().applyInPandasWithState(counted, shape, "n long", "update", "NoTimeout")),
        "update",
    )
    spark.conf.set(PROVIDER, ROCKSDB)
    yield "transform-with-state", by_k.transformWithStateInPandas(processor(), shape, "Update", "None"), "update"
    yield "limit-rocksdb", frame.limit(1_000), "append"
    yield "no-key-rocksdb", frame.groupBy().count(), "complete"


def main(folder):
    (folder / "input").mkdir()
    for number in range(2):
        told = ({"id": 10 * number + at, "k": at % 3, "t": f"2026-11-21 12:0{number}:0{at}"} for at in range(5))
        (folder / f"input/{number}.json").write_text("\n".join(map(json.dumps, told)))
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    refused = {}
    for name, frame, mode in queries(spark, folder):
        writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(folder / name))
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except Exception as error:  # noqa: BLE001 - what Spark says of it is the answer
            refused[name] = str(error)
    (folder / "refused.json").write_text(json.dumps(refused))
    spark.stop()


main(Path(sys.argv[1]))
