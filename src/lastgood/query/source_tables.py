"""Whether a Delta table that is read as a stream still is what was read. Pure.

A table that is put back from a copy keeps its id, and what is written to it then takes numbers that the query has read
under: those versions are never read, and nothing fails. A version says when it was written, and a plan that has read it
was made after that.
"""

from __future__ import annotations

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.frozen import dataclass
from lastgood.sources.delta.facts import DeltaFacts, find_newest_read
from lastgood.sources.kafka.retention import MAX_CLOCK_SKEW_MS


@dataclass(frozen=True, slots=True)
class WrittenAnew:
    """A version that is younger than the plan that has read one of that number."""

    batch_id: int
    version: int
    written_ms: int
    planned_ms: int


def find_written_anew(checkpoint: Checkpoint, source_id: str, table: DeltaFacts) -> WrittenAnew | None:
    """The newest version that was read, if it was written after the plan, by more than clocks differ."""
    batch_id = checkpoint.last_planned
    plan = None if batch_id is None else checkpoint.offsets.entries.get(batch_id)
    if batch_id is None or not isinstance(plan, OffsetEntry) or plan.metadata is None:
        return None
    line = plan.source(source_id)
    if line is None or not isinstance(line.offset, DeltaOffset) or table.table_id != line.offset.table_id:
        return None
    version = find_newest_read(line.offset)
    written_ms = None if version is None else table.written_ms.get(version)
    planned_ms = plan.metadata.batch_timestamp_ms
    if version is None or written_ms is None or written_ms <= planned_ms + MAX_CLOCK_SKEW_MS:
        return None
    return WrittenAnew(batch_id, version, written_ms, planned_ms)
