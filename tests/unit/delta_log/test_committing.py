"""Versions of a table that we write: deltalake reads them as they are meant, and of two only one gets its place."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lastgood.delta_log.actions import TAKE_BACK, TableCommit, Transaction, parse_commit
from lastgood.delta_log.committing import (
    format_version,
    list_additions,
    make_mark_action,
    make_remove_action,
    put_version,
)
from lastgood.delta_log.listing import name_commit
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter

RECOVERY = "20261121-160058-7f3a"


def table(folder: Path) -> Path:
    """Three versions; the newest holds the rows 3."""
    for number in (1, 2, 3):
        write_deltalake(folder, pa.table({"n": [number], "p": [number]}), mode="append", partition_by=["p"])
    return folder


def added(folder: Path, version: int) -> list[dict[str, object]]:
    return list_additions((folder / "_delta_log" / name_commit(version)).read_bytes())


def test_version_takes_files_out_and_moves_the_mark_and_says_who_made_it(tmp_path: Path) -> None:
    folder, mark = table(tmp_path), Transaction("q", 7, 5)
    actions = [make_mark_action(mark), *(make_remove_action(each, now_ms=9) for each in added(folder, 2))]
    content = format_version(TAKE_BACK, {"recovery": RECOVERY, "batch": 7}, actions, now_ms=9)
    assert put_version(LocalWriter(), parse_location(str(folder)), 3, content)
    found = DeltaTable(folder)
    assert sorted(found.to_pyarrow_table().column("n").to_pylist()) == [1, 2]
    assert (found.version(), found.transaction_version("q")) == (3, 7)
    told = found.history(1)[0]
    assert (told["operation"], told["operationParameters"]["batch"]) == (TAKE_BACK, "7")
    parsed = parse_commit(3, content)
    assert isinstance(parsed, TableCommit)
    assert (parsed.recovery, parsed.by_app["q"], parsed.changes_data) == (RECOVERY, mark, True)


def test_what_was_added_can_be_added_again_as_it_was(tmp_path: Path) -> None:
    folder = table(tmp_path)
    place, before = parse_location(str(folder)), DeltaTable(folder).to_pyarrow_table()
    gone = [make_remove_action(each, now_ms=9) for each in added(folder, 2)]
    put_version(LocalWriter(), place, 3, format_version("X", {}, gone, now_ms=9))
    again = [{"add": each} for each in added(folder, 2)]
    put_version(LocalWriter(), place, 4, format_version("X", {}, again, now_ms=9))
    assert DeltaTable(folder).to_pyarrow_table().sort_by("n") == before.sort_by("n")


def test_place_that_is_taken_stays_as_it_is(tmp_path: Path) -> None:
    folder = table(tmp_path)
    before = (folder / "_delta_log" / name_commit(2)).read_bytes()
    assert not put_version(LocalWriter(), parse_location(str(folder)), 2, b"{}")
    assert (folder / "_delta_log" / name_commit(2)).read_bytes() == before


def test_mark_keeps_the_time_that_it_had_or_has_none() -> None:
    assert make_mark_action(Transaction("q", 7)) == {"txn": {"appId": "q", "version": 7}}
    assert make_mark_action(Transaction("q", 7, 5))["txn"]["lastUpdated"] == 5


def test_removal_names_what_a_reader_needs() -> None:
    body = make_remove_action(
        {"path": "a%20b", "size": 4, "partitionValues": {"p": "1"}, "stats": "{}", "tags": None}, now_ms=9
    )
    assert json.loads(json.dumps(body))["remove"] == {
        "path": "a%20b",
        "deletionTimestamp": 9,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"p": "1"},
        "size": 4,
    }
