"""Lines of files to files, and a witness: two drivers that run at once are written down.

standby_app.py INPUT CHECKPOINT OUTPUT WITNESS
"""

import fcntl
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

HELD = []


def witness(folder):
    """A function for foreachBatch: this process is the only one that runs one, from its first batch to its death."""

    def see(rows, number):
        rows.count()
        if not HELD:
            HELD.append(Path(folder, "running").open("w"))  # noqa: SIM115 - until this process ends
            try:
                fcntl.flock(HELD[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with Path(folder, "two").open("a") as two:
                    two.write(f"process {os.getpid()} at batch {number}\n")

    return see


def main(source, checkpoint, output, folder):
    spark = SparkSession.builder.getOrCreate()
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(source)
    seen = lines.writeStream.foreachBatch(witness(folder)).option("checkpointLocation", f"{checkpoint}-witness")
    copied = lines.writeStream.format("text").option("checkpointLocation", checkpoint)
    started = [each.trigger(processingTime="100 milliseconds") for each in (seen, copied)]
    for query in [started[0].start(), started[1].start(output)]:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
