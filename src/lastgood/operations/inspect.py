"""`inspect`: the batches of a query, one in full, its state, and which batch holds an offset, a file or a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.history import BatchRecord, SourceRead, reads
from lastgood.operations.evidence import Evidence, batch_unknown, gather


class NotFoundInHistoryError(LastgoodError):
    """No known batch holds what was looked for."""

    condition = "NOT_IN_HISTORY"
    exit_code = 40
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch, as a line of the table."""

    batch: int
    planned: bool
    committed: bool
    time_ms: int | None
    watermark_ms: int | None
    reads: tuple[SourceRead, ...]
    mirrored: bool
    notes: tuple[str, ...]
    """What is out of the ordinary."""

    def to_json(self) -> dict[str, Any]:
        """One element of `batches`."""
        return {
            "batch": self.batch,
            "planned": self.planned,
            "committed": self.committed,
            "time_ms": self.time_ms,
            "watermark_ms": self.watermark_ms,
            "sources": [read.to_json() for read in self.reads],
            "from": "mirror" if self.mirrored else "checkpoint",
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Inspection:
    """The batches of a query, newest first, and where it stands."""

    evidence: Evidence
    rows: tuple[BatchRow, ...]
    known: int
    """How many batches are known in all."""

    def to_json(self) -> dict[str, Any]:
        """What `inspect --format json` prints."""
        return {**summary(self.evidence), "known_batches": self.known, "batches": [row.to_json() for row in self.rows]}


def summary(evidence: Evidence) -> dict[str, Any]:
    """What every reading verb says of a checkpoint first."""
    checkpoint = evidence.checkpoint
    versions = checkpoint.spark_versions
    return {
        "checkpoint": str(evidence.location),
        "query_id": evidence.query_id,
        "mode": checkpoint.mode.value,
        "spark": str(versions) if versions else None,
        "stateful": checkpoint.is_stateful,
        "last_planned": checkpoint.last_planned,
        "last_committed": checkpoint.last_committed,
        "last_loadable_state": checkpoint.last_loadable,
        "damaged": {path: str(damage) for path, damage in checkpoint.damage.items()},
        "absent": list(checkpoint.absent),
    }


def inspect_batches(target: str, *, limit: int | None = 20, config: Path | None = None) -> Inspection:
    """The newest batches of a query; all that are known if `limit` is None.

    Raises:
        CheckpointMissingError: there is none.
        StorageError: the storage does not answer (subclasses).
    """
    evidence = gather(target, config=config, batches=None if limit is None else limit + 1)
    rows = list(_rows(evidence))
    known = max(len(rows), len(evidence.checkpoint.offsets.ids))
    return Inspection(evidence, tuple(rows[::-1] if limit is None else rows[::-1][:limit]), known)


def inspect_batch(target: str, batch_id: int, *, config: Path | None = None) -> tuple[BatchRow, Evidence]:
    """One batch in full.

    Raises:
        BatchUnknownError: neither checkpoint nor mirror has it.
    """
    return _one(gather(target, config=config, batches=2), batch_id)


def _one(evidence: Evidence, batch_id: int) -> tuple[BatchRow, Evidence]:
    evidence = evidence.with_batches([batch_id - 1, batch_id])
    for row in _rows(evidence):
        if row.batch == batch_id:
            return row, evidence
    raise batch_unknown(evidence, batch_id)


def batch_json(row: BatchRow, evidence: Evidence) -> dict[str, Any]:
    """One batch in full: `BatchRow.to_json`, what its commit says, its pinned confs, how to process it again."""
    record = evidence.records()[row.batch]
    commit = record.commit if isinstance(record.commit, CommitEntry) else None
    return {
        **row.to_json(),
        "next_batch_watermark_ms": commit.next_batch_watermark_ms if commit else None,
        "conf": dict(sorted(record.offsets.conf.items())) if isinstance(record.offsets, OffsetEntry) else {},
        "again": again(row, evidence),
    }


def again(row: BatchRow, evidence: Evidence) -> list[str]:
    """What to type to read the input of a batch once more, as a batch query of Spark."""
    lines = []
    for read in row.reads:
        if read.ranges:
            start = {topic: {str(p): spans[0][0] for p, spans in each.items()} for topic, each in read.ranges.items()}
            end = {topic: {str(p): spans[-1][1] for p, spans in each.items()} for topic, each in read.ranges.items()}
            partitions = {topic: list(map(int, each)) for topic, each in start.items()}
            options = {"assign": partitions, "startingOffsets": start, "endingOffsets": end}
            given = "".join(f""".option("{name}", '{json.dumps(value)}')""" for name, value in options.items())
            lines.append(f'spark.read.format("kafka").option("kafka.bootstrap.servers", …){given}.load()')
        elif read.files is not None:
            first, stop = read.files
            known = evidence.source_files(read.source_id)
            files = dict.fromkeys(file.path for file in known if first <= file.log_id < stop)
            lines.append(f"spark.read…load({json.dumps(list(files))})")
    return lines


def find_offset(
    target: str, topic: str, partition: int, offset: int, *, config: Path | None = None
) -> tuple[BatchRow, Evidence]:
    """The batch that read an offset of Kafka; if several did, the newest.

    Raises:
        NotFoundInHistoryError: no known batch did; says what is known of that partition.
    """
    evidence = gather(target, config=config)
    known: list[tuple[int, int]] = []
    for row in reversed(list(_rows(evidence))):
        for read in row.reads:
            spans = (read.ranges or {}).get(topic, {}).get(partition, ())
            known += spans
            if any(start <= offset < end for start, end in spans):
                return row, evidence
    found = f"offsets {min(known)[0]} to {max(end for _, end in known) - 1}" if known else "no offset of that partition"
    raise NotFoundInHistoryError(
        f"no known batch holds offset {offset} of {topic}/{partition}",
        subject=str(evidence.location),
        found=found,
        expected=f"an offset below {max(end for _, end in known)}" if known else "a topic and partition of this query",
        next=f"lastgood inspect {evidence.location}",
    )


def find_file(target: str, name: str, *, config: Path | None = None) -> tuple[BatchRow, str, Evidence]:
    """The batch that read an input file whose path ends with `name`, and that path.

    Raises:
        NotFoundInHistoryError: no entry of a file source's log names it.
    """
    evidence = gather(target, config=config)
    rows = list(_rows(evidence))
    sources = dict.fromkeys(read.source_id for row in rows for read in row.reads if read.files is not None)
    for source_id in sources:
        for file in evidence.source_files(source_id):
            row = _row_of_log_id(rows, source_id, file.log_id) if unquote(file.path).endswith(name) else None
            if row is not None:
                return row, file.path, evidence
    raise NotFoundInHistoryError(
        f"no known batch read a file named {name}",
        subject=str(evidence.location),
        expected="the end of a path that a file source has read",
    )


def find_time(target: str, time_ms: int, *, config: Path | None = None) -> tuple[BatchRow, Evidence]:
    """The batch that was running at a time: the newest one planned at or before it.

    Raises:
        NotFoundInHistoryError: the oldest known batch is younger.
    """
    evidence = gather(target, config=config, batches=2)
    batch_id = evidence.planned_at(time_ms)
    if batch_id is not None:
        return _one(evidence, batch_id)
    evidence = gather(target, config=config)
    timed = [row for row in _rows(evidence) if row.time_ms is not None]
    before = [row for row in timed if row.time_ms is not None and row.time_ms <= time_ms]
    if not before:
        raise NotFoundInHistoryError(
            "no known batch is that old",
            subject=str(evidence.location),
            found=f"the oldest is batch {timed[0].batch}" if timed else "no batch with a time",
            next=f"lastgood inspect {evidence.location} --all",
        )
    return before[-1], evidence


def parse_place(text: str) -> tuple[str, int, int]:
    """Topic, partition and offset from `topic/partition/offset`.

    Raises:
        UsageError: it is not of that form.
    """
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise UsageError("the offset is not understood", found=text, expected="TOPIC/PARTITION/OFFSET")
    return topic, int(partition), int(offset)


def _rows(evidence: Evidence) -> Iterable[BatchRow]:
    records = evidence.records()
    initial = evidence.initial
    current = evidence.current
    for batch_id, record in records.items():
        before = records.get(batch_id - 1)
        entry = record.offsets
        found: tuple[SourceRead, ...] = ()
        if isinstance(entry, OffsetEntry):
            earlier = before.offsets if before and isinstance(before.offsets, OffsetEntry) else None
            found = reads(entry, earlier, initial if batch_id == 0 else None, is_first=batch_id == 0)
        yield BatchRow(
            batch_id,
            planned=entry is not None,
            committed=record.is_committed,
            time_ms=record.time_ms,
            watermark_ms=record.watermark_ms,
            reads=found,
            mirrored=record.is_mirrored,
            notes=tuple(_notes(record, found, current)),
        )


def _notes(record: BatchRecord, found: tuple[SourceRead, ...], current: int | None) -> Iterable[str]:
    if isinstance(record.offsets, Damage):
        yield f"plan damaged: {record.offsets}"
    if isinstance(record.commit, Damage):
        yield f"commit damaged: {record.commit}"
    if record.offsets is None:
        yield "committed without a plan"
    if current is not None and record.batch_id > current and record.is_mirrored:
        yield "no longer in the checkpoint: taken back or lost"
    elif record.offsets is not None and not record.is_committed:
        is_newest = record.batch_id == current
        yield "planned, not committed: runs again" if is_newest else "planned, never committed: passed over"
    if any(read.went_back for read in found):
        yield "offsets went back"
    if any(read.gone for read in found):
        yield "partitions gone"
    if found and all(read.count == 0 and not read.added for read in found):
        yield "no data"


def _row_of_log_id(rows: list[BatchRow], source: str, log_id: int) -> BatchRow | None:
    for row in rows:
        for read in row.reads:
            if read.source_id == source and read.files and read.files[0] <= log_id < read.files[1]:
                return row
    return None
