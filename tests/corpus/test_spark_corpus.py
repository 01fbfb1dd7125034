"""The checkpoints that Spark's own tests go on from: all are read, and none of them is called damaged.

Where they come from is told in `spark/README.md`, what has to be said of each in `spark/facts.json`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.file_logs import FileLogEntry, parse_sink_log_entry, parse_source_log_entry
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.state import State, StateOperator
from lastgood.diagnosis.engine import Report, diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_VERSIONS
from lastgood.storage.reading import LocalStorage, parse_location

SPARK = Path(__file__).parent / "spark"
FACTS: dict[str, dict[str, Any]] = json.loads((SPARK / "facts.json").read_text())
STATEFUL = [name for name, facts in FACTS.items() if facts["partitions"]]


def read(folder: Path) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(folder)))


def reports(checkpoint: Checkpoint) -> dict[str, Report]:
    return {str(spark): diagnose(Observation(checkpoint, location="/chk"), spark) for spark in SPARK_VERSIONS}


def partitions(state: State, operator: StateOperator) -> int | str:
    found = state.partitions(operator)
    return found.count if found.is_known else f"{found.count} or more"


@pytest.mark.parametrize("name", FACTS)
def test_checkpoint_of_spark_is_read_as_it_is(name: str) -> None:
    facts, found = FACTS[name], read(SPARK / name)
    assert {
        "spark": None if found.spark_versions is None else str(found.spark_versions),
        "planned": found.last_planned,
        "committed": found.last_committed,
        "loadable": found.last_loadable,
        "partitions": {
            str(each.operator): partitions(found.state, each)
            for each in (found.state.operators if found.state else ())
            if found.state
        },
        "damage": {path: damage.kind.value for path, damage in found.damage.items()},
        "absent": list(found.absent),
    } == {key: facts[key] for key in ("spark", "planned", "committed", "loadable", "partitions", "damage", "absent")}


@pytest.mark.parametrize("name", FACTS)
def test_what_each_spark_would_do_with_it_is_predicted_and_nothing_healthy_is_called_damaged(name: str) -> None:
    facts = FACTS[name]
    expected = {spark: tuple(told) for versions, told in facts["restart"].items() for spark in versions.split()}
    told = reports(read(SPARK / name))
    restarts = {spark: report.restart for spark, report in told.items()}
    assert {
        spark: (restart.outcome.value, *([restart.error] if restart.error else []))
        for spark, restart in restarts.items()
    } == expected
    findings = [finding for report in told.values() for finding in report.findings]
    assert sorted({f.condition.name for f in findings if f.severity is not Severity.INFO}) == facts["findings"]


@pytest.mark.parametrize("name", STATEFUL)
def test_each_partition_of_its_state_is_missed_when_it_is_lost(name: str, tmp_path: Path) -> None:
    """But where nothing is left that tells of them: then it is not known whether there have been others."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(SPARK / name, folder)
    there = sorted(path for path in (folder / "state/0").iterdir() if path.name.isdecimal())
    for partition in there:
        aside = partition.rename(tmp_path / "aside")
        found = read(folder)
        restarts = [report.restart for report in reports(found).values()]
        is_last = FACTS[name]["partitions"]["0"] == "10 or more" and partition.name == "9"
        if is_last:
            assert all(restart.unknowns for restart in restarts)
        else:
            assert {restart.outcome for restart in restarts} == {Outcome.FAILS}
            assert found.absent or found.last_committed is None
        aside.rename(partition)
    assert read(folder).absent == ()


def test_log_files_of_spark_2_1_are_read() -> None:
    sql = SPARK / "sql"
    plan = parse_offset_entry((sql / "offset-log-version-2.1.0/0").read_bytes())
    assert isinstance(plan, OffsetEntry)
    assert [line.offset.kind for line in plan.sources] == ["file", "kafka"]
    for log, parse in (("source", parse_source_log_entry), ("sink", parse_sink_log_entry)):
        for file in sorted((sql / f"file-{log}-log-version-2.1.0").iterdir()):
            entry = parse(file.read_bytes())
            assert isinstance(entry, FileLogEntry), file
            assert list(entry), file


@pytest.mark.parametrize(("name", "ids"), [("V1", None), ("V2", 2), ("V2-empty-unique-id", None)])
def test_a_commit_of_each_version_is_read(name: str, ids: int | None) -> None:
    entry = parse_commit_entry((SPARK / f"sql/testCommitLog{name}/testCommitLog").read_bytes())
    assert isinstance(entry, CommitEntry)
    assert (len(entry.state_unique_ids) if entry.state_unique_ids else None) == ids
