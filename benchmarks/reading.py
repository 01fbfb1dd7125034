"""What the reading verbs cost: `python benchmarks/reading.py` prints one JSON object; exit code 1 if over budget.

Times are the best of several runs, and of a machine; beside them stands what an empty Python takes on it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Figure, print_figures

from lastgood.audit import logs as verify_logs
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe import find, offsets, open_query, state_sizes
from lastgood.operations import inspect, status
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, Location, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput
from lastgood.testing.storage import SlowStorage

LASTGOOD = Path(sys.executable).parent / "lastgood"
STATEFUL = Path(__file__).parents[1] / "tests" / "corpus" / "cases" / "4.3-agg-rocksdb-ckptv2-healthy" / "checkpoint"
BATCHES = 100_000
FILE_BATCHES = 20_000
MIRRORED_BATCHES = 100_000
BATCHES_A_DAY = 2000
CHECKPOINTS = 1000
READ_ALL = """
import os, sys
for log in ("offsets", "commits"):
    for name in os.listdir(f"{sys.argv[1]}/{log}"):
        with open(f"{sys.argv[1]}/{log}/{name}", "rb") as file:
            file.read()
"""
REQUEST_SECONDS = 0.03
ROUND_TRIPS_MAX = 12
MEGABYTE = 1024 * 1024
BUDGET_STARTS = 20.0
"""How many empty Pythons a cold `diagnose` may take."""
WHOLE = {
    "verify": ["verify", "{}"],
    "inspect --all": ["inspect", "{}", "--all"],
    "inspect --all --format json": ["inspect", "{}", "--all", "--format", "json"],
}
"""Verbs that read every file of both logs."""
MEASURED = {
    "status": ["status", "{}"],
    "inspect": ["inspect", "{}"],
    "inspect --batch": ["inspect", "{}", "--batch", str(BATCHES // 2)],
    "inspect --offset": ["inspect", "{}", "--offset", f"orders/0/{5 * BATCHES // 2 + 1}"],
    "inspect --time": ["inspect", "{}", "--time", str(STARTED_MS + 500 * BATCHES)],
    "offsets": ["offsets", "{}"],
    "offsets --stable-lag": ["offsets", "{}", "--stable-lag", "3"],
    "offsets --time": ["offsets", "{}", "--time", str(STARTED_MS + 500 * BATCHES)],
}
ASKED: dict[str, Callable[[str], Any]] = {
    "status": status.status,
    "inspect": inspect.inspect_batches,
    "inspect --all": lambda target: list(inspect.inspect_all(resolve_target(target))),
    "inspect --batch": lambda target: inspect.inspect_batch(resolve_target(target), 5),
    "inspect --state": state_sizes.inspect_state,
    "inspect --offset, of no batch": lambda target: find.find_offset(resolve_target(target), "orders", 0, 10**9),
    "inspect --file, of no batch": lambda target: find.find_file(resolve_target(target), "nowhere.json"),
    "inspect --time, before all": lambda target: find.find_time(resolve_target(target), 0),
    "offsets": offsets.find_offsets_after,
    "verify": verify_logs.verify_logs,
}
"""Verbs whose round trips are counted."""


def run(command: list[str | Path]) -> tuple[float, float]:
    """Seconds and peak megabytes of a command that succeeds."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, code, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return seconds, usage.ru_maxrss * 1024 / MEGABYTE


def best(command: list[str | Path], times: int = 5) -> tuple[float, float]:
    """The least seconds and the most megabytes of several runs."""
    runs = [run(command) for _ in range(times)]
    return min(seconds for seconds, _ in runs), max(size for _, size in runs)


def starting() -> list[Figure]:
    empty, _ = best([sys.executable, "-c", "pass"], 10)
    shown, _ = best([LASTGOOD, "--help"], 10)
    return [
        Figure("python -c pass", empty, "s"),
        Figure("lastgood --help", shown, "s", 0.15),
        Figure("lastgood --help / python -c pass", shown / empty, "ratio"),
    ]


def diagnosing(folder: Path) -> list[Figure]:
    """A cold `diagnose` of a hundred batches: no broker, no sink asked."""
    CheckpointBuilder(folder).run(100)
    empty, _ = best([sys.executable, "-c", "pass"], 10)
    found = [
        Figure(
            "diagnose, 100 batches / python -c pass",
            best([LASTGOOD, "diagnose", folder], 10)[0] / empty,
            "ratio",
            BUDGET_STARTS,
        )
    ]
    for name, checkpoint in (("100 batches", folder), ("stateful", STATEFUL)):
        seconds, size = best([LASTGOOD, "diagnose", checkpoint], 10)
        found += [Figure(f"diagnose, {name}", seconds, "s", 0.3), Figure(f"diagnose, {name}, peak memory", size, "MB")]
    return found


