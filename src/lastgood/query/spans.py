"""What each batch reads of each source, and what comes next, by the plans that were read. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.contents import Checkpoint, Mode
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import FileOffset, NumberOffset, SourceOffset, VoidOffset
from lastgood.frozen import dataclass

BEFORE_FIRST_FILE = FileOffset(-1)


@dataclass(frozen=True, slots=True)
class Span:
    """What one batch reads of one source."""

    batch_id: int
    source_id: str
    start: SourceOffset | None
    """None: it is written nowhere, or in a plan that was not read."""
    end: SourceOffset
    is_done: bool
    """Whether Spark takes the batch for done: it is committed, or stands below the newest plan."""

    @property
    def is_empty(self) -> bool:
        """Whether it surely reads nothing."""
        return self.start == self.end


@dataclass(frozen=True, slots=True)
class SourceStand:
    """Where one source stands: what the batch that runs next reads of it."""

    source_id: str
    batch_id: int
    """The batch that runs next."""
    start: SourceOffset | None
    """Where it begins; None: that is written nowhere."""
    end: SourceOffset | None = None
    """Where it ends, if it runs again as it was planned; None if it is still to be planned."""

    @property
    def is_rerun(self) -> bool:
        """Whether its range stands in the offset log already."""
        return self.end is not None


def list_spans(checkpoint: Checkpoint) -> list[Span]:
    """Every batch that was read and that counts, source by source, oldest batch first."""
    orphan = find_orphan(checkpoint)
    newest = checkpoint.last_committed if checkpoint.mode is Mode.CONTINUOUS else checkpoint.last_planned
    found = []
    for batch_id in sorted(checkpoint.offsets.entries):
        entry = _find_offset_entry(checkpoint, batch_id)
        if entry is None or newest is None or batch_id > newest:
            continue
        for line in entry.sources:
            if not isinstance(line.offset, VoidOffset):
                start = _find_start(checkpoint, batch_id, line.source_id, line.offset)
                found.append(Span(batch_id, line.source_id, start, line.offset, batch_id != orphan))
    return found


def list_stands(checkpoint: Checkpoint) -> list[SourceStand]:
    """Where every source stands; nothing of one of which no log tells."""
    newest = checkpoint.last_committed if checkpoint.mode is Mode.CONTINUOUS else checkpoint.last_planned
    if newest is None:
        return [SourceStand(log.name, 0, log.initial.offset) for log in checkpoint.sources if log.initial]
    orphan, entry = find_orphan(checkpoint), _find_offset_entry(checkpoint, newest)
    if entry is None and orphan is not None and checkpoint.last_committed is not None:
        newest, orphan = checkpoint.last_committed, None  # a plan that nobody can read will have to be made again
        entry = _find_offset_entry(checkpoint, newest)
    if not entry:
        return []
    return list(_list_stands(checkpoint, newest, orphan, entry))


def find_orphan(checkpoint: Checkpoint) -> int | None:
    """The batch that a start runs again; None if there is none. Continuous mode throws its later plans away."""
    return None if checkpoint.mode is Mode.CONTINUOUS else checkpoint.orphan


def read_nothing(batch_spans: list[Span]) -> bool:
    """Whether a batch, given by all its spans, surely reads nothing; False for one that was not read."""
    return bool(batch_spans) and all(span.is_empty for span in batch_spans)


def _list_stands(checkpoint: Checkpoint, newest: int, orphan: int | None, entry: OffsetEntry) -> Iterator[SourceStand]:
    for line in entry.sources:
        is_void = isinstance(line.offset, VoidOffset)
        if orphan is None:
            if is_void:
                start = _find_initial(checkpoint, line.source_id)
            else:
                start = line.offset
            yield SourceStand(line.source_id, newest + 1, start)
        elif not is_void:
            start = _find_start(checkpoint, orphan, line.source_id, line.offset)
            yield SourceStand(line.source_id, orphan, start, line.offset)


def _find_start(checkpoint: Checkpoint, batch_id: int, source_id: str, end: SourceOffset) -> SourceOffset | None:
    """Where a batch begins: where the plan before it ends, and for the first where its source began."""
    is_sparse = checkpoint.mode is Mode.ASYNC_PROGRESS
    if is_sparse:
        before_id = checkpoint.offsets.ids.before(batch_id)
    else:
        before_id = batch_id - 1
    before = None
    if before_id is not None:
        before = _find_offset_entry(checkpoint, before_id)
    line = None
    if before:
        line = before.source(source_id)
    if line is not None and not isinstance(line.offset, VoidOffset):
        return line.offset
    if batch_id > 0 and line is None:
        return None
    if isinstance(end, NumberOffset):  # what rate writes down is the time when it was made
        return None
    if isinstance(end, FileOffset):
        return BEFORE_FIRST_FILE
    return _find_initial(checkpoint, source_id)


def _find_initial(checkpoint: Checkpoint, source_id: str) -> SourceOffset | None:
    log = next((log for log in checkpoint.sources if log.name == source_id), None)
    if log and log.initial:
        return log.initial.offset
    return None


def _find_offset_entry(checkpoint: Checkpoint, batch_id: int) -> OffsetEntry | None:
    entry = checkpoint.offsets.entries.get(batch_id)
    return entry if isinstance(entry, OffsetEntry) else None
