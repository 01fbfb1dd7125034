"""Runs inside Spark: a query that keeps state, and the same after somebody has changed its code in one place.

The application knows nothing of lastgood. Its functions are called by `RunningSpark.call`; as a program it
is started as its user starts it.
"""

from __future__ import annotations

import importlib
import json
import sys
import types

FIELDS = "t timestamp, k int, j int, v long, w long"


def read(spark, told, folder):
    if "bootstrap" in told:
        return read_topic(spark, told, folder)
    reader = spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", 1)
    return reader.json(f"{told['input']}/{folder}").withWatermark("t", "5 minutes")


def read_topic(spark, told, name):
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", told["bootstrap"])
    reader = reader.option("subscribe", told["topics"][name]).option("startingOffsets", "earliest")
    lines = reader.options(**told["options"]).load().selectExpr("cast(value as string) as line")
    rows = lines.selectExpr(f"from_json(line, '{FIELDS}') as event").select("event.*")
    return rows.withWatermark("t", "5 minutes")


def query(spark, told):
    from pyspark.sql import functions as f

    code = told["code"]
    folders = {"sources in another order": "ba", "one source less": "a", "another topic": "ac"}.get(code, "ab")
    frame = read(spark, told, folders[0])
    for folder in folders[1:]:
        frame = frame.union(read(spark, told, folder))
    if code == "another key":
        frame = frame.withColumnRenamed("k", "key")
    if code == "another type":
        frame = frame.withColumn("k", f.col("k").cast("string"))
    if code == "one operator more":
        frame = frame.dropDuplicates(["t", "k", "j", "v"])
    if code == "no state":
        return frame.select("t", "k", "v")
    minutes = 20 if code == "longer windows" else 10
    keys = {"keys in another order": ["j", "k"], "another key": ["key", "j"]}.get(code, ["k", "j"])
    computed = {
        "maximum for sum": [f.max("v").alias("n")],
        "sum of something else": [f.sum("w").alias("n")],
        "one aggregate more": [f.sum("v").alias("n"), f.count("*").alias("m")],
    }.get(code, [f.sum("v").alias("n")])
    counted = frame.groupBy(f.window("t", f"{minutes} minutes"), *keys).agg(*computed)
    numbers = [each for each in counted.columns if each in "nm"]
    return counted.selectExpr("window.start as start", f"cast({keys[0]} as string) as key", *numbers)


def describe(spark, told):
    """What lastgood's agent says of it, which needs no lastgood here."""
    sys.modules["agent"] = agent = types.ModuleType("agent")
    agent.__path__ = [told["agent"]]
    return importlib.import_module("agent.shape").describe(query(spark, told), "Append")


def start(spark, told):
    """One start of the application, to its end: all that there is to be read."""
    for name, value in told.get("conf", {}).items():
        spark.conf.set(name, value)
    writer = query(spark, told).writeStream.option("checkpointLocation", told["checkpoint"]).format("parquet")
    try:
        writer.trigger(availableNow=True).start(told["table"]).awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": str(error)[:4000]}
    return {"error": None}


def guard(spark, told):
    """As a user calls it, before the start."""
    import lastgood.spark
    from lastgood.errors import LastgoodError

    writer = query(spark, told).writeStream.option("checkpointLocation", told["checkpoint"])
    try:
        fit = lastgood.spark.guard(writer, told["checkpoint"], version="1.4", **told.get("said", {}))
    except LastgoodError as error:
        return {"error": error.to_json()}
    return {"fit": fit.to_json()}


def state(spark, told):
    """What it has kept, as a user looks at it."""
    import lastgood.spark
    from lastgood.errors import LastgoodError

    try:
        frame = lastgood.spark.state(told["checkpoint"], spark=spark, **told.get("said", {}))
        rows = frame.selectExpr("key.k", "key.j", "value.sum").collect()
    except LastgoodError as error:
        return {"error": error.to_json()}
    return {"rows": sorted(list(row) for row in rows)}


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    found = start(SparkSession.builder.getOrCreate(), json.loads(sys.argv[1]))
    if found["error"]:
        sys.exit(found["error"])
