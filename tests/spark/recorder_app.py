"""An application that records by itself, with sinks that misbehave: recorder_app.py FOLDER RESULT"""

import json
import sqlite3
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from lastgood.spark import Recorder

FREED_AT = 5
"""The batch at which the ledgers that are to have everything can be had."""
LAST = 10


class Stuck:
    """Never comes back from a write."""

    pause_seconds = 0.0

    def write(self, records):
        threading.Event().wait()

    def close(self):
        pass


def locked(file):
    """A connection that writes to the ledger and does not come to an end."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def await_batch(query, batch_id):
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < batch_id):
        time.sleep(0.05)


def main(folder, result):
    spark = SparkSession.builder.getOrCreate()
    listeners = spark._jsparkSession.streams().listListeners
    before = len(listeners())
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", folder + "/checkpoint")
    query = writer.queryName("rows").trigger(processingTime="200 milliseconds").start()
    always, freed = locked(f"{folder}/locked.db"), locked(f"{folder}/freed.db")
    in_the_way = Path(folder, "later")
    in_the_way.touch()
    recorders = {
        "beside": Recorder(spark),
        "stuck": Recorder(spark, to=Stuck()),
        "locked": Recorder(spark, to=f"sqlite:///{folder}/locked.db"),
        "freed": Recorder(spark, to=f"sqlite:///{folder}/freed.db"),
        "later": Recorder(spark, to=f"sqlite:///{folder}/later/ledger.db"),
    }
    await_batch(query, FREED_AT)
    freed.close()
    in_the_way.unlink()
    await_batch(query, LAST)
    failed = query.exception()
    query.stop()
    begun = time.monotonic()
    recorders["stuck"].close(0.2)
    recorders["locked"].close(30.0)
    for name in ("beside", "freed", "later"):
        recorders[name].flush(60.0)
        recorders[name].close(30.0)
    always.close()
    while len(listeners()) > before and time.monotonic() < begun + 30:
        time.sleep(0.05)
    told = {
        "exception": failed and str(failed),
        "listeners_left": len(listeners()) - before,
        "recorded": {name: recorder.recorded for name, recorder in recorders.items()},
        "dropped": {name: recorder.dropped for name, recorder in recorders.items()},
        "trouble": {name: recorder.trouble for name, recorder in recorders.items()},
    }
    Path(result).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
