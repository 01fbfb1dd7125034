"""Facts of one batch, told in every order."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import permutations

import pytest
from ledgers import NOON_MS, commit, plan, progress, telling

from lastgood.ledger.facts import BatchFacts, Teller
from lastgood.ledger.telling import make_telling
from lastgood.records.record import Progress


def recorded(told: Progress) -> BatchFacts:
    return make_telling([told]).queries[0].batches[told.batch_id]


def together(*facts: BatchFacts) -> BatchFacts:
    """All of them, the same in whatever order they come, and however often."""
    results = [reduce(BatchFacts.with_other, (*order, order[0])) for order in permutations(facts)]
    assert all(result == results[0] for result in results)
    return results[0]


def test_batch_is_committed_if_its_log_or_a_recorder_says_so() -> None:
    assert not plan(3).is_committed
    assert together(plan(3), commit(3)).is_committed
    assert together(plan(3), recorded(progress(3))).is_committed
    assert commit(3).is_committed
    assert recorded(progress(3)).is_committed


def test_recorder_knows_best_when_a_batch_was_committed() -> None:
    assert together(plan(3), commit(3)).committed_at_ms == NOON_MS + 3730
    assert together(plan(3), commit(3), recorded(progress(3))).committed_at_ms == NOON_MS + 3800
    assert plan(3).committed_at_ms is None


def test_what_was_told_of_an_earlier_plan_is_not_of_the_next() -> None:
    anew = plan(3, planned_ms=NOON_MS + 60_000)
    facts = together(plan(3), commit(3), recorded(progress(3)), anew)
    assert (facts.plan, facts.is_committed, facts.starts) == (anew.plan, False, {})
    assert together(
        facts, recorded(progress(3, trigger_at_ms=NOON_MS + 59_000, recorded_at_ms=NOON_MS + 61_000))
    ).is_committed


def test_plan_that_is_put_back_counts_again_with_its_commit() -> None:
    anew, back = plan(3, planned_ms=NOON_MS + 60_000), plan(3, seen_ms=NOON_MS + 90_000)
    facts = together(plan(3), commit(3), anew, back)
    assert (facts.plan, facts.is_committed) == (back.plan, True)


def test_plan_that_is_edited_keeps_its_commit() -> None:
    edited = plan(3, seen_ms=NOON_MS + 90_000, end='{"orders":{"0":1}}')
    facts = together(plan(3), commit(3), edited)
    assert (dict(facts.ends), facts.is_committed) == ({"0": '{"orders":{"0":1}}'}, True)


def test_logs_are_believed_before_a_recorder() -> None:
    told = progress(3, batch_watermark_ms=1)
    facts = together(recorded(told), plan(3, end='{"orders":{"0":18}}'))
    assert (dict(facts.ends), facts.batch_watermark_ms) == ({"0": '{"orders":{"0":18}}'}, NOON_MS - 2000)
    assert facts.told_by is Teller.MIRROR
    assert recorded(told).batch_watermark_ms == 1


def test_start_that_was_recorded_is_kept() -> None:
    assert together(plan(3), recorded(progress(3))).starts == {"0": '{"orders":{"0":15,"1":15}}'}


def test_of_two_runs_of_a_batch_the_later_counts() -> None:
    first, second = progress(3), progress(3, run_id="b", trigger_at_ms=NOON_MS + 9000, num_input_rows=4)
    facts = together(recorded(first), recorded(second))
    assert facts.progress is not None
    assert (facts.progress.run_id, facts.progress.num_input_rows) == ("b", 4)


def test_two_recorders_of_one_run_tell_more_than_one() -> None:
    whole = progress(3)
    less = replace(whole, recorded_at_ms=NOON_MS, num_input_rows=None, duration_ms={}, sources=(), state_operators=())
    facts = together(recorded(whole), recorded(less))
    assert facts == replace(recorded(whole), progress=facts.progress)
    assert facts.progress is not None
    assert (facts.progress.num_input_rows, facts.progress.recorded_at_ms) == (10, NOON_MS)
    assert len(facts.progress.sources) == len(facts.progress.state_operators) == 1


@pytest.mark.parametrize(("later", "counts"), [(1, 2), (-1, 1)])
def test_commit_that_was_seen_last_counts(later: int, counts: int) -> None:
    one, other = commit(3, seen_ms=NOON_MS + 1), commit(3, seen_ms=NOON_MS + 1 + later)
    assert together(one, other).commit == (other if counts == 2 else one).commit


def test_facts_of_one_query_are_gathered() -> None:
    (facts,) = telling(plan(1), commit(1), plan(2)).queries
    assert sorted(facts.batches) == [1, 2]
    assert facts.key == ("0dcd0ea6-5866-4db8-bdb7-960f2e49c827", "file:///lake/chk")
