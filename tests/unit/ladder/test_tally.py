from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from lastgood.failures.ending import Cause
from lastgood.failures.failure_class import FailureClass
from lastgood.ladder.rungs import Rung, choose_rungs
from lastgood.ladder.tally import Tally, TallyStand, judge_tally, parse_tally
from lastgood.settings.policy import Policy

POLICY = Policy(same_batch=3, max_attempts=5, restart_within_seconds=600)
ORPHAN = TallyStand(query_id="q", planned=7, committed=6)
AT_REST = TallyStand(query_id="q", planned=6, committed=6)
UNKNOWN = Cause()
NOW_MS = 1_700_000_000_000


def called(stand: TallyStand, times: int, before: Tally | None = None, *, every_ms: int = 1000) -> Tally | None:
    """What is kept after so many starts that were told."""
    for number in range(times):
        at_ms = NOW_MS + number * every_ms
        before = replace(judge_tally(POLICY, before, stand, UNKNOWN, at_ms).tally, told_ms=at_ms)
    return before


def test_batch_that_is_seen_for_the_first_time_has_not_failed_yet() -> None:
    assert judge_tally(POLICY, None, ORPHAN, UNKNOWN, NOW_MS).standing.failures == 0


def test_same_batch_once_more_is_one_failed_attempt() -> None:
    failures = [tally.failures for count in range(1, 5) if (tally := called(ORPHAN, count)) is not None]
    assert failures == [0, 1, 2, 3]


def test_ladder_judges_it_as_it_judges_what_run_has_counted() -> None:
    before = called(ORPHAN, 3)
    plain = judge_tally(POLICY, called(ORPHAN, 2), ORPHAN, UNKNOWN, NOW_MS + 5000).standing
    stuck = judge_tally(POLICY, before, ORPHAN, UNKNOWN, NOW_MS + 5000).standing
    assert choose_rungs(POLICY, plain) == (Rung.RESUME,)
    assert choose_rungs(POLICY, stuck) == (Rung.RESUME, Rung.REPLAN, Rung.STABLE)


def test_one_failure_is_enough_where_it_takes_long() -> None:
    before = called(ORPHAN, 2)
    late = judge_tally(POLICY, before, ORPHAN, UNKNOWN, NOW_MS + 700_000)
    assert late.standing.failures == 2
    assert Rung.REPLAN in choose_rungs(POLICY, late.standing)


def test_one_start_too_many_is_left_to_a_person_and_stays_so() -> None:
    before = called(ORPHAN, 6)
    assert before is not None
    assert before.failures == POLICY.max_attempts
    for minute in (10, 20):
        again = judge_tally(POLICY, before, ORPHAN, UNKNOWN, NOW_MS + minute * 60_000)
        assert again.gives_up
        assert again.tally == before


@pytest.mark.parametrize(
    "now",
    [
        replace(ORPHAN, committed=7, planned=8),
        replace(ORPHAN, committed=5),
        replace(ORPHAN, query_id="another"),
        replace(ORPHAN, recovery="20261121-160058-7f3a"),
        replace(ORPHAN, committed=None, planned=0),
    ],
)
def test_new_commit_another_query_and_somebody_else_s_repair_begin_anew(now: TallyStand) -> None:
    found = judge_tally(POLICY, called(ORPHAN, 5), now, UNKNOWN, NOW_MS + 60_000)
    assert (found.tally.failures, found.tally.tried, found.gives_up) == (0, (), False)


def test_query_without_a_planned_batch_may_have_had_nothing_to_do() -> None:
    tally = called(AT_REST, 20)
    assert tally is not None
    assert tally.failures == 0


def test_failure_that_a_query_without_a_planned_batch_has_told_is_one() -> None:
    before: Tally | None = Tally(stand=AT_REST, told_ms=NOW_MS)
    for minute in range(1, 9):
        found = judge_tally(POLICY, before, AT_REST, UNKNOWN, NOW_MS + minute * 60_000, has_failed=True)
        before = found.tally
    assert (found.standing.failures, found.gives_up) == (POLICY.max_attempts, True)


def test_query_that_ended_well_without_a_new_batch_has_not_failed_before_either() -> None:
    before = Tally(stand=AT_REST, told_ms=NOW_MS, failures=4, since_ms=NOW_MS)
    found = judge_tally(POLICY, before, AT_REST, UNKNOWN, NOW_MS + 1000, has_failed=False)
    assert (found.tally.failures, found.standing.failures) == (0, 0)
    left = judge_tally(POLICY, replace(before, stand=ORPHAN), ORPHAN, UNKNOWN, NOW_MS + 1000, has_failed=False)
    assert left.standing.failures == 5  # its batch is still not committed


def test_start_of_which_nobody_saw_the_end_leaves_the_count_and_causes_no_surgery() -> None:
    before = Tally(stand=AT_REST, told_ms=NOW_MS, failures=4, since_ms=NOW_MS)
    found = judge_tally(POLICY, before, AT_REST, UNKNOWN, NOW_MS + 700_000)
    assert (found.tally.failures, found.standing.failures) == (4, 4)
    assert choose_rungs(POLICY, found.standing) == (Rung.RESUME,)


