"""Damage to a healthy checkpoint without a Spark, and what is predicted of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import Report, diagnose
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_VERSIONS, SparkVersion
from lastgood.storage.reading import LocalStorage, parse_location

BATCHES = 6

Edit = Callable[[Path], None]


@dataclass(frozen=True)
class Does:
    """What Spark does."""

    outcome: Outcome
    batch: int | None
    error: str | None = None
    leaves_orphan: bool = False


def resumes(batch: int = BATCHES) -> Does:
    return Does(Outcome.RESUMES, batch)


def reruns(batch: int = BATCHES - 1) -> Does:
    return Does(Outcome.RERUNS, batch)


def fails(error: str, batch: int | None = None, *, leaves_orphan: bool = False) -> Does:
    return Does(Outcome.FAILS, batch, error, leaves_orphan)


def fails_after_sink(batch: int, error: str | None = None) -> Does:
    return Does(Outcome.FAILS_AFTER_SINK, batch, error or f"Multiple streaming jobs detected for {batch}")


def remove(*names: str) -> Edit:
    def edit(folder: Path) -> None:
        for path in [path for name in names for path in folder.glob(name) if not path.name.startswith(".")]:
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return edit


def write(name: str, content: str, *, crc: bool = False) -> Edit:
    """Put a file there; `crc`: leave the checksum file that was there."""

    def edit(folder: Path) -> None:
        path = folder / name
        path.write_text(content)
        if not crc:
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    return edit


def change(name: str, changed: Callable[[str], str], *, crc: bool = False) -> Edit:
    return lambda folder: write(name, changed((folder / name).read_text()), crc=crc)(folder)


def line(number: int, text: str) -> Callable[[str], str]:
    def changed(content: str) -> str:
        lines = content.split("\n")
        lines[number] = text
        return "\n".join(lines)

    return changed


def copy(name: str, to: str) -> Edit:
    return lambda folder: write(to, (folder / name).read_text())(folder)


def both(*edits: Edit) -> Edit:
    def edit(folder: Path) -> None:
        for each in edits:
            each(folder)

    return edit


def nothing(folder: Path) -> None:
    del folder


def folder_named(name: str) -> Edit:
    return lambda folder: (folder / name).mkdir()


def without_conf(content: str) -> str:
    first, metadata, *rest = content.split("\n")
    return "\n".join([first, json.dumps({**json.loads(metadata), "conf": {}}), *rest])


def of_spark_2_1(folder: Path) -> None:
    """Its logs as Spark before 2.2 keeps them: plans without confs, and no commits."""
    for plan in (folder / "offsets").glob("[0-9]*"):
        first, metadata, *rest = plan.read_text().split("\n")
        kept = {name: value for name, value in json.loads(metadata).items() if name != "conf"}
        plan.write_text("\n".join([first, json.dumps(kept), *rest]))
        (folder / f"offsets/.{plan.name}.crc").unlink(missing_ok=True)
    shutil.rmtree(folder / "commits")


def observed(folder: Path) -> Observation:
    return Observation(read_checkpoint(LocalStorage(), parse_location(str(folder))), location="/chk")


def report(folder: Path, spark: SparkVersion) -> Report:
    return diagnose(observed(folder), spark)


def reports(folder: Path) -> dict[SparkVersion, Report]:
    """What every Spark makes of the same checkpoint."""
    read = observed(folder)
    return {spark: diagnose(read, spark) for spark in SPARK_VERSIONS}


def does(found: Report) -> Does:
    restart = found.restart
    return Does(restart.outcome, restart.batch, restart.error, restart.leaves_orphan)
