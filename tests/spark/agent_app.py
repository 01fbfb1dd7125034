"""A streaming application that knows nothing of lastgood, unless it is told to record by itself.

agent_app.py FOLDER fail|forever|end [RECORDS]
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf


def await_batches(query, count):
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < count - 1):
        time.sleep(0.05)


def rows(spark):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def start_windows(spark, folder):
    counts = rows(spark).withWatermark("timestamp", "1 second").groupBy(sf.window("timestamp", "1 second")).count()
    writer = counts.writeStream.format("noop").outputMode("update").queryName("windows")
    return writer.option("checkpointLocation", folder + "/windows").trigger(processingTime="0 seconds").start()


def start_poison(spark, folder):
    def write(frame, batch_id):
        if batch_id == 1:
            raise ValueError("cannot parse record 17")

    writer = rows(spark).writeStream.foreachBatch(write).trigger(processingTime="0 seconds")
    return writer.start(queryName="poison", checkpointLocation=folder + "/poison")


def main(folder, mode, records=None):
    spark = SparkSession.builder.getOrCreate()
    if records is not None:
        from lastgood.spark import Recorder

        Recorder(spark, to=records)
    windows = start_windows(spark, folder)
    await_batches(windows, 3)
    if mode == "forever":
        windows.awaitTermination()
    windows.stop()
    if mode == "fail":
        Path(folder, "file").touch()
        try:
            rows(spark).writeStream.format("noop").option("checkpointLocation", folder + "/file/x").start()
        except Exception as error:  # noqa: BLE001 - which one is Spark's choice
            print("not started:", type(error).__name__)
        start_poison(spark, folder).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
