"""An application that knows nothing of lastgood: lines of files to files. run_app.py {INPUT CHECKPOINT OUTPUT}..."""

import sys

from pyspark.sql import SparkSession


def start(spark, folder, checkpoint, output):
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(folder)
    writer = lines.writeStream.format("text").option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="100 milliseconds").start(output)


def main(*places):
    spark = SparkSession.builder.getOrCreate()
    for query in [start(spark, *places[first : first + 3]) for first in range(0, len(places), 3)]:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
