"""Spark's events as records; what Spark says is taken from real runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lastgood.records.record import Progress, RecordedOperator, parse_record
from lastgood.spark.agent import events

TOLD = json.loads("""{
"id":"e209f35c-5936-48b6-87e7-a0e7b129091e","runId":"a0862730-af8a-4d62-a219-cf100430feae","name":"orders",
"timestamp":"2026-11-21T10:34:50.105Z","batchId":7,"batchDuration":1716,"numInputRows":20,"inputRowsPerSecond":0.0,
"processedRowsPerSecond":11.6,
"durationMs":{"addBatch":694,"commitOffsets":128,"latestOffset":0,"triggerExecution":1712,"walCommit":162},
"eventTime":{"avg":"2026-11-21T00:04:12.500Z","max":"2026-11-21T00:04:15.000Z","min":"2026-11-21T00:04:10.000Z",
"watermark":"2026-11-21T00:04:00.000Z"},
"stateOperators":[{"operatorName":"stateStoreSave","numRowsTotal":12,"numRowsUpdated":2,"allUpdatesTimeMs":3,
"numRowsRemoved":1,"allRemovalsTimeMs":0,"commitTimeMs":44,"memoryUsedBytes":2048,"numRowsDroppedByWatermark":3,
"numShufflePartitions":2,"numStateStoreInstances":2,"customMetrics":{"loadedMapCacheHitCount":14}}],
"sources":[{"description":"KafkaV2[Subscribe[orders, returns]]","startOffset":{"orders":{"0":10,"1":10}},
"endOffset":{"orders":{"0":20,"1":20}},"latestOffset":{"orders":{"0":25,"1":20}},"numInputRows":20,
"inputRowsPerSecond":0.0,"processedRowsPerSecond":11.6,"metrics":{"maxOffsetsBehindLatest":"5"}}],
"sink":{"description":"DeltaSink[file:/lake/orders]","numOutputRows":-1}}""")


def read(**changes: Any) -> Progress:
    record = parse_record(json.loads(json.dumps(events.make_progress({**TOLD, **changes}, "file:/chk", 1795257291000))))
    assert isinstance(record, Progress)
    return record


def test_batch_is_told_in_sparks_words() -> None:
    batch = read()
    assert (batch.query_name, batch.batch_id, batch.checkpoint) == ("orders", 7, "file:/chk")
    assert (batch.recorded_at_ms, batch.trigger_at_ms) == (1795257291000, 1795257290105)
    assert (batch.batch_duration_ms, batch.duration_ms["walCommit"]) == (1716, 162)
    assert batch.batch_watermark_ms == 1795219440000
    assert (batch.event_time_min_ms, batch.event_time_avg_ms, batch.event_time_max_ms) == (
        1795219450000,
        1795219452500,
        1795219455000,
    )
    assert (batch.num_rows_dropped_by_watermark, batch.num_state_rows, batch.state_memory_used_bytes) == (3, 12, 2048)
    assert (batch.sink.description, batch.sink.num_output_rows) == ("DeltaSink[file:/lake/orders]", None)
    (source,) = batch.sources
    assert source.subscription is not None
    assert (source.subscription.kind, source.subscription.value) == ("subscribe", "orders, returns")
    assert (source.start_offset, source.latest_offset) == (
        {"orders": {"0": 10, "1": 10}},
        {"orders": {"0": 25, "1": 20}},
    )
    assert source.metrics == {"maxOffsetsBehindLatest": "5"}


def test_record_has_exactly_the_fields_that_are_documented() -> None:
    told = events.make_progress(TOLD, "file:/chk", 1)
    assert told == json.loads(json.dumps(read().to_json() | {"recorded_at_ms": 1}))


def test_spark_3_5_has_no_duration_of_a_batch_and_no_watermark_without_event_time() -> None:
    batch = read(batchDuration=None, eventTime={}, stateOperators=[], sources=[])
    assert (batch.batch_duration_ms, batch.batch_watermark_ms, batch.num_state_rows) == (1712, None, 0)


def test_state_operator_without_metrics_of_its_own_is_read() -> None:
    assert read(stateOperators=[{"operatorName": "dedupe"}]).state_operators == (
        RecordedOperator(operator_name="dedupe"),
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-21T00:04:10.042Z", 1795219450042),
        ("1970-01-01T00:00:00.000Z", 0),
        ("1969-12-31T23:59:59.000Z", -1000),
        ("+12026-01-01T00:00:00.000Z", None),
        ("", None),
        (None, None),
    ],
)
def test_times(text: str | None, ms: int | None) -> None:
    assert events.parse_time_ms(text) == ms


@pytest.mark.parametrize(
    ("description", "kind", "value"),
    [
        ("KafkaV2[Subscribe[a]]", "subscribe", "a"),
        ("KafkaV2[SubscribePattern[a[0-9].*]]", "subscribe_pattern", "a[0-9].*"),
        ("KafkaV1[Assign[a-0, a-1]]", "assign", "a-0, a-1"),
    ],
)
def test_subscriptions(description: str, kind: str, value: str) -> None:
    assert events.parse_subscription(description) == {"kind": kind, "value": value}


def test_other_sources_have_no_subscription() -> None:
    assert events.parse_subscription("FileStreamSource[file:/in]") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[{"poi":{"0":10,"1":10}}]', [{"poi": {"0": 10, "1": 10}}]),
        ('[{"a":{"0":1}}, -, {"b":{"0":2}}]', [{"a": {"0": 1}}, None, {"b": {"0": 2}}]),
        ("[-]", [None]),
        ("[5, -3]", [5, -3]),
        ("[]", []),
        ("[some text]", []),
        ("", []),
        (None, []),
    ],
)
def test_offsets_of_an_exception(text: str | None, found: list[Any]) -> None:
    assert events.parse_offsets(text) == found


@pytest.mark.parametrize(("told", "read"), [('{"a": 1}', {"a": 1}), ("plain", "plain"), (7, 7), (None, None)])
def test_offset_handed_over_as_text_is_read(told: Any, read: Any) -> None:
    source = {**TOLD["sources"][0], "endOffset": told}
    assert events.make_progress({**TOLD, "sources": [source]}, None, 1)["sources"][0]["end_offset"] == read
