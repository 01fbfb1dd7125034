"""What is said of operators with a single partition, of repartitioned state, and where nobody can know."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from predicting import report

from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.findings import Severity
from lastgood.query.prediction.restart import Outcome, SinkCalled
from lastgood.query.prediction.spark_version import SPARK_4_0, SPARK_4_1, SPARK_4_3, SPARK_VERSIONS, SparkVersion

CASES = Path(__file__).resolve().parents[3] / "corpus" / "cases"
SINGLE = {
    "3.5-limit-hdfs": "0",
    "3.5-agg-nokey-rocksdb": "0",
    "3.5-dedup-limit-hdfs": "0",
    "4.0-agg-nokey-hdfs": "0",
    "4.2-agg-nokey-rocksdb-ckptv2": "0",
    "4.3-limit-rocksdb-changelog": "0",
}
"""By case, the operator with one partition."""
BY_ID = "4.2-agg-nokey-rocksdb-ckptv2"


def copied(name: str, tmp_path: Path, *removed: str) -> Path:
    folder = tmp_path / "checkpoint"
    shutil.copytree(CASES / name / "checkpoint", folder)
    for path in removed:
        shutil.rmtree(folder / path)
    return folder


def told(found: Report, *severities: Severity) -> list[str]:
    levels = severities or (Severity.ERROR, Severity.WARNING)
    return [finding.condition.name for finding in found.findings if finding.severity in levels]


def unknown_of_state(found: Report) -> list[str]:
    """What is not known, but for the sink, which nobody was asked about."""
    return [each for each in found.restart.unknowns if "--sink" not in each]


def newest(name: str) -> SparkVersion:
    return SPARK_VERSIONS[-1] if name != "3.5-limit-hdfs" else SPARK_VERSIONS[0]


@pytest.mark.parametrize("name", SINGLE)
def test_operator_that_spark_runs_in_one_partition_is_not_damaged(name: str, tmp_path: Path) -> None:
    found = report(copied(name, tmp_path), newest(name))
    assert (found.restart.outcome, unknown_of_state(found), told(found)) == (Outcome.RESUMES, [], [])


@pytest.mark.parametrize("name", SINGLE)
def test_its_partition_is_missed(name: str, tmp_path: Path) -> None:
    found = report(copied(name, tmp_path, f"state/{SINGLE[name]}/0"), newest(name))
    assert found.restart.outcome is Outcome.FAILS
    assert told(found, Severity.ERROR) == ["STATE_PARTITION_MISSING"]


@pytest.mark.parametrize("partition", ["0", "1", "3"])
def test_partition_of_the_operator_beside_it_is_missed(partition: str, tmp_path: Path) -> None:
    found = report(copied("3.5-dedup-limit-hdfs", tmp_path, f"state/1/{partition}"), SPARK_VERSIONS[0])
    assert (found.restart.outcome, found.restart.error) == (Outcome.FAILS, "Error reading delta file")
    assert told(found, Severity.ERROR) == ["STATE_PARTITION_MISSING"]


@pytest.mark.parametrize(
    ("name", "keeping"),
    [
        ("3.5-limit-hdfs", ["state/0/0/_metadata"]),
        ("3.5-agg-nokey-rocksdb", ["state/0/0/_metadata"]),
        ("4.0-agg-nokey-hdfs", ["state/0/0/_metadata"]),
        ("4.0-agg-nokey-hdfs", ["state/0/0/_metadata", "state/0/_metadata"]),
    ],
)
def test_where_nothing_tells_of_keys_it_is_not_known_rather_than_damaged(
    name: str, keeping: list[str], tmp_path: Path
) -> None:
    found = report(copied(name, tmp_path, *keeping), SPARK_VERSIONS[-1])
    assert found.restart.outcome is Outcome.RESUMES
    assert unknown_of_state(found) == ["state/0: nothing tells how many partitions it is to have"]
    assert told(found) == ["STATE_PARTITIONS_UNKNOWN"]


def test_name_of_the_operator_tells_of_a_limit_without_its_schema(tmp_path: Path) -> None:
    found = report(copied("4.3-limit-rocksdb-changelog", tmp_path, "state/0/0/_metadata"), SPARK_4_3)
    assert (unknown_of_state(found), told(found)) == ([], [])


@pytest.mark.parametrize(
    "name", ["4.2-repartitioned-fewer", "4.2-repartitioned-more-ckptv2", "4.2-repartitioned-nokey"]
)
def test_state_that_spark_has_repartitioned_is_not_damaged(name: str, tmp_path: Path) -> None:
    found = report(copied(name, tmp_path), SPARK_4_3)
    assert (found.restart.outcome, unknown_of_state(found), told(found)) == (Outcome.RESUMES, [], [])


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("4.2-repartitioned-fewer", "0/1"),
        ("4.2-repartitioned-more-ckptv2", "0/5"),
        ("4.2-repartitioned-nokey", "0/0"),
        ("4.2-repartitioned-nokey", "1/1"),
    ],
)
def test_partition_that_a_repartition_has_made_is_missed(name: str, partition: str, tmp_path: Path) -> None:
    found = report(copied(name, tmp_path, f"state/{partition}"), SPARK_4_3)
    assert found.restart.outcome is Outcome.FAILS
    assert "STATE_PARTITION_MISSING" in told(found, Severity.ERROR)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("4.2-repartitioned-fewer", "0/3"),
        ("4.2-repartitioned-nokey", "0/1"),
        ("4.2-repartitioned-nokey", "1/2"),
    ],
)
def test_partition_of_before_a_repartition_is_not(name: str, partition: str, tmp_path: Path) -> None:
    found = report(copied(name, tmp_path, f"state/{partition}"), SPARK_4_3)
    assert (found.restart.outcome, told(found)) == (Outcome.RESUMES, [])


def test_repartition_that_is_no_longer_in_the_logs_is_told_by_what_was_written_since(tmp_path: Path) -> None:
    folder = copied("4.2-repartitioned-fewer", tmp_path)
    for batch in (0, 1):
        (folder / f"offsets/{batch}").unlink()
    found = report(folder, SPARK_4_3)
    assert (found.restart.outcome, told(found, Severity.ERROR)) == (Outcome.RESUMES, [])


def test_spark_4_0_cannot_name_the_state_of_a_single_partition(tmp_path: Path) -> None:
    folder = copied(BY_ID, tmp_path)
    found = report(folder, SPARK_4_0)
    restart = found.restart
    assert (restart.outcome, restart.error) == (Outcome.FAILS, "ChekpointInfo length: 1")
    assert (restart.sink_called, restart.leaves_orphan) == (SinkCalled.YES, True)
    assert told(found, Severity.ERROR) == ["STATE_PARTITIONS_NOT_NAMED"]
    assert report(folder, SPARK_4_1).restart.outcome is Outcome.RESUMES


def test_spark_4_0_commits_where_the_plan_pins_one_partition_or_commits_name_none(tmp_path: Path) -> None:
    assert report(copied("4.0-agg-nokey-hdfs", tmp_path), SPARK_4_0).restart.outcome is Outcome.RESUMES
    folder = copied(BY_ID, tmp_path / "one")
    for checksum in (folder / "offsets").glob(".*.crc"):
        checksum.unlink()
    for plan in (folder / "offsets").iterdir():
        plan.write_text(plan.read_text().replace('shuffle.partitions":"4"', 'shuffle.partitions":"1"'))
    assert report(folder, SPARK_4_0).restart.outcome is Outcome.RESUMES


@pytest.mark.parametrize(
    ("spark", "error"),
    [(SPARK_VERSIONS[0], "Error reading delta file")]
    + [(spark, "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA") for spark in SPARK_VERSIONS[1:]],
)
def test_operator_whose_folder_is_gone_stops_spark_4_before_any_task(
    spark: SparkVersion, error: str, tmp_path: Path
) -> None:
    found = report(copied("3.5-dedup-limit-hdfs", tmp_path, "state/0"), spark)
    restart = found.restart
    called = SinkCalled.MAYBE if spark is SPARK_VERSIONS[0] else SinkCalled.NO
    assert (restart.outcome, restart.error, restart.sink_called) == (Outcome.FAILS, error, called)
    assert told(found, Severity.ERROR) == ["STATE_PARTITION_MISSING"]


@pytest.mark.parametrize("spark", [SPARK_4_1, SPARK_4_3])
def test_repartition_that_is_not_finished_leaves_the_state_as_it_was(spark: SparkVersion, tmp_path: Path) -> None:
    folder = copied("4.2-repartitioned-fewer", tmp_path)
    for name in ("offsets/3", "commits/3", "commits/2"):
        (folder / name).unlink()
    for made in folder.glob("state/0/*/3.*"):
        made.unlink()
    found = report(folder, spark)
    assert "STATE_PARTITIONS_CHANGED" in told(found, Severity.ERROR)
    assert "STATE_FILE_MISSING" not in told(found, Severity.ERROR)
    shutil.rmtree(folder / "state/0/3")
    assert "STATE_PARTITION_MISSING" in told(report(folder, spark), Severity.ERROR)


def test_provider_that_is_pinned_tells_what_is_missed_where_no_file_is_left(tmp_path: Path) -> None:
    found = report(copied("3.5-limit-hdfs", tmp_path, "state/0/0"), SPARK_VERSIONS[0])
    assert found.restart.error == "Error reading delta file"
    assert report(copied("3.5-agg-nokey-rocksdb", tmp_path / "other", "state/0/0"), SPARK_4_3).restart.error == (
        "Error reading streaming state file of"
    )
