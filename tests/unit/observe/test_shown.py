from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planning import query

from lastgood.observe.open_query import OpenQuery, gather
from lastgood.observe.rows import make_rows
from lastgood.observe.shown import ShownBatch, SinkComparison, find_shown_batch
from lastgood.query.sinks import Shown
from lastgood.settings.target import resolve_target
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder

BATCHES = (
    CommittedBatch(2, 10, is_live=True, row_count=7),
    CommittedBatch(3, 11, is_live=False, row_count=5),
    CommittedBatch(4, 12, is_live=False),
    CommittedBatch(4, 14, is_live=True, row_count=6),
    CommittedBatch(5, 15, is_live=None),
    CommittedBatch(7, 17, is_live=True, row_count=1),
)


def sink(*batches: CommittedBatch, last: int | None = 7, complete_from: int | None = 2) -> SinkEvidence:
    return SinkEvidence(
        "delta", "/t", DedupeKey.QUERY_ID, last, known=True, because="", batches=batches, complete_from=complete_from
    )


def look(found: SinkEvidence, batch_id: int) -> ShownBatch:
    return find_shown_batch(found, batch_id, [batch for batch in found.batches if batch.batch_id == batch_id])


@pytest.mark.parametrize(
    ("batch_id", "shown", "version", "versions", "rows"),
    [
        (1, Shown.UNKNOWN, None, (), None),  # older than what can be told
        (2, Shown.LIVE, 10, (10,), 7),
        (3, Shown.TAKEN_BACK, None, (11,), None),
        (4, Shown.LIVE, 14, (12, 14), 6),
        (5, Shown.UNKNOWN, None, (15,), None),
        (6, Shown.ABSENT, None, (), None),
        (8, Shown.ABSENT, None, (), None),
    ],
)
def test_a_batch_is_there_or_taken_back_or_was_never_there(
    batch_id: int, shown: Shown, version: int | None, versions: tuple[int, ...], rows: int | None
) -> None:
    found = look(sink(*BATCHES), batch_id)
    assert (found.shown, found.version, found.versions, found.row_count) == (shown, version, versions, rows)
    assert found.to_json() == {
        "sink": "/t",
        "kind": "delta",
        "shown": shown.value,
        "version": version,
        "versions": list(versions),
        "row_count": rows,
    }


def test_a_marker_alone_tells_of_its_own_batch_only() -> None:
    by_marker = sink(last=7, complete_from=8)
    assert [look(by_marker, each).shown for each in (6, 7, 8)] == [Shown.UNKNOWN, Shown.LIVE, Shown.ABSENT]


def test_a_sink_that_shows_nothing_of_the_query_tells_of_no_batch() -> None:
    assert look(sink(last=None, complete_from=0), 3).shown is Shown.UNKNOWN


@pytest.mark.parametrize(
    ("batch_id", "planned", "committed", "empty", "difference"),
    [
        (2, True, True, False, None),
        (2, True, False, False, None),  # died between sink and commit: a restart runs it again
        (3, True, True, False, "taken back in the sink"),
        (3, True, False, False, None),
        (5, True, True, False, None),
        (6, True, True, False, "not in the sink"),
        (6, True, True, True, None),
        (6, True, False, False, None),
        (7, False, False, False, "in the sink only"),
    ],
)
def test_only_what_contradicts_is_a_difference(
    batch_id: int, planned: bool, committed: bool, empty: bool, difference: str | None
) -> None:
    found = look(sink(*BATCHES), batch_id)
    assert found.difference(is_planned=planned, is_committed=committed, is_empty=empty) == difference


@pytest.fixture
def evidence(tmp_path: Path) -> OpenQuery:
    """Batches 0 to 4 planned, all but the last committed."""
    query = CheckpointBuilder(tmp_path / "checkpoint")
    query.run(3)
    query.plan(0)
    query.commit()
    query.plan()
    return gather(resolve_target(str(query.folder)))


def test_batches_of_the_checkpoint_are_held_against_each_sink(evidence: OpenQuery) -> None:
    other = sink(*(CommittedBatch(each, each) for each in range(3)), last=2, complete_from=0)
    comparison = SinkComparison(evidence, [sink(*BATCHES), other])
    held = {row.batch: [each.difference for each in comparison.of(row)] for row in make_rows(evidence)}
    assert held == {
        0: [None, None],
        1: [None, None],
        2: [None, None],
        3: ["taken back in the sink", None],
        4: [None, None],
    }
    last = list(make_rows(evidence))[-1]
    assert [each.to_json()["shown"] for each in comparison.of(last)] == ["live", "absent"]
    assert comparison.of(last)[0].to_json()["difference"] is None


def test_batches_that_only_sinks_know_are_newer_than_every_plan(evidence: OpenQuery) -> None:
    more = sink(CommittedBatch(9, 1), CommittedBatch(8, 0, is_live=False), last=9)
    comparison = SinkComparison(evidence, [sink(*BATCHES), more])
    rows = comparison.only_in_sinks()
    assert [row.batch for row in rows] == [9, 7]
    assert [each.difference for each in comparison.of(rows[0])] == [None, "in the sink only"]
    assert not any(row.planned or row.committed for row in rows)
    assert SinkComparison(evidence, []).only_in_sinks() == []


def test_batch_that_the_sink_had_before_it_was_planned_is_of_an_older_plan(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    evidence = gather(resolve_target(str(tmp_path)))
    newest = next(row for row in make_rows(evidence) if row.batch == 3)
    for ahead_ms, told in ((400_000, "of an older plan in the sink"), (-500, None)):
        at_ms = STARTED_MS + 3000 - ahead_ms
        table = replace(sink(CommittedBatch(3, 3, committed_at_ms=at_ms), last=3), skips_up_to=3)
        (held,) = SinkComparison(evidence, [table]).of(newest)
        assert (held.difference, held.anew is not None) == (told, told is not None)
        assert held.shown.shown is Shown.LIVE
