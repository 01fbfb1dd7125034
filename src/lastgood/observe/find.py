"""Which batch read an offset of Kafka or a file, or ran at a time: by a few looks if that is enough, else by all."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import unquote

from lastgood.checkpoint.layout import SOURCES
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.load.position import LoadPosition
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.load_standing import read_load
from lastgood.observe.open_query import OpenQuery, gather, make_batch_unknown_error, parse_records
from lastgood.observe.rows import AllRows, BatchRow, make_rows
from lastgood.observe.walk import Progress
from lastgood.query.history import SourceRead, find_load_position
from lastgood.settings.target import Target
from lastgood.sources.kafka.ranges import Range, Spans

_NOTHING_ASKED = EvidenceOptions()


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

    def find_quickly(self, query: OpenQuery) -> int | None:
        """The batch, if the ends of the partition grow with the batches of the checkpoint as far as we look."""
        return _find_first_beyond(query, self._end, self._offset, self._holds)

    def find_thoroughly(self, query: OpenQuery, progress: Progress | None = None) -> int | None:
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
        end = None
        if len(of_topic) == 1:
            end = of_topic[0].get(self._partition)
        return end if end is not None and end >= 0 else None

    def _may_hold(self, read: SourceRead) -> bool:
        first, end = read.open_spans.get(self._topic, {}).get(self._partition, (0, 0))
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
    for source_id, path, log_id in _find_files(query, name):

        def entry(plan: OffsetEntry, source_id: str = source_id) -> int | None:
            line = plan.source(source_id)
            return line.offset.log_offset if line and isinstance(line.offset, FileOffset) else None

        def holds(read: SourceRead, source_id: str = source_id, log_id: int = log_id) -> bool:
            return read.source_id == source_id and read.files is not None and log_id in range(*read.files)

        batch_id = _find_first_beyond(query, entry, log_id - 1, holds)
        if batch_id is None:
            return None
        return FileFound(path, batch_id)
    return _find_loaded_file(query, name)


def _find_loaded_file(query: OpenQuery, name: str) -> FileFound | None:
    """Of a load, the newest file whose path ends with `name` and of which something is read, and where that begins."""
    spec = read_load(query)
    files = () if spec is None else tuple(enumerate(spec.files))
    for number, file in reversed(files):
        begin = LoadPosition(number, file.begins)
        if not file.location.endswith(name):
            continue
        batch_id = _find_first_beyond(query, _measure_load, begin.place, partial(_is_read, begin))
        if batch_id is not None:
            return FileFound(file.location, batch_id)
    return None


def _measure_load(entry: OffsetEntry) -> int | None:
    found = [find_load_position(line.offset) for line in entry.sources]
    return found[0].place if len(found) == 1 and found[0] is not None else None


def _is_read(position: LoadPosition, read: SourceRead) -> bool:
    return read.positions is not None and read.positions[0] <= position < read.positions[1]


def find_file_thoroughly(query: OpenQuery, name: str, progress: Progress | None = None) -> FileFound | None:
    """The first file whose path ends with `name` and that one of all known batches read."""
    read: dict[str, list[tuple[int, int, int]]] = {}
    for row in AllRows(query, progress):
        for each in row.reads:
            if each.files is not None and each.files[0] < each.files[1]:
                read.setdefault(each.source_id, []).append((*each.files, row.batch))
    for ranges in read.values():
        ranges.sort()
    for source_id, path, log_id in _find_files(query, name):
        ranges = read.get(source_id, [])
        at = bisect.bisect_right(ranges, log_id, key=lambda each: each[0]) - 1
        if at >= 0 and log_id < ranges[at][1]:
            return FileFound(path, ranges[at][2])
    return None


def _find_files(query: OpenQuery, name: str) -> Iterator[tuple[str, str, int]]:
    """Source, path and entry of the source's own log of every file whose path ends with `name`."""
    logs = [source.name for source in query.checkpoint.sources]
    mirrored = [copy.path.split("/")[1] for copy in query.copies if copy.path.startswith(f"{SOURCES}/")]
    for source_id in dict.fromkeys((*logs, *mirrored)):
        for file in query.source_files(source_id):
            if unquote(file.path).endswith(name):
                yield source_id, file.path, file.log_id


