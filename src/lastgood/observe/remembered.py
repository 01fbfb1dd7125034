"""What a ledger remembers of one query, as the batches that its logs once held."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.lines import LONG_MAX, Json, to_json
from lastgood.checkpoint.offsets import BatchMetadata, OffsetEntry, SourceLine
from lastgood.frozen import dataclass
from lastgood.query.history import BatchRecord
from lastgood.storage.reading import Location

if TYPE_CHECKING:
    from lastgood.ledger.facts import BatchFacts
    from lastgood.ledger.store import Ledger, QueryRow


@dataclass(frozen=True, slots=True)
class Remembered:
    """A query in a ledger that is open. Its methods raise LedgerError where the ledger does not answer."""

    ledger: Ledger
    query: QueryRow

    def records(self, batch_ids: Collection[int]) -> list[BatchRecord]:
        """Those of these batches whose end offsets it knows."""
        found = self.ledger.batches(self.query, batch_ids)
        return [_make_record(facts) for _, facts in sorted(found.items()) if facts.ends]

    def newest(self, *, is_committed: bool = False) -> int | None:
        """The newest batch, or the newest that was committed."""
        return self.ledger.planned_at(self.query, LONG_MAX, is_committed=is_committed)

    def planned_at(self, time_ms: int) -> int | None:
        """The newest batch planned at or before a time, milliseconds since 1970."""
        return self.ledger.planned_at(self.query, time_ms)

    def bounds(self) -> tuple[int, ...]:
        """The oldest and the newest batch; nothing if it knows none."""
        return self.ledger.bounds(self.query) or ()


def recall_query(ledger: Ledger | None, location: Location, query_id: str | None) -> Remembered | None:
    """What a ledger knows of the query with this id at a checkpoint; of its last query if the id is lost."""
    if ledger is None:
        queries = []
    else:
        queries = ledger.queries(location.identity)
    found = [query for query in queries if query_id in (None, query.query_id)]
    if ledger is not None and found:
        return Remembered(ledger, found[-1])
    return None


def _make_record(facts: BatchFacts) -> BatchRecord:
    plan = facts.plan
    planned_at_ms = plan.planned_at_ms if plan else None
    if planned_at_ms is None and facts.progress is not None:
        planned_at_ms = facts.progress.trigger_at_ms
    metadata = None
    if planned_at_ms is not None:
        fields: dict[str, Json] = {"batchWatermarkMs": facts.batch_watermark_ms or 0, "batchTimestampMs": planned_at_ms}
        metadata = BatchMetadata(fields, to_json(fields))
    lines = (SourceLine(source_id, text) for source_id, text in sorted(facts.ends.items(), key=_rank_source))
    entry = OffsetEntry(1, metadata, tuple(lines))
    watermark_ms = (facts.commit.next_batch_watermark_ms if facts.commit else None) or 0
    commit = None
    if facts.is_committed:
        commit = CommitEntry.of(1, next_batch_watermark_ms=watermark_ms)
    return BatchRecord(facts.batch_id, entry, commit, is_mirrored=True)


def _rank_source(end: tuple[str, str]) -> tuple[int, str]:
    source_id = end[0]
    return int(source_id) if source_id.isdecimal() else -1, source_id
