"""Which records were lost, as the owner of their producer needs to know it to send them again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lastgood.frozen import dataclass
from lastgood.journal.incident import list_ranges
from lastgood.records.record import Progress
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class LostRange(JsonValue):
    """Records of one partition that no sink shows and that are not read any more."""

    json = make_form("topic partition from=start to=end bound written_after_ms=after_ms written_before_ms=before_ms")
    """One of `lost` of a report."""

    topic: str
    partition: int
    start: int
    """Their first offset."""
    end: int
    """One past their last."""
    bound: bool
    """True if nobody can know exactly: this is the most it can be."""
    after_ms: int | None = None
    """They were written after this time; None if nobody saw it."""
    before_ms: int | None = None
    """They were written before this time."""


def find_lost_ranges(plan: Mapping[str, Any], seen: Sequence[Progress]) -> Iterator[LostRange]:
    """What a plan says is lost of Kafka, with the time between which it was written, as far as a recorder saw it.

    Args:
        plan: As `shorten_plan` keeps it.
        seen: What recorders wrote down of the query, in any order.
    """
    for source in plan.get("sources", ()):
        for topic, partition, start, end in list_ranges(source, "lost"):
            after, before = _find_written_between(seen, topic, partition, start, end)
            yield LostRange(topic, partition, start, end, source["bound"], after, before)


def _find_written_between(
    seen: Iterable[Progress], topic: str, partition: int, start: int, end: int
) -> tuple[int | None, int | None]:
    """Between two looks at the end of the partition: it lay before the first record, and then behind the last."""
    after: int | None = None
    before: int | None = None
    for progress in seen:
        for source in progress.sources:
            latest = _find_offset(source.latest_offset, topic, partition)
            at_ms = progress.trigger_at_ms
            if latest is None or at_ms is None:
                continue
            if latest <= start:
                after = max(at_ms, after or at_ms)
            if latest >= end:
                before = min(progress.recorded_at_ms, before or progress.recorded_at_ms)
    return after, before


def _find_offset(offsets: Any, topic: str, partition: int) -> int | None:
    parts = None
    if isinstance(offsets, Mapping):
        parts = offsets.get(topic)
    found = None
    if isinstance(parts, Mapping):
        found = parts.get(str(partition))
    return found if isinstance(found, int) else None
