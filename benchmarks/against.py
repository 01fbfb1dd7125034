"""Whether this lastgood is slower than another one: `python benchmarks/against.py OTHER_CHECKOUT/.venv/bin/lastgood`

Prints one JSON object; exit code 1 if over budget. Both do the same work on the same files, in turns, so that what else
the machine does meets both; compared are seconds of the processor, the least of several runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
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
    "inspect --file": ["inspect", "files", "--file", f"f{FILE_BATCHES // 2}.json"],
    "offsets --stable-lag": ["offsets", "long", "--stable-lag", "3"],
    "verify": ["verify", "long"],
    "backup list": ["backup", "list", "long"],
}
"""Verbs as they are typed in the folder of `build`."""


def build(folder: Path) -> None:
    """A short and a long log of Kafka with their mirrors, a log of files, and many small checkpoints."""
    short = CheckpointBuilder(folder / "short")
    short.run(100)
    short.plan()
    CheckpointBuilder(folder / "long").run(BATCHES)
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
    CheckpointBuilder(folder / "files", FileInput(compact_interval=FILE_BATCHES)).run(FILE_BATCHES)
    for number in range(CHECKPOINTS):
        CheckpointBuilder(folder / "many" / f"query{number}").run(3)


def run(lastgood: Path, words: list[str | Path], folder: Path) -> tuple[float, int]:
    """Seconds of the processor that a command takes, and its exit code."""
    process = subprocess.Popen(
        [lastgood, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, process.returncode


def compare(theirs: Path, words: list[str | Path], folder: Path) -> float:
    """What of their seconds ours take, each at its best."""
    least: dict[Path, float] = {}
    codes: dict[Path, int] = {}
    for _ in range(TURNS):
        for lastgood in (OURS, theirs):
            seconds, codes[lastgood] = run(lastgood, words, folder)
            least[lastgood] = min(seconds, least.get(lastgood, seconds))
    if codes[OURS] != codes[theirs]:
        raise SystemExit(f"{words} ended with {codes[OURS]} here and with {codes[theirs]} there: not the same work")
    return least[OURS] / least[theirs]


def main() -> int:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    theirs = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="lastgood-against-") as made:
        folder = Path(made)
        build(folder)
        ratios = {name: compare(theirs, words, folder) for name, words in WORK.items()}
    return print_figures([Figure(name, ratio, "ratio", BUDGET_RATIO) for name, ratio in ratios.items()])


if __name__ == "__main__":
    sys.exit(main())
