"""What the reading verbs cost: `python benchmarks/reading.py` prints one JSON object; exit code 1 if over budget.

Times are the best of several runs, and of a machine; beside them stands what an empty Python takes on it.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lastgood.operations import evidence, inspect, offsets, status
from lastgood.storage import LocalStorage, Location
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder
from lastgood.testing.storage import SlowStorage

LASTGOOD = Path(sys.executable).parent / "lastgood"
STATEFUL = Path(__file__).parents[1] / "tests" / "corpus" / "cases" / "4.3-agg-rocksdb-ckptv2-healthy" / "checkpoint"
BATCHES = 100_000
CHECKPOINTS = 1000
REQUEST_SECONDS = 0.03
ROUND_TRIPS_MAX = 12
MEGABYTE = 1024 * 1024
MEASURED = {
    "status": ["status", "{}"],
    "inspect": ["inspect", "{}"],
    "inspect --batch": ["inspect", "{}", "--batch", str(BATCHES // 2)],
    "inspect --time": ["inspect", "{}", "--time", str(STARTED_MS + 500 * BATCHES)],
    "offsets": ["offsets", "{}"],
    "offsets --stable-lag": ["offsets", "{}", "--stable-lag", "3"],
    "offsets --time": ["offsets", "{}", "--time", str(STARTED_MS + 500 * BATCHES)],
}


@dataclass(frozen=True)
class Figure:
    """One measured value; `budget` is None where there is none."""

    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def is_missed(self) -> bool:
        return self.budget is not None and self.value > self.budget


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


def long_log(folder: Path) -> list[Figure]:
    CheckpointBuilder(folder).run(BATCHES)
    found = []
    for name, verb in MEASURED.items():
        seconds, size = best([LASTGOOD, *(word.format(folder) for word in verb)], 3)
        found.append(Figure(f"{name}, {BATCHES:,} batches", seconds, "s", 2.0))
        found.append(Figure(f"{name}, {BATCHES:,} batches, peak memory", size, "MB", 150.0))
    return found


def round_trips(folder: Path) -> list[Figure]:
    """Of each verb on a storage with a wait for each request."""
    CheckpointBuilder(folder / "stateless").run(100)
    shutil.copytree(STATEFUL, folder / "stateful")
    verbs: dict[str, Callable[[str], Any]] = {
        "status": status.status,
        "inspect": inspect.inspect_batches,
        "offsets": offsets.offsets_after,
    }
    found = []
    for kind in ("stateless", "stateful"):
        for name, verb in verbs.items():
            if (kind, name) == ("stateful", "offsets"):
                continue  # its source is no Kafka
            slow = SlowStorage(LocalStorage(), seconds=REQUEST_SECONDS)

            def open_slow(location: Location, slow: SlowStorage = slow) -> SlowStorage:
                return slow

            evidence.open_storage = status.open_storage = open_slow
            began = time.perf_counter()
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
        figures = [*starting(), *round_trips(folder / "slow"), *many(folder / "many"), *long_log(folder / "long")]
    finally:
        shutil.rmtree(folder)
    missed = [figure.name for figure in figures if figure.is_missed]
    rounded = [{**asdict(figure), "value": round(figure.value, 3)} for figure in figures]
    print(json.dumps({"figures": rounded, "missed": missed}, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
