"""An application that knows nothing of lastgood: lines of files to files. run_app.py INPUT CHECKPOINT OUTPUT"""

import sys

from pyspark.sql import SparkSession


def main(folder, checkpoint, output):
    spark = SparkSession.builder.getOrCreate()
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(folder)
    writer = lines.writeStream.format("text").option("checkpointLocation", checkpoint)
    writer.trigger(processingTime="100 milliseconds").start(output).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
