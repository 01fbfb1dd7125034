"""A file that a query has read is touched, rewritten or delivered again: what Spark does, and what is told of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conformance.sparks import RunningSpark
from repair.seeded import SCRIPT

from lastgood.observe.batch_json import list_commands_again
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.find import find_file
from lastgood.observe.open_query import gather
from lastgood.operations.diagnose import diagnose
from lastgood.operations.inspect import find_file_now, inspect_batch
from lastgood.planning.price import Guarantee
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.sources.files.facts import Then

DAY_SECONDS = 24 * 60 * 60
BEGAN = 1_780_000_000


def put(folder: Path, name: str, offset: int, day: float) -> Path:
    """A file of one record, last changed on some day."""
    file = folder / "input" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"partition": 0, "offset": offset}))
    at = BEGAN + day * DAY_SECONDS
    os.utime(file, (at, at))
    return file


def start(spark: RunningSpark, folder: Path) -> list[int]:
    """Start the application as it is: what its sink shows then."""
    told = {"checkpoint": str(folder / "checkpoint"), "table": str(folder / "table"), "where": "true"}
    answer = spark.call(SCRIPT, "start", input=str(folder / "input"), sink="parquet", **told)
    assert answer["error"] is None
    return sorted(offset for _, offset in spark.call(SCRIPT, "rows", **told)["rows"])


def told(folder: Path) -> dict[str, list[str]]:
    """Findings about files that came again, each with the names of its files."""
    found = {
        each.condition.name: each.evidence for each in diagnose(resolve_target(str(folder / "checkpoint"))).findings
    }
    wanted = ("SOURCE_FILE_IGNORED", "SOURCE_FILES_CHANGED")
    return {name: [Path(str(file)).name for file in found[name]["files"]] for name in wanted if name in found}


def word(folder: Path) -> Guarantee:
    """What a plan says of a plain restart."""
    evidence = EvidenceOptions(sinks=(f"file:{folder / 'table'}",))
    return make_plan(resolve_target(str(folder / "checkpoint")), PlanOptions(evidence=evidence)).guarantee


def fate(folder: Path, name: str) -> Then | None:
    """What `inspect --file` says that Spark will do with a file."""
    _, path, _ = find_file(resolve_target(str(folder / "checkpoint")), name)
    now = find_file_now(gather(resolve_target(str(folder / "checkpoint")), batches=2), path)
    assert now is not None
    return now.then


@pytest.mark.spark
def test_file_that_comes_again_is_ignored_until_its_name_is_forgotten(spark: RunningSpark, tmp_path: Path) -> None:
    put(tmp_path, "a.json", 1, day=0)
    put(tmp_path, "b.json", 2, day=1)
    assert start(spark, tmp_path) == [1, 2]
    assert (told(tmp_path), fate(tmp_path, "a.json"), word(tmp_path)) == ({}, None, Guarantee.EXACTLY_ONCE)

    put(tmp_path, "a.json", 1, day=2)  # touched
    assert (told(tmp_path), fate(tmp_path, "a.json")) == ({"SOURCE_FILE_IGNORED": ["a.json"]}, Then.IGNORED)
    assert start(spark, tmp_path) == [1, 2]
    (tmp_path / "input/a.json").unlink()
    put(tmp_path, "a.json", 11, day=3)  # delivered again, and something else is in it
    put(tmp_path, "c.json", 3, day=6.5)
    assert (told(tmp_path), word(tmp_path)) == ({"SOURCE_FILE_IGNORED": ["a.json"]}, Guarantee.LOSSY)
    assert start(spark, tmp_path) == [1, 2, 3]

    put(tmp_path, "d.json", 4, day=7.5)  # a was read with a time that is older by more than seven days, b was not
    assert start(spark, tmp_path) == [1, 2, 3, 4, 11]
    put(tmp_path, "e.json", 5, day=9)  # now b is forgotten as well
    assert start(spark, tmp_path) == [1, 2, 3, 4, 5, 11]
    put(tmp_path, "b.json", 12, day=9.5)
    put(tmp_path, "c.json", 13, day=9.5)
    assert told(tmp_path) == {"SOURCE_FILE_IGNORED": ["c.json"], "SOURCE_FILES_CHANGED": ["b.json"]}
    assert (fate(tmp_path, "b.json"), fate(tmp_path, "c.json")) == (Then.READ_AGAIN, Then.IGNORED)
    assert start(spark, tmp_path) == [1, 2, 3, 4, 5, 11, 12]
    assert told(tmp_path) == {"SOURCE_FILE_IGNORED": ["c.json"]}


@pytest.mark.spark
def test_command_that_reads_a_batch_again_finds_its_file_whatever_that_is_called(
    spark: RunningSpark, tmp_path: Path
) -> None:
    put(tmp_path, "a b%20c é[1]{2}*.json", 1, day=0)
    assert start(spark, tmp_path) == [1]
    row, query = inspect_batch(resolve_target(str(tmp_path / "checkpoint")), 0)
    (again,) = list_commands_again(row, query)
    paths = json.loads(again.removeprefix("spark.read…load(").removesuffix(")"))
    assert spark.call(SCRIPT, "files", paths=paths) == {"rows": [[0, 1]]}


@pytest.mark.spark
@pytest.mark.proof
def test_file_under_another_name_is_read(spark: RunningSpark, tmp_path: Path) -> None:
    put(tmp_path, "a.json", 1, day=0)
    assert start(spark, tmp_path) == [1]
    put(tmp_path, "a-2.json", 11, day=0)
    assert told(tmp_path) == {}
    assert start(spark, tmp_path) == [1, 11]
