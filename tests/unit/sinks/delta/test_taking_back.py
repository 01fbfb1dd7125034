"""How far rows and mark can be taken back: only as long as every file is as the batch left it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lastgood.delta_log.actions import (
    FENCE,
    PUT_BACK,
    RESTORE,
    TAKE_BACK,
    USE_UP,
    TableCommit,
    TableMetadata,
    Transaction,
)
from lastgood.delta_log.table import TableLog
from lastgood.sinks.delta.history import trace_history
from lastgood.sinks.delta.taking_back import find_reach_back, list_versions_above

Q = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


def batch(number: int, version: int | None = None, **others: Any) -> TableCommit:
    """A batch, as the streaming sink writes it."""
    fields: dict[str, Any] = {
        "operation": "STREAMING UPDATE",
        "parameters": {"queryId": Q, "epochId": str(number)},
        "transactions": (Transaction(Q, number, 1),),
        "added": frozenset({f"part-{number}"}),
        **others,
    }
    return TableCommit(number if version is None else version, **fields)


def ours(version: int, operation: str, mark: int, **others: Any) -> TableCommit:
    """A version that a recovery made."""
    told = {"recovery": "20261121-160058-7f3a", **others.pop("told", {})}
    return TableCommit(version, operation=operation, parameters=told, transactions=(Transaction(Q, mark),), **others)


def log(*commits: TableCommit, **configuration: str) -> TableLog:
    metadata = TableMetadata("t", {name.replace("_", "."): value for name, value in configuration.items()})
    return TableLog("/lake/t", commits[-1].version, commits, {Q: commits[-1].transactions[-1]}, metadata)


def reached(table: TableLog, obstacles: tuple[str, ...] = ()) -> tuple[int | None, str]:
    return find_reach_back(table, trace_history(table.commits, Q), obstacles)


FIVE = tuple(batch(number) for number in range(5))


def test_table_that_nobody_else_touched_goes_back_to_its_first_batch() -> None:
    assert reached(log(*FIVE)) == (0, "it is the first batch")
    assert list_versions_above(trace_history(FIVE, Q), 2) == (3, 4)


def test_it_goes_back_as_far_as_its_log_was_read() -> None:
    assert reached(log(*FIVE[2:])) == (1, "the version of batch 1 was not read")


@pytest.mark.parametrize(
    ("later", "because"),
    [
        (
            TableCommit(5, operation="OPTIMIZE", removed=frozenset({"part-3"}), added=frozenset({"small"})),
            "batch 3: version 5 (OPTIMIZE) touched what version 3 added",
        ),
        (TableCommit(5, removed=frozenset({"part-3"})), "batch 3: version 5 (no operation is told) touched"),
    ],
    ids=["rewritten", "deleted"],
)
def test_batch_whose_file_somebody_touched_stays(later: TableCommit, because: str) -> None:
    found, why = reached(replace(log(*FIVE), commits=(*FIVE, later)))
    assert found == 3
    assert why.startswith(because)


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        (batch(3, removed=frozenset({"part-2"})), "also removed files"),
        (batch(3, added=frozenset({"s3://elsewhere/part"})), "outside the table"),
        (batch(3, added=frozenset({"/elsewhere/part"})), "outside the table"),
    ],
    ids=["it removed files, too", "another store", "another folder"],
)
def test_batch_that_did_more_than_add_files_of_the_table_stays(changed: TableCommit, because: str) -> None:
    found, why = reached(log(*FIVE[:3], changed, FIVE[4]))
    assert found == 3
    assert because in why


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors"])
def test_table_with_a_property_that_forbids_it_goes_nowhere(name: str) -> None:
    table = replace(log(*FIVE), metadata=TableMetadata("t", {name: "true"}))
    assert reached(table) == (None, f"the table has {name} = true")
    assert reached(replace(table, metadata=TableMetadata("t", {name: "false"})))[0] == 0
    assert reached(log(*FIVE), ("table feature rowTracking",)) == (None, "table feature rowTracking")


def test_table_without_a_batch_of_the_query_goes_nowhere() -> None:
    assert reached(log(TableCommit(0, transactions=(Transaction("other", 3),))))[0] is None


def test_newer_version_with_an_older_batch_stops_it() -> None:
    found, why = reached(log(*FIVE, batch(2, 5, added=frozenset({"again"})), batch(7, 6)))
    assert (found, why) == (7, "newer versions hold older batches")


def test_what_was_taken_back_and_put_back_can_be_taken_back_again() -> None:
    back = ours(5, TAKE_BACK, 3, removed=frozenset({"part-4"}))
    again = ours(6, PUT_BACK, 4, told={"version": "4"}, added=frozenset({"part-4"}))
    history = trace_history((*FIVE, back, again), Q)
    assert (history.shown.batch_id, list_versions_above(history, 2)) == (4, (3, 4))
    assert reached(log(*FIVE, back, again))[0] == 0
    assert all(each.is_live for each in history.batches)


def test_put_back_is_unclear_when_the_version_it_goes_by_was_not_read() -> None:
    again = ours(6, PUT_BACK, 4, told={"version": "2"}, added=frozenset({"part-4"}))
    history = trace_history((batch(4), ours(5, TAKE_BACK, 3, removed=frozenset({"part-4"})), again), Q)
    assert history.shown.unclear == "version 6 goes by one that is older than what could be read"


def test_fence_shows_nothing_and_takes_nothing() -> None:
    history = trace_history((ours(0, FENCE, -1), *(batch(number, number + 1) for number in range(3))), Q)
    assert (history.shown.batch_id, [each.batch_id for each in history.batches]) == (2, [0, 1, 2])
    fenced = trace_history((*FIVE, ours(5, FENCE, 4)), Q)
    assert (fenced.shown.batch_id, fenced.last_version) == (4, 4)


def test_number_that_was_used_up_counts_as_a_batch_without_rows_that_no_function_wrote() -> None:
    history = trace_history((*FIVE, ours(5, USE_UP, 5), batch(6)), Q)
    assert [each.row_count for each in history.batches if each.batch_id == 5] == [0]  # none, and that is known
    used = next(each for each in history.batches if each.batch_id == 5)
    assert (history.shown.batch_id, used.is_live, used.is_streaming) == (6, True, None)
    assert reached(log(*FIVE, ours(5, USE_UP, 5), batch(6)))[0] == 0


def test_mark_that_is_left_high_by_a_restore_can_be_lowered() -> None:
    restore = TableCommit(5, operation=RESTORE, parameters={"version": "2"}, removed=frozenset({"part-3", "part-4"}))
    table = replace(log(*FIVE), commits=(*FIVE, restore), newest_version=5)
    assert reached(table)[0] == 0
    assert list_versions_above(trace_history(table.commits, Q), 2) == ()
