"""What new code costs where its state is made anew, and where all is read again: `python benchmarks/recomputing.py`

Prints one JSON object; exit code 1 if over budget. A real broker holds five million events, of which the windows that
are still open hold two in a hundred. A windowed count has read them all; its code changes, and Spark refuses its state.
Once `lastgood` makes the state anew in place, once the checkpoint is deleted and everything is read again: each until
the first window is written that the new code has closed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Producer
from figures import Figure, print_figures

import lastgood
from lastgood.lab.jars import fetch_jars
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, submit
from lastgood.planning.plan import Plan
from lastgood.process.java import Java, find_java
from lastgood.sources.kafka.ranges import count_offsets

EVENTS, WINDOWS, PARTITIONS = 5_000_000, 50, 2
"""The last window stays open, and has two in a hundred."""
WINDOW_SECONDS, DELAY_SECONDS, BEGIN = 600, 30, 1_780_000_200
PER_BATCH = 250_000
BUDGET_RATIO = 0.5
APP = f"""
import sys
from pyspark.sql import SparkSession, functions
bootstrap, checkpoint, table, code = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "events")
reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", {PER_BATCH})
event = reader.load().selectExpr("from_json(cast(value as string), 't timestamp, v long') as event").select("event.*")
counts = [functions.count("*").alias("n"), functions.sum("v").alias("total")]
windows = event.withWatermark("t", "{DELAY_SECONDS} seconds").groupBy(functions.window("t", "{WINDOW_SECONDS} seconds"))
result = windows.agg(*counts[: 1 + (code == "new")]).withColumn("start", functions.col("window.start")).drop("window")
writer = result.writeStream.format("parquet").option("checkpointLocation", checkpoint).outputMode("append")
writer.trigger(availableNow=True).start(table).awaitTermination()
"""


def make_events(numbers: range) -> Iterator[tuple[int, int, str]]:
    """Partition, time in ms, and value of each: a few seconds out of order."""
    per_second = EVENTS / (WINDOWS * WINDOW_SECONDS)
    for number in numbers:
        seconds = BEGIN + number / per_second - number * 7919 % 20
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
        yield number % PARTITIONS, int(seconds * 1000), f'{{"t":"{at}","v":{number % 100}}}'


def produce(broker: KafkaBroker, numbers: range) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 1_000_000, "linger.ms": 50}
    )
    for partition, at_ms, value in make_events(numbers):
        while True:
            try:
                producer.produce("events", value, partition=partition, timestamp=at_ms)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


class Query:
    """The application, its checkpoint and its table."""

    def __init__(self, folder: Path, broker: KafkaBroker, java: Java, jars: list[Path]) -> None:
        self.folder, self._broker, self._java, self._jars = folder, broker, java, jars
        (folder / "app.py").write_text(APP)

    def run(self, code: str, name: str = "") -> int:
        """Run it until it has read all; the exit code of the driver."""
        args = [self._broker.bootstrap, str(self.folder / f"chk{name}"), str(self.folder / f"table{name}"), code]
        log = self.folder / f"app{name}.log"
        with (
            log.open("ab") as output,
            submit(
                self.folder / "app.py",
                args,
                environment=find_default_spark(),
                java=self._java,
                jars=self._jars,
                output=output,
            ) as child,
        ):
            ending = child.wait()
        return -1 if ending is None or ending.exit_code is None else ending.exit_code

    def require_done(self, code: str, name: str = "") -> None:
        if self.run(code, name):
            sys.exit(f"the application failed:\n{(self.folder / f'app{name}.log').read_text()[-4000:]}")

    def count_rows(self, name: str = "") -> int:
        files = (self.folder / f"table{name}").glob("*.parquet")
        return sum(pq.read_metadata(each).num_rows for each in files)

    def recompute(self) -> Plan:
        goal = lastgood.Recompute(window_ms=WINDOW_SECONDS * 1000, max_clock_skew_ms=1000)
        sink = f"file:{self.folder / 'table'}"
        plan = lastgood.plan(str(self.folder / "chk"), goal=goal, sink=sink, kafka=self._broker.bootstrap)
        lastgood.apply(plan, driver_is_dead=True)
        return plan


def compare(folder: Path, broker: KafkaBroker, java: Java, jars: list[Path]) -> list[Figure]:
    query = Query(folder, broker, java, jars)
    produce(broker, range(EVENTS))
    query.require_done("old")
    produce(broker, range(EVENTS, EVENTS + EVENTS // WINDOWS))  # closes the window that was open
    if not query.run("new"):
        sys.exit("the new code goes on with the state of the old one: there is nothing to compare")
    written = query.count_rows()

    began = time.perf_counter()
    plan = query.recompute()
    query.require_done("new")
    recomputed = time.perf_counter() - began

    began = time.perf_counter()
    query.require_done("new", "-anew")
    replayed = time.perf_counter() - began
    if (query.count_rows(), query.count_rows("-anew")) != (written + 1, written + 1):
        sys.exit(f"windows: {written} before, {query.count_rows()} then, {query.count_rows('-anew')} of a replay")
    read = sum(count_offsets(each.reread) for each in plan.sources)
    new = EVENTS // WINDOWS
    return [
        Figure("events read again, state made anew", read, "events"),
        Figure("events read again, everything replayed", EVENTS, "events"),
        Figure("events read again, anew / replayed", read / EVENTS, "ratio", BUDGET_RATIO),
        Figure("events that are new to both", new, "events"),
        Figure("to the first new window, state made anew", recomputed, "s"),
        Figure("to the first new window, everything replayed", replayed, "s"),
        Figure("to the first new window, anew / replayed", recomputed / replayed, "ratio", BUDGET_RATIO),
    ]


def main() -> int:
    java = find_java(os.environ)
    jars = fetch_jars(["spark", "broker"], java=java, progress=lambda _: None)
    with tempfile.TemporaryDirectory(prefix="lastgood-benchmark-") as name:
        folder = Path(name)
        with KafkaBroker(folder / "kafka", java=java, jars=jars["broker"]) as broker:
            broker.create_topic("events", partitions=PARTITIONS, config={"retention.ms": "-1"})  # they are months old
            figures = compare(folder, broker, java, list(jars["spark"]))
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main())
