"""Records there and back, and what is no record."""

from __future__ import annotations

import json

import pytest

from lastgood.records.record import (
    ChainedException,
    Crashed,
    Progress,
    QueryStarted,
    Record,
    RecordedFailure,
    RecordedOperator,
    RecordedSink,
    RecordedSource,
    StartFailed,
    Subscription,
    Terminated,
    parse_record,
)

FAILURE = RecordedFailure(
    condition="X",
    message="out",
    causes=(
        ChainedException(language="java", class_name="A", message="out"),
        ChainedException(language="python", class_name="ValueError"),
    ),
    start_offsets=({"orders": {"0": 1}}, None),
    end_offsets=(7,),
)
RECORDS: list[Record] = [
    QueryStarted(
        recorded_at_ms=1, query_id="q", run_id="r", query_name="orders", checkpoint="file:/chk", started_at_ms=1
    ),
    Progress(
        recorded_at_ms=2,
        batch_id=7,
        sources=(
            RecordedSource(description="K", subscription=Subscription(kind="subscribe", value="orders")),
            RecordedSource(description="R"),
        ),
        state_operators=(RecordedOperator(operator_name="dedupe", num_rows_total=3),),
        sink=RecordedSink(description="noop"),
    ),
    Terminated(recorded_at_ms=3, batch_id=8, failure=FAILURE),
    Terminated(recorded_at_ms=3),
    StartFailed(recorded_at_ms=4, failure=FAILURE),
    Crashed(recorded_at_ms=5, failure=FAILURE),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_record_comes_back_from_its_json(record: Record) -> None:
    assert parse_record(json.loads(json.dumps(record.to_json()))) == record


def test_record_of_a_newer_recorder_is_read_as_far_as_it_is_known() -> None:
    told = {"kind": "terminated", "format_version": 9, "recorded_at_ms": 3, "mood": "bad", "failure": {"mood": "bad"}}
    assert parse_record(told) == Terminated(recorded_at_ms=3, failure=RecordedFailure())


@pytest.mark.parametrize(
    "told",
    [
        {"kind": "mood", "recorded_at_ms": 1},
        {"kind": "progress", "recorded_at_ms": 1},
        {"kind": "progress", "recorded_at_ms": 1, "batch_id": 1, "sources": [7]},
        {"kind": ["progress"]},
        {},
        [],
        None,
        7,
    ],
)
def test_what_is_no_record_is_none(told: object) -> None:
    assert parse_record(told) is None
