"""Queries of Spark Connect, looked at by a poller; the server is a value."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from lastgood.records.record import Progress, Record, Terminated, parse_record
from lastgood.spark.agent.connect import Poller
from lastgood.spark.agent.queries import Queries
from lastgood.spark.agent.writer import Writer

DEADLINE_SECONDS = 20


class Kept:
    pause_seconds = 0.0

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        read = [parse_record(json.loads(json.dumps(each))) for each in records]
        self.records += [each for each in read if each is not None]

    def close(self) -> None: ...


class Session:
    version = "4.2.0"
    is_stopped = False


class Query:
    """A query on a server that keeps its last hundred batches."""

    def __init__(self) -> None:
        self.id, self.runId, self.name = "q", "r", "orders"
        self.batches: list[dict[str, Any]] = []
        self.isActive = True
        self.error: Exception | None = None
        self.failing = 0

    def add(self, *batch_ids: int) -> None:
        self.batches += [{"id": "q", "runId": "r", "name": "orders", "batchId": each} for each in batch_ids]

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        if self.failing:
            self.failing -= 1
            raise ConnectionError("no server")
        return self.batches[-1] if self.batches else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        return self.batches[-100:]

    def exception(self) -> Exception | None:
        return self.error


class Case:
    def __init__(self, query: Query, session: Session | None = None, poll_seconds: float = 0.01) -> None:
        self.sink = Kept()
        self.writer = Writer(self.sink)
        self.queries = Queries(self.writer)
        self.poller = Poller(session or Session(), self.queries, poll_seconds=poll_seconds)
        self.poller.attach()
        self.poller.add(query, "/chk")

    def await_records(self, is_there: Callable[[list[Record]], bool]) -> list[Record]:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_there(self.sink.records):
            assert time.monotonic() < deadline, self.sink.records
            time.sleep(0.01)
        return self.sink.records

    def close(self) -> None:
        self.poller.detach(DEADLINE_SECONDS)
        self.writer.close(DEADLINE_SECONDS)


def batch_ids(records: list[Record]) -> list[int]:
    return [record.batch_id for record in records if isinstance(record, Progress)]


def ends(records: list[Record]) -> list[Terminated]:
    return [record for record in records if isinstance(record, Terminated)]


def test_no_batch_is_missed_between_two_looks_and_none_told_twice() -> None:
    query = Query()
    query.add(5, 6)
    case = Case(query)
    case.await_records(lambda records: batch_ids(records) == [5, 6])
    query.add(7)
    case.await_records(lambda records: batch_ids(records) == [5, 6, 7])
    query.add(8, 9, 10)
    case.await_records(lambda records: batch_ids(records) == [5, 6, 7, 8, 9, 10])
    case.close()
    assert batch_ids(case.sink.records) == [5, 6, 7, 8, 9, 10]


def test_end_is_told_after_the_last_batch_with_its_failure() -> None:
    query = Query()
    case = Case(query)
    query.add(0, 1)
    query.error = ValueError("poison")
    query.isActive = False
    (ended,) = case.await_records(lambda records: bool(ends(records)))[-1:]
    case.close()
    assert batch_ids(case.sink.records) == [0, 1]
    assert isinstance(ended, Terminated)
    assert ended.checkpoint == "/chk"
    assert ended.failure is not None
    assert ended.failure.message == "poison"
    assert case.queries.running() == []


def test_server_that_is_away_for_a_while_is_asked_again() -> None:
    query = Query()
    query.failing = 3
    query.add(0)
    case = Case(query)
    case.await_records(lambda records: batch_ids(records) == [0])
    case.close()
    assert case.writer.trouble == "ConnectionError: no server"


def test_session_that_is_stopped_ends_its_queries_without_a_question() -> None:
    session = Session()
    query = Query()
    case = Case(query, session)
    query.failing = 10**9
    session.is_stopped = True
    case.await_records(lambda records: [each.failure for each in ends(records)] == [None])
    case.close()


def test_last_look_is_taken_when_the_poller_ends() -> None:
    query = Query()
    case = Case(query, poll_seconds=3600)
    query.add(0)
    case.close()
    assert batch_ids(case.sink.records) == [0]
