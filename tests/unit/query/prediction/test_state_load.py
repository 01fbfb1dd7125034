from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import Report, diagnose
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_2, SPARK_4_3, SparkVersion
from lastgood.storage.reading import LocalStorage, parse_location

CASES = Path(__file__).resolve().parents[3] / "corpus" / "cases"
HDFS, CHANGELOG = "3.5-agg-hdfs-healthy", "4.0-agg-rocksdb-changelog-healthy"
IDS = ',"stateUniqueIds":{"0":[["a"],["b"]]}}'


def report(name: str, commit_end: str, spark: SparkVersion, tmp_path: Path) -> Report:
    """Of a checkpoint in state checkpoint format v1 whose newest commit is of version 2 all the same."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(CASES / name / "checkpoint", folder)
    newest = folder / "commits/7"
    newest.write_text(newest.read_text().replace("v1", "v2").removesuffix("}") + commit_end)
    newest.with_name(".7.crc").unlink(missing_ok=True)
    return diagnose(Observation(read_checkpoint(LocalStorage(), parse_location(str(folder))), location="/chk"), spark)


@pytest.mark.parametrize(
    ("name", "error"), [(HDFS, "STATE_STORE_CHECKPOINT_IDS_NOT_SUPPORTED"), (CHANGELOG, "None.get")]
)
def test_version_of_the_newest_commit_alone_says_how_state_is_named_from_4_3_on(
    name: str, error: str, tmp_path: Path
) -> None:
    found = report(name, "}", SPARK_4_3, tmp_path)
    assert (found.restart.outcome, found.restart.batch, found.restart.error) == (Outcome.FAILS, 8, error)
    assert "STATE_FORMAT_CHANGED" in [finding.condition.name for finding in found.findings]


@pytest.mark.parametrize("name", [HDFS, CHANGELOG])
def test_version_2_without_ids_changes_nothing_in_4_2(name: str, tmp_path: Path) -> None:
    restart = report(name, "}", SPARK_4_2, tmp_path).restart
    assert (restart.outcome, restart.batch) == (Outcome.RESUMES, 8)


def test_ids_in_a_commit_stop_a_store_that_has_none(tmp_path: Path) -> None:
    missing = "Error reading streaming state file of"
    for spark in (SPARK_4_2, SPARK_4_3):
        assert (
            report(HDFS, IDS, spark, tmp_path / str(spark)).restart.error == "STATE_STORE_CHECKPOINT_IDS_NOT_SUPPORTED"
        )
    assert report(CHANGELOG, IDS, SPARK_4_3, tmp_path).restart.error == missing
