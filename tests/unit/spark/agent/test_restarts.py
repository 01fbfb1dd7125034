"""The waits of an application whose queries fail: of classes like pyspark's, whose Java is played."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from lastgood.spark.agent import restarts as restarts_module
from lastgood.spark.agent.restarts import Restarts
from lastgood.spark.agent.starts import Start

DEADLINE_SECONDS = 10.0


class Failed(StreamingQueryException):
    """As pyspark raises it."""

    def __init__(self, run_id: str) -> None:
        Exception.__init__(self, run_id)
        self.run_id = run_id


class Run:
    """A run of a query in Java."""

    def __init__(self, manager: Manager, query_id: str) -> None:
        self.manager = manager
        self.query_id = query_id
        self.run_id = f"{query_id}{len(manager.runs)}"
        self.is_active, self.has_failed = True, False
        self.ended = threading.Event()
        manager.runs.append(self)

    def end(self, *, has_failed: bool) -> None:
        self.has_failed, self.is_active = has_failed, False
        self.ended.set()
        self.manager.note(self)

    # As Java calls it.

    def isActive(self) -> bool:  # noqa: N802
        return self.is_active

    def exception(self) -> Any:
        return SimpleNamespace(isDefined=lambda: self.has_failed)

    def streamingQuery(self) -> Any:  # noqa: N802
        thread = SimpleNamespace(isAlive=lambda: self.is_active)
        return SimpleNamespace(queryExecutionThread=lambda: thread)

    def id(self) -> Any:
        return SimpleNamespace(toString=lambda: self.query_id)


class Manager:
    """Of all queries of a session, in Java; tells of the newest end alone, as Spark's does."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.newest: Run | None = None
        self.changed = threading.Condition()

    def note(self, run: Run) -> None:
        with self.changed:
            if self.newest is None or not self.newest.has_failed:
                self.newest = run
            self.changed.notify_all()

    def forget(self) -> None:
        with self.changed:
            self.newest = None

    def wait(self, seconds: float | None) -> Run | None:
        with self.changed:
            self.changed.wait_for(lambda: self.newest is not None, seconds)
            return self.newest


class Driver:
    """An application with queries, and what answers for lastgood."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = Manager()
        self.starts = 0
        self.reported: list[Exception] = []
        self.restarts = Restarts(folder, self.reported.append)
        self.query_kind = make_query_kind()
        self.streams = make_manager_kind()(self.manager)
        self.checkpoint: str | None = "/chk"
        system = SimpleNamespace(identityHashCode=id)
        java = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
        context = SimpleNamespace(getLocalProperties=dict, setLocalProperties=lambda told: None)
        shared = SimpleNamespace(activeStreamingQueries=lambda: SimpleNamespace(values=self.list_active))
        self.session = SimpleNamespace(
            _jvm=java,
            streams=self.streams,
            sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(**vars(context)))),
            _jsparkSession=SimpleNamespace(sharedState=lambda: shared),
            conf=SimpleNamespace(get=lambda key, default: default),
        )

    def list_active(self) -> list[Any]:
        runs = [each for each in self.manager.runs if each.is_active]
        return [SimpleNamespace(name=lambda: None, id=each.id) for each in runs]

    def start(self, query_id: str, writer: Any = None) -> Any:
        """A query starts, as pyspark and the agent have it."""
        writer = writer or SimpleNamespace(
            _spark=self.session, _lastgood_options={"checkpointLocation": f"{self.checkpoint}/{query_id}"}
        )
        self.starts += 1
        query = self.query_kind(Run(self.manager, query_id))
        start = Start(writer, (), {}, lambda: self.start(query_id, writer))
        start.properties = {}
        self.restarts.note_start(start, query)
        return query

    def answer(self, run_id: str, answer: str) -> None:
        """What lastgood says, once it was asked."""
        wait((self.folder / f"{run_id}.ended.json").exists)
        draft = self.folder / "draft"
        draft.write_text(answer)
        draft.rename(self.folder / f"{run_id}.answer")


def make_query_kind() -> type[Any]:
    class StreamingQuery:
        def __init__(self, java: Run) -> None:
            self._jsq = java

        @property
        def id(self) -> str:
            return self._jsq.query_id

        @property
        def runId(self) -> str:  # noqa: N802
            return self._jsq.run_id

        def stop(self) -> None:
            self._jsq.end(has_failed=False)

        def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
            run = self._jsq
            is_over = run.ended.wait(timeout)
            if run.has_failed:
                raise Failed(run.run_id)
            return is_over if timeout is not None else None

    return StreamingQuery


def make_manager_kind() -> type[Any]:
    class StreamingQueryManager:
        def __init__(self, java: Manager) -> None:
            self._jsqm = java

        def resetTerminated(self) -> None:  # noqa: N802
            self._jsqm.forget()

        def awaitAnyTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
            run = self._jsqm.wait(timeout)
            if run is not None and run.has_failed:
                raise Failed(run.run_id)
            return run is not None if timeout is not None else None

    return StreamingQueryManager


class Waiting:
    """A thread of the application that waits."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self.got: Any = None
        self.raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(what,), daemon=True)
        self._thread.start()

    def _run(self, what: Callable[[], Any]) -> None:
        try:
            self.got = what()
        except BaseException as error:  # noqa: BLE001 - it is looked at by the test
            self.raised = error

    def join(self) -> None:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def require_told(self) -> None:
        """It is over, by the failure of the query."""
        self.join()
        assert isinstance(self.raised, Failed)

    @property
    def goes_on(self) -> bool:
        self._thread.join(0.2)
        return self._thread.is_alive()


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(restarts_module, "has_active_tasks", lambda java, query_id: False)
    monkeypatch.setattr(restarts_module, "find_unsettled", lambda jvm, java: None)
    return Driver(tmp_path)


