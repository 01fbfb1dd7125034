"""Rows and markers of a Delta table, by hand: w(3) is a commit that writes batch 3."""

from __future__ import annotations

import dataclasses

import pytest

from lastgood.delta_log.actions import TableCommit, Transaction
from lastgood.sinks.delta.history import History, trace_history

Q = "query"


def commits(*made: TableCommit, first: int = 0) -> list[TableCommit]:
    return [dataclasses.replace(commit, version=first + position) for position, commit in enumerate(made)]


def w(batch_id: int, *files: str, app: str = Q, removes: str = "", operation: str = "STREAMING UPDATE") -> TableCommit:
    return TableCommit(
        0,
        operation=operation,
        parameters={"queryId": app} if operation == "STREAMING UPDATE" else {},
        transactions=(Transaction(app, batch_id),),
        added=frozenset(files or (f"{app}{batch_id}",)),
        removed=frozenset(removes.split()),
        changes_data=True,
    )


def empty(batch_id: int) -> TableCommit:
    return TableCommit(
        0, operation="STREAMING UPDATE", parameters={"queryId": Q}, transactions=(Transaction(Q, batch_id),)
    )


def marker(batch_id: int) -> TableCommit:
    return TableCommit(0, operation="WRITE", transactions=(Transaction(Q, batch_id),))


def restore(version: int, rewind: int | None = None, removes: str = "") -> TableCommit:
    return TableCommit(
        0,
        operation="RESTORE",
        parameters={"version": str(version)},
        transactions=() if rewind is None else (Transaction(Q, rewind),),
        removed=frozenset(removes.split()),
    )


def by_time(adds: set[str], removes: set[str]) -> TableCommit:
    return TableCommit(
        0,
        operation="RESTORE",
        parameters={"timestamp": "2026-01-01"},
        added=frozenset(adds),
        removed=frozenset(removes),
        changes_data=True,
    )


def other(adds: str = "x", removes: str = "") -> TableCommit:
    return TableCommit(0, operation="WRITE", added=frozenset(adds.split()), removed=frozenset(removes.split()))


def live(history: History) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for batch in history.batches:
        if batch.is_live and batch.version is not None:
            found.setdefault(batch.batch_id, []).append(batch.version)
    return found


def test_every_batch_is_a_version() -> None:
    history = trace_history(commits(w(0), other(), w(1), empty(2)), Q)
    assert history.shown.batch_id == 2
    assert live(history) == {0: [0], 1: [2], 2: [3]}
    assert history.last_version == 3


def test_batches_of_others_do_not_count() -> None:
    history = trace_history(commits(w(0), w(7, app="other")), Q)
    assert live(history) == {0: [0]}
    assert history.shown.batch_id == 0


def test_query_that_never_wrote_shows_nothing() -> None:
    history = trace_history(commits(other(), other()), Q)
    assert (history.shown.batch_id, history.shown.is_from_before, history.last_version) == (None, False, None)


def test_restore_takes_batches_back_and_the_marker_says_nothing() -> None:
    history = trace_history(commits(w(0), w(1), w(2), w(3), restore(1)), Q)
    assert history.shown.batch_id == 1
    assert live(history) == {0: [0], 1: [1]}
    assert history.restored


def test_restore_with_a_lowered_marker_opens_the_batches_again() -> None:
    history = trace_history(commits(w(0), w(1), w(2), w(3), restore(1, rewind=1), w(2), w(3)), Q)
    assert history.shown.batch_id == 3
    assert live(history) == {0: [0], 1: [1], 2: [5], 3: [6]}
    assert [batch.is_live for batch in history.batches] == [True, True, False, False, True, True]


def test_marker_that_is_lowered_later_changes_nothing_more() -> None:
    history = trace_history(commits(w(0), w(1), w(2), restore(0), marker(0)), Q)
    assert history.shown.batch_id == 0
    assert live(history) == {0: [0]}


def test_restore_forward_revives_what_was_taken_back() -> None:
    history = trace_history(commits(w(0), w(1), w(2), restore(0), restore(2)), Q)
    assert history.shown.batch_id == 2
    assert live(history) == {0: [0], 1: [1], 2: [2]}


def test_batch_after_a_restore_without_a_lowered_marker_leaves_a_hole() -> None:
    history = trace_history(commits(w(0), w(1), w(2), w(3), restore(1), w(4)), Q)
    assert history.shown.batch_id == 4
    assert live(history) == {0: [0], 1: [1], 4: [5]}


def test_files_taken_back_with_the_marker_are_a_batch_taken_back() -> None:
    unpublish = TableCommit(0, operation="DELETE", transactions=(Transaction(Q, 2),), removed=frozenset({"query3"}))
    history = trace_history(commits(w(2), w(3), other(), unpublish), Q)
    assert history.shown.batch_id == 2
    assert live(history) == {2: [0]}