def test_failure_before_a_batch_was_planned_goes_on_where_somebody_saw_it() -> None:
    before = Tally(stand=AT_REST, told_ms=NOW_MS, failures=3, since_ms=NOW_MS, settled=UNKNOWN)
    found = judge_tally(POLICY, before, AT_REST, UNKNOWN, NOW_MS + 1000)
    assert found.standing.failures == 3
    assert Rung.REPLAN in choose_rungs(POLICY, found.standing)


def test_batch_that_was_planned_since_the_last_start_may_have_been_stopped_on_purpose() -> None:
    found = judge_tally(POLICY, called(AT_REST, 1), ORPHAN, UNKNOWN, NOW_MS + 1000)
    assert found.standing.failures == 0


def test_batch_that_is_planned_anew_after_a_failure_fails_as_well() -> None:
    before = called(ORPHAN, 4)
    assert before is not None
    dropped = replace(before, stand=AT_REST, tried=(Rung.REPLAN,))
    idle = judge_tally(POLICY, dropped, AT_REST, UNKNOWN, NOW_MS + 60_000)
    assert (idle.tally, choose_rungs(POLICY, idle.standing)) == (dropped, (Rung.RESUME,))
    again = judge_tally(POLICY, dropped, ORPHAN, UNKNOWN, NOW_MS + 60_000).tally
    assert (again.failures, again.tried) == (4, (Rung.REPLAN,))


def test_two_calls_at_once_are_one_attempt() -> None:
    before = called(ORPHAN, 2)
    assert before is not None
    told_while_this_one_ran = replace(before, told_ms=NOW_MS + 2000)
    assert (
        judge_tally(POLICY, told_while_this_one_ran, ORPHAN, UNKNOWN, NOW_MS + 1999).tally.failures == before.failures
    )


def test_what_passes_by_itself_is_not_counted_and_causes_no_surgery() -> None:
    away = Cause(FailureClass.TRANSIENT, passes_by_itself=True)
    before = called(ORPHAN, 6)
    found = judge_tally(POLICY, before, ORPHAN, away, NOW_MS + 7_000_000)
    assert before is not None
    assert (found.tally.failures, found.gives_up) == (before.failures, False)
    assert choose_rungs(POLICY, found.standing) == (Rung.RESUME,)


def test_tally_is_read_as_it_was_written() -> None:
    tally = Tally(
        stand=replace(ORPHAN, recovery="r"), told_ms=5, failures=3, since_ms=4, tried=(Rung.REPLAN, Rung.STABLE)
    )
    assert parse_tally(tally.to_bytes()) == tally


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"format": 2, "told_ms": 1}',
    b'{"format": 1}',
    b'{"format": 1, "told_ms": -1}',
    b'{"format": 1, "told_ms": true}',
    b'{"format": 1, "told_ms": 1, "failures": "many"}',
    b'{"format": 1, "told_ms": 1, "failures": 1e3}',
    b'{"format": 1, "told_ms": 1, "planned": 99999999999999999999999}',
    b'{"format": 1, "told_ms": 1, "query": {}}',
    b'{"format": 1, "told_ms": 1, "tried": ["everything"]}',
    b'{"format": 1, "told_ms": 1, "tried": [[]]}',
    b'{"format": 1, "told_ms": 1, "tried": {}}',
]


@pytest.mark.parametrize("raw", BROKEN)
def test_what_is_no_tally_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of them
        parse_tally(raw)


@given(some.recursive(some.none() | some.booleans() | some.integers() | some.floats() | some.text(), some.lists))
def test_whatever_lies_there_is_a_tally_or_refused(value: object) -> None:
    names = ("query", "planned", "committed", "recovery", "told_ms", "failures", "since_ms", "tried")
    for name in names:
        whole = {"format": 1, "told_ms": 1, name: value}
        try:
            tally = parse_tally(json.dumps(whole).encode())
        except ValueError:
            continue
        assert judge_tally(POLICY, tally, ORPHAN, UNKNOWN, NOW_MS).standing.seconds >= 0


def test_failure_that_somebody_saw_is_not_counted_twice_and_its_cause_is_known() -> None:
    cause = Cause(FailureClass.POISON_DATA)
    before = Tally(stand=ORPHAN, told_ms=NOW_MS, failures=3, since_ms=NOW_MS, settled=cause)
    found = judge_tally(POLICY, parse_tally(before.to_bytes()), ORPHAN, UNKNOWN, NOW_MS + 1000)
    assert (found.standing.failures, found.gives_up) == (3, False)
    assert choose_rungs(POLICY, found.standing) == (Rung.RESUME,)


def test_one_too_many_that_somebody_saw_is_left_to_a_person() -> None:
    before = Tally(stand=ORPHAN, told_ms=NOW_MS, failures=POLICY.max_attempts + 1, settled=Cause())
    assert judge_tally(POLICY, before, ORPHAN, UNKNOWN, NOW_MS + 1000).gives_up


@pytest.mark.parametrize("settled", [1, {}, {"class": "NONE", "passes_by_itself": True}, {"class": "POISON_DATA"}])
def test_settled_that_is_none_is_refused(settled: object) -> None:
    told = {**json.loads(Tally(stand=ORPHAN, told_ms=NOW_MS).to_bytes()), "settled": settled}
    with pytest.raises(ValueError, match="settled"):
        parse_tally(json.dumps(told).encode())
