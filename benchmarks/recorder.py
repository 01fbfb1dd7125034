"""What a Recorder costs: benchmarks/recorder.py [ROUNDS] [BATCHES]

Rounds without and with a recorder take turns in one session, each a query of its own; printed as JSON. A last round
reads each event in pyspark's own way as well, to compare.
"""

# ruff: noqa: SLF001 - the callback is private

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent

from lastgood.lab.spark import make_small_conf
from lastgood.spark import Recorder
from lastgood.spark.agent import classic

WARM_UP_BATCHES = 5


def main(rounds: int = 6, batches: int = 40) -> None:
    builder = SparkSession.builder.appName("recorder")
    for key, value in {**make_small_conf(), "spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    clock = Clock()
    without, recorded = [], []
    with tempfile.TemporaryDirectory() as work:
        for number in range(rounds):
            without.append(run_query(spark, f"{work}/without-{number}", batches))
            begun = time.perf_counter()
            with Recorder(spark, to=f"{work}/records"):
                clock.attaching.append(1000 * (time.perf_counter() - begun))
                recorded.append(run_query(spark, f"{work}/with-{number}", batches))
        clock.is_comparing = True
        with Recorder(spark, to=f"{work}/records"):
            run_query(spark, f"{work}/compared", batches)
    spark.stop()
    print(json.dumps(summary(without, recorded, clock), indent=2))


def run_query(spark: SparkSession, checkpoint: str, batches: int) -> dict[str, float]:
    """Milliseconds a batch: by Spark's own account (median), and of this Python's processor time."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start()
    while query.lastProgress is None or query.lastProgress["batchId"] < WARM_UP_BATCHES:
        time.sleep(0.05)
    cpu, first = time.process_time(), query.lastProgress["batchId"]
    time.sleep(0.1 * batches)
    while query.lastProgress["batchId"] < first + batches:
        time.sleep(0.2)
    cpu, done = time.process_time() - cpu, query.lastProgress["batchId"] - first
    durations = [each["durationMs"]["triggerExecution"] for each in query.recentProgress[WARM_UP_BATCHES:]]
    query.stop()
    return {"batch_ms": statistics.median(durations), "python_cpu_ms": 1000 * cpu / done}


class Clock:
    """Times the callback of each batch and, when comparing, what pyspark takes to read the same event."""

    def __init__(self) -> None:
        self.attaching: list[float] = []
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self.is_comparing = False
        self._callback: Callable[[Any, Any], None] = classic._JavaEvents.onQueryProgress

        def timed(events: Any, event: Any) -> None:
            self._time(events, event)

        classic._JavaEvents.onQueryProgress = timed

    def _time(self, events: Any, event: Any) -> None:
        begun = time.perf_counter()
        self._callback(events, event)
        ended = time.perf_counter()
        if self.is_comparing:
            QueryProgressEvent.fromJObject(event)
            self.theirs.append(1000 * (time.perf_counter() - ended))
        else:
            self.ours.append(1000 * (ended - begun))


def summary(without: list[dict[str, float]], recorded: list[dict[str, float]], clock: Clock) -> dict[str, Any]:
    batch_ms = {
        name: statistics.median(each["batch_ms"] for each in rounds)
        for name, rounds in (("without", without), ("with", recorded))
    }
    cpu = [after["python_cpu_ms"] - before["python_cpu_ms"] for before, after in zip(without, recorded, strict=True)]
    return {
        "rounds": len(without),
        "batch_ms": batch_ms,
        "batch_ratio": round(batch_ms["with"] / batch_ms["without"], 3),
        "python_cpu_ms_a_batch": round(statistics.median(cpu), 2),
        "attach_ms": {"first": round(clock.attaching[0], 1), "median": round(statistics.median(clock.attaching), 1)},
        "callback_ms": {
            "median": round(statistics.median(clock.ours), 2),
            "p95": round(statistics.quantiles(clock.ours, n=20)[-1], 2),
        },
        "pyspark_callback_ms": {"median": round(statistics.median(clock.theirs), 2)},
    }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
