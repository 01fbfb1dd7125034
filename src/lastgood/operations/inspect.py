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
from lastgood.observe.evidence import GatheredQuery, MirrorUse, batch_unknown, gather, now_ms, records_of
from lastgood.observe.find import OffsetSearch, find_file_quickly, find_file_thoroughly
from lastgood.observe.hosts import open_named
from lastgood.observe.rows import AllRows, BatchRow, rows_of
from lastgood.observe.shown import SinkComparison
from lastgood.observe.surroundings import EvidenceOptions, Surroundings, look_around
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
_UNASKED = Surroundings()
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)


class NotFoundInHistoryError(LastgoodError):
    """No known batch holds what was looked for."""

    condition = "NOT_IN_HISTORY"
    exit_code = 40
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Inspection:
    """The batches of a query, newest first, and where it stands."""

    evidence: GatheredQuery
    rows: tuple[BatchRow, ...]
    known: int
    """How many batches are known in all."""
    comparison: SinkComparison
    """The batches held against the sinks; of those that only a sink knows, there is a row as well."""

    def to_json(self) -> dict[str, Any]:
        """What `inspect --format json` prints."""
        rows = [row_json(row, self.comparison) for row in self.rows]
        return {**head_json(self.evidence, self.comparison), "known_batches": self.known, "batches": rows}


def head_json(evidence: GatheredQuery, comparison: SinkComparison) -> dict[str, Any]:
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
    return {**evidence.to_json(), "sinks": told}


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
        evidence, known = everything.evidence, len(rows)
    else:
        evidence = gather(target, batches=limit + 1, said=options.words())
        rows = list(rows_of(evidence))[::-1]
        known = max(len(rows), len(evidence.checkpoint.offsets.ids))
    comparison = SinkComparison(evidence, look_around(evidence, options, now_ms=clock_ms(), kafka=False).sinks)
    return Inspection(evidence, (*comparison.only_in_sinks(), *rows)[:limit], known, comparison)


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
    return AllRows(gather(target, batches=2, mirror=MirrorUse.ALWAYS, said=options.words()), progress)


def inspect_batch(
    target: Target, batch_id: int, *, options: EvidenceOptions = _NOTHING_ASKED
) -> tuple[BatchRow, GatheredQuery]:
    """One batch in full.

    Raises:
        BatchUnknownError: neither checkpoint nor mirror has it.
    """
    return _one(gather(target, batches=2, said=options.words()), batch_id)


def _one(evidence: GatheredQuery, batch_id: int) -> tuple[BatchRow, GatheredQuery]:
    evidence = evidence.with_batches([batch_id - 1, batch_id])
    for row in rows_of(evidence, [batch_id - 1, batch_id]):
        if row.batch == batch_id:
            return row, evidence
    raise batch_unknown(evidence, batch_id)


def surroundings_of(
    evidence: GatheredQuery, options: EvidenceOptions, *, kafka: bool = True, clock_ms: Callable[[], int] = now_ms
) -> Surroundings:
    """What the sinks say, and Kafka if it is asked.

    Raises:
        LastgoodError: see `look_around`.
    """
    return look_around(evidence, options, now_ms=clock_ms(), kafka=kafka)


