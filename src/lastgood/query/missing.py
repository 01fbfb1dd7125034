"""What a sink lacks already of batches that are done, or may lack, and what it may drop: no start brings it. Pure.

`status` and the planner take it from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lastgood.checkpoint.logs import name_batches
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset
from lastgood.query.sinks import NONE, SinkView, name_some
from lastgood.sources.kafka.ranges import find_planned_ranges


def list_missing(views: Iterable[SinkView], start: Mapping[str, SourceOffset] | None = None) -> Iterator[str]:
    """What sinks lack, or may lack; one line each.

    Args:
        views: The sinks, held against the logs.
        start: Where the query is to start, by source, if that is not where it stands: what comes after is read again.
    """
    for each in views:
        if any(not _is_read_again(each, n, start) for n in each.perhaps_gone()):
            lacks = "what its mark stands for" if each.marked > NONE else "rows of batches that are done"
            yield f"{each.sink.location} may lack {lacks}: {each.sink.unclear}"
        taken_back = (*each.sink.holes, *_find_taken_back_above(each))
        holes = [batch_id for batch_id in taken_back if not _is_read_again(each, batch_id, start)]
        if holes:
            yield f"{each.sink.location} lacks batches {tuple(holes)}, taken back before"
        older = [batch_id for batch_id in each.older() if not _is_read_again(each, batch_id, start)]
        if older:
            lacks = "lacks" if each.is_surely_made_later else "may lack"
            because = "by its time it was made after them"
            yield f"{each.sink.location} {lacks} what batches up to {older[-1]} wrote: {because}"
        yield from list_dropped([each], start)


def list_dropped(views: Iterable[SinkView], start: Mapping[str, SourceOffset] | None = None) -> Iterator[str]:
    """What sinks may lack by the times of plans: they had, or may have had, the number before; one line each.

    Args:
        views: The sinks, held against the logs: against those of before, too, where a repair drops a plan.
        start: As in `list_missing`.
    """
    for each in views:
        for batch_id, held in each.dropped().items():
            if not _is_read_again(each, batch_id, start):
                yield f"{each.sink.location} may lack what batch {batch_id} read: {held.because}"


def list_taken(views: Iterable[SinkView]) -> Iterator[str]:
    """Sinks that would drop what comes, if the query writes there under a name that nobody gave; one line each."""
    for each in views:
        names = each.names_ahead
        if names:
            batches = name_batches(range(each.comes_next, max(names.values()) + 1))
            drops = f"{each.sink.location} drops {batches}"
            yield f"{drops} if the query writes as {name_some(names)}, which nobody says (--txn-app-id)"


def _find_taken_back_above(reading: SinkView) -> list[int]:
    """Batches that are done, above the newest that a sink shows, and that it had: that none was due is disproved."""
    gone = {batch.batch_id for batch in reading.sink.batches if batch.is_live is False and batch.row_count != 0}
    live = {batch.batch_id for batch in reading.sink.batches if batch.is_live is not False}
    return reading.may_have_rows(n for n in sorted(gone - live) if reading.shown < n <= reading.done)


def _is_read_again(reading: SinkView, batch_id: int, start: Mapping[str, SourceOffset] | None) -> bool:
    """Whether all that a batch read comes after where the query is to start."""
    read = reading.spans_of.get(batch_id, [])
    if start is None or not read:
        return False
    for span in read:
        begin, chosen = span.start, start.get(span.source_id)
        if not (isinstance(begin, KafkaOffset) and isinstance(chosen, KafkaOffset)):
            return False
        if find_planned_ranges(begin.topics, chosen.topics):
            return False
    return True
