"""Whether this lastgood is slower than another one: `python benchmarks/against.py OTHER_CHECKOUT/.venv/bin/lastgood`

Prints one JSON object; exit code 1 if over budget. Both do the same work on the same files, in turns, so that what else
the machine does meets both; compared are seconds of the processor, the least of several runs. Where neighbours of a
virtual machine make such seconds vary by half, `--instructions` compares the instructions that valgrind counts, on logs
of a tenth of the length: the same number in every run, but blind to what waits for memory.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from figures import Figure, print_figures

from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput

OURS = Path(sys.executable).parent / "lastgood"
STATEFUL = Path(__file__).parents[1] / "tests" / "corpus" / "cases" / "4.3-agg-rocksdb-ckptv2-healthy" / "checkpoint"
TURNS = 7
BUDGET_RATIO = 1.1
BATCHES = 20_000
FILE_BATCHES = 5000
CHECKPOINTS = 200
UNDER_VALGRIND = 10
"""What of these lengths is built where instructions are counted: a command takes some fifty times as long there."""
WORK = {
    "--help": ["--help"],
    "status, one checkpoint": ["status", "short"],
    "status, many checkpoints": ["status", "many"],
    "diagnose, a hundred batches": ["diagnose", "short"],
    "diagnose, with state": ["diagnose", STATEFUL],
    "plan": ["plan", "short", "-o", "plan.json"],
    "plan --goal replan": ["plan", "short", "--goal", "replan", "--accept", "duplicates", "-o", "plan.json"],
    "inspect": ["inspect", "long"],
    "inspect --all": ["inspect", "long", "--all", "--format", "json"],
    "inspect --file": ["inspect", "files", "--file", f"f{FILE_BATCHES // UNDER_VALGRIND // 2}.json"],
    "offsets --stable-lag": ["offsets", "long", "--stable-lag", "3"],
    "verify": ["verify", "long"],
    "backup list": ["backup", "list", "long"],
}
"""Verbs as they are typed in the folder of `build`."""


def build(folder: Path, divisor: int) -> None:
    """A short and a long log of Kafka with their mirrors, a log of files, and many small checkpoints; all but the short
    log of the `divisor`-th part of their lengths."""
    short = CheckpointBuilder(folder / "short")
    short.run(100)
    short.plan()
    CheckpointBuilder(folder / "long").run(BATCHES // divisor)
    for name in ("short", "long"):
        location = parse_location(str(folder / name))
        writer = MirrorWriter(
            location,
            storage=LocalStorage(),
            folder=locate_mirror(location),
            target=LocalWriter(),
            writer="benchmark",
            now_ms=lambda: STARTED_MS,
        )
        writer.look()
        writer.settle()
    CheckpointBuilder(folder / "files", FileInput(compact_interval=FILE_BATCHES // divisor)).run(
        FILE_BATCHES // divisor
    )
    for number in range(CHECKPOINTS // divisor):
        CheckpointBuilder(folder / "many" / f"query{number}").run(3)


def take_seconds(lastgood: Path, words: list[str | Path], folder: Path) -> tuple[float, int]:
    """Seconds of the processor that a command takes, and its exit code."""
    process = subprocess.Popen(
        [lastgood, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, process.returncode


def count_instructions(lastgood: Path, words: list[str | Path], folder: Path) -> tuple[float, int]:
    """Instructions that a command takes with the processes that it starts, and its exit code."""
    take_seconds(lastgood, words, folder)  # what Python compiles at the first time does not count
    with tempfile.TemporaryDirectory() as counted:
        valgrind = ["valgrind", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={os.devnull}"]
        process = subprocess.run(
            [*valgrind, f"--log-file={counted}/%p", lastgood, *words],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        logs = "".join(log.read_text() for log in Path(counted).iterdir())
    return sum(int(number) for number in re.findall(r"Collected : (\d+)", logs)), process.returncode


def compare(theirs: Path, folder: Path, measure: Callable[..., tuple[float, int]], turns: int) -> dict[str, float]:
    """What of their cost ours has for each piece of work, each at its best.

    All the work is done before any is done again: a spell in which the machine is busy meets one turn of each, and not
    all turns of one.
    """
    least: dict[tuple[str, Path], float] = {}
    for _ in range(turns):
        for name, words in WORK.items():
            codes = {}
            for lastgood in (OURS, theirs):
                cost, codes[lastgood] = measure(lastgood, words, folder)
                least[name, lastgood] = min(cost, least.get((name, lastgood), cost))
            if codes[OURS] != codes[theirs]:
                raise SystemExit(f"{words} ended with {codes[OURS]} here, {codes[theirs]} there: not the same work")
    return {name: least[name, OURS] / least[name, theirs] for name in WORK}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("theirs", type=lambda path: Path(path).absolute(), help="the command of the other checkout")
    parser.add_argument("--instructions", action="store_true", help="count instructions with valgrind")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lastgood-against-") as made:
        folder = Path(made)
        if asked.instructions:
            build(folder, UNDER_VALGRIND)
            ratios = compare(asked.theirs, folder, count_instructions, 1)
        else:
            build(folder, 1)
            ratios = compare(asked.theirs, folder, take_seconds, TURNS)
    return print_figures([Figure(name, ratio, "ratio", BUDGET_RATIO) for name, ratio in ratios.items()])


if __name__ == "__main__":
    sys.exit(main())
