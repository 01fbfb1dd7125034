"""Runs inside Spark: sliding windows of events, written once each in output mode append, by old code and by new.

The application knows nothing of lastgood. Its functions are called by `RunningSpark.call`.
"""

from __future__ import annotations

import contextlib

STATE = "spark.sql.streaming.stateStore"
LENGTH, SLIDE, DELAY = "10 minutes", "5 minutes", "10 minutes"


def events(spark, told):
    """When each happened and what it is worth, of files or of a topic."""
    if "input" in told:
        reader = spark.readStream.schema("t timestamp, v long").option("maxFilesPerTrigger", 1)
        return reader.json(told["input"])
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", told["bootstrap"])
    reader = reader.option("subscribe", told["topic"]).option("startingOffsets", "earliest")
    lines = reader.option("maxOffsetsPerTrigger", told["limit"]).load().selectExpr("cast(value as string) as line")
    return lines.selectExpr("from_json(line, 't timestamp, v long') as event").select("event.*")


def windows(frame, code):
    """The old code counts; the new one has a sum as well, and the newer one more: each has another schema of state."""
    from pyspark.sql import functions

    grouped = frame.groupBy(functions.window("t", LENGTH, SLIDE))
    wanted = {"n": functions.count("*"), "total": functions.sum("v"), "most": functions.max("v")}
    counts = [each.alias(name) for name, each in list(wanted.items())[: 1 + ("old", "new", "newer").index(code)]]
    return grouped.agg(*counts).select("window.start", "window.end", "*").drop("window")


def application(spark, told):
    frame = events(spark, told).where(told.get("where", "true")).withWatermark("t", DELAY)
    result = frame if told["code"] == "rows" else windows(frame, told["code"])
    writer = result.writeStream.option("checkpointLocation", told["checkpoint"])
    writer = writer.outputMode("append").trigger(availableNow=True)
    if told["sink"] == "foreachBatch":
        return writer.foreachBatch(lambda batch, batch_id: append_once(batch, batch_id, told["table"])).start()
    return writer.format(told["sink"]).option("mergeSchema", "true").start(told["table"])


def append_once(frame, batch_id, table):
    """A function whose writes Delta tells apart by a name that never changes."""
    writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    writer.option("txnAppId", "windows").option("txnVersion", batch_id).save(table)


def start(spark, told):
    """One start of the application, to its end: all that there is to be read."""
    return run(spark, told, application)


def run(spark, told, begin):
    for name, value in told["conf"].items():
        spark.conf.set(name, value)
    try:
        with recording(spark, told.get("ledger")):
            begin(spark, told).awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": str(error)[:4000]}
    return {"error": None}


def recording(spark, ledger):
    """What a user adds to an application that is to be recorded."""
    if ledger is None:
        return contextlib.nullcontext()
    from lastgood.spark import Recorder

    return Recorder(spark, to=ledger)


def rows(spark, told):
    """Start of every window that was written, its count, and its sum where the new code wrote it."""
    form = "parquet" if told["sink"] == "parquet" else "delta"
    frame = spark.read.option("mergeSchema", "true").format(form).load(told["table"])
    total = "total" if "total" in frame.columns else "null"
    return {"rows": [list(row) for row in frame.selectExpr("cast(start as string)", "n", total).collect()]}
