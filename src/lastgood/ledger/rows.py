"""Facts of batches as rows of the ledger's tables and back: what is stored comes out as it went in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.lines import is_long
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset, parse_source_offset
from lastgood.ledger import tables
from lastgood.ledger.facts import BatchFacts, Commit, PlannedBatch, Sighting, Teller
from lastgood.records.record import Progress, RecordedOperator, RecordedSink, RecordedSource, Subscription
from lastgood.sources.kafka.ranges import find_planned_ranges

_OF_BATCH = (tables.source, tables.state, tables.offset_range, tables.batch)
_PROGRESS = (
    "event_time_min_ms",
    "event_time_max_ms",
    "event_time_avg_ms",
    "num_input_rows",
    "batch_duration_ms",
    "run_id",
    "trigger_at_ms",
    "recorded_at_ms",
    "num_rows_dropped_by_watermark",
    "num_state_rows",
    "state_memory_used_bytes",
)
_DERIVED = {"num_rows_dropped_by_watermark", "num_state_rows", "state_memory_used_bytes"}
_STATE = [column.name for column in tables.state.columns if column.name not in {"query", "batch_id", "position"}]


def load_batches(connection: sa.Connection, query: int, batch_ids: Collection[int]) -> dict[int, BatchFacts]:
    """Those of these batches that the ledger knows."""

    def rows(table: sa.Table) -> Iterator[Any]:
        wanted = sa.select(table).where(table.c.query == query, table.c.batch_id.in_(batch_ids))
        return iter(connection.execute(wanted).mappings())

    sources: dict[int, list[Any]] = defaultdict(list)
    operators: dict[int, list[Any]] = defaultdict(list)
    for row in rows(tables.source):
        sources[row["batch_id"]].append(row)
    for row in rows(tables.state):
        operators[row["batch_id"]].append(row)
    return {
        row["batch_id"]: _make_batch(row, sources[row["batch_id"]], operators[row["batch_id"]])
        for row in rows(tables.batch)
    }


def store_batches(
    connection: sa.Connection,
    query: int,
    batches: Mapping[int, BatchFacts],
    ranges: Mapping[int, Iterable[Mapping[str, Any]]],
) -> None:
    """Put these batches in the place of what was known of them, and these ranges likewise."""
    for table in _OF_BATCH:
        changed = ranges if table is tables.offset_range else batches
        if changed:
            # Safe: in the transaction that puts in their place what was merged with them (`_put_batches` of the
            # store).
            connection.execute(sa.delete(table).where(table.c.query == query, table.c.batch_id.in_(list(changed))))
    rows: dict[sa.Table, list[Mapping[str, Any]]] = {}
    rows[tables.batch] = [_make_batch_row(each) for each in batches.values()]
    rows[tables.source] = [row for each in batches.values() for row in _make_source_rows(each)]
    rows[tables.state] = [row for each in batches.values() for row in _make_state_rows(each)]
    rows[tables.offset_range] = [{"batch_id": at, **row} for at, each in ranges.items() for row in each]
    for table, made in rows.items():
        if made:
            connection.execute(sa.insert(table), [fit_row(table, {"query": query, **row}) for row in made])


def fit_row(table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without values that a column cannot take; every column is there."""
    return {column.name: _fit_value(column, row.get(column.name)) for column in table.columns if column.name != "id"}


def _fit_value(column: sa.Column[Any], value: Any) -> Any:
    if isinstance(column.type, sa.BigInteger | sa.Integer):
        return value if is_long(value) else None
    if not isinstance(column.type, sa.Text) or isinstance(value, str):
        return value
    return None


def _parse_offset(text: str | None) -> SourceOffset | Damage | None:
    if text is None:
        return None
    return parse_source_offset(text)


