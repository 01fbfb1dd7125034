from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from lastgood.checkpoint.checksums import HadoopChecksum, SparkChecksum, compute_crc32c
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import Report, diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.observe import state_checksums
from lastgood.observe.state_checksums import find_unsound_state
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.skipping import list_versions_loaded
from lastgood.query.prediction.spark_version import SPARK_3_5, SPARK_4_0, SPARK_4_1, SPARK_4_2, SPARK_4_3, SparkVersion
from lastgood.query.prediction.unsound import Unsound
from lastgood.storage.reading import LocalStorage, parse_location

CASES = Path(__file__).resolve().parents[2] / "corpus" / "cases"
ROCKSDB, HDFS = "3.5-agg-rocksdb-healthy", "3.5-agg-hdfs-healthy"
CHANGELOG = "4.0-agg-rocksdb-changelog-healthy"


def copied(name: str, tmp_path: Path) -> Path:
    shutil.copytree(CASES / name / "checkpoint", tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied(ROCKSDB, tmp_path)


def unsound(folder: Path) -> Mapping[str, Unsound]:
    location = parse_location(str(folder))
    checkpoint = read_checkpoint(LocalStorage(), location)
    return find_unsound_state(LocalStorage(), location, checkpoint, list_versions_loaded(checkpoint, ()))


def report(folder: Path, spark: SparkVersion) -> Report:
    location = parse_location(str(folder))
    return diagnose(Observation(read_checkpoint(LocalStorage(), location), unsound=unsound(folder)), spark)


def turn(path: Path, *, known: bool = True) -> None:
    """Turn a bit in the middle of a file whose checksum was taken before (`known`), or of one without."""
    content = bytearray(path.read_bytes())
    beside = path.with_name(f".{path.name}.crc")
    beside.unlink(missing_ok=True)
    if known:
        beside.write_bytes(HadoopChecksum.of(bytes(content)).to_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def spark_checksum(path: Path) -> None:
    """The checksum that Spark 4.1 writes beside a file of the state."""
    content = path.read_bytes()
    empty = SparkChecksum(0, 0, {"algorithm": "CRC32C", "value": 0, "mainFileSize": 0})
    path.with_name(f"{path.name}.crc").write_bytes(empty.for_content(content).to_bytes())
    assert compute_crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("name", [ROCKSDB, HDFS, "4.0-agg-rocksdb-changelog-healthy", "4.3-agg-rocksdb-ckptv2-healthy"])
def test_sound_state_is_sound(name: str, tmp_path: Path) -> None:
    assert unsound(copied(name, tmp_path)) == {}


@pytest.mark.parametrize(("spark", "error"), [(SPARK_3_5, "Checksum error"), (SPARK_4_0, "CANNOT_LOAD_STATE_STORE")])
def test_snapshot_that_was_changed_fails_in_a_task(folder: Path, spark: SparkVersion, error: str) -> None:
    turn(folder / "state/0/0/8.zip")
    found = report(folder, spark)
    assert (found.restart.error, found.restart.batch, found.restart.leaves_orphan) == (error, 8, True)
    assert (found.findings[0].condition.name, found.findings[0].subject) == ("STATE_FILE_DAMAGED", "state/0/0/8.zip")


def test_part_that_was_changed_fails_as_its_snapshot_does(folder: Path) -> None:
    for part in (folder / "state/0/1/SSTs").iterdir():
        turn(part)
    assert list(unsound(folder)) == ["state/0/1/8.zip"]
    assert report(folder, SPARK_4_0).restart.outcome is Outcome.FAILS


def test_what_has_no_checksum_or_is_not_loaded_is_not_judged(folder: Path) -> None:
    turn(folder / "state/0/0/8.zip", known=False)
    turn(folder / "state/0/0/7.zip")
    assert unsound(folder) == {}


def test_large_state_is_taken_for_sound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn(folder / "state/0/0/8.zip")
    monkeypatch.setattr(state_checksums, "BYTES_MAX", 10)
    assert unsound(folder) == {}


def in_another_codec(path: Path) -> None:
    """As if the query had been told not to pack its state with lz4: its blocks tell no checksum."""
    path.write_bytes(path.read_bytes().replace(b"LZ4Block", b"ZSTD...."))


def test_spark_checks_changes_by_its_own_checksums_only_and_since_4_1(tmp_path: Path) -> None:
    folder = copied(HDFS, tmp_path)
    delta = folder / "state/0/0/8.delta"
    in_another_codec(delta)
    spark_checksum(delta)
    turn(delta)
    assert report(folder, SPARK_4_1).restart.error == "CANNOT_LOAD_STATE_STORE"
    older = report(folder, SPARK_4_0)
    unknowns = [each for each in older.restart.unknowns if "--sink" not in each]
    assert (older.restart.outcome, len(unknowns)) == (Outcome.RESUMES, 1)
    found = older.findings[0]
    assert (found.condition.name, found.severity) == ("STATE_FILE_DAMAGED", Severity.WARNING)


@pytest.mark.parametrize(
    ("name", "file", "spark", "error"),
    [
        (HDFS, "state/0/0/8.delta", SPARK_3_5, "Stream is corrupted"),
        (HDFS, "state/0/0/8.delta", SPARK_4_3, "Stream is corrupted"),
        (CHANGELOG, "state/0/0/8.changelog", SPARK_3_5, "Stream is corrupted"),
        (CHANGELOG, "state/0/0/8.changelog", SPARK_4_3, "CANNOT_LOAD_STATE_STORE"),
    ],
)
def test_no_spark_reads_a_block_that_does_not_fit_the_checksum_in_it(
    name: str, file: str, spark: SparkVersion, error: str, tmp_path: Path
) -> None:
    folder = copied(name, tmp_path)
    for snapshot in folder.glob("state/0/*/8.*"):
        if snapshot.suffix in (".zip", ".snapshot"):
            snapshot.unlink()
    turn(folder / file)
    found = report(folder, spark)
    assert (found.restart.error, found.restart.batch, found.restart.leaves_orphan) == (error, 8, True)
    assert (found.findings[0].condition.name, found.findings[0].severity) == ("STATE_FILE_DAMAGED", Severity.ERROR)


def test_large_changes_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(HDFS, tmp_path)
    turn(folder / "state/0/0/8.delta")
    monkeypatch.setattr(state_checksums, "UNPACKED_BYTES_MAX", 10)
    assert [each.is_corrupt for each in unsound(folder).values()] == [False]


def test_of_two_tasks_that_fail_only_what_both_say_is_told(tmp_path: Path) -> None:
    folder = copied(HDFS, tmp_path)
    turn(folder / "state/0/0/8.delta")
    for path in folder.glob("state/0/1/8.*"):
        path.unlink()
    assert report(folder, SPARK_4_3).restart.error == "CANNOT_LOAD_STATE_STORE"
    assert report(folder, SPARK_3_5).restart.error == "Error"


def test_snapshot_of_a_batch_whose_commits_were_lost_is_looked_into(folder: Path) -> None:
    for batch in (5, 6, 7):
        (folder / f"commits/{batch}").unlink()
    for part in (folder / "state/0/1/SSTs").iterdir():
        turn(part)
    found = report(folder, SPARK_4_0).restart
    assert (found.outcome, found.batch, found.error) == (Outcome.FAILS, 7, "CANNOT_LOAD_STATE_STORE")


def test_newer_sparks_go_past_a_snapshot_where_all_changes_since_are_there(tmp_path: Path) -> None:
    folder = copied("4.0-agg-rocksdb-changelog-healthy", tmp_path)
    for snapshot in folder.glob("state/0/0/*.zip"):
        turn(snapshot)
    assert report(folder, SPARK_4_1).restart.outcome is Outcome.FAILS
    newer = report(folder, SPARK_4_2)
    assert newer.restart.outcome is Outcome.RESUMES
    assert [finding.severity for finding in newer.findings if finding.severity > Severity.INFO] == [Severity.WARNING]
