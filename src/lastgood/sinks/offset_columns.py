"""Rows that carry the topic, partition and offset that they were made of: what a sink holds, told by its own columns.

Pure. Which offsets have been seen is kept as stretches, so that it takes little memory however many rows there are.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from lastgood.errors import UsageError
from lastgood.frozen import dataclass

Range: TypeAlias = tuple[int, int]
"""`[from, to)` in offsets."""
STRETCHES_MAX = 10_000
"""Per partition; a table with more of them keeps but a part of what it reads, and nothing exact can be said of it."""


class OffsetColumnsError(UsageError):
    """Columns that are to hold topic, partition and offset do not."""

    condition = "OFFSET_COLUMNS_INVALID"


@dataclass(frozen=True, slots=True)
class OffsetColumns:
    """Names of columns of a table."""

    partition: str
    offset: str
    topic: str | None = None
    """None: all rows are of one topic."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order in which they are typed."""
        return (*([] if self.topic is None else [self.topic]), self.partition, self.offset)

    def __str__(self) -> str:
        """As they are typed."""
        return ",".join(self.names)


def parse_offset_columns(text: str) -> OffsetColumns:
    """Read `TOPIC,PARTITION,OFFSET`, or `PARTITION,OFFSET` where all rows are of one topic.

    Raises:
        OffsetColumnsError: it is neither.

    Example:
        >>> parse_offset_columns("partition,offset")
        OffsetColumns(partition='partition', offset='offset', topic=None)
    """
    names = [name.strip() for name in text.split(",")]
    if len(names) not in (2, 3) or not all(names) or len(set(names)) != len(names):
        raise OffsetColumnsError(
            "these are no names of columns",
            subject="--offset-columns",
            found=text or "(empty)",
            expected="TOPIC,PARTITION,OFFSET, or PARTITION,OFFSET where all rows are of one topic",
        )
    return OffsetColumns(names[-2], names[-1], names[0] if len(names) == 3 else None)


@dataclass(frozen=True, slots=True)
class TableOffsets:
    """What the rows of a table were made of."""

    location: str
    version: int
    """Of the table."""
    held: Mapping[str, Mapping[int, tuple[Range, ...]]]
    """Per topic and partition every offset that a row carries; of a scattered one at least the lowest of them."""
    ends: Mapping[str, Mapping[int, int]]
    """One past the highest offset of each partition."""
    written_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """When the file was written that has the highest offset of a partition; of several the oldest."""
    since_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """When the oldest file was written that has an offset from the one on that was asked for."""
    repeated: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """How many rows carry an offset that another row carries too, where there are any."""
    scattered: tuple[str, ...] = ()
    """Partitions with so many holes that not all of them were kept."""
    unplaced: int = 0
    """Rows without a topic, partition or offset."""
    file_count: int = 0
    files_read: int = 0
    """How many of them were read; of the others the statistics in the log suffice."""

    @property
    def told(self) -> str:
        """On what this rests; a few words."""
        files = f"{self.file_count} file{'s' * (self.file_count != 1)}"
        if self.files_read == self.file_count:
            return f"{files} read"
        if self.files_read:
            read = f"{self.files_read} of them read"
        else:
            read = "none of them read"
        return f"statistics of {files}, {read}"


class OffsetsSeen:
    """Collects what rows carry; in any order."""

    def __init__(
        self, stretches_max: int = STRETCHES_MAX, *, since: Mapping[str, Mapping[int, int]] | None = None
    ) -> None:
        """Nothing is seen yet; `since`: per partition from which offset on the oldest file is looked for."""
        self._max = stretches_max
        self._since = since or {}
        self._partitions: dict[tuple[str, int], _Stretches] = {}
        self.unplaced = 0

    def add(self, topic: str, partition: int, first: int, end: int, *, written_ms: int | None = None) -> None:
        """A row for each offset of `[first, end)`, in a file that was written then."""
        self._of(topic, partition).add(first, end, written_ms)

    def repeat(self, topic: str, partition: int, count: int) -> None:
        """So many rows carry an offset that was added, once more."""
        self._of(topic, partition).repeated += count

    def table(self, location: str, version: int, *, file_count: int, files_read: int) -> TableOffsets:
        """What was seen, as that of a table."""
        held: dict[str, dict[int, tuple[Range, ...]]] = {}
        ends: dict[str, dict[int, int]] = {}
        written_ms: dict[str, dict[int, int]] = {}
        since_ms: dict[str, dict[int, int]] = {}
        repeated: dict[str, dict[int, int]] = {}
        scattered = []
        for (topic, partition), found in sorted(self._partitions.items()):
            held.setdefault(topic, {})[partition] = found.ranges
            ends.setdefault(topic, {})[partition] = found.end
            if found.written_ms is not None:
                written_ms.setdefault(topic, {})[partition] = found.written_ms
            if found.since_ms is not None:
                since_ms.setdefault(topic, {})[partition] = found.since_ms
            if found.repeated:
                repeated.setdefault(topic, {})[partition] = found.repeated
            if found.is_cut:
                scattered.append(f"{topic}-{partition}")
        return TableOffsets(
            location,
            version,
            held,
            ends,
            written_ms,
            since_ms,
            repeated,
            tuple(scattered),
            self.unplaced,
            file_count=file_count,
            files_read=files_read,
        )

    def _of(self, topic: str, partition: int) -> _Stretches:
        since = self._since.get(topic, {}).get(partition)
        return self._partitions.setdefault((topic, partition), _Stretches(self._max, since))


class _Stretches:
    """The offsets of one partition, as ascending stretches that do not touch."""

    def __init__(self, most: int, since: int | None) -> None:
        self._max = most
        self._since = since
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._kept_below: int | None = None
        self.end = 0
        self.written_ms: int | None = None
        self.since_ms: int | None = None
        self.repeated = 0

    @property
    def is_cut(self) -> bool:
        return self._kept_below is not None

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(zip(self._firsts, self._ends, strict=True))

    def add(self, first: int, end: int, written_ms: int | None) -> None:
        if end > self.end:
            self.end, self.written_ms = end, written_ms
        elif end == self.end and written_ms is not None:
            self.written_ms = min(written_ms, self.written_ms or written_ms)
        if written_ms is not None and self._since is not None and end > self._since:
            self.since_ms = min(written_ms, self.since_ms or written_ms)
        if self._kept_below is not None:
            end = min(end, self._kept_below)
        if first >= end:
            return
        left = bisect.bisect_left(self._ends, first)
        right = bisect.bisect_right(self._firsts, end)
        for place in range(left, right):
            self.repeated += max(min(end, self._ends[place]) - max(first, self._firsts[place]), 0)
        if left < right:
            first, end = min(first, self._firsts[left]), max(end, self._ends[right - 1])
        self._firsts[left:right] = [first]
        self._ends[left:right] = [end]
        if len(self._firsts) > self._max:
            # The lowest are kept: they tell where the first hole is, from which nothing is missed.
            self._kept_below = self._firsts.pop()
            self._ends.pop()


def find_first_missing(held: Mapping[int, tuple[Range, ...]], partition: int, first: int) -> int:
    """The lowest offset from `first` on that no row of a partition carries."""
    missing = first
    for start, end in held.get(partition, ()):
        if start > missing:
            break
        missing = max(missing, end)
    return missing
