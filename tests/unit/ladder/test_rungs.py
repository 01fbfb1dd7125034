from __future__ import annotations

from dataclasses import replace

import pytest

from lastgood.failures.ending import Cause
from lastgood.failures.failure_class import FailureClass
from lastgood.ladder.rungs import CommandStanding, Rung, Standings, choose_rungs, is_stuck
from lastgood.settings.policy import Count, GiveUp, Policy, StartAgain

POLICY = Policy(same_batch=3, restart_within_seconds=600)
PLAIN = (Rung.RESUME,)
ALL = (Rung.RESUME, Rung.REPLAN, Rung.STABLE)


def standing(failures: int, seconds: float = 0.0, cls: FailureClass = FailureClass.UNKNOWN) -> CommandStanding:
    return CommandStanding(failures=failures, seconds=seconds, cause=Cause(cls))


def test_before_the_first_start_only_the_last_good_batch_is_sought() -> None:
    assert choose_rungs(POLICY, CommandStanding()) == PLAIN


def test_plain_restarts_come_first() -> None:
    assert [choose_rungs(POLICY, standing(failures)) for failures in (1, 2, 3)] == [PLAIN, PLAIN, ALL]


def test_few_failures_that_take_long_are_enough() -> None:
    assert choose_rungs(POLICY, standing(1, 599.9)) == PLAIN
    assert choose_rungs(POLICY, standing(1, 600.0)) == ALL


@pytest.mark.parametrize(
    "cls", [FailureClass.CONCURRENT_RUN, FailureClass.CODE_INCOMPATIBLE, FailureClass.STOPPED_ON_PURPOSE]
)
def test_what_is_not_of_the_batch_never_causes_surgery(cls: FailureClass) -> None:
    assert not is_stuck(POLICY, standing(100, 10_000, cls))


def test_state_is_made_anew_for_other_code_at_once_where_the_policy_says_so() -> None:
    cause = Cause(FailureClass.CODE_INCOMPATIBLE, is_of_other_state=True)
    other = CommandStanding(failures=1, cause=cause)
    assert choose_rungs(POLICY, other) == PLAIN
    asked = replace(POLICY, on_code_change="recompute")
    assert choose_rungs(asked, other) == (Rung.RESUME, Rung.RECOMPUTE)
    assert choose_rungs(asked, standing(3)) == ALL


def test_age_alone_never_causes_surgery_while_a_service_is_away() -> None:
    away = CommandStanding(failures=100, seconds=10_000, cause=Cause(FailureClass.TRANSIENT, passes_by_itself=True))
    assert choose_rungs(POLICY, away) == PLAIN


def test_lost_process_counts_as_a_failure_of_the_batch() -> None:
    assert choose_rungs(POLICY, standing(3, cls=FailureClass.TRANSIENT)) == ALL


def test_data_that_user_code_fails_on_are_not_planned_anew() -> None:
    assert choose_rungs(POLICY, standing(9, cls=FailureClass.POISON_DATA)) == PLAIN


def test_what_passes_by_itself_counts_for_nothing_and_takes_no_time_from_what_does_not() -> None:
    standings, away, other = Standings(POLICY), Cause(FailureClass.TRANSIENT, passes_by_itself=True), Cause()
    standings.decide_after_failure(away, (), 1.0)
    assert standings.standing(away, 6000.0) == CommandStanding(cause=away)
    standings.decide_after_failure(other, (), 6000.0)
    assert choose_rungs(POLICY, standings.standing(other, 6001.0)) == PLAIN
    assert choose_rungs(POLICY, standings.standing(other, 6600.0)) == ALL


def test_progress_resets_the_count() -> None:
    standings, cause = Standings(POLICY), Cause(checkpoint="a")
    for now in (1.0, 2.0, 3.0):
        standings.decide_after_failure(cause, (), now)
    assert standings.standing(cause, 4.0) == CommandStanding(failures=3, seconds=3.0, cause=cause)
    assert standings.decide_after_failure(cause, ("a",), 5.0) == StartAgain(Count(1, 1), 0.0)
    assert standings.standing(cause, 6.0) == CommandStanding(failures=1, seconds=1.0, cause=cause)


def test_progress_of_the_others_does_not_reset_the_count_of_the_one_that_fails() -> None:
    standings, cause = Standings(POLICY), Cause(checkpoint="a")
    decisions = [standings.decide_after_failure(cause, ("b",), float(now)) for now in range(POLICY.max_attempts + 1)]
    assert decisions[-1] == GiveUp(POLICY.max_attempts)
    stuck = standings.standing(cause, 9.0)
    assert [choose_rungs(POLICY, stuck.of(each)) for each in ("a", "b")] == [ALL, PLAIN]


def test_queries_that_fail_in_turn_are_counted_each_for_itself() -> None:
    standings, a, b = Standings(POLICY), Cause(checkpoint="a"), Cause(checkpoint="b")
    for cause in (a, b, a):
        standings.decide_after_failure(cause, (), 0.0)
    assert [standings.standing(cause, 0.0).failures for cause in (a, b)] == [2, 1]


def test_what_nobody_knows_the_query_of_is_a_failure_of_all() -> None:
    standings, cause = Standings(POLICY), Cause()
    for _ in range(POLICY.same_batch):
        standings.decide_after_failure(cause, (), 0.0)
    assert choose_rungs(POLICY, standings.standing(cause, 0.0).of("a")) == ALL
    standings.decide_after_failure(cause, ("b",), 0.0)
    assert choose_rungs(POLICY, standings.standing(cause, 0.0).of("a")) == PLAIN


def test_no_attempts_allowed_means_none_even_after_progress() -> None:
    assert Standings(Policy(max_attempts=0)).decide_after_failure(Cause(checkpoint="a"), ("a",), 0.0) == GiveUp(0)
