"""An application that knows nothing of lastgood: lines to files or a table, and a query fails where a file says so.

restarts_app.py HOW WHAT {INPUT CHECKPOINT OUTPUT}...
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession, functions


def start(spark, what, source, checkpoint, output):
    place = Path(checkpoint).parent

    def check(value):
        if (place / "fails-always").exists():
            raise ValueError("it does not go on")
        try:
            (place / "fails").unlink()
        except FileNotFoundError:
            return value
        raise ValueError("it does not go on")

    if what == "rocksdb":
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    lines = READERS[what](spark, source)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", place.name)
    checked = lines.select(functions.udf(check, "string", useArrow=False)("value").alias("value"))
    writer = WRITERS[what](checked, lines, checkpoint, output, check)
    writer = writer.option("checkpointLocation", checkpoint).option("path", output)
    return writer.trigger(processingTime="100 milliseconds").start()


def read_files(spark, folder):
    return spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(folder)


def read_topic(spark, source):
    bootstrap, topic = source.split("/")
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20).load()
    return rows.select(functions.col("value").cast("string"))


def write_files(checked, *_):
    return checked.writeStream.format("text")


def write_table(checked, *_):
    return checked.writeStream.format("delta")


def write_counts(checked, *_):
    return checked.groupBy("value").count().writeStream.format("delta").outputMode("complete")


def write_checked_counts(checked, lines, checkpoint, output, check):
    """It fails behind its state: that of the batch that is not committed is written."""
    counts = lines.groupBy("value").count()
    value = functions.udf(check, "string", useArrow=False)("value").alias("value")
    return counts.select(value, "count").writeStream.format("delta").outputMode("complete")


def write_by_function(checked, lines, checkpoint, output, check):
    """It fails behind its write: the table has what the batch that is not committed holds."""

    def append(batch, number):
        marked = batch.write.format("delta").option("txnAppId", checkpoint).option("txnVersion", number)
        marked.mode("append").save(output)
        check("all of it")

    return lines.writeStream.foreachBatch(append)


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
READERS = {
    "lines": read_files,
    "table": read_files,
    "counts": read_files,
    "rocksdb": read_files,
    "checked counts": read_files,
    "function": read_files,
    "topic": read_topic,
}
WRITERS = {
    "lines": write_files,
    "table": write_table,
    "counts": write_counts,
    "rocksdb": write_counts,
    "checked counts": write_checked_counts,
    "function": write_by_function,
    "topic": write_counts,
}


def wait_for_any(spark, queries, places):
    spark.streams.awaitAnyTermination()


def wait_for_any_a_while(spark, queries, places):
    while not spark.streams.awaitAnyTermination(1):
        pass


def wait_for_last(spark, queries, places):
    queries[-1].awaitTermination()


def wait_for_last_a_while(spark, queries, places):
    while not queries[-1].awaitTermination(1):
        pass


def wait_for_first(spark, queries, places):
    queries[0].awaitTermination()


def look_after_them(spark, queries, places):
    """Each is started again by the application itself."""
    while True:
        time.sleep(2)
        for number, query in enumerate(queries):
            if not query.isActive:
                queries[number] = start(spark, *places[number])
                print("started by the application", flush=True)


def main(how, what, *words):
    spark = SparkSession.builder.getOrCreate()
    places = [(what, *words[first : first + 3]) for first in range(0, len(words), 3)]
    queries = [start(spark, *each) for each in places]
    globals()[how](spark, queries, places)


if __name__ == "__main__":
    main(*sys.argv[1:])
