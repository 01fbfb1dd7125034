"""Reads files into a Delta table, one a batch; a batch waits, while it is being written, as long as there is `hold`.

held_app.py FOLDER CHECKPOINT RESULT once|on
"""

import json
import sys
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, functions

CAUSES_MAX = 20


def main(folder, checkpoint, result, how):
    """Run to the end of the input, or until something stops it; say how it ended."""
    hold, held = f"{folder}/hold", f"{folder}/held"

    def wait(number):
        while Path(hold).exists():
            Path(held).touch()
            time.sleep(0.05)
        return number

    spark = SparkSession.builder.getOrCreate()
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"{folder}/input")
    rows = rows.select(functions.udf(wait, "long")("id").alias("id"))
    trigger = {"availableNow": True} if how == "once" else {"processingTime": "0 seconds"}
    writer = rows.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(**trigger)
    query = writer.start(f"{folder}/table")
    told = {"ended": "finished", "chain": []}
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        told = {"ended": "failed", "chain": [str(error)]}
        cause = query._jsq.exception().get()
        while cause is not None and len(told["chain"]) < CAUSES_MAX:
            told["chain"].append(cause.toString())
            cause = cause.getCause()
    told["batches"] = [each["batchId"] for each in query.recentProgress]
    Path(result).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
