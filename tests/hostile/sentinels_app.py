"""An application that says too much: sentinels_app.py FOLDER LEDGER

It records itself twice, beside its checkpoint and in a ledger. In the batch whose line is no number it fails, with that
line and the password of a database in its error.
"""

import os
import sys

from pyspark.sql import SparkSession

from lastgood.spark import Recorder


def write(rows, batch_id):
    for value in [each.value for each in rows.collect()]:
        if not value.isdecimal():
            url = f"jdbc:postgresql://127.0.0.1:1/orders?user=etl&password={os.environ['DB_PASSWORD']}"
            raise ValueError(f"Key (mail)=({value}) already exists in {url}; Row(name='{value}')")


def main(folder, ledger):
    spark = SparkSession.builder.getOrCreate()
    recorders = [Recorder(spark), Recorder(spark, to=ledger)]
    rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{folder}/source")
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/chk")
    query = writer.queryName("orders").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        for each in recorders:
            each.flush(60.0)
            each.close(30.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
