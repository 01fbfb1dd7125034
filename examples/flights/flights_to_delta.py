"""Append the flights of a Kafka topic to a Delta table: an ordinary stateless application."""

from __future__ import annotations

import argparse
import signal
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

FLIGHT = """
    id STRING, event_time TIMESTAMP, year INT, month INT, day INT, dep_time INT, sched_dep_time INT,
    dep_delay INT, arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT,
    tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, hour INT, minute INT,
    time_hour TIMESTAMP
"""


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="location of the Delta table")
    parser.add_argument("--checkpoint", required=True, help="checkpoint location")
    parser.add_argument("--max-offsets-per-trigger", type=int)
    parser.add_argument("--trigger", default="1 second", help="processing time, such as '10 seconds'")
    parser.add_argument("--available-now", action="store_true", help="read what is there, then end")
    return parser.parse_args()


def session() -> SparkSession:
    """A Spark session that can write Delta tables."""
    return (
        SparkSession.builder.appName("flights_to_delta")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )


def read_flights(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The flights of the topic, each with topic, partition and offset of its record."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
    )
    if options.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    flight = sf.from_json(sf.col("value").cast("string"), FLIGHT).alias("flight")
    return (
        reader.load().select(flight, "topic", "partition", "offset").select("flight.*", "topic", "partition", "offset")
    )


def start(flights: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Append `flights` to the table, under the checkpoint."""
    trigger = {"availableNow": True} if options.available_now else {"processingTime": options.trigger}
    return (
        flights.writeStream.format("delta")
        .option("checkpointLocation", options.checkpoint)
        .trigger(**trigger)
        .start(options.table)
    )


def await_end(query: StreamingQuery) -> None:
    """Wait until the query has ended, or end it when this process is asked to (SIGTERM)."""
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        while not query.awaitTermination(0.5):
            if asked.is_set():
                query.stop()
    except Exception:
        if not asked.is_set():  # else the JVM, which got the same signal, was faster than we were
            raise


def main() -> None:
    """Run the application."""
    options = arguments()
    spark = session()
    await_end(start(read_flights(spark, options), options))


if __name__ == "__main__":
    main()
