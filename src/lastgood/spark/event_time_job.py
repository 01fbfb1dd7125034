"""Runs on Spark, alone: `event_time_job.py SPEC ANSWER` tells from where on topics hold events of a time or later.

SPEC holds `kafka`, the options of the source; `ranges`, per source, topic and partition the first and the next offset;
`event_time`, SQL over a record of Kafka; `since_ms`. ANSWER gets `first`, per source, topic and partition the first of
such an offset, where there is one; else `error`, or the `type` that is none of a time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def find_first(spark: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """The answer to one question."""
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - of the Spark that runs it
    from pyspark.sql import functions  # noqa: PLC0415

    first: dict[str, Any] = {}
    for source, ranges in spec["ranges"].items():
        begins, ends = _list_bounds(ranges, 0), _list_bounds(ranges, 1)
        reader = spark.read.format("kafka").options(**spec["kafka"]).option("failOnDataLoss", "true")
        assigned = {topic: list(map(int, each)) for topic, each in ranges.items()}
        reader = reader.option("assign", json.dumps(assigned))
        frame = reader.option("startingOffsets", json.dumps(begins)).option("endingOffsets", json.dumps(ends)).load()
        try:
            timed = frame.selectExpr("topic", "partition", "offset", f"({spec['event_time']}) as event_time")
        except (AnalysisException, ParseException) as error:
            return {"error": str(error)}
        kind = timed.schema["event_time"].dataType.simpleString()
        if kind != "timestamp":
            return {"type": kind}
        late = timed.where(f"event_time >= timestamp_millis({spec['since_ms']})").groupBy("topic", "partition")
        found = first.setdefault(source, {})
        for row in late.agg(functions.min("offset").alias("offset")).collect():
            found.setdefault(row.topic, {})[str(row.partition)] = row.offset
    return {"first": first}


def _list_bounds(ranges: dict[str, Any], which: int) -> dict[str, dict[str, int]]:
    return {topic: {partition: span[which] for partition, span in each.items()} for topic, each in ranges.items()}


def main(spec: str, answer: str) -> None:
    """Answer the question of a file."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark = SparkSession.builder.getOrCreate()
    Path(answer).write_text(json.dumps(find_first(spark, json.loads(Path(spec).read_text()))))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
