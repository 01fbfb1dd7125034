"""What `lastgood load` costs: `python benchmarks/loading.py [GIGABYTES] [ROUNDS]`

Prints one JSON object; exit code 1 if over budget. A CSV file of so many gigabytes (20 without) goes into Delta tables,
on the same cores, in turns, once or so many times: by `spark.read.csv` with the same schema, by a load, and by a load
that is killed at nine tenths (`kill -9` of all its processes) and typed again; and by both with an option with which
a load lets Spark parse every record (`nullValue`). All times are from the command to its
end, with the start of Spark, which a small file has as well as a large one: the budgets are those of a large one. The
most memory that all processes of a load held at a time is taken once a second, for a twentieth of the file and for all
of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from deltalake import DeltaTable
from figures import Figure, print_figures

from lastgood.lab.jars import fetch_jars
from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.java import find_java
from lastgood.supervise.held_load import CHUNK_LEAST, CHUNK_OF_A_CORE, CHUNKS_LEAST

LASTGOOD = Path(sys.executable).parent / "lastgood"
GIGABYTE = 10**9
SCHEMA = (
    "id BIGINT, at TIMESTAMP, name STRING, note STRING, amount DOUBLE, price DECIMAL(10,2), day DATE, is_new BOOLEAN"
)
BUDGET_RATIO = 1 / 1.3
BUDGET_PARSED = 1 / 0.9
BUDGET_RESUMED = 1.1
BUDGET_MEMORY = 1.15
KILLED_AT = 0.9
PARSED = ("nullValue", "none")
"""An option with which no record is plain, and which changes none of these."""
PLAIN_CONF = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
}
JAVA = "-XX:+UseParallelGC"
APP = f"""
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
reader = spark.read.schema({SCHEMA!r}).option("header", "true")
for name, value in zip(sys.argv[3::2], sys.argv[4::2]):
    reader = reader.option(name, value)
