"""Which queries that have failed are started again in a driver that goes on."""

from __future__ import annotations

import pytest

from lastgood.failures.ending import Cause
from lastgood.observe.progress import LogProgress
from lastgood.records.record import ChainedException, RecordedFailure
from lastgood.supervise import events
from lastgood.supervise.session_restarts import LEAST_SECONDS, DeadQuery, SessionRestarts

FAILED = RecordedFailure(causes=(ChainedException(language="python", class_name="ValueError", message="no number"),))
SCHEMA = RecordedFailure(
    causes=(
        ChainedException(
            language="java",
            class_name="org.apache.spark.sql.delta.DeltaIllegalStateException",
            condition="DELTA_SCHEMA_CHANGED_WITH_VERSION",
            message="[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 3",
        ),
    )
)


class Driver:
    """Tells of failed queries, one at a time, and keeps what is answered."""

    def __init__(self) -> None:
        self.ended: list[DeadQuery] = []
        self.answers: list[bool] = []
        self.has_left = False
        self.trouble: OSError | None = None

    def list_dead(self) -> list[DeadQuery]:
        ended, self.ended = self.ended, []
        return ended

    def answer(self, ended: DeadQuery, *, is_to_start: bool) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.answers.append(is_to_start)

    def leave_all(self) -> None:
        self.has_left = True


class Judge:
    """Says yes, until it is told otherwise."""

    def __init__(self) -> None:
        self.answer: bool | Exception = True
        self.has_rows = True
        self.judged: list[tuple[str | None, dict[str, dict[str, int | None]]]] = []

    def has_read(self, checkpoint: str, since: int | None, committed: int) -> bool:
        return self.has_rows

    def may_start_beside(self, ended: events.Ended, cause: Cause) -> bool:
        self.judged.append((cause.checkpoint, ended.positions))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Course:
    """One query in a driver that goes on."""

    def __init__(self) -> None:
        self.driver, self.judge = Driver(), Judge()
        self.told: list[events.Event] = []
        self.now = 0.0
        self.is_stopped = False
        self.seen = {"chk": LogProgress(5, 5)}
        self.restarts = SessionRestarts(
            self.driver, self.judge, self.told.append, show_data=False, clock=lambda: self.now
        )
        self.restarts.begin({"chk": LogProgress(4, 4)})

    def fail(self, failure: RecordedFailure | None = FAILED, checkpoint: str = "chk") -> bool:
        """Whether it is started again."""
        self.driver.ended = [DeadQuery(checkpoint, "run", "query", 7.0, failure)]
        started = self.restarts.answer(self.seen.get, is_stopped=lambda: self.is_stopped)
        assert started in ({}, {checkpoint: 7.0})
        assert self.driver.answers[-1:] in ([bool(started)], [])
        return bool(started)


def test_one_that_has_come_further_is_started_again() -> None:
    course = Course()
    assert course.fail()
    assert course.judge.judged == [("chk", {"chk": {"planned": 5, "committed": 5}})]
    (told,) = course.told
    assert isinstance(told, events.QueryRestarted)
    assert (told.checkpoint, told.error) == ("chk", "ValueError: no number")


def test_one_that_has_not_is_left_to_the_application() -> None:
    course = Course()
    course.seen["chk"] = LogProgress(5, 4)
    assert not course.fail()
    course.seen["chk"] = LogProgress(5, None)
    assert not course.fail()
    course.seen["chk"] = LogProgress(5, 5)
    course.judge.has_rows = False
    assert not course.fail()
    assert not course.judge.judged


def test_what_counts_is_since_it_was_started_last() -> None:
    course = Course()
    assert course.fail()
    course.now = LEAST_SECONDS
    assert not course.fail()
    course.seen["chk"] = LogProgress(6, 6)
    assert course.fail()
    course.restarts.begin({"chk": LogProgress(6, 6)})
    assert not course.fail()


def test_one_that_fails_again_at_once_is_left_to_the_application() -> None:
    course = Course()
    assert course.fail()
    course.seen["chk"] = LogProgress(6, 6)
    course.now = LEAST_SECONDS - 1
    assert not course.fail()


@pytest.mark.parametrize(("failure", "checkpoint"), [(None, "chk"), (FAILED, "other"), (SCHEMA, "chk")])
def test_so_is_one_that_nobody_can_judge_or_that_needs_another_plan(
    failure: RecordedFailure | None, checkpoint: str
) -> None:
    course = Course()
    assert not course.fail(failure, checkpoint)
    assert not course.judge.judged
    assert not course.told


def test_so_is_one_that_would_have_to_be_repaired() -> None:
    course = Course()
    course.judge.answer = False
    assert not course.fail()
    assert not course.told


def test_whatever_goes_wrong_the_application_is_told() -> None:
    course = Course()
    course.judge.answer = RuntimeError("no disk")
    assert not course.fail()
    (told,) = course.told
    assert isinstance(told, events.Noticed)
    assert (told.condition, "no disk" in told.sentence) == ("QUERY_NOT_RESTARTED", True)
    assert course.driver.has_left


def test_where_nothing_can_be_answered_nothing_is_told_as_done() -> None:
    course = Course()
    course.driver.trouble = OSError("no space left")
    assert not course.fail()
    assert [type(each) for each in course.told] == [events.Noticed]


def test_none_is_started_in_a_driver_that_is_to_end() -> None:
    course = Course()
    course.is_stopped = True
    assert not course.fail()
    course.is_stopped = False
    course.restarts.leave_all()
    assert course.driver.has_left
    assert not course.fail()


def test_one_that_nobody_had_named_counts_from_when_it_was_seen() -> None:
    course = Course()
    course.seen["other"] = LogProgress(3, 3)
    course.restarts.add("other", LogProgress(3, 3))
    assert not course.fail(checkpoint="other")
    course.seen["other"] = LogProgress(4, 4)
    assert course.fail(checkpoint="other")
