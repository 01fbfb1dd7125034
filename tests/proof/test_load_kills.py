"""A large load that is killed at random instants: each record is there once, and little is done twice.

`LASTGOOD_KILLS=50 LASTGOOD_LOAD_BYTES=2e9` is the long one; `LASTGOOD_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from spark.test_load import LASTGOOD, SEED, is_named, kill, list_commits, list_words, run_load
from standalone import Cluster

from lastgood.lab.jars import fetch_jars
from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.child import Child
from lastgood.process.java import Java

pytestmark = [pytest.mark.spark, pytest.mark.proof, pytest.mark.timeout(7200)]

APP = Path(__file__).parents[1] / "spark/load_cluster_app.py"
KILLS = int(os.environ.get("LASTGOOD_KILLS", "6"))
SIZE = int(float(os.environ.get("LASTGOOD_LOAD_BYTES", "100e6")))
CHUNKS = 60
WHOM = ("lastgood", "driver", "both", "worker")
SECONDS = (5, 45)
"""After which a load on a cluster is killed: while Spark starts, or while some chunk is loaded."""
_START_SECONDS = 8.0
_CHUNKS_SECONDS = 4.0
"""How long a load is let go on behind its first new chunk."""
_ROWS_AT_ONCE = 50_000


def write_file(file: Path, size: int) -> int:
    """Records of about so many bytes; how many they are."""
    row = 0
    with file.open("w") as stream:
        stream.write("id,name,amount\n")
        while stream.tell() < size:
            some = range(row, row + _ROWS_AT_ONCE)
            stream.write("".join(f"{each},name {each % 97},{each / 4}\n" for each in some))
            row = some.stop
    return row


def list_plans(folder: Path) -> list[Path]:
    return [each for each in folder.glob("table.lastgood/loads/*/offsets/*") if each.name.isdecimal()]


def write_and_name(folder: Path) -> tuple[Path, Path, int]:
    file = folder / "orders.csv"
    return file, folder / "table", write_file(file, SIZE)


def require_each_once(table: Path, rows: int) -> None:
    ids = DeltaTable(table).to_pyarrow_table(columns=["id"])["id"]
    assert (len(ids), pc.count_distinct(ids).as_py(), pc.sum(ids).as_py()) == (rows, rows, rows * (rows - 1) // 2)


def await_instant(process: subprocess.Popen[bytes], chance: random.Random, folder: Path) -> bool:
    """Wait for the instant of a kill, while Spark starts or some chunk is loaded; whether all is loaded by then."""
    there = len(list_plans(folder))
    if chance.random() < 0.2:
        seconds = chance.uniform(0, _START_SECONDS)
    else:
        while len(list_plans(folder)) == there and process.poll() is None:
            time.sleep(0.05)
        seconds = chance.uniform(0, _CHUNKS_SECONDS)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def count_begun(folder: Path) -> int:
    """Chunks that are begun and not committed."""
    begun = len(list_plans(folder)) - len(list_commits(folder))
    assert begun in (0, 1)
    return begun


def test_killed_again_and_again_each_record_is_there_once_and_little_is_done_twice(tmp_path: Path) -> None:
    """A load that has ended before it was killed so often is followed by another one."""
    chance = random.Random(f"kills {SEED}")
    file, _, rows = write_and_name(tmp_path)
    killed, again, loads = dict.fromkeys(WHOM, 0), 0, 0
    while sum(killed.values()) < KILLS:
        loads += 1
        folder = tmp_path / str(loads)
        folder.mkdir()
        again += load_and_kill(file, folder, rows, chance, killed)
    print(f"killed {killed} in {loads} loads of {SIZE:,} bytes, {again} chunks begun and not committed then")


def load_and_kill(file: Path, folder: Path, rows: int, chance: random.Random, killed: dict[str, int]) -> int:
    """One load; how many chunks were begun and not committed when it was killed."""
    again = 0
    table = folder / "table"
    words = list_words(file, f"delta:{table}", "--chunk-size", str(SIZE // CHUNKS))
    while sum(killed.values()) < KILLS:
        there = len(list_commits(folder))
        with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            if await_instant(process, chance, folder):
                break
            whom = chance.choice(WHOM)
            kill(process, whom, chance)
            killed[whom] += 1
        assert len(list_commits(folder)) >= there
        again += count_begun(folder)
    told = run_load(words)
    assert (told["rows"], told["corrupt"]) == (rows, 0)
    require_each_once(table, rows)
    return again


WHOM_ON_CLUSTER = ("driver", "executor", "python", "worker", "all")


def test_so_it_is_on_a_cluster_of_two_workers(tmp_path: Path, java: Java) -> None:
    chance = random.Random(f"cluster {SEED}")
    file, table, rows = write_and_name(tmp_path)
    spark = find_default_spark()
    jars = fetch_jars([spark.jar_set or ""], java=java, progress=lambda _: None)[spark.jar_set or ""]
    killed, again = dict.fromkeys(WHOM_ON_CLUSTER, 0), 0
    with Cluster(tmp_path / "cluster", spark, java, workers=2, cores=1, memory="1g") as cluster:
        conf = {
            "spark.master": cluster.master,
            "spark.executor.memory": "700m",
            "spark.executor.extraClassPath": os.pathsep.join(map(str, jars)),
        }

        def start(output: IO[bytes]) -> Child:
            words = [str(file), str(table), str(SIZE // CHUNKS)]
            return submit(APP, words, environment=spark, java=java, jars=jars, conf=conf, output=output)

        while sum(killed.values()) < KILLS:
            with (tmp_path / "driver.log").open("ab") as output, start(output) as driver:
                while driver.wait(chance.uniform(*SECONDS)) is None and sum(killed.values()) < KILLS:
                    whom = chance.choice(WHOM_ON_CLUSTER)
                    kill_on_cluster(cluster, driver, whom, chance)
                    killed[whom] += 1
            again += count_begun(tmp_path)
        with (tmp_path / "driver.log").open("ab") as output, start(output) as driver:
            ending = driver.wait(1800)
        assert ending is not None
        assert ending.is_success
    print(f"killed {killed}, {again} chunks begun and not committed then, {SIZE:,} bytes")
    require_each_once(table, rows)


def kill_on_cluster(cluster: Cluster, driver: Child, whom: str, chance: random.Random) -> None:
    """Kill a process; a worker comes again, as whoever supervises it would see to."""
    at = chance.randrange(len(cluster.workers))
    executors = [each for each in cluster.workers[at].processes() if is_executor(each)]
    pythons = [each for each in cluster.workers[at].processes() if is_named(each, "python")]
    if whom in ("driver", "all"):
        driver.kill()
    for each in {"executor": executors, "all": executors, "python": pythons[-1:]}.get(whom, []):
        with suppress(psutil.NoSuchProcess):
            each.kill()
    if whom == "worker":
        cluster.restart_worker(at)


def is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
