from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from predicting import report, reports

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_VERSIONS
from lastgood.query.prediction.state_partitions import Repinned, find_repinned
from lastgood.storage.reading import LocalStorage, parse_location

CASES = Path(__file__).resolve().parents[3] / "corpus" / "cases"
HDFS, CHANGELOG = "3.5-agg-hdfs-healthy", "4.0-agg-rocksdb-changelog-healthy"
KEY = "spark.sql.shuffle.partitions"


def pinned(name: str, partitions: int, tmp_path: Path) -> Path:
    """A checkpoint whose newest plan pins that many."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(CASES / name / "checkpoint", folder)
    newest = folder / "offsets/7"
    first, metadata, *rest = newest.read_text().split("\n")
    told = json.loads(metadata)
    told["conf"][KEY] = str(partitions)
    newest.write_text("\n".join([first, json.dumps(told), *rest]))
    newest.with_name(".7.crc").unlink(missing_ok=True)
    return folder


@pytest.mark.parametrize(
    ("name", "error"), [(HDFS, "Error reading delta file"), (CHANGELOG, "Error reading streaming state file of")]
)
def test_plan_with_more_partitions_than_the_state_has_fails_in_its_tasks(name: str, error: str, tmp_path: Path) -> None:
    folder = pinned(name, 3, tmp_path)
    for found in reports(folder).values():
        assert (found.restart.outcome, found.restart.error, found.restart.leaves_orphan) == (Outcome.FAILS, error, True)
        told = {finding.condition.name: finding for finding in found.findings}
        assert told["STATE_PARTITIONS_CHANGED"].evidence == {"operator": 0, "pinned": 3, "partitions": 2}
        assert told["STATE_PARTITIONS_CHANGED"].next == "lastgood inspect /chk --batch 7"


@pytest.mark.parametrize("name", [HDFS, CHANGELOG])
def test_plan_with_fewer_partitions_forgets_without_a_word(name: str, tmp_path: Path) -> None:
    found = report(pinned(name, 1, tmp_path), SPARK_VERSIONS[-1])
    assert found.restart.outcome is Outcome.RESUMES
    assert [finding.effect[:13] for finding in found.findings if finding.severity.name == "ERROR"] == ["Nothing fails"]


def test_plans_that_agree_with_each_other_are_no_news(tmp_path: Path) -> None:
    folder = pinned(HDFS, 2, tmp_path)
    assert find_repinned(read_checkpoint(LocalStorage(), parse_location(str(folder)))) == []


def test_state_that_has_been_repartitioned_has_what_the_newest_plan_pins(tmp_path: Path) -> None:
    folder = pinned(CHANGELOG, 3, tmp_path)
    metadata = folder / "state/0/_metadata/metadata"
    metadata.write_text(metadata.read_text().replace('"numPartitions":2', '"numPartitions":3'))
    metadata.with_name(".metadata.crc").unlink(missing_ok=True)
    assert find_repinned(read_checkpoint(LocalStorage(), parse_location(str(folder)))) == []
    metadata.write_text(metadata.read_text().replace('"numPartitions":3', '"numPartitions":2'))
    assert find_repinned(read_checkpoint(LocalStorage(), parse_location(str(folder)))) == [Repinned(0, 2, 3)]
