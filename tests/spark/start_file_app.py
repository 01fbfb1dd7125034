"""Reads a topic to its end, and dies at a batch until its configuration says where it begins.

start_file_app.py BOOTSTRAP TOPIC CHECKPOINT OUTPUT SINK CONFIG [OPTION=VALUE]...
"""

import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from lastgood.spark import read_kafka

DIES_AT = 4


def is_told(config):
    return Path(config).exists() and '{"' in Path(config).read_text()


def die(checkpoint):
    """Ends the driver as soon as the batch is planned, wherever it is by then."""
    while not (Path(checkpoint) / f"offsets/{DIES_AT}").exists():
        time.sleep(0.01)
    os._exit(1)


def append(output):
    return lambda frame, _: frame.write.mode("append").json(output)


def main(bootstrap, topic, checkpoint, output, sink, config, *told):
    spark = SparkSession.builder.getOrCreate()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    start = dict(each.split("=") for each in told)
    rows = read_kafka(spark, "orders", topic=topic, kafka=bootstrap, options=options, **start)
    writer = rows.select("partition", "offset").writeStream.option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True)
    if not is_told(config):
        threading.Thread(target=die, args=[checkpoint], daemon=True).start()
    query = writer.foreachBatch(append(output)).start() if sink == "json" else writer.format(sink).start(output)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
