"""Damage to the state of real checkpoints: what every Spark makes of it, and what a person is told.

Spark 3.5, 4.0 and 4.3 were seen to do so for each row; 4.1 and 4.2 for some.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import Report, diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome, SinkCalled
from lastgood.query.prediction.spark_version import SPARK_4_0, SPARK_4_1, SPARK_4_2, SPARK_VERSIONS, SparkVersion
from lastgood.storage.reading import LocalStorage, parse_location

CASES = Path(__file__).parent / "cases"
HDFS, ROCKSDB = "3.5-agg-hdfs-healthy", "3.5-agg-rocksdb-healthy"
CHANGELOG, WITH_IDS = "4.0-agg-rocksdb-changelog-healthy", "4.3-agg-rocksdb-ckptv2-healthy"
COMMITTED, VERSION = 7, 8
DELTA, FILE = "Error reading delta file", "Error reading streaming state file of"

Edit = Callable[[Path], None]


def files(checkpoint: Path, version: int | None = None, kind: str = "", partition: str = "*") -> list[Path]:
    """Those of a version, or of a kind, with the checksums beside them."""
    found = (path for path in checkpoint.glob(f"state/0/{partition}/*") if path.is_file())
    stem = "" if version is None else str(version)
    named = ((path, path.name.removeprefix(".").partition(".")[0].partition("_")[0]) for path in found)
    return [path for path, number in named if stem in ("", number) and f".{kind}" in path.name]


def without(version: int | None = None, kind: str = "") -> Edit:
    def edit(checkpoint: Path) -> None:
        for path in files(checkpoint, version, kind):
            path.unlink()

    return edit


def without_folder(name: str) -> Edit:
    def edit(checkpoint: Path) -> None:
        for folder in checkpoint.glob(name):
            shutil.rmtree(folder)

    return edit


def emptied(checkpoint: Path) -> None:
    for path in files(checkpoint, VERSION, partition="0"):
        if not path.name.endswith(".crc"):
            path.write_bytes(b"")
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def taken_back(checkpoint: Path) -> None:
    """The logs go back to batch 4, the state does not."""
    for log in ("commits", "offsets", "sources/0"):
        for batch in (7, 6, 5):
            (checkpoint / log / str(batch)).unlink()
            (checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)


def logs_emptied(checkpoint: Path) -> None:
    for log in ("commits", "offsets", "sources/0"):
        for path in (checkpoint / log).iterdir():
            path.unlink()


def nothing(checkpoint: Path) -> None:
    del checkpoint


@dataclass(frozen=True)
class Row:
    """One damage to one kind of state."""

    case: str
    name: str
    edit: Edit
    error: str | None = None
    """In a task; None: the query goes on."""
    told: str | None = None
    since: SparkVersion | None = None
    error_then: str | None = None

    def expected(self, spark: SparkVersion) -> str | None:
        return self.error_then if self.since is not None and spark >= self.since else self.error


LOADS = "CANNOT_LOAD_STATE_STORE"
MISSING, LOST = "STATE_FILE_MISSING", "STATE_PARTITION_MISSING"
DAMAGED, PARTS = "STATE_FILE_DAMAGED", "STATE_PARTS_MISSING"
ROWS = [
    Row(HDFS, "none", nothing),
    Row(HDFS, "newest version removed", without(VERSION), DELTA, MISSING),
    Row(HDFS, "partition removed", without_folder("state/0/0"), DELTA, LOST),
    Row(HDFS, "newest version empty", emptied, "EOFException", DAMAGED),
    Row(HDFS, "version before removed", without(7, "delta"), DELTA, MISSING),
    Row(HDFS, "snapshots removed", without(None, "snapshot")),
    Row(HDFS, "schema removed", without_folder("state/0/0/_metadata")),
    Row(ROCKSDB, "none", nothing),
    Row(ROCKSDB, "newest version removed", without(VERSION), FILE, MISSING),
    Row(ROCKSDB, "partition removed", without_folder("state/0/0"), FILE, LOST),
    Row(ROCKSDB, "newest version empty", emptied, "NoSuchFileException", DAMAGED, SPARK_4_0, LOADS),
    Row(ROCKSDB, "version before removed", without(7)),
    Row(ROCKSDB, "snapshots removed", without(None, "zip"), FILE, LOST),
    Row(ROCKSDB, "parts removed", without_folder("state/0/*/SSTs"), "FileNotFoundException", PARTS),
    Row(CHANGELOG, "none", nothing),
    Row(CHANGELOG, "newest version removed", without(VERSION), FILE, MISSING),
    Row(CHANGELOG, "partition removed", without_folder("state/0/0"), FILE, LOST),
    Row(CHANGELOG, "newest version empty", emptied, "NoSuchFileException", DAMAGED, SPARK_4_0, LOADS),
    Row(CHANGELOG, "snapshots removed", without(None, "zip")),
    Row(CHANGELOG, "operator metadata removed", without_folder("state/0/_metadata")),
]


def damaged(row: Row, folder: Path) -> Path:
    checkpoint = folder / "checkpoint"
    shutil.copytree(CASES / row.case / "checkpoint", checkpoint)
    row.edit(checkpoint)
    return checkpoint


def report(checkpoint: Path, spark: SparkVersion) -> Report:
    found = read_checkpoint(LocalStorage(), parse_location(str(checkpoint)))
    return diagnose(Observation(found, location="/chk"), spark)


def bad(found: Report) -> list[str]:
    return [finding.condition.name for finding in found.findings if finding.severity > Severity.INFO]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.case}: {row.name}")
def test_damage_to_the_state_is_told_as_each_spark_takes_it(row: Row, tmp_path: Path) -> None:
    checkpoint = damaged(row, tmp_path)
    for spark in SPARK_VERSIONS:
        found = report(checkpoint, spark)
        restart, error = found.restart, row.expected(spark)
        assert restart.batch == COMMITTED + 1, spark
        if error is None:
            assert (restart.outcome, bad(found)) == (Outcome.RESUMES, []), spark
            continue
        assert (restart.outcome, restart.leaves_orphan) == (Outcome.FAILS, True), spark
        assert (restart.sink_called, restart.error) == (SinkCalled.MAYBE, error), spark
        assert set(bad(found)) == {row.told}, spark
        assert found.findings[0].next == "lastgood rebuild /chk -- COMMAND"


@pytest.mark.parametrize(("kind", "error", "repaired"), [(CHANGELOG, "FileNotFoundException", True)])
def test_newer_sparks_go_past_a_snapshot_that_lacks_parts(
    kind: str, error: str, repaired: bool, tmp_path: Path
) -> None:
    checkpoint = damaged(Row(kind, "", without_folder("state/0/*/SSTs")), tmp_path)
    for spark in (SPARK_4_0, SPARK_4_1):
        assert report(checkpoint, spark).restart.error == error
    assert (report(checkpoint, SPARK_4_2).restart.outcome is Outcome.RESUMES) is repaired


def test_snapshots_that_are_older_and_lack_parts_as_well_are_no_way_round(tmp_path: Path) -> None:
    """As real Spark 4.3 fails once the changes before the oldest snapshot are deleted, as they are in the end."""

    def edit(checkpoint: Path) -> None:
        without_folder("state/0/*/SSTs")(checkpoint)
        for version in (1, 2, 3):
            without(version)(checkpoint)

    checkpoint = damaged(Row(CHANGELOG, "", edit), tmp_path)
    for spark in (SPARK_4_2, SPARK_VERSIONS[-1]):
        restart = report(checkpoint, spark).restart
        assert (restart.outcome, restart.error) == (Outcome.FAILS, FILE)


@pytest.mark.parametrize(("kind", "condition"), [(HDFS, "STALE_STATE_SNAPSHOT"), (ROCKSDB, None), (WITH_IDS, None)])
def test_logs_that_were_taken_back_leave_a_snapshot_that_wins_later(
    kind: str, condition: str | None, tmp_path: Path
) -> None:
    found = report(damaged(Row(kind, "", taken_back), tmp_path), SPARK_4_0)
    assert (found.restart.outcome, found.restart.batch) == (Outcome.RESUMES, 5)
    assert bad(found) == ([condition] if condition else [])


@pytest.mark.parametrize("kind", [HDFS, ROCKSDB, CHANGELOG, WITH_IDS])
def test_state_without_logs_is_refused_by_newer_sparks(kind: str, tmp_path: Path) -> None:
    checkpoint = damaged(Row(kind, "", logs_emptied), tmp_path)
    for spark in SPARK_VERSIONS:
        found = report(checkpoint, spark)
        error = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY" if spark >= SPARK_4_1 else None
        assert (found.restart.error, bad(found)) == (error, ["STATE_LEFT_OVER"])


def test_state_with_ids_is_loaded_by_those_that_the_newest_commit_names(tmp_path: Path) -> None:
    for number, edit in enumerate((nothing, without(VERSION), without(None, "zip"))):
        checkpoint = damaged(Row(WITH_IDS, "", edit), tmp_path / str(number))
        errors = {str(spark): report(checkpoint, spark).restart.error for spark in SPARK_VERSIONS if spark >= SPARK_4_0}
        assert errors["4.0"] == (None, FILE, "CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT")[number]
        assert errors["4.3"] == (None, FILE, "AUTO_SNAPSHOT_REPAIR_FAILED")[number]


def test_snapshots_that_only_spark_4_0_reads_are_told_to_be_whole(tmp_path: Path) -> None:
    """As real Spark 4.0.5 writes them where the first state that it meets has ids; 4.1.4 was seen to fail at them."""

    def edit(checkpoint: Path) -> None:
        for path in [file for file in files(checkpoint, None, "zip") if file.suffix == ".zip"]:
            with zipfile.ZipFile(path) as archive:
                entries = {name: archive.read(name) for name in archive.namelist()}
            entries["metadata"] = entries["metadata"].replace(b"v1", b"v2", 1)
            with zipfile.ZipFile(path, "w") as archive:
                for name, content in entries.items():
                    archive.writestr(name, content)

    checkpoint = damaged(Row(WITH_IDS, "", edit), tmp_path)
    assert report(checkpoint, SPARK_4_0).restart.outcome is Outcome.RESUMES
    found = report(checkpoint, SPARK_4_1)
    assert (found.restart.outcome, found.restart.error) == (Outcome.FAILS, LOADS)
    assert "The file is whole" in found.findings[0].effect


def test_state_with_ids_that_is_gone_is_missed_because_commits_name_it(tmp_path: Path) -> None:
    found = report(damaged(Row(WITH_IDS, "", without_folder("state")), tmp_path), SPARK_VERSIONS[-1])
    assert found.restart.error == "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
    assert bad(found) == ["STATE_FOLDER_MISSING"]


@pytest.mark.parametrize("kind", [HDFS, ROCKSDB, CHANGELOG])
def test_plan_without_pinned_settings_has_its_finding_on_every_spark(kind: str, tmp_path: Path) -> None:
    checkpoint = damaged(Row(kind, "", nothing), tmp_path)
    newest = checkpoint / "offsets" / str(COMMITTED)
    first, _, *rest = newest.read_text().split("\n")
    newest.write_text("\n".join([first, '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}', *rest]))
    for spark in SPARK_VERSIONS:
        found = report(checkpoint, spark)
        assert (found.restart.outcome, "STATE_FORMAT_CHANGED" in bad(found)) == (Outcome.FAILS, True), spark
