"""Reads topics to text files until all is read. gone_topics_app.py CASES RESULT

CASES is a JSON list of objects with `options`, those of the source, `folder`, and `seconds` of a query that knows no
end by itself, null of one that ends when all is read; RESULT gets what ends each query, null where no error does.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

AT_ONCE = 6
USUAL = {
    "startingOffsets": "earliest",
    "kafkaConsumer.pollTimeoutMs": "6000",
    "kafka.request.timeout.ms": "5000",
    "kafka.default.api.timeout.ms": "10000",
}


def failure(spark, options, folder, seconds):
    """What ends a query; None if no error does."""
    rows = spark.readStream.format("kafka").options(**{**USUAL, **options}).load().selectExpr("CAST(value AS STRING)")
    trigger = {"processingTime": "500 milliseconds"} if seconds else {"availableNow": True}
    writer = rows.writeStream.format("text").trigger(**trigger).option("checkpointLocation", f"{folder}/chk")
    try:
        query = writer.start(f"{folder}/out")
        query.awaitTermination(seconds)
        query.stop()
    except Exception as error:  # noqa: BLE001 - what Spark says is what is asked for
        return str(error)
    return None


def main(cases, result):
    spark = SparkSession.builder.getOrCreate()
    asked = [(case["options"], case["folder"], case["seconds"]) for case in json.loads(Path(cases).read_text())]
    with ThreadPoolExecutor(AT_ONCE) as pool:  # most of the time clients wait for what is not there
        told = list(pool.map(lambda each: failure(spark, *each), asked))
    Path(result).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
