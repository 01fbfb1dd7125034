"""A query of this process as a run: what is made of its end, and that nothing is begun where it may go on."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.supervise import in_session
from lastgood.supervise.in_session import QueryNotEndedError, QueryRun, QueryStart

CHECKPOINT = "/lake/chk/orders"


class Query:
    """Stands for one of Spark, which ends, or does not, as it is told."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: Exception | None = None
        self.obeys = True
        self.is_gone = False
        self.is_stopped = False
        self.active_tasks = 0
        self.unsettled: str | None = None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        self._require_there()
        has_ended = self.ended.wait(timeout)
        if has_ended and self.error is not None:
            raise self.error
        return has_ended

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        self._require_there()
        return not self.ended.is_set()

    def exception(self) -> Exception | None:
        self._require_there()
        return self.error

    def stop(self) -> None:
        self._require_there()
        if self.obeys:
            self.ended.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.ended.set()

    def _require_there(self) -> None:
        if self.is_gone:
            raise ConnectionRefusedError("no Java")


class Agent:
    """Counts its turns, and knows what was started."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.own: list[Query] = []
        self.others: list[str] = []

    def begin(self) -> None:
        self.turns.append("begin")

    def end(self) -> None:
        self.turns.append("end")


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_session, "has_active_tasks", lambda query: bool(query.active_tasks))
    monkeypatch.setattr(in_session, "is_running", lambda query: query.isActive)
    monkeypatch.setattr(in_session, "is_stopped", lambda query: query.is_stopped)
    monkeypatch.setattr(in_session, "find_unsettled", lambda query: query.unsettled)
    monkeypatch.setattr(in_session, "_QUIET_SECONDS", 0.2)


class Case:
    """A start of queries."""

    def __init__(self, folder: Path, *queries: Query, error: Exception | None = None) -> None:
        self.queries = queries
        self.error = error
        self.agent = Agent()
        self.start = QueryStart(self.call, CHECKPOINT, self.agent, folder / "log", 0.1)  # type: ignore[arg-type]  # its turns

    def call(self) -> None:
        self.agent.own += self.queries
        if self.error is not None:
            raise self.error

    def begin(self) -> QueryRun:
        run, output = self.start.begin()
        assert output is run.output
        return run

    def read(self, run: QueryRun) -> str:
        return run.output.tail()


def test_one_that_fails_has_ended_with_an_error(tmp_path: Path) -> None:
    query = Query()
    case = Case(tmp_path, query)
    run = case.begin()
    assert run.wait(0.01) is None
    assert case.start.query is query
    query.fail(ValueError("no such table"))
    ending = run.wait(1.0)
    assert ending is not None
    assert (ending.exit_code, ending.signal) == (1, None)
    assert case.read(run).endswith("ValueError: no such table\n")
    assert (tmp_path / "log").read_text() == run.output.tail()
    assert case.agent.turns == ["begin", "end"]
    assert run.kill() is ending


def test_one_that_is_stopped_by_whoever_has_ended_well(tmp_path: Path) -> None:
    query = Query()
    run = Case(tmp_path, query).begin()
    query.ended.set()
    ending = run.wait(1.0)
    assert ending is not None
    assert ending.is_success


def test_one_that_cannot_be_started_has_ended(tmp_path: Path) -> None:
    case = Case(tmp_path, error=RuntimeError("no such column"))
    run = case.begin()
    ending = run.wait()
    assert ending is not None
    assert ending.exit_code == 1
    assert case.read(run).endswith("RuntimeError: no such column\n")
    assert case.agent.turns == ["begin", "end"]


def test_the_end_of_its_session_is_no_failure_of_it(tmp_path: Path) -> None:
    query = Query()
    run = Case(tmp_path, query).begin()
    query.is_stopped = True
    query.fail(ValueError("Cannot call methods on a stopped SparkContext"))
    ending = run.wait(1.0)
    assert ending is not None
    assert ending.is_success


def test_where_it_may_go_on_the_locks_are_kept(tmp_path: Path) -> None:
    query = Query()
    query.active_tasks = 1
    case = Case(tmp_path, query)
    run = case.begin()
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        case.start.holds = [lock.fileno()]
        query.ended.set()
        with pytest.raises(QueryNotEndedError):
            run.wait(0.01)
    with (tmp_path / "lock").open("w") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_signal_stops_it_and_waits_for_nothing(tmp_path: Path) -> None:
    query = Query()
    run = Case(tmp_path, query).begin()
    run.send(15)
    run.send(15)
    ending = run.wait(1.0)
    assert ending is not None
    assert ending.is_success


def test_a_kill_waits_until_it_has_ended(tmp_path: Path) -> None:
    query = Query()
    run = Case(tmp_path, query).begin()
    assert run.kill().is_success
    assert not query.isActive


def test_nothing_is_begun_beside_one_that_does_not_end(tmp_path: Path) -> None:
    query = Query()
    query.obeys = False
    run = Case(tmp_path, query).begin()
    with pytest.raises(QueryNotEndedError, match="does not end"):
        run.kill()
    query.ended.set()


def test_nothing_is_begun_while_a_task_goes_on(tmp_path: Path) -> None:
    query = Query()
    query.active_tasks = 1
    run = Case(tmp_path, query).begin()
    query.ended.set()
    with pytest.raises(QueryNotEndedError) as told:
        run.wait(0.01)
    assert told.value.found.startswith("it has ended, and a task of it runs")
    query.active_tasks = 0
    assert run.wait(0.01) is not None


def test_tasks_that_end_a_little_later_are_waited_for(tmp_path: Path) -> None:
    query = Query()
    query.active_tasks = 1
    run = Case(tmp_path, query).begin()
    query.ended.set()
    threading.Timer(0.05, lambda: setattr(query, "active_tasks", 0)).start()
    began = time.monotonic()
    assert run.wait(0.01) is not None
    assert time.monotonic() > began


def test_where_java_does_not_answer_nobody_knows_whether_it_goes_on(tmp_path: Path) -> None:
    query = Query()
    run = Case(tmp_path, query).begin()
    query.is_gone = True
    with pytest.raises(QueryNotEndedError) as told:
        run.wait(0.01)
    assert told.value.found == "its session does not answer (no Java)"
    with pytest.raises(QueryNotEndedError):
        run.kill()


def test_what_was_started_before_a_failure_is_ended_first(tmp_path: Path) -> None:
    query = Query()
    case = Case(tmp_path, query, error=RuntimeError("no such attribute"))
    run = case.begin()
    assert not query.isActive
    ending = run.wait()
    assert ending is not None
    assert ending.exit_code == 1
    assert case.read(run).endswith("RuntimeError: no such attribute\n")


def test_what_was_started_before_a_failure_and_does_not_end_is_told(tmp_path: Path) -> None:
    query = Query()
    query.obeys = False
    with pytest.raises(QueryNotEndedError):
        Case(tmp_path, query, error=RuntimeError("no such attribute")).begin()


def test_of_two_that_were_started_both_have_to_end(tmp_path: Path) -> None:
    first, second = Query(), Query()
    case = Case(tmp_path, first, second)
    run = case.begin()
    assert case.start.query is second
    second.fail(ValueError("no such table"))
    assert run.wait(0.01) is None
    first.ended.set()
    ending = run.wait(0.01)
    assert ending is not None
    assert ending.exit_code == 1


def test_a_function_has_to_start_the_query_that_was_named(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.agent.others.append("/lake/chk/others")
    with pytest.raises(UsageError) as told:
        case.begin()
    assert told.value.found == "/lake/chk/others"
    assert case.agent.turns == ["begin", "end"]


def test_nothing_is_begun_beside_state_that_may_still_be_written(tmp_path: Path) -> None:
    query = Query()
    case = Case(tmp_path, query)
    run = case.begin()
    query.fail(ValueError("it does not go on"))
    assert run.wait() is not None
    query.unsettled = "state of batch 7, which is not committed, was written"
    with pytest.raises(QueryNotEndedError) as raised:
        case.begin()
    assert raised.value.found == query.unsettled
    query.unsettled = None
    case.begin()
