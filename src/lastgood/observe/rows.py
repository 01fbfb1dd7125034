"""One line for each batch: what it read, whether it is committed, what is out of the ordinary."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import name_offset
from lastgood.frozen import dataclass
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.walk import Progress, Walk
from lastgood.query.history import BatchRecord, InitialOffsets, SourceRead, find_source_reads
from lastgood.sources.kafka.ranges import Range
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class BatchRow(JsonValue):
    """One batch, as a line of the table."""

    json = make_form("batch planned committed time_ms watermark_ms sources=reads from=_origin notes")
    """One element of `batches`."""

    batch: int
    planned: bool
    committed: bool
    time_ms: int | None
    watermark_ms: int | None
    reads: tuple[SourceRead, ...]
    mirrored: bool
    notes: tuple[str, ...]
    """What is out of the ordinary."""

    @property
    def _origin(self) -> str:
        return "mirror" if self.mirrored else "checkpoint"


def make_row(record: BatchRecord, before: BatchRecord | None, initial: InitialOffsets, current: int | None) -> BatchRow:
    """The row of one batch; `before` is the batch with the id before it, None if that is not known."""
    batch_id, entry = record.batch_id, record.offsets
    found: tuple[SourceRead, ...] = ()
    if isinstance(entry, OffsetEntry):
        earlier = before.offsets if before and isinstance(before.offsets, OffsetEntry) else None
        found = find_source_reads(entry, earlier, initial if batch_id == 0 else None, is_first=batch_id == 0)
    return BatchRow(
        batch_id,
        planned=entry is not None,
        committed=record.is_committed,
        time_ms=record.time_ms,
        watermark_ms=record.watermark_ms,
        reads=found,
        mirrored=record.is_mirrored,
        notes=tuple(_list_notes(record, found, current)),
    )


def make_rows(query: OpenQuery, only: Collection[int] | None = None) -> Iterator[BatchRow]:
    """The rows of the batches that were read, oldest first; see `OpenQuery.records`."""
    records = query.records(only)
    initial, current = query.initial, query.current
    for batch_id, record in records.items():
        yield make_row(record, records.get(batch_id - 1), initial, current)


class AllRows:
    """Iterate over it, once: the row of every batch that is known, newest first, holding a few at a time."""

    def __init__(self, query: OpenQuery, progress: Progress | None = None) -> None:
        """Rows of what `query` knows, the mirror among it if it was read."""
        self._walk = Walk(query, newest_first=True, progress=progress)
        self._initial = query.initial
        self._current = query.current

    def __len__(self) -> int:
        """How many batches are known."""
        return len(self._walk)

    def __iter__(self) -> Iterator[BatchRow]:
        """The rows.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        later: BatchRecord | None = None
        for record in self._walk:
            if later is not None:
                before = record if record.batch_id == later.batch_id - 1 else None
                yield make_row(later, before, self._initial, self._current)
            later = record
        if later is not None:
            yield make_row(later, None, self._initial, self._current)

    @property
    def query(self) -> OpenQuery:
        """The query with what was found damaged on the way."""
        return self._walk.query


def _list_notes(record: BatchRecord, found: tuple[SourceRead, ...], current: int | None) -> Iterable[str]:
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
    yield from _list_unresolved(found)
    if any(read.went_back for read in found):
        yield "offsets went back"
    if any(read.gone for read in found):
        yield "partitions gone"
    if found and all(read.count == 0 and not read.added for read in found):
        yield "no data"


def _list_unresolved(found: tuple[SourceRead, ...]) -> Iterable[str]:
    """Where a batch begins or ends at no position: what it read of these partitions nobody has written down."""
    spans: list[Range] = []
    for read in found:
        for parts in read.open_spans.values():
            spans += parts.values()
    for words, offsets in (
        ("begins at", {first for first, _ in spans if first < 0}),
        ("its end was set to", {end for _, end in spans if end < 0}),
    ):
        if offsets:
            yield f"{words} {', '.join(str(name_offset(each)) for each in sorted(offsets))}"
