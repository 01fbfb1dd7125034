"""Does once, with a few rows, what Spark is started for here, so that the JVM meets the classes it will need."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamWriter

_ROWS = 100


def main(folder: Path) -> None:
    """Stream rows into a table and through a state, restart that, and compare the table with itself."""
    spark = SparkSession.builder.appName("classes_job").getOrCreate()
    knows_delta = "spark.sql.catalog.spark_catalog" in dict(spark.sparkContext.getConf().getAll())
    table, kind = folder / "table", "delta" if knows_delta else "parquet"
    value = sf.format_string('{"id": %d}', "value")
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
    rows = source.select(sf.from_json(value, "id LONG").alias("row"), "timestamp").select("row.*", "timestamp")
    for _start in range(2):
        await_end(rows.writeStream.format(kind).option("path", str(table)), folder / "checkpoint")
    await_end(rows.groupBy("id").count().writeStream.format("noop").outputMode("update"), folder / "counted")
    there = spark.read.format(kind).load(str(table))
    there.join(there.groupBy("id").count(), "id", "full").orderBy("id").limit(3).collect()
    spark.stop()


def await_end(writer: DataStreamWriter, checkpoint: Path) -> None:
    """Write what there is."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
