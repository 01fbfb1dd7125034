"""Reads Kafka as recoveries said, and meets data that is gone.

kafka_app.py BOOTSTRAP ORDERS EXPIRED FOLDER RECORDS RESULT
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from lastgood.errors import LastgoodError
from lastgood.spark import Recorder, read_kafka


def first_offsets(spark, name, folder, **source):
    """Where a query on an empty checkpoint begins, per partition."""
    seen = {}

    def look(frame, batch_id):
        for row in frame.groupBy("topic", "partition").agg({"offset": "min"}).collect():
            seen[f"{row[0]}-{row[1]}"] = row[2]

    rows = read_kafka(spark, name, **source)
    writer = rows.writeStream.foreachBatch(look).queryName(name).trigger(availableNow=True)
    writer.start(checkpointLocation=f"{folder}/{name}").awaitTermination()
    return seen


def refusal(spark, name, **source):
    try:
        read_kafka(spark, name, **source)
    except LastgoodError as error:
        return [error.condition, error.found]
    return None


def main(bootstrap, orders, expired, folder, records, result):
    spark = SparkSession.builder.getOrCreate()
    recorder = Recorder(spark, to=records)
    source = {"kafka": bootstrap, "starting_offsets": f"{folder}/starts", "options": {"startingOffsets": "earliest"}}
    stronger = {**source, "options": {"startingTimestamp": "1"}}
    told = {
        "recovered": first_offsets(spark, "recovered", folder, topic=orders, **stronger),
        "pattern": first_offsets(spark, "pattern", folder, subscribe_pattern=orders[:-1] + ".", **source),
        "options": first_offsets(spark, "options", folder, topic=[orders], **source),
        "gone": refusal(spark, "gone", topic=orders, **source),
        "missing": refusal(spark, "pattern", topic="no-such-topic", **source),
        "unreachable": refusal(spark, "pattern", topic=orders, **{**source, "kafka": "127.0.0.1:9"}),
    }
    try:
        first_offsets(spark, "expired", folder, topic=expired, **source)
    except Exception as error:  # noqa: BLE001 - which one is Spark's choice
        told["expired"] = type(error).__name__
    recorder.close(10)
    Path(result).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