def test_delete_that_had_to_rewrite_files_takes_back_too() -> None:
    delete = TableCommit(
        0,
        operation="DELETE",
        transactions=(Transaction(Q, 1),),
        removed=frozenset({"query2"}),
        added=frozenset({"rest"}),
    )
    assert trace_history(commits(w(1), w(2), delete), Q).shown.batch_id == 1


def test_lower_number_with_new_rows_is_a_write_that_nobody_skipped() -> None:
    history = trace_history(commits(w(4), w(5), w(0, "n0", operation="WRITE")), Q)
    assert history.shown.batch_id == 0
    assert live(history) == {4: [0], 5: [1], 0: [2]}


def test_batch_that_was_written_twice_stands_twice() -> None:
    history = trace_history(commits(w(0), w(1, "a"), w(1, "b")), Q)
    assert live(history) == {0: [0], 1: [1, 2]}


def test_marker_that_is_put_in_again_is_no_batch() -> None:
    history = trace_history(commits(w(0), w(1), marker(1)), Q)
    assert live(history) == {0: [0], 1: [1]}


def test_complete_mode_replaces_rows_and_takes_nothing_back() -> None:
    history = trace_history(commits(w(0, "a"), w(1, "b", removes="a"), w(2, "c", removes="b")), Q)
    assert live(history) == {0: [0], 1: [1], 2: [2]}


def test_what_was_before_the_versions_that_were_read_is_told_apart() -> None:
    history = trace_history(commits(other(), other(), first=10), Q)
    assert history.shown.is_from_before
    history = trace_history(commits(other(), w(5), restore(10), first=10), Q)
    assert history.shown.is_from_before
    assert history.last_version == 12
    assert [batch.is_live for batch in history.batches] == [False]


def test_restore_of_an_older_version_than_was_read_leaves_it_open() -> None:
    history = trace_history(commits(w(5), w(6), restore(3), first=10), Q)
    assert history.shown.unclear is not None
    assert [batch.is_live for batch in history.batches] == [False, False]


def test_restore_that_carries_a_marker_tells_even_then() -> None:
    history = trace_history(commits(w(5), restore(3, rewind=4), first=10), Q)
    assert (history.shown.batch_id, history.shown.unclear) == (4, None)


def test_batch_after_an_unclear_restore_is_shown() -> None:
    history = trace_history(commits(w(5), restore(3), w(6), first=10), Q)
    assert history.shown.batch_id == 6
    assert [batch.is_live for batch in history.batches] == [False, True]


def test_marker_says_no_more_than_the_rows() -> None:
    assert trace_history(commits(w(0), w(1), w(2), restore(0, rewind=2)), Q).shown.batch_id == 0
    assert trace_history(commits(other(), w(0), restore(0, rewind=0)), Q).shown.batch_id is None


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        # Batches 2 and 3 are removed, 0 and 1 are left alone.
        ([w(0), w(1), w(2), w(3), by_time(set(), {"query2", "query3"})], 1),
        # They were compacted meanwhile: their files come back, the compacted one goes.
        (
            [
                w(0),
                w(1),
                w(2),
                other("big", "query0 query1 query2"),
                w(3),
                by_time({"query0", "query1"}, {"big", "query3"}),
            ],
            1,
        ),
        # Compacted in version 3, restored to just that.
        ([w(0), w(1), w(2), other("big", "query0 query1 query2"), w(3), by_time(set(), {"query3"})], 2),
        # Complete mode: only the files of the restored version come back.
        ([w(0, "a"), w(1, "b", removes="a"), w(2, "c", removes="b"), by_time({"b"}, {"c"})], 1),
        # Forward again, after a RESTORE.
        ([w(0), w(1), w(2), restore(0, removes="query1 query2"), by_time({"query1", "query2"}, set())], 2),
    ],
)
def test_restore_by_time_is_told_from_its_files(steps: list[TableCommit], shown: int) -> None:
    assert trace_history(commits(*steps), Q).shown.batch_id == shown


def test_restore_by_time_that_may_be_before_or_after_an_empty_batch_leaves_it_open() -> None:
    history = trace_history(commits(w(0), empty(1), w(2), by_time(set(), {"query2"})), Q)
    assert history.shown.unclear is not None
    assert [batch.is_live for batch in history.batches] == [None, None, None]
    history = trace_history(commits(w(0), other(), w(2), by_time(set(), {"query2", "x"})), Q)
    assert history.shown.batch_id == 0