rows = reader.csv(sys.argv[1])
rows.write.format("delta").save(sys.argv[2])
"""


def write_file(file: Path, size: int) -> int:
    """A file of about this size; how many records it has."""
    row = 0
    with file.open("w") as stream:
        stream.write("id,at,name,note,amount,price,day,is_new\n")
        while stream.tell() < size:
            lines = []
            for _ in range(20_000):
                row += 1
                day = f"2026-{row % 12 + 1:02}-{row % 28 + 1:02}"
                clock = f"{row % 24:02}:{row % 60:02}:{row % 59:02}"
                note = '"said, twice"' if row % 50 == 0 else "said once"
                tail = f"{row % 1000}.{row % 100:02},{day},{'true' if row % 3 else 'false'}"
                lines.append(f"{row},{day}T{clock}Z,name {row % 9973},{note},{row / 8},{tail}\n")
            stream.write("".join(lines))
    return row


def load(
    file: Path,
    table: Path,
    *options: str,
    while_running: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
    is_killed: bool = False,
) -> float:
    """Seconds of a load, which has to end well if it is not killed."""
    words = [LASTGOOD, "load", file, "--to", f"delta:{table}", "--schema", SCHEMA, "--option", "header=true"]
    for name, value in zip(options[::2], options[1::2], strict=True):
        words += ["--option", f"{name}={value}"]
    began = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        while_running(process)
    if process.returncode and not is_killed:
        sys.exit(f"a load has failed: {process.returncode}")
    return time.monotonic() - began


def kill_late(process: subprocess.Popen[bytes], table: Path, size: int) -> None:
    """Kill all of it once nine tenths are committed."""
    while process.poll() is None and count_loaded(table) < KILLED_AT * size:
        time.sleep(0.05)
    if process.poll() is not None:
        sys.exit("a load has ended before it was killed")
    for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        each.kill()


def count_loaded(table: Path) -> int:
    """Bytes that are committed."""
    checkpoints = list(table.parent.glob(f"{table.name}.lastgood/loads/*/commits"))
    batches = [int(each.name) for folder in checkpoints for each in folder.iterdir() if each.name.isdecimal()]
    if not batches:
        return 0
    plan = checkpoints[0].parent / "offsets" / str(max(batches))
    return int(json.loads(plan.read_text().splitlines()[-1])["position"])


def load_watched(file: Path, table: Path) -> tuple[float, int]:
    """Seconds of a load, and the most bytes that all its processes hold; what several share is counted by shares."""
    most = 0

    def watch(process: subprocess.Popen[bytes]) -> None:
        nonlocal most
        while process.poll() is None:
            most = max(most, sum(map(count_memory, [psutil.Process(process.pid), *list_children(process.pid)])))
            time.sleep(1)

    seconds = load(file, table, while_running=watch)
    return seconds, most


def list_children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def count_memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def main() -> int:
    told = dict(enumerate(sys.argv))
    size, rounds = int(float(told.get(1, "20")) * GIGABYTE), int(told.get(2, "1"))
    environment, java = find_default_spark(), find_java(os.environ)
    assert environment.jar_set is not None
    jars = fetch_jars([environment.jar_set], java=java, progress=lambda _: None)[environment.jar_set]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script, file = folder / "app.py", folder / "records.csv"
        script.write_text(APP)
        rows = write_file(file, size)

        def read_plainly(table: Path, *options: str) -> float:
            began = time.monotonic()
            with (folder / "log").open("wb") as log:
                words = [str(file), str(table), *options]
                child = submit(
                    script,
                    words,
                    environment=environment,
                    java=java,
                    jars=jars,
                    conf=PLAIN_CONF,
                    java_options=JAVA,
                    output=log,
                )
                with child:
                    ending = child.wait()
            if ending is None or not ending.is_success:
                sys.exit((folder / "log").read_text())
            return time.monotonic() - began

        def resume(table: Path) -> float:
            size = file.stat().st_size
            first = load(file, table, while_running=lambda process: kill_late(process, table, size), is_killed=True)
            return first + load(file, table)

        memory: list[int] = []

        def load_all(table: Path) -> float:
            took, most = load_watched(file, table)
            memory.append(most)
            return took

        ways: dict[str, Callable[[Path], float]] = {
            "plain": read_plainly,
            "load": load_all,
            "resumed": resume,
            "plain, parsed": lambda table: read_plainly(table, *PARSED),
            "load, parsed": lambda table: load(file, table, *PARSED),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds):
            for way, run in ways.items():
                table = folder / f"{way}-{number}"
                seconds[way].append(run(table))
                found = DeltaTable(table).to_pyarrow_dataset().count_rows()
                assert found == rows, (way, found, rows)
                shutil.rmtree(table)
        best = {way: min(measured) for way, measured in seconds.items()}
        part = folder / "part.csv"
        write_file(part, size // 20)
        _, least = load_watched(part, folder / part.stem)
        parsed = best["load, parsed"] / best["plain, parsed"]
        one_chunk = max(CHUNK_LEAST, min(size // CHUNKS_LEAST, (os.cpu_count() or 1) * CHUNK_OF_A_CORE)) / size
        return print_figures(
            [
                Figure("load / spark.read.csv", best["load"] / best["plain"], "ratio", BUDGET_RATIO),
                Figure("load / spark.read.csv, all parsed by Spark", parsed, "ratio", BUDGET_PARSED),
                Figure("killed at 90 % / not", best["resumed"] / best["load"], "ratio", BUDGET_RESUMED + one_chunk),
                Figure("memory of all / of a twentieth", max(memory) / least, "ratio", BUDGET_MEMORY),
                Figure("memory of a load", max(memory) / 2**20, "MiB"),
                Figure("load", size / best["load"] / 10**6, "MB/s"),
                Figure("spark.read.csv", size / best["plain"] / 10**6, "MB/s"),
            ]
        )


if __name__ == "__main__":
    sys.exit(main())
