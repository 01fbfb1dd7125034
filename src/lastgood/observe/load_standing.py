"""How far a load has come, for whoever looks at its checkpoint: from its logs, and from what it noted down beside."""

from __future__ import annotations

from statistics import median_high

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import DeltaOffset, SourceOffset
from lastgood.errors import UsageError, format_command_line
from lastgood.frozen import dataclass
from lastgood.journal.holding import CheckpointHolder
from lastgood.load.kept import read_counts, read_spec
from lastgood.load.position import LoadPosition, make_version_position
from lastgood.load.specification import Arrival, InputFile, LoadDiffersError, LoadSpec
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.query.history import find_load_position
from lastgood.settings.target import Target
from lastgood.values import JsonValue, make_form
from lastgood.written import redact_place

_CHUNKS_MAX = 10
"""So many of the newest chunks tell how fast a load is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStanding(JsonValue):
    """How far a load has come."""

    table: str
    """`delta:LOCATION` or `file:LOCATION`."""
    files: int
    """How many it has begun with, and met since."""
    done: int
    """Bytes of them that are read and committed, unpacked."""
    size: int
    """Bytes of them all; of those that are packed none before they were unpacked once."""
    rows: int
    """Records that are committed, also those that are not what the schema says."""
    corrupt: int
    """Of these, how many are not."""
    chunks: int
    uncounted: int
    """Chunks of which nobody has noted down yet how many rows they had."""
    is_whole: bool
    """Whether all of these files are loaded, of a table all rows that were found."""
    unit: str
    """Of `done` and `size`: `bytes` or, of a table, `rows` or `versions`."""
    per_second: float | None
    """So much of `done` came in a second of the newest chunks of the load that goes on; None where none is known to, or
    before its first two plans."""
    seconds_left: float | None
    """How long the rest takes at this rate; None at no rate, and where nothing is known to be left."""


def look_at_load_standing(query: OpenQuery, holder: CheckpointHolder | None) -> LoadStanding | None:
    """How far it has come; None for a query that is no load, or of which nothing is noted down.

    Args:
        query: The query, with several of its newest batches.
        holder: Who works on it now; None: nobody is known to.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = query.checkpoint
    spec = read_load(query)
    if spec is None:
        return None
    committed = checkpoint.commits.ids
    counts = read_counts(query.storage, query.location, tuple(committed))
    at = _find_committed_position(query, spec)
    done = spec.count_bytes_before(at.file, at.position)
    is_whole = at >= LoadPosition(*spec.end)  # a table may have grown since it was looked at
    per_second = seconds_left = None
    if holder is not None and holder.may_load and not is_whole:
        per_second = _measure_rate(query, spec, holder.since_ms)
    if per_second:
        seconds_left = round(max(0, spec.size - done) / per_second, 1)
    return LoadStanding(
        table=redact_place(spec.table),
        files=len(spec.files),
        done=done,
        size=max(spec.size, done),
        rows=sum(each.rows for each in counts.values()),
        corrupt=sum(each.corrupt for each in counts.values()),
        chunks=len(committed),
        uncounted=len(committed) - len(counts),
        is_whole=is_whole,
        unit=spec.unit,
        per_second=per_second,
        seconds_left=seconds_left,
    )


def _measure_rate(query: OpenQuery, spec: LoadSpec, since_ms: int) -> float | None:
    """The median over the newest chunks, each from its plan to the next, both made since then."""
    ends = [(at_ms, spec.count_bytes_before(end.file, end.position)) for at_ms, end in _list_ends(query, spec)]
    rates = [
        (after - before) * 1000 / (next_ms - at_ms)
        for (_, before), (at_ms, after), (next_ms, _) in zip(ends, ends[1:], ends[2:], strict=False)
        if next_ms > at_ms >= since_ms
    ]
    return round(median_high(rates), 1) if rates else None


def _list_ends(query: OpenQuery, spec: LoadSpec) -> list[tuple[int, LoadPosition]]:
    """When each of the newest plans was made, and where it ends; before the first of all the beginning."""
    newest = query.checkpoint.offsets.ids.newest or 0
    found: list[tuple[int, LoadPosition]] = []
    for batch in range(newest, max(-1, newest - _CHUNKS_MAX), -1):
        entry, end = query.checkpoint.offsets.entries.get(batch), _find_position(query, spec, batch)
        if not isinstance(entry, OffsetEntry) or entry.metadata is None or end is None:
            return found[::-1]
        found.append((entry.metadata.batch_timestamp_ms, end))
    if newest < _CHUNKS_MAX:
        found.append((0, LoadPosition(0, 0)))
    return found[::-1]


