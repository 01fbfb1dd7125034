"""The mirror of a running query: it sees every batch, and from it alone a lost checkpoint goes on exactly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.lab.spark import find_default_spark, submit
from lastgood.mirror.mirror import MirrorWriter, locate_mirror, read_mirror
from lastgood.observe.open_query import read_clock_ms
from lastgood.process.java import Java
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter

pytestmark = pytest.mark.spark

LASTGOOD = Path(sys.executable).parent / "lastgood"
DEADLINE_SECONDS = 240
LOOK_SECONDS = 0.25
ROWS = 10

# Batch `held` never ends: the driver is killed in it, with a plan and without a commit.
QUERY = f"""
import json, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession

checkpoint, seen, held = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
spark = SparkSession.builder.getOrCreate()

def write(rows, batch_id):
    if batch_id == held:
        seen.with_suffix(f".{{held}}").touch()
        threading.Event().wait()
    values = sorted(row.value for row in rows.collect())
    with seen.open("a") as file:
        file.write(json.dumps([batch_id, values]) + "\\n")

rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {ROWS}).option("numPartitions", 1).load()
query = rows.writeStream.foreachBatch(write).trigger(processingTime="600 milliseconds")
query.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


class Job:
    """The query, its mirror, and what its sink has seen."""

    def __init__(self, folder: Path, java: Java) -> None:
        self.folder = folder
        self.java = java
        self.checkpoint = folder / "checkpoint"
        self.sink = folder / "seen"
        self.script = folder / "query.py"
        self.script.write_text(QUERY)
        self.runs = count()

    def run_until_killed_in(self, held: int) -> None:
        """Run the query under a mirror, and kill its driver in this batch."""
        location = parse_location(str(self.checkpoint))
        mirror = MirrorWriter(
            location,
            storage=LocalStorage(),
            folder=locate_mirror(location),
            target=LocalWriter(),
            writer=f"run-{next(self.runs)}",
            now_ms=read_clock_ms,
        )
        deadline = time.monotonic() + DEADLINE_SECONDS
        log = self.folder / "spark.log"
        with (
            log.open("ab") as output,
            submit(
                self.script,
                [str(self.checkpoint), str(self.sink), str(held)],
                environment=find_default_spark(),
                java=self.java,
                conf={"spark.driver.memory": "600m", "spark.sql.streaming.minBatchesToRetain": "6"},
                output=output,
            ) as child,
        ):
            while not self.sink.with_suffix(f".{held}").exists():
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                assert child.wait(LOOK_SECONDS) is None, log.read_text()[-3000:]
                mirror.look()
            mirror.look()
            child.kill()
        mirror.settle()

    def mirrored(self) -> dict[str, bytes]:
        """The newest version of each file in the mirror."""
        found = read_mirror(LocalStorage(), locate_mirror(parse_location(str(self.checkpoint))))
        return {copy.path: copy.content for copy in sorted(found, key=lambda copy: copy.seen_ms)}

    def logs(self) -> dict[str, bytes]:
        """Every log file of the checkpoint."""
        files = (path for path in self.checkpoint.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {path.relative_to(self.checkpoint).as_posix(): path.read_bytes() for path in files}

    def seen(self) -> list[tuple[int, list[int]]]:
        """Batches and their rows in the order in which they reached the sink."""
        return [tuple(json.loads(line)) for line in self.sink.read_text().splitlines()]


def batches(first: int, end: int) -> list[tuple[int, list[int]]]:
    """What the sink has to see of these batches."""
    return [(n, list(range(n * ROWS, (n + 1) * ROWS))) for n in range(first, end)]


def test_a_lost_checkpoint_comes_back_from_the_mirror_and_the_query_goes_on_exactly(java: Java, tmp_path: Path) -> None:
    job = Job(tmp_path, java)
    job.run_until_killed_in(12)
    assert job.seen() == batches(0, 12)
    left, mirrored = job.logs(), job.mirrored()
    assert "offsets/0" not in left
    assert {f"offsets/{n}" for n in range(13)} | {f"commits/{n}" for n in range(12)} <= mirrored.keys()
    assert {path: mirrored[path] for path in left} == left

    shutil.rmtree(job.checkpoint)
    command = [LASTGOOD, "backup", "restore", str(job.checkpoint), "--format=json"]
    restored = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (restored.returncode, restored.stderr) == (0, "")
    told = json.loads(restored.stdout)
    assert (told["last_planned"], told["last_committed"], told["absent"]) == (12, 11, [])
    assert {path: job.logs()[path] for path in left} == left
    found = read_checkpoint(LocalStorage(), parse_location(str(job.checkpoint)))
    assert (found.damage, found.absent, found.orphan) == ({}, (), 12)

    job.run_until_killed_in(17)
    assert job.seen() == batches(0, 17)
    assert {f"offsets/{n}" for n in range(18)} <= job.mirrored().keys()
