"""Reads files into a Delta table, one a batch; a batch waits, while it is being written, as long as there is `hold`.

held_app.py FOLDER CHECKPOINT RESULT runs until something stops it; `run` is called by `RunningSpark.call`.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, functions

CAUSES_MAX = 20


def run(spark, told):
    """Run to the end of the input, or until something stops it; how it ended."""
    folder = told["folder"]
    hold, held = f"{folder}/hold", f"{folder}/held"

    def wait(number):
        while Path(hold).exists():
            Path(held).touch()
            time.sleep(0.05)
        return number

    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"{folder}/input")
    rows = rows.select(functions.udf(wait, "long")("id").alias("id"))
    trigger = {"availableNow": True} if told["how"] == "once" else {"processingTime": "0 seconds"}
    writer = rows.writeStream.format("delta").option("checkpointLocation", told["checkpoint"]).trigger(**trigger)
    query = writer.start(f"{folder}/table")
    ending = {"ended": "finished", "chain": []}
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        ending = {"ended": "failed", "chain": [str(error)]}
        cause = query._jsq.exception().get()
        while cause is not None and len(ending["chain"]) < CAUSES_MAX:
            ending["chain"].append(cause.toString())
            cause = cause.getCause()
    return {**ending, "batches": [each["batchId"] for each in query.recentProgress]}


def main(folder, checkpoint, result):
    """Run until something stops it, and write down how it ended."""
    told = {"folder": folder, "checkpoint": checkpoint, "how": "on"}
    Path(result).write_text(json.dumps(run(SparkSession.builder.getOrCreate(), told)))


if __name__ == "__main__":
    main(*sys.argv[1:])
