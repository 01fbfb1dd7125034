"""Which rows of a Delta table are those of a query: all, those of its files, or nobody can tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from lastgood.delta_log.actions import TableCommit, TableMetadata, Transaction
from lastgood.delta_log.table import TableLog
from lastgood.sinks.delta.own_rows import count_rows, judge_broken_batch, judge_own_rows
from lastgood.sinks.kind import OwnRows
from lastgood.storage.reading import open_storage, parse_location

Q = "0dcd0ea6-5866-4db8-bdb7-960f2e49c827"
OTHER = "other"


def write(version: int, *files: str, batch: int | None = None, app_id: str = Q) -> TableCommit:
    marks = () if batch is None else (Transaction(app_id, batch),)
    return TableCommit(version, operation="WRITE", transactions=marks, added=frozenset(files), changes_data=True)


def rewrite(version: int, *files: str, operation: str, changes_data: bool) -> TableCommit:
    added = frozenset({f"new{version}"})
    return TableCommit(version, operation=operation, added=added, removed=frozenset(files), changes_data=changes_data)


def make_log(*commits: TableCommit) -> TableLog:
    return TableLog("/lake/t", commits[-1].version, commits, {}, TableMetadata("t"))


FIRST, SECOND = write(0, "a", batch=0), write(1, "b", "c", batch=1)


@pytest.mark.parametrize(
    ("log", "own"),
    [
        (make_log(FIRST, SECOND), OwnRows(1, None)),
        (make_log(FIRST, SECOND, rewrite(2, "a", "b", operation="OPTIMIZE", changes_data=False)), OwnRows(2, None)),
        (make_log(FIRST, SECOND, write(2, "x")), OwnRows(2, ("a", "b", "c"))),
        (make_log(FIRST, SECOND, write(2, "x", batch=0, app_id=OTHER)), OwnRows(2, ("a", "b", "c"))),
        (make_log(write(0, "x"), write(1, "a", batch=0), write(2, "b", batch=1)), OwnRows(2, ("a", "b"))),
        (make_log(write(7, "a", batch=0), write(8, "b", batch=1)), OwnRows(8, ("a", "b"))),
    ],
)
def test_they_are_all_or_those_of_its_files(log: TableLog, own: OwnRows) -> None:
    assert judge_own_rows(log, Q, 2) == own


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (make_log(FIRST), "its log has no version of batch 1 (any more)"),
        (make_log(SECOND), "its log has no version of batch 0 (any more)"),
        (
            make_log(FIRST, SECOND, rewrite(2, "a", operation="DELETE", changes_data=True)),
            "version 2 (DELETE) rewrote or removed rows of it",
        ),
        (
            make_log(FIRST, SECOND, write(2, "x"), rewrite(3, "a", "x", operation="OPTIMIZE", changes_data=False)),
            "version 3 (OPTIMIZE) rewrote or removed rows of it",
        ),
    ],
)
def test_else_nobody_can_tell(log: TableLog, why: str) -> None:
    assert judge_own_rows(log, Q, 2) == why


def test_how_many_rows_a_batch_has_written_its_version_tells(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for batch, app_id in ((0, Q), (0, OTHER), (1, Q)):
        mark = CommitProperties(app_transactions=[deltalake.Transaction(app_id, batch)])
        write_deltalake(table, pa.table({"id": range(batch + 3)}), mode="append", commit_properties=mark)
    place = parse_location(str(table))
    assert [count_rows(open_storage(place), place, Q, batch) for batch in (0, 1, 2)] == [3, 4, None]
    nothing = parse_location(str(tmp_path / "none"))
    assert count_rows(open_storage(nothing), nothing, Q, 0) is None


TWICE = "batch 1 stands in 2 versions, and not in one"
NONE_OF_1 = "batch 1 stands in 0 versions, and not in one"
KNOWN = {Q: Transaction(Q, 1)}
BUSY = replace(make_log(*(write(version, "x") for version in range(8, 12))), transactions=KNOWN)


@pytest.mark.parametrize(
    ("log", "broken"),
    [
        (make_log(FIRST, SECOND), None),
        (make_log(FIRST, write(1, "x"), write(2, "b", batch=1)), None),
        (make_log(FIRST, write(1, "x")), NONE_OF_1),
        (make_log(write(0, "x"), SECOND), "batch 0 stands in 0 versions, and not in one"),
        (make_log(FIRST, SECOND, write(2, "b", batch=1)), TWICE),
        (make_log(write(7, "a", batch=0), write(8, "b", batch=1)), None),
        (make_log(write(8, "b", batch=1)), None),
        (BUSY, None),
        (replace(BUSY, transactions={}), None),
        (replace(BUSY, transactions={Q: Transaction(Q, 0)}), "batch 0 is the newest in the table, and not 1"),
        (replace(BUSY, transactions={Q: Transaction(Q, 0)}, unknown="its checkpoint"), None),
    ],
)
def test_batch_that_does_not_stand_there_once_is_named(log: TableLog, broken: str | None) -> None:
    assert judge_broken_batch(log, Q, range(2)) == broken


def test_batches_that_an_application_has_not_written_are_not_missed() -> None:
    log = make_log(write(0, "a", batch=3), write(1, "b", batch=7))
    assert judge_broken_batch(log, Q, {3, 7}) is None
    assert judge_broken_batch(log, Q, {3, 5, 7}) == "batch 5 stands in 0 versions, and not in one"
    assert judge_broken_batch(log, Q, {3, 7, 8}) == "batch 8 stands in 0 versions, and not in one"
    assert judge_broken_batch(log, Q, ()) is None
