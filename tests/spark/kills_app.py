"""A light query that records itself into a ledger as well, until it is killed: kills_app.py CHECKPOINT LEDGER"""

import sys

from pyspark.sql import SparkSession

from lastgood.spark import Recorder


def main(checkpoint, ledger):
    spark = SparkSession.builder.getOrCreate()
    Recorder(spark, to=ledger)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
    writer = rows.writeStream.format("noop").queryName("rows").option("checkpointLocation", checkpoint)
    writer.trigger(processingTime="50 milliseconds").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
