from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planning import query, read

from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, OFFSET_LATEST, FileOffset, KafkaOffset
from lastgood.planning.plan import Promise
from lastgood.planning.proving import Expected, expect_first_batch, find_contradiction
from lastgood.testing.checkpoints import FileInput

FIVE, TEN, TWELVE = (KafkaOffset({"t": {0: end, 1: end}}) for end in (5, 10, 12))
RERUN = Expected(7, (FIVE,), (TEN,))
NEW = Expected(7, (FIVE,), None)


def test_batch_that_is_run_again_is_expected_with_both_its_ends(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    wanted = expect_first_batch(Promise("4.2", "reruns", 3, ""), read(tmp_path))
    assert wanted == Expected(3, (KafkaOffset({"orders": {0: 15, 1: 15}}),), (KafkaOffset({"orders": {0: 20, 1: 20}}),))
    assert list(wanted.reads()) == ["orders/0 15..20", "orders/1 15..20"]


def test_new_batch_is_expected_where_the_newest_ends_and_how_far_it_reads_is_open(tmp_path: Path) -> None:
    query(tmp_path, 3)
    wanted = expect_first_batch(Promise("4.2", "resumes", 3, ""), read(tmp_path))
    assert list(wanted.reads()) == ["orders/0 from 15", "orders/1 from 15"]


def test_offsets_that_are_no_numbers_are_told_by_their_names() -> None:
    start = KafkaOffset({"t": {0: OFFSET_EARLIEST, 1: OFFSET_LATEST}})
    assert list(Expected(4, (start,), None).reads()) == ["t/0 from the earliest", "t/1 from the latest"]


def test_first_batch_has_no_start_in_the_logs_where_its_source_has_written_none_down(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    (tmp_path / "sources/0/0").unlink()
    wanted = expect_first_batch(Promise("4.2", "reruns", 0, ""), read(tmp_path))
    assert (wanted.starts, list(wanted.reads())) == ((None,), ["orders/0 up to 5", "orders/1 up to 5"])


def test_first_batch_begins_where_its_source_has_written_down(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    again = expect_first_batch(Promise("4.2", "reruns", 0, ""), read(tmp_path))
    assert list(again.reads()) == ["orders/0 0..5", "orders/1 0..5"]
    (tmp_path / "offsets/0").unlink()
    wanted = expect_first_batch(Promise("4.2", "starts", 0, ""), read(tmp_path))
    assert list(wanted.reads()) == ["orders/0 from 0", "orders/1 from 0"]


def test_files_are_told_by_the_entries_of_their_log(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    again = expect_first_batch(Promise("4.2", "reruns", 3, ""), read(tmp_path))
    assert list(again.reads()) == ["source 0 log entries 3..3"]
    assert list(Expected(4, (FileOffset(3),), None).reads()) == ["source 0 files after log entry 3"]


@pytest.mark.parametrize(
    ("wanted", "batch", "reads", "says"),
    [
        (RERUN, 7, [(FIVE, TEN)], ""),
        (NEW, 7, [(FIVE, TWELVE)], ""),
        (RERUN, 8, [(FIVE, TEN)], "batch 8 instead of 7"),
        (RERUN, 7, [(FIVE, TWELVE)], "was to begin at"),
        (NEW, 7, [(TEN, TWELVE)], "was to begin at"),
        (NEW, 7, [(None, TWELVE)], "its beginning"),
        (NEW, 7, [], "was to begin at"),
        (Expected(7, (None,), None), 7, [(None, TWELVE)], ""),
        (Expected(0, (FIVE,), (TEN,)), 0, [(None, TEN)], ""),
        (Expected(0, (FIVE,), (TEN,)), 0, [(FIVE, TEN)], ""),
        (Expected(0, (FIVE,), (TEN,)), 0, [(TWELVE, TEN)], "was to begin at"),
        (Expected(7, (FIVE, TEN), None), 7, [(TEN, TWELVE), (FIVE, TEN)], ""),
        (Expected(7, (FIVE, FIVE), None), 7, [(TEN, TWELVE), (FIVE, TEN)], "source 1"),
    ],
)
def test_what_spark_does_otherwise_is_told(wanted: Expected, batch: int, reads: list[Any], says: str) -> None:
    told = find_contradiction(wanted, batch, reads)
    assert (says in told) if says else not told
