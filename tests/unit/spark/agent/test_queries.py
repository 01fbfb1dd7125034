"""Runs of queries and their records, with a query that answers as it is told to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lastgood.records.record import Crashed, Progress, QueryStarted, Record, StartFailed, Terminated, parse_record
from lastgood.spark.agent.queries import Queries
from lastgood.spark.agent.writer import Writer

SPARK = {"spark_version": "4.2.0", "application_id": "local-1"}
PROGRESS = json.dumps({"id": "q", "runId": "r", "name": "orders", "batchId": 7, "sources": [{"description": "X"}]})
DEADLINE_SECONDS = 20


class Kept:
    pause_seconds = 0.0

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        self.told += records

    def close(self) -> None: ...


class Query:
    """A run `r` of query `q`; with `is_java_gone`, every question to it fails."""

    def __init__(self, *, is_java_gone: bool = False) -> None:
        self.query_id, self.run_id, self.query_name, self.checkpoint = "q", "r", "orders", "file:/chk"
        self.is_java_gone = is_java_gone
        self.is_closed = False

    def is_active(self) -> bool:
        return False

    def _answer(self, answer: Any) -> Any:
        if self.is_java_gone:
            raise ConnectionRefusedError("no Java")
        return answer

    def batch_id(self) -> int | None:
        return self._answer(8)  # type: ignore[no-any-return]

    def failure(self, condition: str | None) -> dict[str, Any] | None:
        return self._answer({"condition": condition, "message": "structured"})  # type: ignore[no-any-return]

    def fill_in_topic_ids(self, sources: Sequence[dict[str, Any]]) -> None:
        sources[0]["topic_ids"] = self._answer({"orders": "id"})

    def close(self) -> None:
        self.is_closed = True


class Case:
    def __init__(self) -> None:
        self.sink = Kept()
        self.writer = Writer(self.sink)
        self.queries = Queries(self.writer)

    def records(self) -> list[Record]:
        self.writer.close(DEADLINE_SECONDS)
        read = [parse_record(json.loads(json.dumps(each))) for each in self.sink.told]
        assert None not in read
        return [each for each in read if each is not None]


def test_life_of_a_run_is_three_kinds_of_records() -> None:
    case, query = Case(), Query()
    case.queries.note_start(query, started_at_ms=5, spark=SPARK)
    assert (case.queries.running(), case.queries.knows("r")) == ([query], True)
    case.queries.note_progress("r", PROGRESS)
    case.queries.note_end("q", "r", message="as told", condition="X")
    assert (case.queries.running(), case.queries.knows("r")) == ([], False)
    started, progress, ended = case.records()
    assert isinstance(started, QueryStarted)
    assert (started.started_at_ms, started.spark_version, started.checkpoint) == (5, "4.2.0", "file:/chk")
    assert isinstance(progress, Progress)
    assert (progress.batch_id, progress.checkpoint, progress.sources[0].topic_ids) == (7, "file:/chk", {"orders": "id"})
    assert isinstance(ended, Terminated)
    assert ended.failure is not None
    assert (ended.batch_id, ended.failure.condition, ended.failure.message) == (8, "X", "structured")
    assert query.is_closed


def test_end_is_told_once_however_often_it_is_seen() -> None:
    case = Case()
    case.queries.note_start(Query(), started_at_ms=5, spark=SPARK)
    for _ in range(3):
        case.queries.note_end("q", "r", message=None, condition=None)
    assert [record.kind for record in case.records()] == ["started", "terminated"]


def test_where_java_is_gone_the_event_has_to_do() -> None:
    case = Case()
    case.queries.note_start(Query(is_java_gone=True), started_at_ms=5, spark=SPARK)
    case.queries.note_progress("r", PROGRESS)
    case.queries.note_end("q", "r", message="as told", condition="X")
    _, progress, ended = case.records()
    assert isinstance(progress, Progress)
    assert progress.sources[0].topic_ids is None
    assert isinstance(ended, Terminated)
    assert ended.failure is not None
    assert (ended.batch_id, ended.failure.condition, ended.failure.message) == (None, "X", "as told")
    assert case.writer.trouble == "ConnectionRefusedError: no Java"


def test_run_that_nobody_saw_begin_is_told_as_far_as_its_events_go() -> None:
    case = Case()
    case.queries.note_progress("r", PROGRESS)
    case.queries.note_end("q", "r", message=None, condition=None)
    progress, ended = case.records()
    assert (progress.query_name, progress.checkpoint) == ("orders", None)
    assert (ended.query_id, ended.run_id) == ("q", "r")


def test_failed_start_and_crash_are_told() -> None:
    case = Case()
    case.queries.start_failed("orders", "/chk", ValueError("no such format"))
    case.queries.note_crash(RuntimeError("out"))
    refused, crashed = case.records()
    assert isinstance(refused, StartFailed)
    assert (refused.query_name, refused.checkpoint) == ("orders", "/chk")
    assert refused.failure.causes[0].class_name == "ValueError"
    assert isinstance(crashed, Crashed)
    assert (crashed.query_id, crashed.failure.message) == (None, "out")
