"""What Spark makes of the sparse logs of asynchronous progress."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from predicting import Does, fails_after_sink, remove, report, reports, reruns, resumes

from lastgood.query.prediction.restart import Outcome, SinkCalled
from lastgood.query.prediction.spark_version import (
    SPARK_4_2,
    SPARK_4_3,
    SparkVersion,
)
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput


def sparse(folder: Path, planned: Iterable[int], committed: Iterable[int]) -> Path:
    """A query that ran 15 batches, of which these are left in its logs."""
    CheckpointBuilder(folder, FileInput(), checksums=True).run(15)
    for log, kept in (("offsets", planned), ("commits", committed)):
        remove(*(f"{log}/{number}" for number in {*range(15)} - {*kept}))(folder)
    return folder


@pytest.mark.parametrize(
    ("planned", "committed", "expected"),
    [
        ([0, 4, 7, 11, 14], [0, 4, 7, 11, 14], resumes(15)),
        ([0, 4, 7, 14], [0, 4, 7, 11, 14], resumes(15)),
        ([14], [0, 4, 7, 11, 14], resumes(15)),
        ([0, 4, 7, 11, 14], [0, 4, 11], reruns(14)),
        ([0, 4, 7, 11], [0, 4, 7, 11, 14], fails_after_sink(11)),
    ],
)
def test_sparse_logs_that_have_lost_entries_are_read_as_sparse_ones(
    planned: list[int], committed: list[int], expected: Does, tmp_path: Path
) -> None:
    for spark, found in reports(sparse(tmp_path, planned, committed)).items():
        restart = found.restart
        assert expected == Does(restart.outcome, restart.batch, restart.error, restart.leaves_orphan), spark
        assert (restart.if_asynchronous, [each for each in restart.unknowns if "--sink" not in each]) == (None, [])


def test_a_hole_that_may_be_a_loss_or_none_is_told_both_ways(tmp_path: Path) -> None:
    restart = report(sparse(tmp_path, [0, 4], [0, 4]), SPARK_4_3).restart
    assert (restart.outcome, restart.error) == (Outcome.FAILS, "batch 3 doesn't exist")
    assert restart.if_asynchronous is not None
    assert (restart.if_asynchronous.outcome, restart.if_asynchronous.batch) == (Outcome.RESUMES, 5)
    (unknown,) = (each for each in restart.unknowns if "--sink" not in each)
    assert unknown.endswith("with asyncProgressTrackingEnabled they are none, and Spark 4.3 resumes, batch 5")


def test_a_plan_that_was_surely_there_is_lost(tmp_path: Path) -> None:
    restart = report(sparse(tmp_path, [12, 14], [12, 13, 14]), SPARK_4_3).restart
    assert (restart.error, restart.if_asynchronous) == ("batch 13 doesn't exist", None)


@pytest.mark.parametrize(("spark", "leaves_orphan"), [(SPARK_4_2, False), (SPARK_4_3, True)])
def test_plan_that_cannot_be_written_asynchronously_shows_after_its_batch(
    spark: SparkVersion, leaves_orphan: bool, tmp_path: Path
) -> None:
    sparse(tmp_path, [0, 4, 7, 11, 14], [0, 4, 7, 11, 14])
    (tmp_path / "offsets/.15.crc").write_bytes(b"left over")
    restart = report(tmp_path, spark).restart
    assert (restart.outcome, restart.sink_called) == (Outcome.FAILS, SinkCalled.YES)
    assert restart.leaves_orphan is leaves_orphan
    (tmp_path / "offsets/.15.crc").unlink()
    (tmp_path / "offsets/15").mkdir()
    restart = report(tmp_path, spark).restart
    assert (restart.sink_called, restart.leaves_orphan) == (SinkCalled.YES, False)