def test_a_query_that_is_back_is_waited_for(driver: Driver) -> None:
    query = driver.start("a")
    waiting = Waiting(query.awaitTermination)
    driver.manager.runs[0].end(has_failed=True)
    driver.answer("a0", "start")
    wait(lambda: driver.starts == 2)
    assert waiting.goes_on
    assert query.runId == "a1"
    assert json.loads((driver.folder / "a0.ended.json").read_text())["is_awaited"]
    query.stop()
    waiting.join()
    assert (waiting.raised, driver.reported) == (None, [])


def test_one_that_is_left_fails_where_it_was_waited_for(driver: Driver) -> None:
    query = driver.start("a")
    waiting = Waiting(query.awaitTermination)
    driver.manager.runs[0].end(has_failed=True)
    driver.answer("a0", "leave")
    waiting.require_told()
    assert driver.starts == 1


def test_a_wait_ends_in_time_whatever_becomes_of_the_query(driver: Driver) -> None:
    query = driver.start("a")
    waiting = Waiting(lambda: query.awaitTermination(0.5))
    driver.manager.runs[0].end(has_failed=True)
    waiting.join()
    assert (waiting.got, waiting.raised) == (False, None)
    driver.answer("a0", "start")
    wait(lambda: query.runId == "a1")
    assert query.awaitTermination(0.05) is False


def test_any_of_several_that_is_back_is_waited_for(driver: Driver) -> None:
    driver.start("a")
    driver.start("b")
    waiting = Waiting(driver.streams.awaitAnyTermination)
    driver.manager.runs[1].end(has_failed=True)
    driver.answer("b1", "start")
    wait(lambda: driver.starts == 3)
    assert waiting.goes_on
    driver.manager.runs[2].end(has_failed=True)
    driver.answer("b2", "leave")
    waiting.join()
    assert isinstance(waiting.raised, Failed)
    assert waiting.raised.run_id == "b2"


def test_one_that_failed_meanwhile_and_was_left_is_told_of(driver: Driver) -> None:
    driver.start("a")
    driver.start("b")
    waiting = Waiting(driver.streams.awaitAnyTermination)
    driver.manager.runs[0].end(has_failed=True)
    wait((driver.folder / "a0.ended.json").exists)
    driver.manager.runs[1].end(has_failed=True)
    driver.restarts.note_failure("b1")
    driver.answer("b1", "leave")
    wait(driver.restarts._runs["b1"].is_left)
    driver.answer("a0", "start")
    waiting.join()
    assert isinstance(waiting.raised, Failed)
    assert waiting.raised.run_id == "b1"


