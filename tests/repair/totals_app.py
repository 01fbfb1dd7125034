"""Runs inside Spark: totals of all events by a key, or of all together, each batch written whole or where it changed.

The application knows nothing of lastgood. Its functions are called by `RunningSpark.call`.
"""

from windowed_app import LENGTH, SLIDE, events, run


def totals(frame, told):
    """The old code counts; the new one has a sum as well: the state has another schema."""
    from pyspark.sql import functions

    keys = []
    if told["is_windowed"]:
        keys = [functions.window("t", LENGTH, SLIDE)]
    elif told["keys"]:
        keys = [(functions.col("v") % told["keys"]).alias("k")]
    counts = [functions.count("*").alias("n")]
    if told["code"] == "new":
        counts.append(functions.sum("v").alias("total"))
    grouped = frame.groupBy(*keys).agg(*counts)
    if told["is_windowed"]:
        return grouped.selectExpr("cast(window.start as string) as k", "*").drop("window")
    return grouped if keys else grouped.selectExpr("0 as k", "*")


def application(spark, told):
    frame = events(spark, told).where(told.get("where", "true"))
    if told["delay"]:
        frame = frame.withWatermark("t", told["delay"])
    writer = totals(frame, told).writeStream.option("checkpointLocation", told["checkpoint"])
    writer = writer.outputMode(told["mode"]).trigger(availableNow=True)
    if told["sink"] == "delta":
        return (
            writer.format("delta").option("overwriteSchema", "true").option("mergeSchema", "true").start(told["table"])
        )
    return writer.foreachBatch(lambda batch, batch_id: keep(batch, batch_id, told)).start()


def keep(frame, batch_id, told):
    """A function that writes each batch once, by a name that never changes; of a key the newest row counts."""
    writer = frame.selectExpr("*", f"{batch_id} as batch").write.format("delta").mode("append")
    writer.option("mergeSchema", "true").option("txnAppId", "totals").option("txnVersion", batch_id).save(told["table"])


def start(spark, told):
    """One start of the application, to its end: all that there is to be read."""
    return run(spark, told, application)


def rows(spark, told):
    """Of every key its newest count, and its sum where the new code wrote it."""
    frame = spark.read.format("delta").load(told["table"])
    if "batch" in frame.columns:
        newest = frame.selectExpr("*", "max(batch) over (partition by k) as newest")
        frame = newest.where("batch = newest")
    total = "total" if "total" in frame.columns else "null"
    return {"rows": [list(row) for row in frame.selectExpr("cast(k as string)", "n", total).collect()]}
