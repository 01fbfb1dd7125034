"""Which batch read an offset of Kafka, or a file: found by a few looks where that is enough, else by looking at all."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from lastgood.checkpoint.layout import SOURCES
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.rows import AllRows, rows_of
from lastgood.observe.walk import Progress
from lastgood.query.history import SourceRead
from lastgood.sources.kafka.ranges import Range, Spans


class OffsetSearch:
    """Looks for the batch that read one offset of one partition."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        """Look for `offset`; nothing is read yet."""
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self.known: Range | None = None
        """`[from, to)`: between which offsets the batches that were looked at have read the partition."""
        self.perhaps: int | None = None
        """The newest batch that was looked at and may have read it: it begins at the earliest offset of its time."""

    def quickly(self, query: OpenQuery) -> int | None:
        """The batch, if the ends of the partition grow with the batches of the checkpoint as far as we look."""
        return _first_beyond(query, self._end, self._offset, self._holds)

    def thoroughly(self, query: OpenQuery, progress: Progress | None = None) -> int | None:
        """The newest of all known batches that read it."""
        for row in AllRows(query, progress):
            if any(map(self._holds, row.reads)):
                return row.batch
            if self.perhaps is None and any(map(self._may_hold, row.reads)):
                self.perhaps = row.batch
        return None

    def _end(self, entry: OffsetEntry) -> int | None:
        ends = [line.offset for line in entry.sources]
        of_topic = [
            end.topics[self._topic] for end in ends if isinstance(end, KafkaOffset) and self._topic in end.topics
        ]
        # Several sources may read one topic, each at its own pace: then no batch ends at one offset.
        end = of_topic[0].get(self._partition) if len(of_topic) == 1 else None
        return end if end is not None and end >= 0 else None

    def _may_hold(self, read: SourceRead) -> bool:
        first, end = read.unresolved.get(self._topic, {}).get(self._partition, (0, 0))
        if end < 0:  # it was set to another place after the batch had read
            return first < 0 or first <= self._offset
        return first < 0 and self._offset < end

    def _holds(self, read: SourceRead) -> bool:
        spans: Spans = (read.ranges or {}).get(self._topic, {}).get(self._partition, ())
        for start, end in spans:
            first, last = self.known or (start, end)
            self.known = min(first, start), max(last, end)
        return any(start <= self._offset < end for start, end in spans)


@dataclass(frozen=True, slots=True)
class FileFound:
    """An input file, and the batch that read it."""

    path: str
    batch_id: int


def find_file_quickly(query: OpenQuery, name: str) -> FileFound | None:
    """The first file of the sources' own logs whose path ends with `name`, if its batch is found by a few looks."""
    for source_id, path, log_id in _files(query, name):

        def entry(plan: OffsetEntry, source_id: str = source_id) -> int | None:
            line = plan.source(source_id)
            return line.offset.log_offset if line and isinstance(line.offset, FileOffset) else None

        def holds(read: SourceRead, source_id: str = source_id, log_id: int = log_id) -> bool:
            return read.source_id == source_id and read.files is not None and log_id in range(*read.files)

        batch_id = _first_beyond(query, entry, log_id - 1, holds)
        return None if batch_id is None else FileFound(path, batch_id)
    return None


def find_file_thoroughly(query: OpenQuery, name: str, progress: Progress | None = None) -> FileFound | None:
    """The first file whose path ends with `name` and that one of all known batches read."""
    read: dict[str, list[tuple[int, int, int]]] = {}
    for row in AllRows(query, progress):
        for each in row.reads:
            if each.files is not None and each.files[0] < each.files[1]:
                read.setdefault(each.source_id, []).append((*each.files, row.batch))
    for ranges in read.values():
        ranges.sort()
    for source_id, path, log_id in _files(query, name):
        ranges = read.get(source_id, [])
        at = bisect.bisect_right(ranges, log_id, key=lambda each: each[0]) - 1
        if at >= 0 and log_id < ranges[at][1]:
            return FileFound(path, ranges[at][2])
    return None


def _files(query: OpenQuery, name: str) -> Iterator[tuple[str, str, int]]:
    """Source, path and entry of the source's own log of every file whose path ends with `name`."""
    logs = [source.name for source in query.checkpoint.sources]
    mirrored = [copy.path.split("/")[1] for copy in query.copies if copy.path.startswith(f"{SOURCES}/")]
    for source_id in dict.fromkeys((*logs, *mirrored)):
        for file in query.source_files(source_id):
            if unquote(file.path).endswith(name):
                yield source_id, file.path, file.log_id


def _first_beyond(
    query: OpenQuery,
    measure: Callable[[OffsetEntry], int | None],
    bound: int,
    holds: Callable[[SourceRead], bool],
) -> int | None:
    """The first batch of the checkpoint whose plan measures more than `bound`, if it is the one that `holds`."""
    place = query.search(measure, bound)
    if not place.is_exceeded:
        return None
    ids = query.checkpoint.offsets.ids
    batch_id = ids.oldest if place.batch_id is None else ids.after(place.batch_id)
    is_start_known = batch_id == 0 or (batch_id is not None and batch_id - 1 in ids)
    if batch_id is None or not place.is_ordered or not is_start_known:
        return None
    near = query.with_batches([batch_id - 1, batch_id])
    rows = rows_of(near, [batch_id - 1, batch_id])
    return batch_id if any(holds(read) for row in rows if row.batch == batch_id for read in row.reads) else None
