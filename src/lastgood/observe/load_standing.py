"""How far a load has come, for whoever looks at its checkpoint: from its logs, and from what it noted down beside."""

from __future__ import annotations

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import DeltaOffset, SourceOffset
from lastgood.frozen import dataclass
from lastgood.load.kept import read_counts, read_spec
from lastgood.load.position import LoadPosition, make_version_position
from lastgood.load.specification import LoadDiffersError, LoadSpec
from lastgood.observe.open_query import OpenQuery
from lastgood.query.history import find_load_position
from lastgood.values import JsonValue
from lastgood.written import redact_place


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


def look_at_load_standing(query: OpenQuery) -> LoadStanding | None:
    """How far it has come; None for a query that is no load, or of which nothing is noted down.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = query.checkpoint
    spec = read_load(query)
    if spec is None:
        return None
    committed = checkpoint.commits.ids
    counts = read_counts(query.storage, query.location, tuple(committed))
    at = _find_position(query) or LoadPosition(0, 0)
    done = spec.count_bytes_before(at.file, at.position)
    return LoadStanding(
        table=redact_place(spec.table),
        files=len(spec.files),
        done=done,
        size=spec.size,
        rows=sum(each.rows for each in counts.values()),
        corrupt=sum(each.corrupt for each in counts.values()),
        chunks=len(committed),
        uncounted=len(committed) - len(counts),
        is_whole=at == LoadPosition(*spec.end),
        unit=spec.unit,
    )


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


def _find_position(query: OpenQuery) -> LoadPosition | None:
    """Where its newest committed batch ends; None before the first."""
    committed = query.checkpoint.last_committed
    entry = None if committed is None else query.checkpoint.offsets.entries.get(committed)
    if not isinstance(entry, OffsetEntry):
        return None
    offset = entry.sources[0].offset
    if isinstance(offset, DeltaOffset):
        return make_version_position(offset)
    return find_load_position(offset)
