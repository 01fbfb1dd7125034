"""Append departure delays per airport and window to a Delta table: an ordinary stateful application."""

from __future__ import annotations

import argparse
import signal
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

FLIGHT = "origin STRING, event_time TIMESTAMP, dep_delay INT"


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="location of the Delta table")
    parser.add_argument("--checkpoint", required=True, help="checkpoint location")
    parser.add_argument("--window", default="1 day", help="length of a window in event time")
    # With --max-offsets-per-trigger, a partition with busy carriers can be read a week behind another.
    parser.add_argument("--watermark", default="14 days", help="how late a flight may arrive")
    parser.add_argument("--max-offsets-per-trigger", type=int)
    parser.add_argument("--trigger", default="1 second", help="processing time, such as '10 seconds'")
    parser.add_argument("--available-now", action="store_true", help="read what is there, then end")
    return parser.parse_args()


def session() -> SparkSession:
    """A Spark session that can write Delta tables."""
    return (
        SparkSession.builder.appName("delays_by_airport")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", "3")  # three airports: more partitions would stay empty
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def read_flights(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The flights of the topic, with what a delay needs."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
    )
    if options.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    flight = sf.from_json(sf.col("value").cast("string"), FLIGHT).alias("flight")
    return reader.load().select(flight).select("flight.*")


def delays(flights: DataFrame, window: str) -> DataFrame:
    """Delays per airport and window of scheduled departure; a flight without dep_delay was cancelled."""
    return (
        flights.groupBy("origin", sf.window("event_time", window).alias("window"))
        .agg(
            sf.count("*").alias("flights"),
            sf.count_if(sf.col("dep_delay").isNull()).alias("cancelled"),
            sf.avg("dep_delay").alias("dep_delay_mean"),
            sf.max("dep_delay").alias("dep_delay_max"),
        )
        .select(
            "origin",
            sf.col("window.start").alias("window_start"),
            sf.col("window.end").alias("window_end"),
            "flights",
            "cancelled",
            "dep_delay_mean",
            "dep_delay_max",
        )
    )


def start(rows: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Append each window to the table once the watermark has passed its end."""
    trigger = {"availableNow": True} if options.available_now else {"processingTime": options.trigger}
    return (
        rows.writeStream.format("delta")
        .outputMode("append")
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
    flights = read_flights(spark, options).withWatermark("event_time", options.watermark)
    await_end(start(delays(flights, options.window), options))


if __name__ == "__main__":
    main()
