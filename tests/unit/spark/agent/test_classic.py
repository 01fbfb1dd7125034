"""The listener of a classic session, without Java: sessions and events answer as py4j's objects do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from lastgood.spark.agent import failures
from lastgood.spark.agent.classic import ClassicQuery, Listener, _JavaEvents
from lastgood.spark.agent.queries import Queries
from lastgood.spark.agent.writer import Writer

DEADLINE_SECONDS = 20
PROGRESS = json.dumps({"id": "q", "runId": "r", "name": "orders", "batchId": 7})


class Kept:
    pause_seconds = 0.0

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        self.told += records

    def close(self) -> None: ...


def says(value: Any) -> Callable[[], Any]:
    return lambda: value


def option(value: Any) -> Any:
    """An Option of Scala."""
    return says(SimpleNamespace(isDefined=says(value is not None), get=says(value)))


def java_id(text: str) -> Any:
    return says(SimpleNamespace(toString=says(text)))


def java_query(execution: Any, *, is_active: bool = True) -> Any:
    names = {"id": java_id("q"), "runId": java_id("r"), "name": says("orders")}
    return SimpleNamespace(**names, streamingQuery=says(execution), isActive=says(is_active), exception=option(None))


def execution(**members: Any) -> Any:
    return SimpleNamespace(resolvedCheckpointRoot=says("file:/chk"), **members)


class Case:
    """A listener to a session in which `running` runs."""

    def __init__(self, running: Any = None, before: Sequence[Any] = ()) -> None:
        self.sink = Kept()
        self.writer = Writer(self.sink)
        self.removed: list[Any] = []
        jsqm = SimpleNamespace(get=lambda _: running, active=lambda: list(before))
        streams = SimpleNamespace(_jsqm=jsqm, addListener=lambda _: None, removeListener=self.removed.append)
        context = SimpleNamespace(applicationId="local-1")
        session = SimpleNamespace(version="4.2.0", sparkContext=context, streams=streams, _jvm=None)
        self.listener = Listener(session, Queries(self.writer))

    def records(self) -> list[dict[str, Any]]:
        self.writer.close(DEADLINE_SECONDS)
        return self.sink.told


def events() -> tuple[Any, Any, Any]:
    """The three events, with what our object in Java and what pyspark's own listener asks them for."""
    started = SimpleNamespace(id=java_id("q"), timestamp=says("2026-11-21T00:04:10.042Z"))
    progress = SimpleNamespace(progress=says(SimpleNamespace(runId=java_id("r"), json=says(PROGRESS))))
    ids = {"id": java_id("q"), "runId": java_id("r")}
    ended = SimpleNamespace(**ids, exception=option("out"), errorClassOnException=option("X"))
    return started, progress, ended


def check(records: list[dict[str, Any]]) -> None:
    started, progress, ended = records
    assert (started["started_at_ms"], started["checkpoint"]) == (1795219450042, "file:/chk")
    assert (started["spark_version"], started["application_id"]) == ("4.2.0", "local-1")
    assert (progress["batch_id"], progress["checkpoint"]) == (7, "file:/chk")
    assert (ended["batch_id"], ended["failure"]["condition"], ended["failure"]["message"]) == (8, "X", "out")


LATEST = execution(latestExecutionContext=says(SimpleNamespace(batchId=says(8))))


def test_events_reach_the_records_by_our_object_in_java() -> None:
    case = Case(java_query(LATEST))
    started, progress, ended = events()
    java = _JavaEvents(case.listener)
    java.onQueryStarted(started)
    java.onQueryProgress(progress)
    java.onQueryIdle(None)
    java.onQueryTerminated(ended)
    check(case.records())


def test_events_reach_the_records_by_pysparks_own_listener_too() -> None:
    case = Case(java_query(LATEST))
    case.listener.onQueryStarted(SimpleNamespace(id="q", timestamp="2026-11-21T00:04:10.042Z"))
    case.listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(runId="r", json=PROGRESS)))
    case.listener.onQueryIdle(None)
    case.listener.onQueryTerminated(SimpleNamespace(id="q", runId="r", exception="out", errorClassOnException="X"))
    check(case.records())


@pytest.mark.parametrize("name", ["onQueryStarted", "onQueryProgress", "onQueryTerminated"])
def test_callback_never_raises_into_java(name: str) -> None:
    case = Case()
    getattr(_JavaEvents(case.listener), name)(None)
    assert case.records() == []
    assert "NoneType" in str(case.writer.trouble)


def test_query_that_is_gone_before_it_is_looked_for_is_left_to_its_events() -> None:
    case = Case()
    _JavaEvents(case.listener).onQueryStarted(events()[0])
    assert case.records() == []
    assert case.writer.trouble is None


def test_queries_that_run_already_are_recorded_from_now_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastgood.spark.agent.classic.keep_foreach_batch_errors", lambda: None)
    case = Case(before=[java_query(LATEST)])
    case.listener.attach()
    (started,) = case.records()
    assert (started["kind"], started["started_at_ms"]) == ("started", None)


def test_end_of_which_spark_does_not_tell_in_time_is_told_when_we_leave() -> None:
    case = Case(java_query(LATEST, is_active=False))
    _JavaEvents(case.listener).onQueryStarted(events()[0])
    case.listener.detach(0.05)
    assert case.removed == [case.listener]
    assert [record["kind"] for record in case.records()] == ["started", "terminated"]


def no_such_method() -> Any:
    raise Py4JError("Method latestExecutionContext([]) does not exist")


@pytest.mark.parametrize(
    ("members", "batch_id"),
    [
        ({"latestExecutionContext": says(SimpleNamespace(batchId=says(3)))}, 3),
        ({"latestExecutionContext": says(None)}, None),
        ({"latestExecutionContext": no_such_method, "currentBatchId": says(3)}, 3),
        ({"latestExecutionContext": no_such_method, "currentBatchId": says(-1)}, None),
    ],
)
def test_batch_of_every_spark(members: dict[str, Any], batch_id: int | None) -> None:
    assert ClassicQuery(None, java_query(execution(**members))).batch_id() == batch_id


def test_functions_of_foreach_batch_are_watched_once() -> None:
    from pyspark.sql.utils import ForeachBatchFunction

    original = ForeachBatchFunction.call
    try:
        failures.keep_foreach_batch_errors()
        failures.keep_foreach_batch_errors()
        assert ForeachBatchFunction.call.__wrapped__ is original
    finally:
        ForeachBatchFunction.call = original  # type: ignore[method-assign]
        delattr(ForeachBatchFunction, failures._MARK)


@pytest.mark.parametrize("gone", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("no answer")])
def test_java_that_was_killed_is_no_trouble_at_the_end(gone: Exception) -> None:
    def refuse() -> bool:
        raise gone

    case = Case(running=java_query(execution()))
    case.listener.begin("q", "2026-11-21T00:04:10.042Z")
    running = case.listener._queries.running()[0]
    running._java.isActive = refuse
    case.listener.detach(DEADLINE_SECONDS)
    case.records()
    assert case.writer.trouble is None
