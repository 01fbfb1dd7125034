"""Spark's events as records: plain dicts with the fields that `lastgood.records` describes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .driver import FORMAT_VERSION

_KAFKA = re.compile(r"Kafka(?:V\d)?\[(Subscribe|SubscribePattern|Assign)\[(.*)\]\]", re.DOTALL)
_SUBSCRIPTIONS = {"Subscribe": "subscribe", "SubscribePattern": "subscribe_pattern", "Assign": "assign"}
_STATE_FIELDS = {
    "operator_name": "operatorName",
    "num_rows_total": "numRowsTotal",
    "num_rows_updated": "numRowsUpdated",
    "num_rows_removed": "numRowsRemoved",
    "num_rows_dropped_by_watermark": "numRowsDroppedByWatermark",
    "memory_used_bytes": "memoryUsedBytes",
    "num_shuffle_partitions": "numShufflePartitions",
    "num_state_store_instances": "numStateStoreInstances",
    "commit_time_ms": "commitTimeMs",
    "custom_metrics": "customMetrics",
}


def parse_time_ms(text: str | None) -> int | None:
    """Milliseconds since 1970 of a time as Spark writes it, such as `2026-11-21T00:04:10.042Z`; None if it is none."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(re.sub(r"Z$", "+00:00", text))
    except ValueError:  # event times may lie before the year 1 or after 9999
        return None
    return round(at.timestamp() * 1000)


def parse_subscription(description: str) -> dict[str, str] | None:
    """What a Kafka source reads, from the description of the source; None for other sources."""
    found = _KAFKA.fullmatch(description)
    if found is None:
        return None
    return {"kind": _SUBSCRIPTIONS[found[1]], "value": found[2]}


def make_record(kind: str, at_ms: int, *, query_id: str | None, run_id: str | None, **fields: Any) -> dict[str, Any]:
    """A record with the fields that all have."""
    common = {"kind": kind, "format_version": FORMAT_VERSION, "recorded_at_ms": at_ms}
    return {**common, "query_id": query_id, "run_id": run_id, **fields}


def make_progress(told: Mapping[str, Any], checkpoint: str | None, at_ms: int) -> dict[str, Any]:
    """The record of a finished batch.

    Args:
        told: A StreamingQueryProgress, as its JSON has it.
        checkpoint: Where its query checkpoints to.
        at_ms: Now.
    """
    event_time = told.get("eventTime") or {}
    durations = told.get("durationMs") or {}
    duration = told.get("batchDuration")  # since Spark 4.0
    if duration is None:
        duration = durations.get("triggerExecution")
    state_operators = [
        {field: operator.get(name) for field, name in _STATE_FIELDS.items()}
        for operator in told.get("stateOperators") or ()
    ]
    return make_record(
        "progress",
        at_ms,
        query_id=told["id"],
        run_id=told["runId"],
        query_name=told.get("name"),
        checkpoint=checkpoint,
        batch_id=told["batchId"],
        trigger_at_ms=parse_time_ms(told.get("timestamp")),
        batch_duration_ms=duration,
        duration_ms=dict(durations),
        num_input_rows=told.get("numInputRows"),
        batch_watermark_ms=parse_time_ms(event_time.get("watermark")),
        event_time_min_ms=parse_time_ms(event_time.get("min")),
        event_time_max_ms=parse_time_ms(event_time.get("max")),
        event_time_avg_ms=parse_time_ms(event_time.get("avg")),
        sources=[_make_source(source) for source in told.get("sources") or ()],
        state_operators=state_operators,
        sink=_make_sink(told.get("sink") or {}),
    )


def _make_source(told: Mapping[str, Any]) -> dict[str, Any]:
    description = told.get("description") or ""
    return {
        "description": description,
        "subscription": parse_subscription(description),
        "start_offset": _parse_offset(told.get("startOffset")),
        "end_offset": _parse_offset(told.get("endOffset")),
        "latest_offset": _parse_offset(told.get("latestOffset")),
        "num_input_rows": told.get("numInputRows"),
        "topic_ids": None,
        "topic_ids_at_ms": None,
        "metrics": told.get("metrics") or {},
    }


def _parse_offset(told: Any) -> Any:
    """An offset is JSON; where Spark hands it over as text, it is read."""
    if not isinstance(told, str):
        return told
    try:
        return json.loads(told)
    except ValueError:
        return told


def _make_sink(told: Mapping[str, Any]) -> dict[str, Any]:
    rows = told.get("numOutputRows")
    return {
        "description": told.get("description"),
        "num_output_rows": rows if rows is not None and rows >= 0 else None,  # -1: the sink does not tell
        "metrics": told.get("metrics") or {},
    }


def parse_offsets(text: str | None) -> list[Any]:
    """One value per source from the text `[OFFSET, OFFSET]` of a StreamingQueryException; None where there is `-`."""
    rest = (text or "").strip()
    if not (rest.startswith("[") and rest.endswith("]")):
        return []
    rest = rest[1:-1].strip()
    found: list[Any] = []
    decoder = json.JSONDecoder()
    while rest:
        if rest.startswith("-") and not rest[1:2].isdigit():
            value, end = None, 1
        else:
            try:
                value, end = decoder.raw_decode(rest)
            except ValueError:  # the offset of a source that does not write JSON
                return []
        found.append(value)
        rest = rest[end:].lstrip(", ")
    return found
