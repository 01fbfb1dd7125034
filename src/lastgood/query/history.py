"""Every batch of a query that is still known, from its logs and from their mirror; what each of them read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import (
    OFFSET_EARLIEST,
    FileOffset,
    JsonOffset,
    KafkaOffset,
    SourceOffset,
    VoidOffset,
    name_offset,
)
from lastgood.frozen import dataclass
from lastgood.load.position import LoadPosition
from lastgood.sources.kafka.ranges import (
    Offsets,
    Range,
    Ranges,
    count_offsets,
    find_planned_ranges,
    find_unresolved,
    find_went_back,
    is_onward,
    select_only_in,
    sort_ranges,
)
from lastgood.sources.kinds import LOAD_SOURCE, recognise_source
from lastgood.values import JsonValue, make_form

ValueT = TypeVar("ValueT")

InitialOffsets: TypeAlias = Mapping[str, SourceOffset]
"""Source → where it began, for sources that write that down (`sources/<i>/0`)."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What is known of one batch."""

    batch_id: int
    offsets: OffsetEntry | Damage | None
    """None: there is no such file, nor a copy of it."""
    commit: CommitEntry | Damage | None
    is_mirrored: bool = False
    """True if the checkpoint itself no longer has the plan: it comes from the mirror."""

    @property
    def is_committed(self) -> bool:
        """Whether there is a file in the commit log: Spark does not look into older ones."""
        return self.commit is not None

    @property
    def time_ms(self) -> int | None:
        """Processing time of the batch, milliseconds since 1970."""
        metadata = self.offsets.metadata if isinstance(self.offsets, OffsetEntry) else None
        return metadata.batch_timestamp_ms if metadata else None

    @property
    def watermark_ms(self) -> int | None:
        """Event-time watermark while it ran; None if there is none."""
        if not isinstance(self.offsets, OffsetEntry):
            return None
        return self.offsets.batch_watermark_ms or None


@dataclass(frozen=True, slots=True)
class SourceRead(JsonValue):
    """What one batch read of one source, as it was planned."""

    json = make_form(
        "source=source_id kind end count unit=_unit ranges=_ranges file_log=files went_back added=_added "
        "gone=_gone unresolved=_unresolved positions",
        left_out="unresolved positions",
    )
    """Its part of `inspect --format json`."""

    source_id: str
    kind: str
    """`kafka`, `file`, …; see `SourceOffset`."""
    end: str
    """End offset as Spark wrote it."""
    ranges: Ranges | None = None
    """Kafka: per topic and partition `[from, to)`."""
    files: Range | None = None
    """File source: entries of its own log, `[from, to)`."""
    unresolved: Mapping[str, Mapping[int, Range]] = field(default_factory=dict)
    """Kafka: partitions whose start or end stands there as the earliest or the latest, with both."""
    went_back: Mapping[str, Mapping[int, Range]] = field(default_factory=dict)
    """Kafka: partitions whose end lies below their start."""
    added: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Kafka: partitions whose start is not written down, and their end."""
    gone: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Kafka: partitions that the batch before had and this one has not, and where that left them."""

    positions: tuple[LoadPosition, LoadPosition] | None = None
    """Files or the table of a load: from where to where."""

    @property
    def open_spans(self) -> Mapping[str, Mapping[int, Range]]:
        """Kafka: partitions of which no log tells what the batch read, with both ends as they stand, or are meant.

        One that is new with the batch is read from the earliest offset of its time; what that was, nobody wrote down.
        """
        if not (self.unresolved or self.added):
            return {}
        found = {topic: dict(parts) for topic, parts in self.unresolved.items()}
        if self.ranges is None:
            return found
        for topic, parts in self.added.items():
            for partition, end in parts.items():
                if end != 0:  # else it had nothing yet
                    found.setdefault(topic, {})[partition] = (OFFSET_EARLIEST, end)
        return found

    @property
    def count(self) -> int | None:
        """Offsets, entries of the file log, bytes, or rows; None where that cannot be told."""
        if self.open_spans:
            return None
        if self.ranges is not None:
            return count_offsets(self.ranges)
        if self.positions is not None:
            return self._count_bytes(*self.positions)
        if self.files is None:
            return None
        return max(0, self.files[1] - self.files[0])

    def _count_bytes(self, start: LoadPosition, end: LoadPosition) -> int | None:
        """Of a batch within one file; how long the files are stands in no plan."""
        return end.position - start.position if start.file == end.file else None

    @property
    def unit(self) -> str:
        """What `count` counts."""
        if self.positions is not None:
            return "bytes" if self.positions[1].upto is None else "rows"
        return "log entries" if self.files is not None else "offsets"

    @property
    def _unit(self) -> str | None:
        return None if self.count is None else self.unit

    @property
    def _ranges(self) -> Ranges | None:
        return None if self.ranges is None else sort_ranges(self.ranges)

    @property
    def _added(self) -> dict[str, dict[int, int | str]]:
        return _name_offsets(self.added)

    @property
    def _gone(self) -> dict[str, dict[int, int | str]]:
        return _name_offsets(self.gone)

    @property
    def _unresolved(self) -> dict[str, dict[int, tuple[int | str, int | str]]]:
        return {
            topic: {each: (name_offset(first), name_offset(end)) for each, (first, end) in parts.items()}
            for topic, parts in self.unresolved.items()
        }