def _may_be_of_load(offset: SourceOffset | None) -> bool:
    """Whether a load may have written an offset: of the versions of a table it has those of Delta's own source."""
    return isinstance(offset, DeltaOffset) or find_load_position(offset) is not None


def read_load(query: OpenQuery) -> LoadSpec | None:
    """Which load it is, as it has noted it down; None for a query that is none, or of which nothing is understood.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    newest = query.checkpoint.newest_offsets
    offsets = [] if newest is None else [line.offset for line in newest.sources]
    if not any(map(_may_be_of_load, offsets)):
        return None
    try:
        spec = read_spec(query.storage, query.location)
    except LoadDiffersError:  # `load` says so, and what is to be done
        return None
    return spec if spec is not None and spec.files else None


def _find_committed_position(query: OpenQuery, spec: LoadSpec) -> LoadPosition:
    """Where the newest committed batch ends, of those that end in what is noted down: that may follow a batch later."""
    committed = query.checkpoint.last_committed
    newest_first = range(-1 if committed is None else committed, -1, -1)
    found = (_find_position(query, spec, batch) for batch in newest_first[:_CHUNKS_MAX])
    return next((each for each in found if each is not None), LoadPosition(0, 0))


def _find_position(query: OpenQuery, spec: LoadSpec, batch: int | None) -> LoadPosition | None:
    """Where a batch ends; None where none is named, or its plan is not known, or is beyond what is loaded."""
    entry = None if batch is None else query.checkpoint.offsets.entries.get(batch)
    if not isinstance(entry, OffsetEntry):
        return None
    offset = entry.sources[0].offset
    found = make_version_position(offset) if isinstance(offset, DeltaOffset) else find_load_position(offset)
    return found if found is not None and spec.has(found.file, found.position) else None


@dataclass(frozen=True, slots=True)
class LoadedFile(JsonValue):
    """A file that a load has begun with, or met since, as it was then."""

    location: str
    state: str
    """`loaded`, `partly` or `waiting`."""
    done: int
    """Bytes of it that are read and committed, unpacked."""
    size: int
    """Bytes of it, unpacked; 0 of one that was not unpacked yet."""
    modified_ms: int | None
    """When it was changed last; None where the storage does not tell."""
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class LoadedFiles(JsonValue):
    """The files of a load, in the order in which they are read."""

    json = make_form("*query table files")
    """What `inspect --files --format json` prints."""

    query: OpenQuery
    table: str
    """`delta:LOCATION` or `file:LOCATION`."""
    files: tuple[LoadedFile, ...]


def inspect_load_files(target: Target) -> LoadedFiles:
    """Which files a load has loaded, and which not yet. None of them is looked at: the lake alone names them.

    Raises:
        CheckpointMissingError: there is no checkpoint.
        UsageError: it is not that of a load of files.
        StorageError: the storage does not answer (subclasses).
    """
    query = gather(target, batches=2)
    spec = read_load(query)
    if spec is None or spec.is_table:
        raise UsageError(
            "only a load of files has a list of them",
            found=str(query.location),
            expected="the checkpoint of `lastgood load FILE…`",
            next=format_command_line("inspect", query.location),
        )
    at = _find_committed_position(query, spec)
    came = zip(spec.files, spec.list_arrivals(), strict=True)
    files = tuple(_tell_file(each, number, at, arrival) for number, (each, arrival) in enumerate(came))
    return LoadedFiles(query, redact_place(spec.table), files)


def _tell_file(file: InputFile, number: int, at: LoadPosition, arrival: Arrival) -> LoadedFile:
    """How much of a file lies before a position."""
    done = 0
    if number < at.file:
        done = file.length
    elif number == at.file:
        done = min(at.position, file.length)
    state = "partly"
    if number < at.file or 0 < file.length == done:
        state = "loaded"
    elif not done:
        state = "waiting"
    return LoadedFile(redact_place(file.location), state, done, file.length, file.modified_ms, arrival)
