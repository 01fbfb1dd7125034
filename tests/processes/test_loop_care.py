"""What a supervisor does about the queries of its command: before a start, while it stands still, and after it."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from supervising import DEADLINE_SECONDS, Caring, Counter, Listener, in_background, supervisor

from lastgood.failures.ending import Cause
from lastgood.failures.failure_class import FailureClass
from lastgood.ladder.rungs import CommandStanding
from lastgood.recovery.attempts import AttemptsExhaustedError
from lastgood.settings.policy import Policy
from lastgood.supervise.care import PersonNeededError, Wait


def test_queries_are_looked_at_before_every_start(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, "raise ValueError('no such flight')", told, care=care, checkpoint=Counter(tmp_path)).run()
    assert [standing.failures for standing in care.standings] == [0, 1, 2, 3]
    assert [cause.line for cause in care.causes] == ["ValueError: no such flight"] * 4
    assert care.standings[1].cause == care.causes[0]


def test_nothing_is_started_while_nobody_can_tell_how_the_query_stands(tmp_path: Path) -> None:
    told, care = Listener(), Caring(Wait("no answer"), Wait("no answer"), Wait("still none"))
    assert supervisor(tmp_path, "print('done')", told, care=care).run() == 0
    assert told.names == ["waiting", "waiting", "started", "ended"]
    assert len(care.standings) == 4


def test_wait_ends_when_we_are_told_to_stop(tmp_path: Path) -> None:
    told = Listener()
    care = Caring(*[Wait("no answer")] * 1000)
    supervised = supervisor(tmp_path, "print('done')", told, care=care)
    thread = in_background(supervised.run)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not told.events:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    supervised.stop(signal.SIGTERM)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert "started" not in told.names


def test_command_is_not_started_where_a_person_is_needed(tmp_path: Path) -> None:
    told = Listener()
    care = Caring(PersonNeededError("a person is needed: nobody has accepted loss", next="lastgood recover …"))
    with pytest.raises(PersonNeededError):
        supervisor(tmp_path, "print('done')", told, care=care).run()
    assert told.names == ["called"]


def test_giving_up_names_the_plan_that_a_person_might_allow(tmp_path: Path) -> None:
    told = Listener()
    care = Caring(resort=PersonNeededError("a person is needed: nobody has accepted loss"))
    with pytest.raises(PersonNeededError):
        supervisor(tmp_path, "raise SystemExit(1)", told, Policy(max_attempts=0), care=care).run()
    assert told.names == ["started", "ended", "gave_up", "called"]


def test_command_that_commits_nothing_for_too_long_is_ended_and_started_again(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    code = """
        import sys, pathlib, time
        planned = pathlib.Path(sys.argv[1], "planned")
        if planned.exists():
            raise SystemExit(0)
        planned.write_text("x")
        time.sleep(60)
    """
    policy = Policy(backoff_seconds=0.01, grace_seconds=5, stall_after_seconds=5)
    assert supervisor(tmp_path, code, told, policy, care=care, checkpoint=Counter(tmp_path)).run() == 0
    assert told.names == ["started", "stalled", "ended", "restarting", "started", "ended"]
    assert [cause.line for cause in care.causes] == ["batch 0 was not committed within 5 s"]


def test_command_whose_query_reads_something_else_than_it_was_started_on_is_ended(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    care.astray = Cause(FailureClass.SOURCE_RECREATED, line="orders was created again")
    policy = Policy(max_attempts=0, grace_seconds=5)
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, "import time; time.sleep(60)", told, policy, care=care, checkpoint=Counter(tmp_path)).run()
    assert told.names == ["started", "stalled", "ended", "gave_up"]
    assert care.causes == [replace(care.astray, checkpoint="checkpoint")]


def test_stalled_command_that_ends_in_order_has_failed_all_the_same(tmp_path: Path) -> None:
    told = Listener()
    code = """
        import sys, pathlib, signal, time
        runs = pathlib.Path(sys.argv[1], "runs")
        with runs.open("a") as log: log.write("x")
        if len(runs.read_text()) == 2:
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        pathlib.Path(sys.argv[1], "planned").write_text("x")
        time.sleep(60)
    """
    policy = Policy(backoff_seconds=0.01, grace_seconds=5, stall_after_seconds=5)
    assert supervisor(tmp_path, code, told, policy, checkpoint=Counter(tmp_path)).run() == 0
    assert (tmp_path / "runs").read_text() == "xx"


def test_first_new_batch_after_a_failure_is_told_to_whoever_cares(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    code = """
        import sys, pathlib, time
        folder = pathlib.Path(sys.argv[1])
        if not (folder / "planned").exists():
            (folder / "planned").write_text("x")
            raise SystemExit(1)
        (folder / "committed").write_text("x")
        time.sleep(0.5)
    """
    assert supervisor(tmp_path, code, told, care=care, checkpoint=Counter(tmp_path)).run() == 0
    assert care.first == [("checkpoint", 0, True)]


def test_what_had_failed_before_it_began_is_counted_on_and_each_end_is_told(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    care.before = {"checkpoint": CommandStanding(failures=2, seconds=5.0)}
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, "raise SystemExit(1)", told, care=care, checkpoint=Counter(tmp_path)).run()
    assert [each and each.failures for each in care.ends] == [3, 4]


def test_success_is_no_failure(tmp_path: Path) -> None:
    care = Caring()
    assert supervisor(tmp_path, "print('done')", Listener(), care=care, checkpoint=Counter(tmp_path)).run() == 0
    assert care.ends == [None]
