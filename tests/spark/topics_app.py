"""Reads topics to text files until all is read. topics_app.py BOOTSTRAP RESULT {OPTION TOPICS FOLDER}..."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def failure(spark, bootstrap, option, topics, folder):
    """What ends a query; None if nothing does."""
    source = {
        "kafka.bootstrap.servers": bootstrap,
        option: topics,
        "startingOffsets": "earliest",
        "kafkaConsumer.pollTimeoutMs": "6000",
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "20000",
    }
    rows = spark.readStream.format("kafka").options(**source).load().selectExpr("CAST(value AS STRING)")
    writer = rows.writeStream.format("text").trigger(availableNow=True)
    try:
        writer.option("checkpointLocation", f"{folder}/chk").start(f"{folder}/out").awaitTermination()
    except Exception as error:  # noqa: BLE001 - what Spark says is what is asked for
        return str(error)
    return None


def main(bootstrap, result, *places):
    spark = SparkSession.builder.getOrCreate()
    queries = zip(places[::3], places[1::3], places[2::3], strict=True)
    Path(result).write_text(json.dumps([failure(spark, bootstrap, *each) for each in queries]))


if __name__ == "__main__":
    main(*sys.argv[1:])
