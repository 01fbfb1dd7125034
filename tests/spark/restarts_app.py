"""An application that knows nothing of lastgood: lines of files to files, and a query fails where a file says so.

restarts_app.py HOW {INPUT CHECKPOINT OUTPUT}...
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession, functions


def start(spark, folder, checkpoint, output):
    place = Path(folder).parent

    def check(value):
        if (place / "fails-always").exists():
            raise ValueError("it does not go on")
        try:
            (place / "fails").unlink()
        except FileNotFoundError:
            return value
        raise ValueError("it does not go on")

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(folder)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", place.name)
    checked = lines.select(functions.udf(check, "string", useArrow=False)("value").alias("value"))
    writer = checked.writeStream.format("text").option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="100 milliseconds").start(output)


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


def main(how, *words):
    spark = SparkSession.builder.getOrCreate()
    places = [words[first : first + 3] for first in range(0, len(words), 3)]
    queries = [start(spark, *each) for each in places]
    globals()[how](spark, queries, places)


if __name__ == "__main__":
    main(*sys.argv[1:])
