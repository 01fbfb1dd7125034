from __future__ import annotations

import pytest

from lastgood.settings.policy import Count, GiveUp, Policy, StartAgain, decide_after_failure


def test_first_restart_comes_at_once() -> None:
    assert decide_after_failure(Policy(), Count()) == StartAgain(Count(1, 1), 0.0)


def test_pause_doubles_up_to_its_maximum() -> None:
    policy = Policy(max_attempts=9, backoff_seconds=1, backoff_max_seconds=10)
    decisions = [decide_after_failure(policy, Count(made, made)) for made in range(7)]
    assert decisions == [
        StartAgain(Count(made + 1, made + 1), delay) for made, delay in enumerate([0.0, 1, 2, 4, 8, 10, 10])
    ]


@pytest.mark.parametrize("allowed", [0, 1, 5])
def test_it_gives_up_after_the_allowed_attempts(allowed: int) -> None:
    policy = Policy(max_attempts=allowed)
    assert decide_after_failure(policy, Count(allowed, allowed)) == GiveUp(allowed)


def test_what_passes_by_itself_is_tried_again_for_ever_with_longer_pauses() -> None:
    policy = Policy(max_attempts=1, backoff_seconds=1, backoff_max_seconds=60)
    decision = decide_after_failure(policy, Count(1, 3), passes_by_itself=True)
    assert decision == StartAgain(Count(1, 4), 4.0)


def test_huge_counts_do_not_overflow() -> None:
    policy = Policy(max_attempts=10**9)
    count = Count(10**6, 10**6)
    assert decide_after_failure(policy, count) == StartAgain(Count(10**6 + 1, 10**6 + 1), 60.0)
