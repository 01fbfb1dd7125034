"""Files of records and heartbeats, whole and torn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lastgood.records.files import (
    DRIVER_FILE,
    RECORD_FILE,
    Driver,
    RunningQuery,
    parse_driver,
    parse_records,
    sort_record_files,
)
from lastgood.records.record import Crashed, RecordedFailure, Terminated

WHOLE = b"".join(
    json.dumps(record.to_json()).encode() + b"\n"
    for record in (Terminated(recorded_at_ms=1), Crashed(recorded_at_ms=2, failure=RecordedFailure()))
)
BEAT: dict[str, Any] = {
    "format_version": 1,
    "pid": 7,
    "host": "vm",
    "process_started_at_ms": 5,
    "beat_at_ms": 6,
    "exited_at_ms": None,
    "python": "3.9.18",
    "queries": [{"query_id": "q", "run_id": "r", "query_name": None, "checkpoint": "file:/chk", "mood": "good"}],
    "is_classic": True,
    "recorded": 1,
    "dropped": 2,
    "trouble": None,
}


def test_lines_are_records_in_their_order() -> None:
    read = parse_records(WHOLE)
    assert [record.kind for record in read.records] == ["terminated", "crashed"]
    assert read.unread == 0


def test_torn_last_line_costs_no_more_than_itself() -> None:
    first, last = WHOLE.splitlines(keepends=True)
    assert len(parse_records(first + last[:-1]).records) == 2  # only the end of the line is missing
    for length in range(1, len(last) - 1):
        read = parse_records(first + last[:length])
        assert (len(read.records), read.unread) == (1, 1)


def test_line_that_is_torn_in_the_middle_of_a_file_is_left_out() -> None:
    read = parse_records(WHOLE + b'{"kind":"prog\n\xff\xfe\n' + WHOLE)
    assert (len(read.records), read.unread) == (4, 2)


def test_heartbeat_names_a_driver_and_its_queries() -> None:
    query = RunningQuery(query_id="q", run_id="r", query_name=None, checkpoint="file:/chk")
    assert parse_driver(json.dumps(BEAT).encode()) == Driver(
        pid=7, host="vm", process_started_at_ms=5, beat_at_ms=6, exited_at_ms=None, python="3.9.18",
        is_classic=True, queries=(query,), recorded=1, dropped=2, trouble=None,
    )  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", json.dumps({**BEAT, "queries": [{}]}).encode()])
def test_what_is_no_heartbeat_is_none(content: bytes) -> None:
    assert parse_driver(content) is None


def test_record_files_are_in_the_order_of_time() -> None:
    names = ["1795258200401-7.000001.jsonl", "1795258200400-9.000002.jsonl", "1795258200400-9.000001.jsonl", "x.jsonl"]
    assert sort_record_files(iter(names)) == [names[2], names[1], names[0]]
    assert not RECORD_FILE.fullmatch("1795258200400-9.driver.json")
    assert DRIVER_FILE.fullmatch("1795258200400-9.driver.json")
