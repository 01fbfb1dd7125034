"""What a supervisor costs while nothing happens to its queries: `python benchmarks/supervising.py`

Prints one JSON object; exit code 1 if over budget. One `lastgood run` of a driver with ten queries, each of which
commits a batch every ten seconds, and one whose queries commit a batch a second: most of what that costs is the mirror,
which keeps every plan. The memory and the processor time are those of the supervisor alone, of a minute in which all
queries run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from figures import Figure, print_figures

from lastgood.lab.spark import find_default_spark, make_small_conf, submit_command
from lastgood.observe.progress import LogWatch
from lastgood.process.java import find_java
from lastgood.storage.reading import parse_location

QUERIES = 10
SECONDS = 60
FIRST_BATCHES = {10: 3, 1: 20}
"""Seconds between two batches, and so many of them before the measurement: while one starts, all is looked at often."""
BUDGET_MB = 60
BUDGET_CORE = 0.01
APP = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
seconds, *checkpoints = sys.argv[1:]
for checkpoint in checkpoints:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(processingTime=seconds + " seconds").start()
spark.streams.awaitAnyTermination()
"""


def await_batches(checkpoints: list[Path], batch: int, run: subprocess.Popen[bytes]) -> None:
    """Wait until every query has committed as many."""
    watches = [LogWatch(parse_location(str(each))) for each in checkpoints]
    while any((watch.look().committed or 0) < batch for watch in watches):
        assert run.poll() is None
        time.sleep(1)


def measure(folder: Path, every_seconds: int) -> tuple[float, float]:
    """Megabytes, and cores."""
    spark, java = find_default_spark(), find_java(os.environ)
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    checkpoints = [folder / f"chk{number}" for number in range(QUERIES)]
    arguments = [str(every_seconds), *map(str, checkpoints)]
    command = submit_command(folder / "app.py", arguments, environment=spark, conf=make_small_conf([]))
    env = {
        **os.environ,
        "PYSPARK_PYTHON": str(spark.python),
        "SPARK_HOME": str(spark.home),
        "JAVA_HOME": str(java.home),
    }
    lastgood = [str(Path(sys.executable).with_name("lastgood")), "run"]
    named = [word for each in checkpoints for word in ("--checkpoint", str(each))]
    run = subprocess.Popen([*lastgood, *named, "--", *command], env=env, stdout=subprocess.DEVNULL)
    try:
        await_batches(checkpoints, FIRST_BATCHES[every_seconds], run)
        supervisor = psutil.Process(run.pid)
        before = supervisor.cpu_times()
        time.sleep(SECONDS)
        after = supervisor.cpu_times()
        memory = supervisor.memory_info().rss
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait()
    took = after.user + after.system - before.user - before.system
    return memory / 10**6, took / SECONDS


def main() -> int:
    """Run both measurements."""
    with tempfile.TemporaryDirectory(prefix="lastgood-benchmark-") as name:
        found = {every: measure(Path(name) / str(every), every) for every in FIRST_BATCHES}
    of = f"of a supervisor of {QUERIES} queries"
    return print_figures(
        [
            Figure(f"memory {of}", max(memory for memory, _ in found.values()), "MB", BUDGET_MB),
            Figure(f"processor time {of}, a batch every 10 s", found[10][1], "cores", BUDGET_CORE),
            Figure(f"processor time {of}, a batch every second", found[1][1], "cores"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