def test_history_of_any_length_can_be_shown_and_compared() -> None:
    steps = commits(*(w(batch_id) for batch_id in range(5000)))
    history = trace_history(steps, Q)
    assert history == trace_history(steps, Q)
    assert "5000" not in repr(history.shown)


def test_batch_that_came_by_a_clone_is_as_old_as_its_mark() -> None:
    """A deep clone may carry marks along, in a version that is younger than the batches that they stand for."""
    cloned = dataclasses.replace(
        w(3, operation="CLONE"), timestamp_ms=9000, transactions=(Transaction(Q, 3, last_updated_ms=4000),)
    )
    written = dataclasses.replace(w(4), timestamp_ms=9500, transactions=(Transaction(Q, 4, last_updated_ms=9400),))
    found = trace_history(commits(cloned, written), Q)
    assert [each.committed_at_ms for each in found.batches] == [4000, 9500]
    untold = dataclasses.replace(cloned, transactions=(Transaction(Q, 3),))
    assert trace_history(commits(untold), Q).batches[0].committed_at_ms is None


def counted(commit: TableCommit, rows: int | None) -> TableCommit:
    metrics = {} if rows is None else {"numOutputRows": str(rows)}
    return dataclasses.replace(commit, metrics=metrics, changes_data=True)


def overwriting(removes: str, rows: int | None, operation: str = "WRITE") -> TableCommit:
    made = dataclasses.replace(other(removes=removes), operation=operation, parameters={"mode": "Overwrite"})
    return counted(made, rows)


THREE = (counted(w(0, "a"), 10), counted(w(1, "b"), 10), counted(w(2, "c"), 10))


@pytest.mark.parametrize("rows", [29, None])
@pytest.mark.parametrize("operation", ["WRITE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE", "CLONE"])
def test_rows_that_somebody_has_replaced_by_fewer_may_be_gone_and_the_mark_stays(
    rows: int | None, operation: str
) -> None:
    history = trace_history(commits(*THREE, overwriting("a b c", rows, operation), w(3, "d")), Q)
    assert (history.shown.batch_id, live(history)) == (3, {3: [4]})
    assert [batch.is_live for batch in history.batches] == [None, None, None, True]
    assert history.unclear is not None


@pytest.mark.parametrize(
    "by",
    [
        overwriting("a b c", 30),  # as many: its columns were changed, for all that is known
        overwriting("b c", 5),  # a partition of it
        counted(other(removes="a b c"), 5),  # MERGE, as an example
        dataclasses.replace(w(9, "x", removes="a b c", app="theirs"), operation="MERGE"),
    ],
)
def test_rows_that_were_rewritten_in_any_other_way_are_taken_to_be_there(by: TableCommit) -> None:
    history = trace_history(commits(*THREE, by), Q)
    assert (live(history), history.unclear) == ({0: [0], 1: [1], 2: [2]}, None)


def test_rows_are_followed_through_files_that_were_made_of_others() -> None:
    optimise = dataclasses.replace(other("ab", "a b"), operation="OPTIMIZE")
    assert trace_history(commits(*THREE, optimise, overwriting("ab c", 29)), Q).unclear is not None
    assert trace_history(commits(*THREE, optimise, overwriting("ab c", 30)), Q).unclear is None
    merged = counted(dataclasses.replace(other("a2", "a"), operation="MERGE"), None)
    assert trace_history(commits(*THREE, merged, overwriting("a2 b c", 20)), Q).unclear is None


def test_query_that_replaces_all_rows_itself_has_lost_none() -> None:
    complete = counted(w(1, "b", removes="a"), 3)
    history = trace_history(commits(THREE[0], dataclasses.replace(complete, parameters={"mode": "Overwrite"})), Q)
    assert history.unclear is None


def test_restore_brings_back_what_was_replaced() -> None:
    history = trace_history(commits(*THREE, overwriting("a b c", 1), restore(2)), Q)
    assert live(history) == {0: [0], 1: [1], 2: [2]}


def deleting(removes: str, adds: str = "") -> TableCommit:
    return counted(dataclasses.replace(other(adds, removes), operation="DELETE"), None)


def test_newest_batches_whose_rows_somebody_has_deleted_may_be_gone() -> None:
    history = trace_history(commits(*THREE, deleting("b c")), Q)
    assert [batch.is_live for batch in history.batches] == [True, None, None]
    assert (history.shown.batch_id, history.unclear is not None) == (2, True)


@pytest.mark.parametrize("by", [deleting("a"), deleting("a b c"), deleting("c", "c2"), deleting("b")])
def test_rows_that_are_deleted_as_tables_are_cleaned_take_no_batch_back(by: TableCommit) -> None:
    history = trace_history(commits(*THREE, by), Q)
    assert (live(history), history.unclear) == ({0: [0], 1: [1], 2: [2]}, None)