def _find_first_beyond(
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
    if place.batch_id is None:
        batch_id = ids.oldest
    else:
        batch_id = ids.after(place.batch_id)
    is_start_known = batch_id == 0 or (batch_id is not None and batch_id - 1 in ids)
    if batch_id is None or not place.is_ordered or not is_start_known:
        return None
    near = query.with_batches([batch_id - 1, batch_id])
    rows = make_rows(near, [batch_id - 1, batch_id])
    return batch_id if any(holds(read) for row in rows if row.batch == batch_id for read in row.reads) else None


class NotFoundInHistoryError(LastgoodError):
    """No known batch holds what was looked for."""

    condition = "NOT_IN_HISTORY"
    exit_code = 40
    retry = Retry.AFTER_CHANGE


def read_one(query: OpenQuery, batch_id: int) -> tuple[BatchRow, OpenQuery]:
    """One batch in full.

    Raises:
        BatchUnknownError: neither checkpoint nor mirror has it.
    """
    query = query.with_batches([batch_id - 1, batch_id])
    for row in make_rows(query, [batch_id - 1, batch_id]):
        if row.batch == batch_id:
            return row, query
    raise make_batch_unknown_error(query, batch_id)


def find_offset(
    target: Target,
    topic: str,
    partition: int,
    offset: int,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Progress | None = None,
) -> tuple[BatchRow, OpenQuery]:
    """The batch that read an offset of Kafka.

    Offsets grow with the batches, so that a few looks find it. Where they do not, as after a topic was made anew, or
    where batches are damaged or purged, every batch is looked at: if several read the offset, the newest counts.

    Raises:
        NotFoundInHistoryError: no known batch did; says what is known of that partition.
    """
    query = gather(target, batches=2, options=options)
    search = OffsetSearch(topic, partition, offset)
    batch_id = search.find_quickly(query)
    if batch_id is None:
        query = query.with_mirror()
        batch_id = search.find_thoroughly(query, progress)
    if batch_id is not None:
        return read_one(query, batch_id)
    if search.perhaps is not None:
        raise NotFoundInHistoryError(
            f"nobody wrote down whether a batch holds offset {offset} of {topic}/{partition}",
            subject=str(query.location),
            found=f"batch {search.perhaps} begins or ends there at the earliest or latest offset of its time",
            expected="an offset that lies between two positions of the log",
            next=query.command("inspect", "--batch", search.perhaps),
        )
    if search.known:
        held = f"offsets {search.known[0]} to {search.known[1] - 1}"
    else:
        held = "no offset of that partition"
    if search.known:
        expected = f"an offset below {search.known[1]}"
    else:
        expected = "a topic and partition of this query"
    raise NotFoundInHistoryError(
        f"no known batch holds offset {offset} of {topic}/{partition}",
        subject=str(query.location),
        found=held,
        expected=expected,
        next=query.command("inspect"),
    )


def find_file(
    target: Target,
    name: str,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Progress | None = None,
) -> tuple[BatchRow, str, OpenQuery]:
    """The batch that read an input file whose path ends with `name`, and that path.

    Raises:
        NotFoundInHistoryError: no entry of a file source's log names it.
    """
    query = gather(target, batches=2, options=options)
    found = find_file_quickly(query, name)
    if found is None:
        query = query.with_mirror()
        found = find_file_thoroughly(query, name, progress)
    if found is not None:
        row, query = read_one(query, found.batch_id)
        return row, found.path, query
    raise NotFoundInHistoryError(
        f"no known batch read a file named {name}",
        subject=str(query.location),
        expected="the end of a path that a file source has read",
    )


def find_time(target: Target, time_ms: int, *, options: EvidenceOptions = _NOTHING_ASKED) -> tuple[BatchRow, OpenQuery]:
    """The batch that was running at a time: the newest one planned at or before it.

    Raises:
        NotFoundInHistoryError: the oldest known batch is younger.
    """
    query = gather(target, batches=2, options=options)
    batch_id = query.planned_at(time_ms)
    if batch_id is not None:
        return read_one(query, batch_id)
    query = query.with_mirror()
    timed = ((record.batch_id, record.time_ms) for record in parse_records(query.copies))
    before = [batch_id for batch_id, planned_ms in timed if planned_ms is not None and planned_ms <= time_ms]
    if not before:
        oldest = query.known.oldest
        raise NotFoundInHistoryError(
            "no known batch is that old",
            subject=str(query.location),
            found="no batch" if oldest is None else f"the oldest is batch {oldest}",
            next=query.command("inspect", "--all"),
        )
    return read_one(query, before[-1])