def list_kafka_ranges(
    facts: BatchFacts, before: BatchFacts | None, initial: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """What a batch reads of each partition, where that is anything.

    It starts where the batch before it ends; where that is not known, where it was recorded to start; the first batch
    where its sources began.
    """
    ends = before.ends if before else {}
    for source_id, text in facts.ends.items():
        start = (
            ends.get(source_id)
            or facts.starts.get(source_id)
            or (initial if facts.batch_id == 0 else {}).get(source_id)
        )
        begin, end = _parse_offset(start), _parse_offset(text)
        if isinstance(begin, KafkaOffset) and isinstance(end, KafkaOffset):
            for topic, partitions in find_planned_ranges(begin.topics, end.topics).items():
                for partition, ((first, stop),) in partitions.items():
                    place = {"source_id": source_id, "topic": topic, "partition": partition}
                    yield {**place, "from_offset": first, "to_offset": stop}


def _make_batch_row(facts: BatchFacts) -> dict[str, Any]:
    plan, commit, progress = facts.plan, facts.commit, facts.progress
    row: dict[str, Any] = {
        "batch_id": facts.batch_id,
        "told_by": facts.told_by.name.lower(),
        "is_committed": facts.is_committed,
        "committed_at_ms": facts.committed_at_ms,
        "batch_watermark_ms": facts.batch_watermark_ms,
    }
    if plan is not None:
        seen = facts.plans[plan]
        former = [_encode_plan(each, at) for each, at in facts.plans.items() if each != plan]
        row |= {
            "planned_at_ms": plan.planned_at_ms,
            "plan_first_seen_ms": seen.first_ms,
            "plan_last_seen_ms": seen.last_ms,
            "former_plans": sorted(former, key=str) or None,
        }
    if commit is not None:
        row |= {
            "commit_seen_ms": commit.seen_at_ms,
            "commit_written_ms": commit.written_at_ms,
            "next_batch_watermark_ms": commit.next_batch_watermark_ms,
        }
    if progress is not None:
        row |= {name: getattr(progress, name) for name in _PROGRESS}
        row |= {
            "duration_ms": progress.duration_ms or None,
            "num_output_rows": progress.sink.num_output_rows,
            "sink": progress.sink.description,
            "sink_metrics": progress.sink.metrics or None,
        }
    return row


def _make_source_rows(facts: BatchFacts) -> Iterator[dict[str, Any]]:
    rows = {source_id: {"source_id": source_id, "end_offset": end} for source_id, end in facts.ends.items()}
    for index, source in enumerate(facts.progress.sources if facts.progress else ()):
        row: dict[str, Any] = rows.setdefault(str(index), {"source_id": str(index)})
        subscription_kind = source.subscription.kind if source.subscription else None
        subscription = source.subscription.value if source.subscription else None
        row |= {
            "description": source.description,
            "subscription_kind": subscription_kind,
            "subscription": subscription,
            "start_offset": source.start_offset,
            "latest_offset": source.latest_offset,
            "num_input_rows": source.num_input_rows,
            "metrics": source.metrics or None,
        }
    yield from ({"batch_id": facts.batch_id, **row} for row in rows.values())


def _make_state_rows(facts: BatchFacts) -> Iterator[dict[str, Any]]:
    for position, operator in enumerate(facts.progress.state_operators if facts.progress else ()):
        yield {"batch_id": facts.batch_id, "position": position, **{name: getattr(operator, name) for name in _STATE}}


def _encode_plan(plan: PlannedBatch, seen: Sighting) -> dict[str, Any]:
    return {
        "planned_at_ms": plan.planned_at_ms,
        "batch_watermark_ms": plan.batch_watermark_ms,
        "ends": [list(each) for each in plan.ends],
        "first_seen_ms": seen.first_ms,
        "last_seen_ms": seen.last_ms,
    }


def _make_batch(row: Any, sources: list[Any], operators: list[Any]) -> BatchFacts:
    is_planned = row["plan_last_seen_ms"] is not None
    plans = {
        PlannedBatch(
            told["planned_at_ms"], told["batch_watermark_ms"], tuple((at, end) for at, end in told["ends"])
        ): Sighting(told["last_seen_ms"], told["first_seen_ms"])
        for told in row["former_plans"] or ()
    }
    if is_planned:
        ends = sorted((each["source_id"], each["end_offset"]) for each in sources if each["end_offset"] is not None)
        plan = PlannedBatch(row["planned_at_ms"], row["batch_watermark_ms"], tuple(ends))
        plans[plan] = Sighting(row["plan_last_seen_ms"], row["plan_first_seen_ms"])
    commit = None
    if row["commit_seen_ms"] is not None:
        commit = Commit(row["commit_seen_ms"], row["commit_written_ms"], row["next_batch_watermark_ms"])
    return BatchFacts(
        batch_id=row["batch_id"],
        told_by=Teller[row["told_by"].upper()],
        plans=plans,
        commit=commit,
        progress=None if row["recorded_at_ms"] is None else _make_progress(row, sources, operators),
    ).settle()


def _make_progress(row: Any, sources: list[Any], operators: list[Any]) -> Progress:
    recorded = sorted(
        (each for each in sources if each["description"] is not None), key=lambda each: int(each["source_id"])
    )
    state_operators = [
        RecordedOperator(**{name: each[name] for name in _STATE})
        for each in sorted(operators, key=lambda each: each["position"])
    ]
    sink = RecordedSink(
        description=row["sink"], num_output_rows=row["num_output_rows"], metrics=row["sink_metrics"] or {}
    )
    others = {name: row[name] for name in _PROGRESS if name not in _DERIVED}
    return Progress(
        batch_id=row["batch_id"],
        batch_watermark_ms=row["batch_watermark_ms"],
        duration_ms=row["duration_ms"] or {},
        sources=tuple(map(_make_source, recorded)),
        state_operators=tuple(state_operators),
        sink=sink,
        **others,
    )


def _make_source(row: Any) -> RecordedSource:
    kind, value = row["subscription_kind"], row["subscription"]
    return RecordedSource(
        description=row["description"],
        subscription=None if kind is None else Subscription(kind=kind, value=value),
        start_offset=row["start_offset"],
        end_offset=row["end_offset"],
        latest_offset=row["latest_offset"],
        num_input_rows=row["num_input_rows"],
        metrics=row["metrics"] or {},
    )