def find_source_reads(
    entry: OffsetEntry, before: OffsetEntry | None, initial: InitialOffsets | None = None, *, is_first: bool = False
) -> tuple[SourceRead, ...]:
    """What a batch reads of each source.

    Args:
        entry: Its plan.
        before: The plan of the batch before it: its ends are the starts of this one. None if it is not known.
        initial: Where the sources began, for the first batch.
        is_first: There is no batch before it.
    """
    found = []
    for line in entry.sources:
        earlier = None
        if before:
            earlier = before.source(line.source_id)
        start = earlier.offset if earlier else (initial or {}).get(line.source_id)
        found.append(_read(line.source_id, line.text, line.offset, start, is_new=is_first or before is not None))
    return tuple(found)


def _read(source_id: str, text: str, end: SourceOffset, start: SourceOffset | None, *, is_new: bool) -> SourceRead:
    """`is_new`: a source without a start is new with this batch, not just unknown before it."""
    match start, end:
        case KafkaOffset(), KafkaOffset():
            return SourceRead(
                source_id,
                end.kind,
                text,
                ranges=find_planned_ranges(start.topics, end.topics),
                unresolved=find_unresolved(start.topics, end.topics),
                went_back=find_went_back(start.topics, end.topics),
                added=select_only_in(end.topics, start.topics),
                gone=select_only_in(start.topics, end.topics),
            )
        case FileOffset(), FileOffset():
            return SourceRead(source_id, end.kind, text, files=(start.log_offset + 1, end.log_offset + 1))
        case ((None | VoidOffset()), FileOffset()) if is_new or start is not None:
            return SourceRead(source_id, end.kind, text, files=(0, end.log_offset + 1))
        case ((None | VoidOffset()), KafkaOffset()):
            return SourceRead(source_id, end.kind, text, added=end.topics)
        case _, JsonOffset() if recognise_source(end) is LOAD_SOURCE:
            begin = LoadPosition(0, 0) if start is None and is_new else find_load_position(start)
            positions = None if begin is None else (begin, LoadPosition.from_json(end.value))
            return SourceRead(source_id, LOAD_SOURCE.name, text, positions=positions)
    return SourceRead(source_id, end.kind, text)


def find_load_position(offset: SourceOffset | None) -> LoadPosition | None:
    """Where a load stands, by an offset of its source; None for one of any other source."""
    if not isinstance(offset, JsonOffset) or recognise_source(offset) is not LOAD_SOURCE:
        return None
    return LoadPosition.from_json(offset.value)


def merge(checkpoint: Iterable[BatchRecord], mirror: Iterable[BatchRecord]) -> dict[int, BatchRecord]:
    """Both by batch id, oldest first; what the checkpoint still has counts, the mirror fills in what it has not.

    What the checkpoint has planned since its newest commit is not committed, whatever the mirror once saw.
    """
    held = list(checkpoint)
    last_committed = max((record.batch_id for record in held if record.commit is not None), default=-1)
    merged = {record.batch_id: record for record in mirror}
    for record in held:
        merged[record.batch_id] = merge_one(record, merged.get(record.batch_id), last_committed)
    return dict(sorted(merged.items()))


def merge_one(held: BatchRecord, mirrored: BatchRecord | None, last_committed: int) -> BatchRecord:
    """What is known of one batch that the checkpoint still has; its newest commit is `last_committed`. See `merge`."""
    if mirrored is None:
        return held
    commit = held.commit
    if commit is None and held.batch_id < last_committed:
        commit = mirrored.commit
    if not isinstance(held.offsets, OffsetEntry) and isinstance(mirrored.offsets, OffsetEntry):
        return BatchRecord(held.batch_id, mirrored.offsets, commit, is_mirrored=True)
    return BatchRecord(held.batch_id, held.offsets, commit)


