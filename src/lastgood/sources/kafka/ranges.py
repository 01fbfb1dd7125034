"""Ranges of Kafka offsets per topic and partition: what a batch reads, what of it is gone, how many offsets. Pure.

Offsets are not records: transaction markers, aborted and compacted records take up offsets that nobody reads.
Nor is every number an offset: -1 and -2, "latest" and "earliest", stand for positions that are found out when a query
starts, so that no range begins or ends at them; `find_unresolved` names the partitions where that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import TypeAlias

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Per topic and partition one offset; where a batch ends it is the next one to read."""
Range: TypeAlias = tuple[int, int]
"""`[from, to)` in offsets."""
Spans: TypeAlias = tuple[Range, ...]
"""Ranges of one partition, ascending, neither empty nor touching."""
Ranges: TypeAlias = Mapping[str, Mapping[int, Spans]]
"""Ranges per topic and partition; partitions without any are left out."""

_FOR_EVER = 2**63


def find_planned_ranges(start: Offsets, end: Offsets) -> Ranges:
    """What a batch from `start` to `end` reads of the partitions that both name.

    Nothing of a partition that went back (`find_went_back`), and nothing of one whose start or end is not written down:
    it is no position (`find_unresolved`), or only `end` names it (`select_only_in`).
    """
    return _collect(
        (topic, partition, ((first, end[topic][partition]),))
        for topic, partition, first in _list_each(start)
        if first >= 0 and end.get(topic, {}).get(partition, -1) >= 0
    )


def find_unresolved(start: Offsets, end: Offsets) -> dict[str, dict[int, Range]]:
    """Partitions of both that begin or end at no position (below 0): which offsets lie between them nobody can tell."""
    found: dict[str, dict[int, Range]] = {}
    for topic, partition, first in _list_each(start):
        last = end.get(topic, {}).get(partition)
        if last is not None and (first < 0 or last < 0):
            found.setdefault(topic, {})[partition] = (first, last)
    return found


def find_went_back(start: Offsets, end: Offsets) -> dict[str, dict[int, Range]]:
    """Partitions whose end lies below their start, both being positions: such a batch cannot be run again."""
    found: dict[str, dict[int, Range]] = {}
    for topic, partition, first in _list_each(start):
        last = end.get(topic, {}).get(partition, first)
        if 0 <= last < first:
            found.setdefault(topic, {})[partition] = (first, last)
    return found


def select_only_in(offsets: Offsets, others: Offsets) -> dict[str, dict[int, int]]:
    """The partitions that `offsets` names and `others` does not: gone, or added, as the caller puts it."""
    found: dict[str, dict[int, int]] = {}
    for topic, partition, offset in _list_each(offsets):
        if partition not in others.get(topic, {}):
            found.setdefault(topic, {})[partition] = offset
    return found


def is_onward(start: Offsets, end: Offsets) -> bool:
    """Whether both name the same partitions at positions, and none of them went back."""
    if start.keys() != end.keys():
        return False
    for topic, before in start.items():
        after = end[topic]
        if before.keys() != after.keys():
            return False
        if any(not 0 <= offset <= after[partition] for partition, offset in before.items()):
            return False
    return True


def select_below(ranges: Ranges, bounds: Offsets) -> Ranges:
    """The part of `ranges` below `bounds`: lost, if these are the earliest offsets; none where there is no bound."""
    return intersect(
        ranges, _collect((topic, partition, ((0, bound),)) for topic, partition, bound in _list_each(bounds))
    )


def select_from_on(ranges: Ranges, bounds: Offsets) -> Ranges:
    """The part of `ranges` from `bounds` on: never written, if these are the latest offsets."""
    return intersect(
        ranges, _collect((topic, partition, ((bound, _FOR_EVER),)) for topic, partition, bound in _list_each(bounds))
    )


def select_served(ranges: Ranges, earliest: Offsets, latest: Offsets) -> Ranges:
    """The part of `ranges` that a broker with these offsets still serves; none of partitions it says nothing about."""
    return intersect(ranges, find_planned_ranges(earliest, latest))


def unite(one: Ranges, other: Ranges) -> Ranges:
    """What is in either of the two."""
    return _combine(one, other, lambda left, right: left or right)


def intersect(one: Ranges, other: Ranges) -> Ranges:
    """What is in both."""
    return _combine(one, other, lambda left, right: left and right)


def subtract(one: Ranges, other: Ranges) -> Ranges:
    """What is in `one` and not in `other`."""
    return _combine(one, other, lambda left, right: left and not right)


def count_offsets(ranges: Ranges) -> int:
    """How many offsets the ranges hold in all; the number of records is this at most."""
    return sum(to - start for parts in ranges.values() for spans in parts.values() for start, to in spans)


def ranges_to_json(ranges: Ranges) -> dict[str, dict[str, list[list[int]]]]:
    """As plans and reports show them: `{"orders": {"0": [[10, 20]]}}`."""
    shown = {}
    for topic, parts in sort_ranges(ranges).items():
        shown[topic] = {str(partition): _list_pairs(spans) for partition, spans in parts.items()}
    return shown


def sort_ranges(ranges: Ranges) -> Ranges:
    """The same, topics and partitions in their order."""
    return {topic: dict(sorted(parts.items())) for topic, parts in sorted(ranges.items())}


def _list_pairs(spans: Iterable[tuple[int, int]]) -> list[list[int]]:
    return [list(span) for span in spans]


def _list_each(offsets: Offsets) -> Iterable[tuple[str, int, int]]:
    return ((topic, partition, offset) for topic, parts in offsets.items() for partition, offset in parts.items())


def _collect(found: Iterable[tuple[str, int, Spans]]) -> Ranges:
    ranges: dict[str, dict[int, Spans]] = {}
    for topic, partition, spans in found:
        kept = tuple(span for span in spans if span[0] < span[1])
        if kept:
            ranges.setdefault(topic, {})[partition] = kept
    return ranges


def _combine(one: Ranges, other: Ranges, keep: Callable[[bool, bool], bool]) -> Ranges:
    topics = {**one, **other}
    return _collect(
        (
            topic,
            partition,
            _merge_spans(one.get(topic, {}).get(partition, ()), other.get(topic, {}).get(partition, ()), keep),
        )
        for topic in topics
        for partition in sorted({*one.get(topic, {}), *other.get(topic, {})})
    )


def _merge_spans(one: Spans, other: Spans, keep: Callable[[bool, bool], bool]) -> Spans:
    """Between two neighbouring bounds nothing changes, so each stretch is kept or dropped as a whole."""
    merged: list[Range] = []
    for start, to in pairwise(sorted({bound for span in (*one, *other) for bound in span})):
        if keep(_is_covered(one, start), _is_covered(other, start)):
            if merged and merged[-1][1] == start:
                before = merged.pop()
            else:
                before = (start, start)
            merged.append((before[0], to))
    return tuple(merged)


def _is_covered(spans: Spans, offset: int) -> bool:
    return any(start <= offset < to for start, to in spans)
