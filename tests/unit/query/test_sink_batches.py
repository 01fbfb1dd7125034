from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning import query, read

from lastgood.query.sink_batches import Origin, find_held_batches, find_origins, is_reading_nothing
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.testing.checkpoints import STARTED_MS

THIS, OLDER, PERHAPS, UNTOLD = Origin


def table(*batches: CommittedBatch, last: int | None = 3, **others: Any) -> SinkEvidence:
    fields: dict[str, Any] = {"skips_up_to": last, "batches": batches, "times_by_driver": True, **others}
    return SinkEvidence("delta", "/t", DedupeKey.QUERY_ID, last, known=True, because="x", **fields)


def at(*times_ms: int | None) -> tuple[CommittedBatch, ...]:
    return tuple(CommittedBatch(n, n, committed_at_ms=each) for n, each in enumerate(times_ms))


def told(sink: SinkEvidence, planned_ms: dict[int, int]) -> dict[int, Origin]:
    return {number: held.origin for number, held in find_origins(sink, planned_ms).items()}


def test_batch_that_the_sink_had_before_it_was_planned_is_of_an_older_plan() -> None:
    assert told(table(*at(1000, 2000, 3000, 4000)), {2: 2990, 3: 5000}) == {2: THIS, 3: OLDER}


def test_batch_that_was_written_again_is_of_this_plan() -> None:
    again = [CommittedBatch(3, 3, is_live=False, committed_at_ms=1000), CommittedBatch(3, 6, committed_at_ms=7000)]
    assert told(table(*again), {3: 5000}) == {3: THIS}


def test_batch_without_a_time_proves_nothing() -> None:
    assert told(table(CommittedBatch(3, 3)), {3: 5000}) == {3: UNTOLD}


def test_mark_whose_version_is_gone_tells_its_own_time() -> None:
    assert told(table(marked_at_ms=4000), {3: 5000}) == {3: PERHAPS}
    assert told(table(marked_at_ms=6000), {3: 5000}) == {3: THIS}
    assert told(table(*at(1, 2, 3, 6000), marked_at_ms=4000), {3: 5000}) == {3: THIS}


def test_batch_that_the_sink_does_not_show_is_not_held() -> None:
    assert told(table(*at(1000, 2000), last=1), {2: 1, 3: 1}) == {}
    gone = [CommittedBatch(3, 3, is_live=False, committed_at_ms=1000)]
    assert told(table(*gone, last=2), {3: 5000}) == {}


@pytest.mark.parametrize(
    ("by_driver", "others_in_order", "older_by_ms", "expected"),
    [
        (True, True, 1, OLDER),
        (True, False, 1, PERHAPS),
        (True, False, 300_001, OLDER),
        (False, True, 1500, THIS),  # a storage may know whole seconds only
        (False, True, 2500, PERHAPS),
        (False, True, 303_000, OLDER),
    ],
)
def test_clocks_that_may_differ_prove_less(
    by_driver: bool, others_in_order: bool, older_by_ms: int, expected: Origin
) -> None:
    planned = {2: 1_000_000, **({1: 500_000} if others_in_order else {})}
    batches = [CommittedBatch(1, committed_at_ms=600_000), CommittedBatch(2, committed_at_ms=1_000_000 - older_by_ms)]
    assert told(table(*batches, last=2, times_by_driver=by_driver), planned)[2] is expected


@pytest.mark.parametrize(("ahead_ms", "expected"), [(400_000, OLDER), (1000, PERHAPS), (-500, None)])
def test_orphan_whose_version_is_cleaned_away_is_told_by_the_batches_that_came_after_it(
    tmp_path: Path, ahead_ms: int, expected: Origin | None
) -> None:
    """As where an old copy of a checkpoint was put in place: a later batch was there before the orphan was planned."""
    query(tmp_path, 1, orphan=True)
    later = CommittedBatch(3, 3, committed_at_ms=STARTED_MS + 1000 - ahead_ms)
    sink = table(later, skips_up_to=3, complete_from=3, times_by_driver=True)
    held = find_held_batches(read(tmp_path), sink).get(1)
    assert (held.origin if held else None) is expected
    assert 1 not in find_held_batches(read(tmp_path), replace(sink, skips_up_to=None))  # it would not drop it


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize(
    ("planned_after_ms", "came_after_ms", "by_driver", "expected"),
    [
        (-1, 5001, True, PERHAPS),
        (-1, 5000, True, THIS),  # as a clock may be ahead that is kept
        (1, 5001, True, THIS),  # one clock that is ahead says so of both
        (-1, 5001, False, THIS),  # the clock of a storage says nothing of that of a driver
    ],
)
def test_batch_that_was_planned_before_now_and_that_a_sink_got_after_now_may_be_of_an_older_plan(
    tmp_path: Path, planned_after_ms: int, came_after_ms: int, by_driver: bool, expected: Origin, is_done: bool
) -> None:
    """The driver that got it there had a clock that was ahead, and the next one may have planned the number anew."""
    query(tmp_path, 2 if is_done else 1, orphan=not is_done)
    now_ms = STARTED_MS + 1000 - planned_after_ms
    batches = (CommittedBatch(1, 1, committed_at_ms=now_ms + came_after_ms),)
    sink = table(*batches, last=1, times_by_driver=by_driver, asked_at_ms=now_ms)
    assert find_held_batches(read(tmp_path), sink)[1].origin is expected
    assert find_held_batches(read(tmp_path), replace(sink, asked_at_ms=None))[1].origin is THIS


def test_rows_of_a_batch_that_reads_nothing_are_of_another_plan(tmp_path: Path) -> None:
    builder = query(tmp_path, 3)
    builder.plan(0)
    checkpoint = read(tmp_path)
    assert (
        is_reading_nothing(checkpoint, 3),
        is_reading_nothing(checkpoint, 2),
        is_reading_nothing(checkpoint, 9),
    ) == (
        True,
        False,
        False,
    )
    after = CommittedBatch(3, 3, committed_at_ms=STARTED_MS * 2)

    def origin(row_count: int | None) -> Origin:
        return find_held_batches(checkpoint, table(replace(after, row_count=row_count)))[3].origin

    assert (origin(5), origin(0), origin(None)) == (OLDER, THIS, PERHAPS)