@dataclass(frozen=True, slots=True)
class Seam(JsonValue):
    """Where what one batch read does not begin exactly where the batch before it ended."""

    json = make_form("condition batch=batch_id topic partition offsets source=source_id positions")
    """Its part of `verify --format json`."""

    condition: str
    """`GAP`: offsets that no known batch read; `OVERLAP`: read twice; `UNKNOWN`: batches are missing between;
    `UNRESOLVED`: it begins or ends at the earliest or the latest offset, and nobody wrote down which that was."""
    batch_id: int
    """The later batch."""
    topic: str | None = None
    partition: int | None = None
    offsets: Range | None = None
    """`[from, to)`; None for `UNKNOWN` and `UNRESOLVED`, and for a source whose offsets are not counted."""
    source_id: str | None = None
    """The source, where it is not Kafka."""
    positions: tuple[str, str] | None = None
    """Its offsets as Spark wrote them: where the batch before ended, and where this one does."""


def find_seams(records: Iterable[BatchRecord], *, is_sparse: bool = False) -> list[Seam]:
    """Where the committed batches, as planned, are not contiguous.

    A batch begins where the plan before it ends, so within one unbroken log only a partition that went back or was
    forgotten can break the line; what stands between two known batches that are not neighbours is unknown.

    Args:
        records: The batches, oldest first; one is held at a time, and a number for each source and partition that is
            gone.
        is_sparse: The query writes its progress down only now and then: batches that are missing never were.
    """
    found: list[Seam] = []
    left: _Left = {}
    previous: BatchRecord | None = None
    for record in records:
        if not isinstance(record.offsets, OffsetEntry) or not record.is_committed:
            continue
        if previous is not None and record.batch_id != previous.batch_id + 1 and not is_sparse:
            found.append(Seam("UNKNOWN", record.batch_id))
        before = None
        if previous and isinstance(previous.offsets, OffsetEntry):
            before = previous.offsets
        if before and not _is_onward(before, record.offsets):
            found += _find_breaks(record.batch_id, find_source_reads(record.offsets, before), left)
        previous = record
    return found


def find_seams_between(left: OffsetEntry, initial: InitialOffsets) -> list[Seam]:
    """Where a new query on the same topics does not begin where the query before it had committed.

    Args:
        left: The newest committed plan of the query before.
        initial: Where the sources of the new query began.
    """
    found = []
    for line in left.sources:
        ends, start = line.offset, initial.get(line.source_id)
        if not isinstance(ends, KafkaOffset) or not isinstance(start, KafkaOffset):
            continue
        for topic, partitions in ends.topics.items():
            for partition, end in partitions.items():
                begin = start.topics.get(topic, {}).get(partition)
                if begin is not None and min(begin, end) < 0:
                    found.append(Seam("UNRESOLVED", 0, topic, partition))
                elif begin is not None and begin > end:
                    found.append(Seam("GAP", 0, topic, partition, (end, begin)))
                elif begin is not None and begin < end:
                    found.append(Seam("OVERLAP", 0, topic, partition, (begin, end)))
    return found


def _is_onward(before: OffsetEntry, entry: OffsetEntry) -> bool:
    """Whether no source can have broken the line, as of nearly all batches of a long log; told without its ranges."""
    for line in entry.sources:
        end = line.offset
        if not isinstance(end, KafkaOffset):
            continue
        earlier = before.source(line.source_id)
        start = earlier.offset if earlier else None
        if not isinstance(start, KafkaOffset) or not is_onward(start.topics, end.topics):
            return False
    return True


_Left: TypeAlias = dict[tuple[str, int], dict[str, int]]
"""Topic and partition → the sources that have given it up, and where each of them left it."""


def _find_breaks(batch_id: int, found: Sequence[SourceRead], left: _Left) -> Iterator[Seam]:
    """Partitions that went back, or came again after they had been forgotten, at another offset, or at none.

    They may come again to another source than the one that had read them: as where two sources change places.
    """
    for read in found:
        for topic, partition, end in _list_each(read.gone):
            left.setdefault((topic, partition), {})[read.source_id] = end
    for read in found:
        yield from (
            Seam("UNRESOLVED", batch_id, topic, partition) for topic, partition, _ in _list_each(read.unresolved)
        )
        for topic, partition, (start, end) in _list_each(read.went_back):
            yield Seam("OVERLAP", batch_id, topic, partition, (end, start))
        for topic, partition, end in _list_each(read.added):
            ends = left.get((topic, partition), {})
            at = ends.pop(read.source_id, max(ends.values(), default=None))
            if at is not None and min(at, end) < 0:
                yield Seam("UNRESOLVED", batch_id, topic, partition)
            elif at is not None:  # a partition that is new to a source is read from its earliest offset again
                yield Seam("OVERLAP", batch_id, topic, partition, (0, min(at, end)))


def _list_each(places: Mapping[str, Mapping[int, ValueT]]) -> Iterator[tuple[str, int, ValueT]]:
    return ((topic, partition, value) for topic, parts in places.items() for partition, value in parts.items())


def _name_offsets(offsets: Offsets) -> dict[str, dict[int, int | str]]:
    return {topic: {each: name_offset(at) for each, at in parts.items()} for topic, parts in offsets.items()}
