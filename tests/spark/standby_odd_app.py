"""Applications that are no model: standby_odd_app.py KIND FILE INPUT CHECKPOINT OUTPUT

`slow` takes its time before it has a session; `secret` reads a file first and writes down what stood there; `java`
starts another query past Python; `three` starts three queries; `none` starts none.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from run_app import start


def start_in_java(spark, folder, checkpoint, output):
    lines = spark.readStream.format("text").load(folder)
    writer = lines._jdf.writeStream().format("text").option("checkpointLocation", checkpoint)
    return writer.start(output)


def main(kind, file, *places):
    if kind == "slow":
        time.sleep(5)
    if kind == "secret":
        secret = Path(file).read_text()
    spark = SparkSession.builder.getOrCreate()
    if kind == "none":
        spark.range(10).count()
        time.sleep(5)
        return
    if kind == "java":
        start_in_java(spark, places[0], f"{places[1]}-java", f"{places[2]}-java")
    if kind == "three":
        for name in ("a", "b"):
            start(spark, places[0], f"{places[1]}-{name}", f"{places[2]}-{name}")
    query = start(spark, *places)
    if kind == "secret":
        with Path(f"{file}.used").open("a") as used:
            used.write(f"{secret}\n")
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
