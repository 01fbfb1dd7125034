"""An application of Spark Connect, recorded from within and from without: connect_app.py FOLDER RECORDS"""

import sys
import time

from pyspark.errors.exceptions.connect import SparkException
from pyspark.sql import SparkSession

from lastgood.spark import Recorder


def poison(frame, batch_id):
    if batch_id == 1:
        raise ValueError("cannot parse record 17")


def main(folder, records):
    builder = SparkSession.builder.remote("local[1]").config("spark.connect.grpc.binding.address", "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    Recorder(spark, to=records)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    spark.conf.set("spark.sql.streaming.checkpointLocation", folder)
    quiet = rows.writeStream.format("noop").queryName("quiet").trigger(processingTime="0 seconds").start()
    while quiet.lastProgress is None or quiet.lastProgress["batchId"] < 3:
        time.sleep(0.05)
    quiet.stop()
    failing = rows.writeStream.foreachBatch(poison).queryName("poison").option("checkpointLocation", folder + "/poison")
    start(failing).awaitTermination()


def start(writer):
    """Where the machine is busy Spark waits too short for the Python worker of `foreachBatch`: ten seconds."""
    for _ in range(3):
        try:
            return writer.start()
        except SparkException as error:
            if "failed to connect back" not in str(error):
                raise
    return writer.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
