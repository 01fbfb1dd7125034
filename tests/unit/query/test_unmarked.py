from __future__ import annotations

from pathlib import Path

from planning import delta, query, read

from lastgood.query.sinks import make_sink_views
from lastgood.query.unmarked import Unmarked, find_unmarked
from lastgood.sinks.evidence import SinkEvidence, UnmarkedRows
from lastgood.testing.checkpoints import STARTED_MS

READ_BY_ONE = 10
"""Rows of a batch: five offsets of two partitions."""
PLANNED_3_MS = STARTED_MS + 3000


def found(folder: Path, sink: SinkEvidence) -> Unmarked | None:
    (view,) = make_sink_views(read(folder), [sink], is_stateful=False)
    return find_unmarked(view)


def rows(*counts: int | None, at_ms: int = PLANNED_3_MS + 500) -> tuple[UnmarkedRows, ...]:
    return tuple(UnmarkedRows(3 + n, count, at_ms) for n, count in enumerate(counts))


def test_batches_that_are_done_and_not_shown_may_be_there_without_a_mark(tmp_path: Path) -> None:
    query(tmp_path, 5)
    assert found(tmp_path, delta(2)) is None
    told = found(tmp_path, delta(2, unmarked=rows(7, 1)))
    assert told == Unmarked((3, 4), "versions 3 to 4 brought rows without a mark", is_likely=True)
    assert found(tmp_path, delta(4, unmarked=rows(7))) is None


def test_of_the_orphan_only_rows_speak_that_are_as_many_as_it_reads(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    likely = {READ_BY_ONE: True, READ_BY_ONE + 1: False, None: False}
    for count, is_likely in likely.items():
        told = found(tmp_path, delta(2, unmarked=rows(count)))
        assert told == Unmarked((3,), "version 3 brought rows without a mark", is_likely=is_likely)
    together = found(tmp_path, delta(2, unmarked=rows(4, READ_BY_ONE - 4)))
    assert together is not None
    assert together.is_likely
    assert found(tmp_path, delta(3, unmarked=rows(READ_BY_ONE))) is None


def test_rows_that_came_before_the_orphan_was_planned_are_not_of_it(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    assert found(tmp_path, delta(2, unmarked=rows(READ_BY_ONE, at_ms=PLANNED_3_MS - 1))) is None
