"""How much faster a Spark of the lab starts with its class archive: `python benchmarks/starting.py`

Prints one JSON object; exit code 1 if over budget. The same small job, from the start to the end of its process, in
turns with the archive and without.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure, print_figures

from lastgood.demo.stage import CLASSES_JOB, set_up
from lastgood.lab.spark import find_class_archive, find_default_spark, make_small_conf, submit
from lastgood.process.java import find_java

STARTS = 5
BUDGET_RATIO = 0.85


def seconds_of(conf: dict[str, str], jars: tuple[Path, ...]) -> float:
    """Seconds that the job takes."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        began = time.perf_counter()
        with submit(
            CLASSES_JOB,
            [folder],
            environment=find_default_spark(),
            java=find_java(os.environ),
            jars=jars,
            conf=conf,
            cwd=Path(folder),
            output=log,
        ) as job:
            ending = job.wait()
        took = time.perf_counter() - began
    assert ending is not None
    assert ending.is_success
    return took


def main() -> int:
    """Run all measurements."""
    jars = set_up().jars["spark"]
    archive = find_class_archive(find_default_spark(), find_java(os.environ), jars)
    without, with_archive = make_small_conf(jars), make_small_conf(jars, archive=archive)
    pairs = [(seconds_of(without, jars), seconds_of(with_archive, jars)) for _ in range(STARTS)]
    plain, archived = (statistics.median(each) for each in zip(*pairs, strict=True))
    return print_figures(
        [
            Figure("a small job, from start to end", plain, "s"),
            Figure("a small job, from start to end, with the class archive", archived, "s"),
            Figure("with the class archive / without", archived / plain, "ratio", BUDGET_RATIO),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