def long_log(folder: Path) -> list[Figure]:
    CheckpointBuilder(folder).run(BATCHES)
    found = []
    for name, verb in MEASURED.items():
        seconds, size = best([LASTGOOD, *(word.format(folder) for word in verb)], 3)
        found.append(Figure(f"{name}, {BATCHES:,} batches", seconds, "s", 2.0))
        found.append(Figure(f"{name}, {BATCHES:,} batches, peak memory", size, "MB", 150.0))
    raw, _ = best([sys.executable, "-c", READ_ALL, folder], 3)
    found.append(Figure(f"every file opened and read by Python, {BATCHES:,} batches", raw, "s"))
    for name, verb in WHOLE.items():
        seconds, size = best([LASTGOOD, *(word.format(folder) for word in verb)], 3)
        found.append(Figure(f"{name}, {BATCHES:,} batches", seconds, "s", 2.0 if name == "verify" else None))
        found.append(Figure(f"{name}, {BATCHES:,} batches / every file read", seconds / raw, "ratio"))
        found.append(Figure(f"{name}, {BATCHES:,} batches, peak memory", size, "MB", 150.0))
    return found


def long_mirror(folder: Path) -> list[Figure]:
    """What Spark has purged from the long log, it leaves to the mirror; written day by day, as `run` does."""
    location = parse_location(str(folder))
    query = CheckpointBuilder(folder)
    for day in range(MIRRORED_BATCHES // BATCHES_A_DAY):
        writer = MirrorWriter(
            location,
            storage=LocalStorage(),
            folder=locate_mirror(location),
            target=LocalWriter(),
            writer="benchmark",
            now_ms=lambda day=day: STARTED_MS + day * 86_400_000,  # type: ignore[misc]
        )
        query.run(BATCHES_A_DAY)
        writer.look()
        writer.settle()
        for batch_id in range(day * BATCHES_A_DAY, (day + 1) * BATCHES_A_DAY - 100):
            for log in ("offsets", "commits"):
                (folder / log / str(batch_id)).unlink()
    asked = {
        "inspect --batch": ["inspect", folder, "--batch", str(MIRRORED_BATCHES // 2)],
        "verify": ["verify", folder],
    }
    found = []
    for name, verb in asked.items():
        seconds, size = best([LASTGOOD, *verb], 2)
        found.append(Figure(f"{name}, {MIRRORED_BATCHES:,} batches in the mirror", seconds, "s", 3.0))
        found.append(Figure(f"{name}, {MIRRORED_BATCHES:,} batches in the mirror, peak memory", size, "MB", 150.0))
    return found


def long_file_log(folder: Path) -> list[Figure]:
    """A file source, whose own log is compacted every ten batches."""
    CheckpointBuilder(folder, FileInput(compact_interval=FILE_BATCHES)).run(FILE_BATCHES)
    verb = ["inspect", folder, "--file", f"f{FILE_BATCHES // 2}.json"]
    seconds, size = best([LASTGOOD, *verb], 3)
    return [
        Figure(f"inspect --file, {FILE_BATCHES:,} batches", seconds, "s", 2.0),
        Figure(f"inspect --file, {FILE_BATCHES:,} batches, peak memory", size, "MB", 150.0),
    ]


def round_trips(folder: Path) -> list[Figure]:
    """Of each verb on a storage with a wait for each request."""
    CheckpointBuilder(folder / "stateless").run(100)
    shutil.copytree(STATEFUL, folder / "stateful")
    found = []
    for kind in ("stateless", "stateful"):
        for name, verb in ASKED.items():
            if (kind, name) == ("stateful", "offsets"):
                continue  # its source is no Kafka
            slow = SlowStorage(LocalStorage(), seconds=REQUEST_SECONDS)

            def open_slow(location: Location, slow: SlowStorage = slow) -> SlowStorage:
                return slow

            open_query.open_storage = status.open_storage = open_slow
            began = time.perf_counter()
            with contextlib.suppress(find.NotFoundInHistoryError):
                verb(str(folder / kind))
            seconds = time.perf_counter() - began
            found += [
                Figure(f"{name}, {kind}, 30 ms a request", slow.round_trips, "round trips", ROUND_TRIPS_MAX),
                Figure(f"{name}, {kind}, 30 ms a request, requests", slow.requests, "requests"),
                Figure(f"{name}, {kind}, 30 ms a request, time / one request", seconds / REQUEST_SECONDS, "ratio"),
            ]
    return found


def many(folder: Path) -> list[Figure]:
    for number in range(CHECKPOINTS):
        CheckpointBuilder(folder / f"team{number % 10}" / f"query{number}").run(3)
    seconds, size = best([LASTGOOD, "status", folder], 3)
    one, _ = best([LASTGOOD, "status", folder / "team0" / "query0"], 3)
    return [
        Figure(f"status, {CHECKPOINTS:,} checkpoints", seconds, "s"),
        Figure(f"status, {CHECKPOINTS:,} checkpoints, peak memory", size, "MB", 150.0),
        Figure(f"status, {CHECKPOINTS:,} checkpoints / one", seconds / one, "ratio"),
    ]


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="lastgood-benchmark-"))
    try:
        figures = [*starting(), *diagnosing(folder / "short"), *round_trips(folder / "slow"), *many(folder / "many")]
        figures += [*long_file_log(folder / "files"), *long_log(folder / "long"), *long_mirror(folder / "mirrored")]
    finally:
        shutil.rmtree(folder)
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main())