def batch_json(row: BatchRow, evidence: GatheredQuery, around: Surroundings = _UNASKED) -> dict[str, Any]:
    """One batch in full: `row_json`, what its commit says, its pinned confs, how to process it again."""
    record = evidence.records([row.batch])[row.batch]
    commit = record.commit if isinstance(record.commit, CommitEntry) else None
    expired = _expired(row, around.kafka)
    return {
        **row_json(row, SinkComparison(evidence, around.sinks)),
        "next_batch_watermark_ms": commit.next_batch_watermark_ms if commit else None,
        "conf": dict(sorted(record.offsets.conf.items())) if isinstance(record.offsets, OffsetEntry) else {},
        "again": again(row, evidence, around.kafka.bootstrap if around.kafka else None),
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


def again(row: BatchRow, evidence: GatheredQuery, bootstrap: str | None = None) -> list[str]:
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
            known = evidence.source_files(read.source_id)
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
) -> tuple[BatchRow, GatheredQuery]:
    """The batch that read an offset of Kafka.

    Offsets grow with the batches, so that a few looks find it. Where they do not, as after a topic was made anew, or
    where batches are damaged or purged, every batch is looked at: if several read the offset, the newest counts.

    Raises:
        NotFoundInHistoryError: no known batch did; says what is known of that partition.
    """
    evidence = gather(target, batches=2, said=options.words())
    search = OffsetSearch(topic, partition, offset)
    batch_id = search.quickly(evidence)
    if batch_id is None:
        evidence = evidence.with_mirror()
        batch_id = search.thoroughly(evidence, progress)
    if batch_id is not None:
        return _one(evidence, batch_id)
    if search.perhaps is not None:
        raise NotFoundInHistoryError(
            f"nobody wrote down whether a batch holds offset {offset} of {topic}/{partition}",
            subject=str(evidence.location),
            found=f"batch {search.perhaps} begins or ends there at the earliest or latest offset of its time",
            expected="an offset that lies between two positions of the log",
            next=evidence.command("inspect", "--batch", search.perhaps),
        )
    raise NotFoundInHistoryError(
        f"no known batch holds offset {offset} of {topic}/{partition}",
        subject=str(evidence.location),
        found=f"offsets {search.known[0]} to {search.known[1] - 1}" if search.known else "no offset of that partition",
        expected=f"an offset below {search.known[1]}" if search.known else "a topic and partition of this query",
        next=evidence.command("inspect"),
    )


def find_file(
    target: Target,
    name: str,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Progress | None = None,
) -> tuple[BatchRow, str, GatheredQuery]:
    """The batch that read an input file whose path ends with `name`, and that path.

    Raises:
        NotFoundInHistoryError: no entry of a file source's log names it.
    """
    evidence = gather(target, batches=2, said=options.words())
    found = find_file_quickly(evidence, name)
    if found is None:
        evidence = evidence.with_mirror()
        found = find_file_thoroughly(evidence, name, progress)
    if found is not None:
        row, evidence = _one(evidence, found.batch_id)
        return row, found.path, evidence
    raise NotFoundInHistoryError(
        f"no known batch read a file named {name}",
        subject=str(evidence.location),
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


def file_now(evidence: GatheredQuery, path: str) -> FileNow | None:
    """What became of an input file that a source's log names; None where no log names it.

    Raises:
        ExtraMissingError: the library for its storage is not installed.
    """
    sources = dict.fromkeys((*(log.name for log in evidence.checkpoint.sources), *_mirrored_sources(evidence)))
    for source_id in sources:
        files = sorted(evidence.source_files(source_id), key=lambda file: file.log_id)
        named = [file for file in files if file.path == path]
        if named:
            facts = ask_files(named[-1:], open_at=open_named(evidence))[0]
            return FileNow(facts, then(facts, max(file.timestamp_ms for file in files)))
    return None


def _mirrored_sources(evidence: GatheredQuery) -> list[str]:
    return [copy.path.split("/")[1] for copy in evidence.copies if copy.path.startswith(f"{SOURCES}/")]


def find_time(
    target: Target, time_ms: int, *, options: EvidenceOptions = _NOTHING_ASKED
) -> tuple[BatchRow, GatheredQuery]:
    """The batch that was running at a time: the newest one planned at or before it.

    Raises:
        NotFoundInHistoryError: the oldest known batch is younger.
    """
    evidence = gather(target, batches=2, said=options.words())
    batch_id = evidence.planned_at(time_ms)
    if batch_id is not None:
        return _one(evidence, batch_id)
    evidence = evidence.with_mirror()
    timed = ((record.batch_id, record.time_ms) for record in records_of(evidence.copies))
    before = [batch_id for batch_id, planned_ms in timed if planned_ms is not None and planned_ms <= time_ms]
    if not before:
        oldest = evidence.known.oldest
        raise NotFoundInHistoryError(
            "no known batch is that old",
            subject=str(evidence.location),
            found="no batch" if oldest is None else f"the oldest is batch {oldest}",
            next=evidence.command("inspect", "--all"),
        )
    return _one(evidence, before[-1])


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
