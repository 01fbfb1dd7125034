"""What a recorder wrote down beside a checkpoint, as far as advice rests on it: the newest batches, and the runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from lastgood.query.advice_facts import RecordedBatch, RecordedRun
from lastgood.records.files import parse_records, sort_record_files
from lastgood.records.record import Progress, QueryStarted, Record, Terminated
from lastgood.storage.reading import LocalStorage, Location, Storage, read_part

_FILES_MAX = 4
"""Newest record files that are read: two drivers that run at once write to two."""
_TAIL_BYTES = 256 * 1024
_OBJECT_BYTES_MAX = 4 * 1024 * 1024
_BATCHES_MAX = 500
_CONFLICT = "CONCURRENT_STREAM_LOG_UPDATE"


def select_newest_files(names: Iterable[str]) -> list[str]:
    """The newest record files among these names, oldest first."""
    return sort_record_files(names)[-_FILES_MAX:]


def read_newest_records(storage: Storage, folder: Location, names: Iterable[str]) -> list[Record]:
    """The newest records in a recorder's folder, oldest first.

    Raises:
        StorageError: a file cannot be read.
    """
    newest = select_newest_files(names)
    with ThreadPoolExecutor(_FILES_MAX) as pool:
        contents = list(pool.map(lambda name: read_tail(storage, folder / name), newest))
    records = [each for content in contents for each in parse_records(content).records]
    return sorted(records, key=lambda record: record.recorded_at_ms)


def read_tail(storage: Storage, file: Location) -> bytes:
    """The whole lines at the end of a record file; an object is small enough to be read whole.

    Raises:
        StorageError: it cannot be read.
    """
    found = storage.stat(file)
    if found is None:  # the recorder keeps only so many
        return b""
    limit = _TAIL_BYTES if isinstance(storage, LocalStorage) else _OBJECT_BYTES_MAX
    begin = max(0, (found.size or 0) - limit)
    content = read_part(storage, file, begin=begin, limit=limit) or b""
    if not begin:
        return content
    return content.partition(b"\n")[2]


def list_recorded_batches(records: Iterable[Record], query_id: str | None) -> tuple[RecordedBatch, ...]:
    """The newest batches of a query among these records."""
    found = [_make_recorded_batch(each) for each in records if isinstance(each, Progress) and each.query_id == query_id]
    return tuple(found[-_BATCHES_MAX:])


def list_recorded_topic_ids(records: Iterable[Record], query_id: str | None) -> dict[str, str]:
    """The ids of the topics of which the offsets of a query are, by what its batches told.

    Of a topic that has another id since, that is the new one only if the query has gone back in it. Else it has read on
    from the middle of another topic, and its offsets are still of the first.
    """
    found: dict[str, str] = {}
    ends: dict[str, Mapping[str, Any]] = {}
    for record in records:
        if not isinstance(record, Progress) or record.query_id != query_id:
            continue
        for source in record.sources:
            starts = _get_topics(source.start_offset)
            for topic, told in (source.topic_ids or {}).items():
                if told is not None and (
                    topic not in found or _is_going_back(ends.get(topic, {}), starts.get(topic, {}))
                ):
                    found[topic] = told
            ends |= _get_topics(source.end_offset)
    return found


def _get_topics(offset: Any) -> dict[str, Mapping[str, Any]]:
    """Partitions and offsets by topic, of Spark's JSON value; empty where it is another."""
    topics = offset.items() if isinstance(offset, Mapping) else ()
    return {topic: parts for topic, parts in topics if isinstance(parts, Mapping)}


def _is_going_back(end: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
    """Whether a batch began below where the one before it ended."""
    both = ((end[partition], at) for partition, at in start.items() if partition in end)
    return any(isinstance(last, int) and isinstance(at, int) and at < last for last, at in both)


def list_recorded_subscriptions(records: Iterable[Record], query_id: str | None) -> tuple[str, ...]:
    """How the newest batch of a query reads Kafka, each kind once."""
    batches = [each for each in records if isinstance(each, Progress) and each.query_id == query_id]
    if batches:
        sources = batches[-1].sources
    else:
        sources = ()
    return tuple(sorted({source.subscription.kind for source in sources if source.subscription is not None}))


def count_recorded_kafka_sources(records: Iterable[Record], query_id: str | None) -> int | None:
    """How many sources of a query's newest batch are Kafka, by their descriptions; None without a batch."""
    batches = [each for each in records if isinstance(each, Progress) and each.query_id == query_id]
    if batches:
        sources = batches[-1].sources
    else:
        sources = ()
    if not sources:
        return None
    return sum(source.subscription is not None or "kafka" in source.description.lower() for source in sources)


def _make_recorded_batch(record: Progress) -> RecordedBatch:
    kafka = [source for source in record.sources if source.subscription is not None]
    read = [_count_between(source.start_offset, source.end_offset) for source in kafka]
    behind = [_count_between(source.end_offset, source.latest_offset) for source in kafka]
    state_rows = record.num_state_rows if record.state_operators else None
    state_bytes = record.state_memory_used_bytes if record.state_operators else None
    return RecordedBatch(
        batch_id=record.batch_id,
        run_id=record.run_id,
        query_id=record.query_id,
        trigger_at_ms=record.trigger_at_ms,
        duration_ms=record.batch_duration_ms,
        rows=record.num_input_rows,
        offsets=_sum(read),
        behind=_sum(behind),
        has_watermark=record.batch_watermark_ms is not None,
        state_rows=state_rows,
        state_bytes=state_bytes,
        recorded_at_ms=record.recorded_at_ms,
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    if known and len(known) == len(counts):
        return sum(known)
    return None


def _count_between(start: Any, end: Any) -> int | None:
    """How many Kafka offsets lie between two of Spark's JSON values; None where one of them is none, or no position."""
    if not isinstance(start, Mapping) or not isinstance(end, Mapping):
        return None
    counts = list(_list_counts(start, end))
    known = [count for count in counts if count is not None]
    if len(known) == len(counts):
        return sum(known)
    return None


def _list_counts(start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[int | None]:
    for topic, partitions in end.items():
        before = start.get(topic)
        for partition, last in partitions.items() if isinstance(partitions, Mapping) else ():
            first = None
            if isinstance(before, Mapping):
                first = before.get(partition)
            if isinstance(first, int) and isinstance(last, int):
                if min(first, last) >= 0:
                    yield max(0, last - first)
                else:
                    yield None


def list_recorded_runs(records: Iterable[Record]) -> tuple[RecordedRun, ...]:
    """Every start that these records tell of, in the order of their first signs."""
    runs: dict[str, RecordedRun] = {}
    for record in records:
        if record.run_id is None or not isinstance(record, QueryStarted | Progress | Terminated):
            continue
        at = record.recorded_at_ms
        run = runs.get(record.run_id) or RecordedRun(
            run_id=record.run_id, query_id=record.query_id, first_ms=at, last_ms=at
        )
        if not isinstance(record, Terminated):
            run = replace(run, last_ms=at)
        elif record.failure is not None and str(record.failure.condition).startswith(_CONFLICT):
            run = replace(run, conflict_ms=at)
        if isinstance(record, QueryStarted):
            run = replace(run, spark=record.spark_version)
        runs[record.run_id] = run
    return tuple(runs.values())
