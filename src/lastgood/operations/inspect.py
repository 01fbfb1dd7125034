"""`inspect`: the batches of a query, one in full, its state, and which batch holds an offset, a file or a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.layout import SOURCES
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST
from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.find import OffsetSearch, find_file_quickly, find_file_thoroughly
from lastgood.observe.hosts import open_named
from lastgood.observe.open_query import MirrorUse, OpenQuery, batch_unknown, gather, now_ms, records_of
from lastgood.observe.rows import AllRows, BatchRow, rows_of
from lastgood.observe.shown import SinkComparison
from lastgood.observe.surroundings import look_around
from lastgood.observe.walk import Progress
from lastgood.query.history import SourceRead
from lastgood.query.kafka import not_served
from lastgood.settings.target import Target
from lastgood.sources.files.facts import FileFacts, Then, then
from lastgood.sources.files.folders import ask_files
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Range, Ranges, ranges_to_json, union
from lastgood.values import JsonValue, form

_NOTHING_ASKED = EvidenceOptions()
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)


class NotFoundInHistoryError(LastgoodError):
    """No known batch holds what was looked for."""

    condition = "NOT_IN_HISTORY"
    exit_code = 40
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Inspection:
    """The batches of a query, newest first, and where it stands."""

    query: OpenQuery
    rows: tuple[BatchRow, ...]
    known: int
    """How many batches are known in all."""
    comparison: SinkComparison
    """The batches held against the sinks; of those that only a sink knows, there is a row as well."""

    def to_json(self) -> dict[str, Any]:
        """What `inspect --format json` prints."""
        rows = [row_json(row, self.comparison) for row in self.rows]
        return {**head_json(self.query, self.comparison), "known_batches": self.known, "batches": rows}


def head_json(query: OpenQuery, comparison: SinkComparison) -> dict[str, Any]:
    """What the JSON begins with: the checkpoint, and what was asked beside it."""
    told = [
        {
            "location": sink.location,
            "kind": sink.kind,
            "known": sink.known,
            "last_batch": sink.last_batch,
            "skips_up_to": sink.skips_up_to,
            "because": sink.because,
        }
        for sink in comparison.sinks
    ]
    return {**query.to_json(), "sinks": told}


def row_json(row: BatchRow, comparison: SinkComparison) -> dict[str, Any]:
    """A batch with what the sinks show of it."""
    return {**row.to_json(), "sinks": [each.to_json() for each in comparison.of(row)]}


def inspect_batches(
    target: Target,
    *,
    limit: int | None = 20,
    options: EvidenceOptions = _NOTHING_ASKED,
    clock_ms: Callable[[], int] = now_ms,
) -> Inspection:
    """The newest batches of a query; all that are known if `limit` is None.

    Args:
        target: Which query.
        limit: How many.
        options: The sinks that each batch is held against.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        CheckpointMissingError: there is none.
        StorageError: the storage does not answer (subclasses).
    """
    if limit is None:
        everything = inspect_all(target, options=options)
        rows = list(everything)
        query, known = everything.query, len(rows)
    else:
        query = gather(target, batches=limit + 1, options=options)
        rows = list(rows_of(query))[::-1]
        known = max(len(rows), len(query.checkpoint.offsets.ids))
    query = look_around(query, options, now_ms=clock_ms(), kafka=False)
    comparison = SinkComparison(query, query.seen.sinks)
    return Inspection(query, (*comparison.only_in_sinks(), *rows)[:limit], known, comparison)


def inspect_all(
    target: Target,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Progress | None = None,
) -> AllRows:
    """Every batch that is known, newest first, to iterate over once: a long log is never held as a whole.

    `options` here and below say where the caller looks as well; the commands that errors name carry them.

    Raises:
        CheckpointMissingError: there is none.
        StorageError: the storage does not answer (subclasses); also while iterating.
    """
    return AllRows(gather(target, batches=2, mirror=MirrorUse.ALWAYS, options=options), progress)


def inspect_batch(
    target: Target, batch_id: int, *, options: EvidenceOptions = _NOTHING_ASKED
) -> tuple[BatchRow, OpenQuery]:
    """One batch in full.

    Raises:
        BatchUnknownError: neither checkpoint nor mirror has it.
    """
    return _one(gather(target, batches=2, options=options), batch_id)


def _one(query: OpenQuery, batch_id: int) -> tuple[BatchRow, OpenQuery]:
    query = query.with_batches([batch_id - 1, batch_id])
    for row in rows_of(query, [batch_id - 1, batch_id]):
        if row.batch == batch_id:
            return row, query
    raise batch_unknown(query, batch_id)


def with_surroundings(
    query: OpenQuery, options: EvidenceOptions, *, kafka: bool = True, clock_ms: Callable[[], int] = now_ms
) -> OpenQuery:
    """The same with what the sinks say, and Kafka if it is asked.

    Raises:
        LastgoodError: see `look_around`.
    """
    return look_around(query, options, now_ms=clock_ms(), kafka=kafka)


def batch_json(row: BatchRow, query: OpenQuery) -> dict[str, Any]:
    """One batch in full: `row_json`, what its commit says, its pinned confs, how to process it again."""
    record = query.records([row.batch])[row.batch]
    commit = record.commit if isinstance(record.commit, CommitEntry) else None
    kafka = query.seen.kafka
    expired = _expired(row, kafka)
    return {
        **row_json(row, SinkComparison(query, query.seen.sinks)),
        "next_batch_watermark_ms": commit.next_batch_watermark_ms if commit else None,
        "conf": dict(sorted(record.offsets.conf.items())) if isinstance(record.offsets, OffsetEntry) else {},
        "again": again(row, query, kafka.bootstrap if kafka else None),
        "expired": None if expired is None else ranges_to_json(expired),
    }


def _expired(row: BatchRow, facts: KafkaFacts | None) -> Ranges | None:
    """What the batch read and Kafka no longer has; None if that is not known."""
    whole: Ranges = reduce(union, (read.ranges for read in row.reads if read.ranges), {})
    if facts is None or not whole or any(read.unresolved for read in row.reads):
        return None
    earliest = facts.earliest
    known = all(each in earliest.get(topic, {}) for topic, parts in whole.items() for each in parts)
    return not_served(whole, facts) if known else None


def again(row: BatchRow, query: OpenQuery, bootstrap: str | None = None) -> list[str]:
    """What to type to read the input of a batch once more, as a batch query of Spark."""
    servers = "…" if bootstrap is None else f'"{bootstrap}"'
    lines = []
    for read in row.reads:
        spans = _spans(read)
        if spans:
            start = {topic: {str(p): first for p, (first, _) in each.items()} for topic, each in spans.items()}
            end = {topic: {str(p): last for p, (_, last) in each.items()} for topic, each in spans.items()}
            partitions = {topic: list(map(int, each)) for topic, each in start.items()}
            options = {"assign": partitions, "startingOffsets": start, "endingOffsets": end}
            given = "".join(f""".option("{name}", '{json.dumps(value)}')""" for name, value in options.items())
            lines.append(f'spark.read.format("kafka").option("kafka.bootstrap.servers", {servers}){given}.load()')
        elif read.files is not None:
            first, stop = read.files
            known = query.source_files(read.source_id)
            files = dict.fromkeys(file.path for file in known if first <= file.log_id < stop)
            lines.append(f"spark.read…load({json.dumps(list(files))})")
    return lines


def _spans(read: SourceRead) -> dict[str, dict[int, Range]]:
    """From where to where a batch query has to read each partition; where that is the earliest, Spark looks it up."""
    found = {
        topic: {each: (parts[0][0], parts[-1][1]) for each, parts in partitions.items()}
        for topic, partitions in (read.ranges or {}).items()
    }
    for topic, partitions in read.unresolved.items():
        from_earliest = {each: span for each, span in partitions.items() if span[0] == OFFSET_EARLIEST and span[1] >= 0}
        if from_earliest:
            found[topic] = {**found.get(topic, {}), **from_earliest}
    return found


def find_offset(
    target: Target,
    topic: str,
    partition: int,
    offset: int,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Progress | None = None,
) -> tuple[BatchRow, OpenQuery]:
    """The batch that read an offset of Kafka.

    Offsets grow with the batches, so that a few looks find it. Where they do not, as after a topic was made anew, or
    where batches are damaged or purged, every batch is looked at: if several read the offset, the newest counts.

    Raises:
        NotFoundInHistoryError: no known batch did; says what is known of that partition.
    """
    query = gather(target, batches=2, options=options)
    search = OffsetSearch(topic, partition, offset)
    batch_id = search.quickly(query)
    if batch_id is None:
        query = query.with_mirror()
        batch_id = search.thoroughly(query, progress)
    if batch_id is not None:
        return _one(query, batch_id)
    if search.perhaps is not None:
        raise NotFoundInHistoryError(
            f"nobody wrote down whether a batch holds offset {offset} of {topic}/{partition}",
            subject=str(query.location),
            found=f"batch {search.perhaps} begins or ends there at the earliest or latest offset of its time",
            expected="an offset that lies between two positions of the log",
            next=query.command("inspect", "--batch", search.perhaps),
        )
    raise NotFoundInHistoryError(
        f"no known batch holds offset {offset} of {topic}/{partition}",
        subject=str(query.location),
        found=f"offsets {search.known[0]} to {search.known[1] - 1}" if search.known else "no offset of that partition",
        expected=f"an offset below {search.known[1]}" if search.known else "a topic and partition of this query",
        next=query.command("inspect"),
    )


def find_file(
    target: Target,
    name: str,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Progress | None = None,
) -> tuple[BatchRow, str, OpenQuery]:
    """The batch that read an input file whose path ends with `name`, and that path.

    Raises:
        NotFoundInHistoryError: no entry of a file source's log names it.
    """
    query = gather(target, batches=2, options=options)
    found = find_file_quickly(query, name)
    if found is None:
        query = query.with_mirror()
        found = find_file_thoroughly(query, name, progress)
    if found is not None:
        row, query = _one(query, found.batch_id)
        return row, found.path, query
    raise NotFoundInHistoryError(
        f"no known batch read a file named {name}",
        subject=str(query.location),
        expected="the end of a path that a file source has read",
    )


@dataclass(frozen=True, slots=True)
class FileNow(JsonValue):
    """An input file that was read, as it is now."""

    json = form(
        "path=facts.file.path state=facts.state read_ms=facts.file.timestamp_ms "
        "modified_ms=facts.modified_ms because=facts.because then"
    )
    """`file` of `inspect --file --format json`."""

    facts: FileFacts
    then: Then | None
    """What Spark does with it; None if it is as it was when it was read, gone, or not known."""


def file_now(query: OpenQuery, path: str) -> FileNow | None:
    """What became of an input file that a source's log names; None where no log names it.

    Raises:
        ExtraMissingError: the library for its storage is not installed.
    """
    sources = dict.fromkeys((*(log.name for log in query.checkpoint.sources), *_mirrored_sources(query)))
    for source_id in sources:
        files = sorted(query.source_files(source_id), key=lambda file: file.log_id)
        named = [file for file in files if file.path == path]
        if named:
            facts = ask_files(named[-1:], open_at=open_named(query))[0]
            return FileNow(facts, then(facts, max(file.timestamp_ms for file in files)))
    return None


def _mirrored_sources(query: OpenQuery) -> list[str]:
    return [copy.path.split("/")[1] for copy in query.copies if copy.path.startswith(f"{SOURCES}/")]


def find_time(target: Target, time_ms: int, *, options: EvidenceOptions = _NOTHING_ASKED) -> tuple[BatchRow, OpenQuery]:
    """The batch that was running at a time: the newest one planned at or before it.

    Raises:
        NotFoundInHistoryError: the oldest known batch is younger.
    """
    query = gather(target, batches=2, options=options)
    batch_id = query.planned_at(time_ms)
    if batch_id is not None:
        return _one(query, batch_id)
    query = query.with_mirror()
    timed = ((record.batch_id, record.time_ms) for record in records_of(query.copies))
    before = [batch_id for batch_id, planned_ms in timed if planned_ms is not None and planned_ms <= time_ms]
    if not before:
        oldest = query.known.oldest
        raise NotFoundInHistoryError(
            "no known batch is that old",
            subject=str(query.location),
            found="no batch" if oldest is None else f"the oldest is batch {oldest}",
            next=query.command("inspect", "--all"),
        )
    return _one(query, before[-1])


def parse_place(text: str) -> tuple[str, int, int]:
    """Topic, partition and offset from `topic/partition/offset`.

    Raises:
        UsageError: it is not of that form.
    """
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    if not topic or not _NUMBER.fullmatch(partition) or not _NUMBER.fullmatch(offset):
        raise UsageError("the offset is not understood", found=text, expected="TOPIC/PARTITION/OFFSET")
    return topic, int(partition), int(offset)
