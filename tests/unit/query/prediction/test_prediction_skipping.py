"""A batch that a sink has and skips, of a query that keeps state: each row was seen with real Spark."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import Report, diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome, SinkCalled
from lastgood.query.prediction.spark_version import SPARK_4_1, SPARK_4_2, SPARK_4_3, SparkVersion
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.storage.reading import LocalStorage, parse_location

CASES = Path(__file__).resolve().parents[3] / "corpus" / "cases"
HDFS, ROCKSDB, BY_ID = "3.5-agg-hdfs-healthy", "3.5-agg-rocksdb-healthy", "4.3-agg-rocksdb-ckptv2-healthy"
NEWEST = 7
DELTA = SinkEvidence(
    "delta",
    "/lake/out",
    DedupeKey.QUERY_ID,
    NEWEST,
    known=True,
    because="x",
    skips_up_to=NEWEST,
    marked_at_ms=4_000_000_000_000,  # after every plan
)
FILES = replace(DELTA, kind="file", dedupe_key=DedupeKey.DIRECTORY)
FUNCTION = replace(DELTA, dedupe_key=DedupeKey.APP_ID)
FENCE = replace(DELTA, kind="fence", skips_up_to=None)
LACKING = replace(DELTA, last_batch=NEWEST - 1, skips_up_to=NEWEST - 1)


def orphaned(tmp_path: Path, name: str, *removed: str) -> Path:
    """A query of which the newest batch is in the sink and not committed."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(CASES / name / "checkpoint", folder)
    assert max(int(path.name) for path in (folder / "commits").iterdir() if path.name.isdecimal()) == NEWEST
    for pattern in (f"commits/{NEWEST}", f"commits/.{NEWEST}.crc", *removed):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def report(folder: Path, *sinks: SinkEvidence, spark: SparkVersion = SPARK_4_2) -> Report:
    return diagnose(Observation(read_checkpoint(LocalStorage(), parse_location(str(folder))), sinks=sinks), spark)


def errors(found: Report) -> list[str]:
    return [each.condition.name for each in found.findings if each.severity is Severity.ERROR]


@pytest.mark.parametrize("name", [HDFS, ROCKSDB])
@pytest.mark.parametrize("sink", [DELTA, FILES, FUNCTION, FENCE])
def test_batch_that_is_skipped_runs_on_where_its_state_is_there(tmp_path: Path, name: str, sink: SinkEvidence) -> None:
    found = report(orphaned(tmp_path, name), sink)
    assert (found.restart.outcome, found.restart.batch) == (Outcome.RERUNS, NEWEST)
    assert (found.restart.next_stop, errors(found)) == (None, [])


def test_batch_that_is_skipped_loads_nothing_itself(tmp_path: Path) -> None:
    folder = orphaned(tmp_path, ROCKSDB, f"state/0/*/{NEWEST}.zip")
    found = report(folder, DELTA)
    assert (found.restart.outcome, found.restart.next_stop, errors(found)) == (Outcome.RERUNS, None, [])
    assert report(folder, LACKING).restart.outcome is Outcome.FAILS


@pytest.mark.parametrize("partition", ["*", "0"])
@pytest.mark.parametrize(
    ("name", "error"), [(HDFS, "Error reading delta file"), (ROCKSDB, "Error reading streaming state file of")]
)
def test_batch_after_one_that_is_skipped_needs_the_state_that_it_made(
    tmp_path: Path, name: str, error: str, partition: str
) -> None:
    folder = orphaned(tmp_path, name, f"state/0/{partition}/{NEWEST + 1}.*")
    found = report(folder, DELTA)
    assert (found.restart.outcome, found.restart.batch, found.restart.stop) == (Outcome.RERUNS, NEWEST, None)
    assert (found.restart.next_error, found.restart.to_json()["next_error"]) == (error, error)
    assert errors(found) == ["STATE_FILE_MISSING"]
    assert found.findings[0].effect.startswith(f"Batch {NEWEST + 1} cannot run")
    assert report(folder, LACKING).restart.next_stop is None


def test_function_may_run_a_batch_that_its_sink_has(tmp_path: Path) -> None:
    folder = orphaned(tmp_path, HDFS, f"state/0/*/{NEWEST + 1}.*")
    restart = report(folder, FUNCTION).restart
    assert (restart.outcome, restart.next_error) == (Outcome.RERUNS, "Error reading delta file")
    assert any("whether the function runs batch 7" in unknown for unknown in restart.unknowns)
    assert report(folder, FUNCTION, LACKING).restart.next_stop is None


def test_function_that_does_not_run_a_batch_fails_once(tmp_path: Path) -> None:
    folder = orphaned(tmp_path, HDFS)
    assert any("STATE_STORE_COMMIT_VALIDATION_FAILED, once" in each for each in report(folder, FENCE).restart.unknowns)
    assert not report(folder, FENCE, spark=SPARK_4_1).restart.unknowns
    assert not any("STATE_STORE_COMMIT" in each for each in report(folder, DELTA).restart.unknowns)


def test_damaged_state_after_a_batch_that_is_skipped_is_seen(tmp_path: Path) -> None:
    folder = orphaned(tmp_path, HDFS)
    for path in [*folder.glob(f"state/0/0/{NEWEST + 1}.*"), *folder.glob(f"state/0/0/.{NEWEST + 1}.*")]:
        path.write_bytes(b"")
    assert report(folder, DELTA).restart.next_stop is not None


@pytest.mark.parametrize("sink", [DELTA, FILES])
@pytest.mark.parametrize("removed", [(), (f"state/0/*/{NEWEST + 1}_*",)])
def test_batch_that_is_skipped_cannot_name_its_state(
    tmp_path: Path, sink: SinkEvidence, removed: tuple[str, ...]
) -> None:
    found = report(orphaned(tmp_path, BY_ID, *removed), sink, spark=SPARK_4_3)
    restart = found.restart
    assert (restart.outcome, restart.batch) == (Outcome.FAILS_AFTER_SINK, NEWEST)
    assert (restart.error, restart.sink_called) == ("CheckpointInfo length: 0", SinkCalled.YES)
    assert not restart.leaves_orphan
    assert errors(found) == ["STATE_NEVER_MADE"]


def test_function_may_run_a_batch_that_has_to_name_its_state(tmp_path: Path) -> None:
    restart = report(orphaned(tmp_path, BY_ID), FUNCTION, spark=SPARK_4_3).restart
    assert (restart.outcome, restart.next_stop) == (Outcome.RERUNS, None)
    assert any("CheckpointInfo length: 0" in unknown for unknown in restart.unknowns)


def test_missing_folder_stops_spark_4_2_before_the_sink_is_asked(tmp_path: Path) -> None:
    folder = orphaned(tmp_path, HDFS, "state/0")
    restart = report(folder, DELTA).restart
    error = "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
    assert (restart.outcome, restart.error, restart.sink_called) == (Outcome.FAILS, error, SinkCalled.NO)


def test_missing_folder_stops_an_older_spark_at_the_batch_after_it(tmp_path: Path) -> None:
    folder = orphaned(tmp_path, HDFS, "state/0")
    restart = report(folder, DELTA, spark=SPARK_4_1).restart
    assert (restart.outcome, restart.batch, restart.next_error) == (Outcome.RERUNS, NEWEST, "Error reading")
