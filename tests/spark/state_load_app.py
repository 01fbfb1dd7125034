"""After which batches a real Spark can load the state of a query; state_load_app.py RESULT CHECKPOINT BATCHES."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def can_load(spark, checkpoint, batch):
    try:
        spark.read.format("statestore").option("batchId", batch).load(checkpoint).count()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        print(batch, error, file=sys.stderr)
        return False
    return True


def main(result, checkpoint, batches):
    spark = SparkSession.builder.getOrCreate()
    assert not spark.streams.active  # whoever asks for streams makes the coordinator that a RocksDB store reports to
    loaded = [batch for batch in range(int(batches)) if can_load(spark, checkpoint, batch)]
    Path(result).write_text(json.dumps(loaded))


if __name__ == "__main__":
    main(*sys.argv[1:])
