"""An application that records by itself, with sinks that misbehave: recorder_app.py FOLDER RESULT"""

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from lastgood.spark import Recorder


class Stuck:
    """Never comes back from a write."""

    pause_seconds = 0.0

    def write(self, records):
        threading.Event().wait()

    def close(self):
        pass


class Locked:
    """Refuses every write."""

    pause_seconds = 0.0

    def write(self, records):
        raise OSError("database is locked")

    def close(self):
        pass


def main(folder, result):
    spark = SparkSession.builder.getOrCreate()
    listeners = spark._jsparkSession.streams().listListeners
    before = len(listeners())
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", folder + "/checkpoint")
    query = writer.queryName("rows").trigger(processingTime="0 seconds").start()
    late = Recorder(spark)
    stuck, locked = Recorder(spark, to=Stuck()), Recorder(spark, to=Locked())
    while query.lastProgress is None or query.lastProgress["batchId"] < 5:
        time.sleep(0.05)
    failed = query.exception()
    query.stop()
    begun = time.monotonic()
    stuck.close(0.2)
    locked.close(0.2)
    late.close()
    while len(listeners()) > before and time.monotonic() < begun + 30:
        time.sleep(0.05)
    told = {
        "exception": failed and str(failed),
        "listeners_left": len(listeners()) - before,
        "recorded": [late.recorded, stuck.recorded, locked.recorded],
        "dropped": [late.dropped, stuck.dropped, locked.dropped],
        "trouble": [late.trouble, stuck.trouble, locked.trouble],
    }
    Path(result).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
