"""All rows of one application go out of a Delta table by one version, and those of others stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lastgood.sinks.delta.taking_out import take_out
from lastgood.sinks.kind import TakenOut, Taking
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter

Q = "0dcd0ea6-5866-4db8-bdb7-960f2e49c827"
UNDO = "20261121-160058-7f3a"
NOW_MS = 1_795_220_516_284


def write(table: Path, *ids: int, batch: int | None = None) -> None:
    marks = [] if batch is None else [Transaction(Q, batch)]
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(app_transactions=marks))


def take(table: Path, *, may_write: int | None = None) -> TakenOut | str:
    location = parse_location(str(table))
    taking = Taking(query_id=Q, checkpoint="/chk", recovery=UNDO, at_ms=NOW_MS, may_write=may_write)
    return take_out(LocalWriter(root=location), location, taking)


def read_ids(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    table = tmp_path / "table"
    write(table, 7)
    write(table, 1, 2, batch=0)
    write(table, 3, batch=1)
    return table


def test_its_rows_go_once_and_those_of_others_stay(table: Path) -> None:
    assert take(table) == TakenOut(3, None)
    assert read_ids(table) == [7]
    assert DeltaTable(table).transaction_version(Q) == 1, "who still writes under its name has its batches skipped"
    write(table, 8)
    assert take(table) == TakenOut(3, None)
    assert (read_ids(table), DeltaTable(table).version()) == ([7, 8], 4)


def test_where_it_has_written_nothing_nothing_is_done(table: Path, tmp_path: Path) -> None:
    assert take(tmp_path / "nowhere") == TakenOut(None, None)
    other = tmp_path / "other"
    write(other, 7)
    assert take(other) == TakenOut(None, None)
    assert DeltaTable(other).version() == 0


def test_rows_that_somebody_has_touched_stay(table: Path) -> None:
    DeltaTable(table).optimize.compact()
    found = take(table)
    assert isinstance(found, str)
    assert "version 3 (OPTIMIZE) touched what version" in found
    assert read_ids(table) == [1, 2, 3, 7]


def test_so_do_all_where_the_table_only_grows(table: Path) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "true"})
    assert take(table) == "the table has delta.appendOnly = true"


def test_batches_that_have_written_nothing_are_not_missed(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(table, 7)
    for batch in (3, 9):
        write(table, batch, batch=batch)
    assert take(table) == TakenOut(3, None)
    assert read_ids(table) == [7]


def test_but_where_old_versions_are_gone_nobody_knows_what_they_were(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for batch in (3, 9):
        write(table, batch, batch=batch)
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log/00000000000000000000.json").unlink()
    assert take(table) == "the version of batch 8 was not read"
    assert read_ids(table) == [3, 9]


def test_what_a_driver_may_still_write_is_skipped_by_its_mark(table: Path, tmp_path: Path) -> None:
    assert take(table, may_write=4) == TakenOut(3, None)
    assert DeltaTable(table).transaction_version(Q) == 4
    other = tmp_path / "other"
    write(other, 7)
    assert take(other, may_write=0) == TakenOut(1, None)
    assert take(other, may_write=0) == TakenOut(1, None)
    assert (DeltaTable(other).transaction_version(Q), read_ids(other)) == (0, [7])


def test_rows_of_a_batch_that_does_not_count_any_more_do_not_stay_unseen(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for batch in range(4):
        write(table, batch, batch=batch)
    DeltaTable(table).delete("id in (1, 3)")
    found = take(table)
    assert isinstance(found, str)
    assert read_ids(table) == [0, 2]
