"""A query that reads a Delta table and dies in its first batch, and its next start; called by `RunningSpark.call`."""

import time

from pyspark.errors import StreamingQueryException


def append(spark, path, first):
    spark.range(first, first + 3, 1, 1).write.format("delta").mode("append").save(path)


def begin(spark, command, where):
    reader = spark.readStream.format("delta").options(**command["options"])
    rows = reader.load(command["source"]).where(where)
    writer = rows.writeStream.format("delta").option("checkpointLocation", command["checkpoint"])
    return writer.trigger(processingTime="100 milliseconds").start(command["table"])


def die(spark, command):
    """Die in batch 0, which reads what comes when the query has begun to wait."""
    append(spark, command["source"], 0)
    spark.range(0).write.format("delta").save(command["table"])
    query = begin(spark, command, "assert_true(id < 0) IS NULL")
    deadline = time.monotonic() + 60
    if command["options"]:
        while query.status["message"] != "Waiting for data to arrive":
            assert time.monotonic() < deadline, query.status
            time.sleep(0.05)
        append(spark, command["source"], 3)
    try:
        query.awaitTermination(60)
    except StreamingQueryException as error:
        return {"error": str(error)}
    query.stop()
    return {"error": None}


def start(spark, command):
    """Start again, as the application does, and show the rows of the table when all is read."""
    query = begin(spark, command, "id IS NOT NULL")
    query.processAllAvailable()
    query.stop()
    rows = spark.read.format("delta").load(command["table"]).orderBy("id").collect()
    return {"ids": [row.id for row in rows]}
