from __future__ import annotations

import pytest

from lastgood.diagnosis.failure_class import FailureClass
from lastgood.supervise.failure import Cause
from lastgood.supervise.ladder import Rung, Standing, is_stuck, rungs
from lastgood.supervise.policy import Policy

POLICY = Policy(same_batch=3, restart_within_seconds=600)
PLAIN = (Rung.RESUME,)
ALL = (Rung.RESUME, Rung.REPLAN, Rung.STABLE)


def standing(failures: int, seconds: float = 0.0, cls: FailureClass = FailureClass.UNKNOWN) -> Standing:
    return Standing(failures=failures, seconds=seconds, cause=Cause(cls))


def test_before_the_first_start_only_the_last_good_batch_is_sought() -> None:
    assert rungs(POLICY, Standing()) == PLAIN


def test_plain_restarts_come_first() -> None:
    assert [rungs(POLICY, standing(failures)) for failures in (1, 2, 3)] == [PLAIN, PLAIN, ALL]


def test_few_failures_that_take_long_are_enough() -> None:
    assert rungs(POLICY, standing(1, 599.9)) == PLAIN
    assert rungs(POLICY, standing(1, 600.0)) == ALL


@pytest.mark.parametrize(
    "cls", [FailureClass.CONCURRENT_RUN, FailureClass.CODE_INCOMPATIBLE, FailureClass.STOPPED_ON_PURPOSE]
)
def test_what_is_not_of_the_batch_never_causes_surgery(cls: FailureClass) -> None:
    assert not is_stuck(POLICY, standing(100, 10_000, cls))


def test_age_alone_never_causes_surgery_while_a_service_is_away() -> None:
    away = Standing(failures=100, seconds=10_000, cause=Cause(FailureClass.TRANSIENT, passes_by_itself=True))
    assert rungs(POLICY, away) == PLAIN


def test_lost_process_counts_as_a_failure_of_the_batch() -> None:
    assert rungs(POLICY, standing(3, cls=FailureClass.TRANSIENT)) == ALL


def test_data_that_user_code_fails_on_are_not_planned_anew() -> None:
    assert rungs(POLICY, standing(9, cls=FailureClass.POISON_DATA)) == PLAIN
