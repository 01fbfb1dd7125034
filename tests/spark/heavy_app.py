"""An application that cannot digest more than so many lines at once: lines of files to files, until all are read.

heavy_app.py INPUT CHECKPOINT OUTPUT FILES_PER_BATCH LINES_AT_ONCE
"""

import sys

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

_seen = {}


def digest(at_once):
    def digested(line):
        task = TaskContext.get().taskAttemptId()
        _seen[task] = _seen.get(task, 0) + 1
        if _seen[task] > at_once:
            raise MemoryError(f"more than {at_once} lines at once")
        return line

    return udf(digested, "string")


def main(folder, checkpoint, output, files, at_once):
    spark = SparkSession.builder.getOrCreate()
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", files).load(folder)
    digested = lines.coalesce(1).select(digest(int(at_once))(col("value")).alias("value"))
    writer = digested.writeStream.format("text").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(output).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
