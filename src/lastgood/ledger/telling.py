"""From a recorder's records to facts. Pure; a record that cannot be stored as it is loses what is wrong with it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from lastgood.checkpoint.lines import is_long, to_json
from lastgood.frozen import dataclass
from lastgood.ledger.facts import BatchFacts, FailureSeen, QueryFacts, RunSeen, Teller, TopicSeen
from lastgood.ledger.joining import join_facts
from lastgood.records.record import Crashed, Progress, QueryStarted, Record, RecordedFailure, StartFailed, Terminated
from lastgood.records.told import redact_failure
from lastgood.storage.reading import LocationInvalidError, parse_location

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Telling:
    """Facts that are stored together."""

    queries: tuple[QueryFacts, ...] = ()
    failures: tuple[FailureSeen, ...] = ()


def identify_checkpoint(told: str | None) -> str:
    """The same text for every way to write a checkpoint's location; empty if it is not known."""
    if not told or (not told.startswith("/") and ":" not in told):
        return told or ""  # a relative path: only the driver knows from where
    try:
        return parse_location(told).identity
    except LocationInvalidError:
        return told


def make_telling(records: Iterable[Record]) -> Telling:
    """What these records tell."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    failures = []
    for told in records:
        record = clean_value(told)
        if not _is_ours(record):
            continue
        if record.query_id:
            groups[record.query_id, identify_checkpoint(record.checkpoint)].append(record)
        if isinstance(record, Terminated | StartFailed | Crashed) and record.failure is not None:
            failures.append(_make_failure(record, record.failure))
    return Telling(tuple(_make_query_facts(*key, group) for key, group in groups.items()), tuple(failures))


def _is_ours(record: Record) -> bool:
    texts = (record.query_id, record.run_id, record.checkpoint, record.query_name)
    is_whole = is_long(record.recorded_at_ms) and all(text is None or isinstance(text, str) for text in texts)
    return is_whole and (not isinstance(record, Progress) or (is_long(record.batch_id) and record.batch_id >= 0))


def _make_query_facts(query_id: str, checkpoint: str, records: list[Record]) -> QueryFacts:
    times = [record.recorded_at_ms for record in records]
    batches: dict[int, BatchFacts] = {}
    topics: list[TopicSeen] = []
    for record in records:
        if isinstance(record, Progress):
            facts = BatchFacts(batch_id=record.batch_id, told_by=Teller.RECORDER, progress=_make_progress(record))
            known = batches.get(record.batch_id)
            if known is None:
                batches[record.batch_id] = facts
            else:
                batches[record.batch_id] = known.with_other(facts)
            topics += _list_topics(record)
    named = [(each.recorded_at_ms, each.query_name) for each in records if each.query_name]
    runs = (run for run in map(_make_run, records) if run is not None)
    return QueryFacts(
        query_id=query_id,
        checkpoint=checkpoint,
        named=max(named, default=None),
        first_seen_ms=min(times),
        last_seen_ms=max(times),
        batches=batches,
        topics=_join_by(topics, lambda each: (each.topic, each.topic_id)),
        runs=_join_by(runs, lambda each: each.run_id),
    )


def _join_by(told: Iterable[_T], key: Callable[[_T], Any]) -> tuple[_T, ...]:
    """One for each key."""
    found: dict[Any, _T] = {}
    for each in told:
        if key(each) in found:
            found[key(each)] = join_facts(found[key(each)], each)
        else:
            found[key(each)] = each
    return tuple(found[name] for name in sorted(found))


def _make_progress(record: Progress) -> Progress:
    """What is of the batch alone, its offsets as texts."""
    sources = tuple(
        replace(
            source,
            start_offset=_format_offset(source.start_offset),
            end_offset=_format_offset(source.end_offset),
            latest_offset=_format_offset(source.latest_offset),
            topic_ids=None,
            topic_ids_at_ms=None,
        )
        for source in record.sources
    )
    return replace(record, query_id=None, query_name=None, checkpoint=None, sources=sources)


def _format_offset(offset: Any) -> str | None:
    if offset is None or isinstance(offset, str):
        return offset
    return to_json(offset)


def _list_topics(record: Progress) -> Iterable[TopicSeen]:
    for source in record.sources:
        ids: Mapping[str, Any] = {}
        if isinstance(source.topic_ids, dict) and is_long(source.topic_ids_at_ms):
            ids = source.topic_ids
        for topic, topic_id in ids.items():
            if isinstance(topic_id, str) and source.topic_ids_at_ms is not None:
                yield TopicSeen(
                    topic=topic,
                    topic_id=topic_id,
                    first_seen_ms=source.topic_ids_at_ms,
                    last_seen_ms=source.topic_ids_at_ms,
                    first_batch_id=record.batch_id,
                    last_batch_id=record.batch_id,
                )


def _make_run(record: Record) -> RunSeen | None:
    if not record.run_id or not isinstance(record, QueryStarted | Progress | Terminated):
        return None
    run = RunSeen(run_id=record.run_id, query_name=record.query_name)
    if isinstance(record, QueryStarted):
        return replace(
            run,
            started_at_ms=record.started_at_ms,
            spark_version=record.spark_version,
            application_id=record.application_id,
        )
    if isinstance(record, Progress):
        return replace(run, last_batch_id=record.batch_id)
    return replace(run, ended_at_ms=record.recorded_at_ms, last_batch_id=record.batch_id)


def _make_failure(record: Record, failure: RecordedFailure) -> FailureSeen:
    # One run ends once, however many recorders tell of it; what has no run is known by what was told.
    told = record.run_id or json.dumps(record.to_json(), sort_keys=True, default=str)
    shown = redact_failure(dataclasses.asdict(failure))
    return FailureSeen(
        failure_id=hashlib.sha256(f"{record.kind} {told}".encode(errors="surrogatepass")).hexdigest()[:32],
        kind=record.kind,
        recorded_at_ms=record.recorded_at_ms,
        query_id=record.query_id,
        run_id=record.run_id,
        query_name=record.query_name,
        checkpoint=identify_checkpoint(record.checkpoint) or None,
        batch_id=record.batch_id if isinstance(record, Terminated) else None,
        condition=failure.condition,
        message=shown["message"],
        causes=shown["causes"],
        start_offsets=list(failure.start_offsets),
        end_offsets=list(failure.end_offsets),
    )


def clean_value(value: Any) -> Any:
    """The same without what no database takes: NUL and halves of characters, numbers beyond 64 bits, NaN."""
    if isinstance(value, str):
        return value.replace("\0", "�").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {clean_value(key): clean_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(clean_value(each) for each in value)
    if isinstance(value, int | float):
        if isinstance(value, float):
            is_finite = math.isfinite(value)
        else:
            is_finite = is_long(value)
        return value if is_finite or isinstance(value, bool) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{each.name: clean_value(getattr(value, each.name)) for each in dataclasses.fields(value)}
        )
    return value
