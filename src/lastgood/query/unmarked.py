"""Rows in a sink that no mark stands for, and that may be of batches of which it shows nothing. Pure.

A query whose application was changed from Spark's own sink to a function goes on in its table, and the mark stays where
it was. A batch job of somebody else that adds rows looks the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.checkpoint.source_offsets import get_topics
from lastgood.frozen import dataclass
from lastgood.query.sinks import SinkView
from lastgood.query.spans import Span
from lastgood.sinks.evidence import UnmarkedRows
from lastgood.sources.kafka.ranges import count_offsets, find_planned_ranges


@dataclass(frozen=True, slots=True)
class Unmarked:
    """Batches whose rows a sink may have, though it shows nothing of them."""

    batches: tuple[int, ...]
    because: str
    """Which rows those would be; half a sentence for a person."""
    is_likely: bool
    """Whether that has to be reckoned with; else it is taken for an accident, and named."""


def find_unmarked(view: SinkView) -> Unmarked | None:
    """What a sink may have of the query beyond the newest batch that it shows; None: nothing speaks for any.

    A batch that is done was written somewhere, so what came without a mark since has to be reckoned with. The orphan
    need not have been written at all: of that only rows speak that are as many as it reads.
    """
    sink = view.sink
    if not sink.known or sink.last_batch is None or view.is_planned_anew:
        return None
    done = tuple(view.may_have_rows(view.batches_done(view.shown + 1, view.done)))
    orphan = view.orphan
    is_open = orphan is not None and orphan > view.shown and view.may_any_have_rows([orphan])
    rows = sink.unmarked
    if orphan is not None and is_open and not done:
        rows = _select_since(rows, view.get_planned_ms(orphan))
    lacking = done
    if orphan is not None and is_open:
        lacking = (*done, orphan)
    if not (lacking and rows):
        return None
    is_fitting = orphan is not None and _are_as_many(rows, view.spans_of.get(orphan, ()))
    return Unmarked(lacking, f"{_name_versions(rows)} rows without a mark", is_likely=bool(done) or is_fitting)


def _select_since(rows: Sequence[UnmarkedRows], planned_ms: int | None) -> tuple[UnmarkedRows, ...]:
    """Those that came once a batch was planned, or may have."""
    if planned_ms is None:
        return tuple(rows)
    return tuple(each for each in rows if not each.is_older_than(planned_ms))


def _are_as_many(rows: Sequence[UnmarkedRows], spans: Sequence[Span]) -> bool:
    """Whether one version brought as many rows as a batch reads offsets of Kafka, or all of them did together."""
    planned = [find_planned_ranges(get_topics(span.start), get_topics(span.end)) for span in spans]
    wanted = sum(map(count_offsets, planned))
    counts = [each.row_count for each in rows]
    if wanted == 0 or None in counts:
        return False
    known = [count for count in counts if count is not None]
    return wanted in known or sum(known) == wanted


def _name_versions(rows: Sequence[UnmarkedRows]) -> str:
    first, last = rows[0].version, rows[-1].version
    if first == last:
        return f"version {first} brought"
    return f"versions {first} to {last} brought"
