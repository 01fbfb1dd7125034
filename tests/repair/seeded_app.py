"""Runs inside Spark: starts one application, as it is told, on whatever checkpoint it finds, and says how it ended.

The application knows nothing of lastgood: it reads a topic and writes every record into a table. Its functions are
called by `RunningSpark.call`.
"""

from __future__ import annotations

from pathlib import Path

COMPACT_INTERVAL = "spark.sql.streaming.fileSink.log.compactInterval"
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def application(spark, told):
    """Every record of a topic, or of a folder, into a table, with where it came from."""
    rows = folder(spark, told["input"]) if "input" in told else topic(spark, told)
    writer = rows.where(told["where"]).writeStream.option("checkpointLocation", told["checkpoint"])
    writer = writer.trigger(availableNow=True)
    if told["sink"] == "foreachBatch":
        return writer.foreachBatch(lambda frame, _: write_or_die(told, lambda: append(frame, told["table"]))).start()
    if told["sink"] == "txn":
        return writer.foreachBatch(lambda *batch: write_or_die(told, lambda: append_once(*batch, told))).start()
    return writer.format(told["sink"]).start(told["table"])


def write_or_die(told, write):
    """What a function does that dies before or after it has written, if it is told to."""
    die_if_told(told, "before")
    write()
    die_if_told(told, "after")


def die_if_told(told, moment):
    """Die at this moment, if that is the one."""
    if told.get("dies") == moment:
        raise RuntimeError(f"died {moment} it wrote")


def topic(spark, told):
    """Every record of a topic."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", told["bootstrap"])
    reader = reader.option("subscribe", told["topic"]).option("maxOffsetsPerTrigger", told["limit"])
    reader = reader.option("startingOffsets", starting_offsets(told))
    return reader.load().selectExpr("topic", "partition", "offset", "cast(value as string) as value")


def folder(spark, path):
    """Every record of a folder of files, each file a batch."""
    return spark.readStream.schema("partition int, offset int").option("maxFilesPerTrigger", 1).json(path)


def append(frame, table):
    """A function that leaves no mark: who calls it twice gets the rows twice."""
    frame.write.format("delta").mode("append").save(table)


def append_once(frame, batch_id, told):
    """A function whose writes Delta tells apart by a name: it drops numbers that are not new under that."""
    writer = frame.write.format("delta").mode("append")
    writer.option("txnAppId", told["txn_app_id"]).option("txnVersion", batch_id).save(told["table"])


def starting_offsets(told):
    """As the configuration of the application says, if it has one; else what its author wrote."""
    config = told.get("config")
    return Path(config).read_text() if config else told["starting_offsets"]


def start(spark, told):
    """One start of the application, to its end."""
    spark.conf.set(COMPACT_INTERVAL, "3")
    spark.conf.set(RETAINED, str(told.get("retained") or 100))
    try:
        application(spark, told).awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": str(error)[:2000]}
    return {"error": None}


def rows(spark, told):
    """Partition and offset of every row, as Spark reads the folder."""
    return {"rows": [list(row) for row in spark.read.parquet(told["table"]).select("partition", "offset").collect()]}


def files(spark, told):
    """Partition and offset of every record of some files of JSON, each named as Spark's readers take it."""
    read = spark.read.schema("partition long, offset long").json(told["paths"])
    return {"rows": [list(row) for row in read.collect()]}


def sql(spark, told):
    """Any statement."""
    spark.sql(told["text"])
    return {}