def test_one_that_was_stopped_meanwhile_ends_the_wait(driver: Driver) -> None:
    driver.start("a")
    second = driver.start("b")
    waiting = Waiting(lambda: driver.streams.awaitAnyTermination(DEADLINE_SECONDS))
    driver.manager.runs[0].end(has_failed=True)
    wait((driver.folder / "a0.ended.json").exists)
    second.stop()
    driver.answer("a0", "start")
    waiting.join()
    assert (waiting.got, waiting.raised) == (True, None)


def test_a_failure_that_is_over_before_anybody_waits_is_told_to_nobody(driver: Driver) -> None:
    driver.start("a")
    driver.manager.runs[0].end(has_failed=True)
    driver.restarts.note_failure("a0")
    driver.answer("a0", "start")
    wait(lambda: driver.starts == 2)
    assert driver.streams.awaitAnyTermination(0.3) is False


def test_one_that_nobody_waits_for_is_told_of_as_that(driver: Driver) -> None:
    driver.start("a")
    driver.manager.runs[0].end(has_failed=True)
    driver.restarts.note_failure("a0")
    assert json.loads((driver.folder / "a0.ended.json").read_text()) == {
        "query_id": "a",
        "run_id": "a0",
        "is_awaited": False,
    }


def test_one_that_the_application_has_stopped_is_not_started(driver: Driver) -> None:
    query = driver.start("a")
    waiting = Waiting(query.awaitTermination)
    driver.manager.runs[0].end(has_failed=True)
    wait((driver.folder / "a0.ended.json").exists)
    driver.restarts.note_stop("a0")
    driver.answer("a0", "start")
    waiting.require_told()
    assert driver.starts == 1


def test_one_that_the_application_has_started_again_is_not_started(driver: Driver) -> None:
    query = driver.start("a")
    waiting = Waiting(query.awaitTermination)
    driver.manager.runs[0].end(has_failed=True)
    wait((driver.folder / "a0.ended.json").exists)
    driver.start("a")
    driver.answer("a0", "start")
    waiting.require_told()
    assert driver.starts == 2


def test_one_whose_writer_has_started_another_is_not_started(driver: Driver) -> None:
    writer = SimpleNamespace(_spark=driver.session, _lastgood_options={"checkpointLocation": "/chk/a"})
    query = driver.start("a", writer)
    driver.start("b", writer)
    waiting = Waiting(query.awaitTermination)
    driver.manager.runs[0].end(has_failed=True)
    driver.answer("a0", "start")
    waiting.require_told()
    assert driver.starts == 2


def test_one_whose_writer_names_another_checkpoint_by_now_is_not_started(driver: Driver) -> None:
    writer = SimpleNamespace(_spark=driver.session, _lastgood_options={})
    query = driver.start("a", writer)
    waiting = Waiting(query.awaitTermination)
    driver.manager.runs[0].end(has_failed=True)
    driver.answer("a0", "start")
    waiting.require_told()
    assert driver.starts == 1


def test_one_whose_state_may_still_be_written_is_not_started(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts_module, "find_unsettled", lambda jvm, java: "state of batch 7 was written")
    query = driver.start("a")
    waiting = Waiting(query.awaitTermination)
    driver.manager.runs[0].end(has_failed=True)
    driver.answer("a0", "start")
    waiting.require_told()
    assert driver.starts == 1
    assert "batch 7" in str(driver.reported)


def test_where_nothing_can_be_written_the_application_is_told_as_ever(driver: Driver) -> None:
    query = driver.start("a")
    (driver.folder / "a0.ended.tmp").mkdir()
    driver.manager.runs[0].end(has_failed=True)
    with pytest.raises(Failed):
        query.awaitTermination()
    assert driver.reported


def test_where_java_does_not_answer_the_application_is_told_as_ever(driver: Driver) -> None:
    query = driver.start("a")
    driver.manager.runs[0].end(has_failed=True)
    driver.session._jvm = None
    with pytest.raises(Failed):
        driver.streams.awaitAnyTermination()
    del driver.manager.runs[0].is_active
    with pytest.raises(Failed):
        query.awaitTermination()
    assert len(driver.reported) >= 2


def test_of_a_query_that_starts_again_and_again_little_is_kept(driver: Driver) -> None:
    first = driver.start("a")
    for _ in range(20):
        driver.start("b").stop()
    assert sorted(driver.restarts._runs) == ["a0", "b18", "b19", "b20"]
    assert first.runId == "a0"
