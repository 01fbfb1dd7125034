"""What the newest committed batch of a checkpoint had read."""

from __future__ import annotations

from lastgood.checkpoint.contents import Checkpoint, Presence
from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.reader import read_checkpoint, read_file
from lastgood.checkpoint.source_offsets import SourceOffset, get_topics
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.sources.kafka.reader import OffsetRange, list_committed_ranges
from lastgood.storage.reading import Location, Storage, open_storage, parse_location


class NoCommittedBatchError(LastgoodError):
    """A checkpoint holds no committed batch whose offsets can be read."""

    condition = "NO_COMMITTED_BATCH"
    exit_code = 38
    retry = Retry.LATER


@dataclass(frozen=True, slots=True)
class CommittedReads:
    """What a query has read and committed."""

    batch_id: int
    ranges: tuple[OffsetRange, ...]
    is_start_known: bool
    """False if the checkpoint no longer tells where the query began."""


def read_committed(checkpoint: str) -> CommittedReads:
    """What the newest committed batch of a checkpoint had read.

    Raises:
        NoCommittedBatchError: there is none, its entry in the offset log cannot be read, or that was given another
            end, such as the earliest, by which nobody can tell how far the batch had read.
        SourceKindError: a source of the query is not Kafka.
        StorageError: the checkpoint cannot be read (subclasses).
    """
    location = parse_location(checkpoint)
    storage = open_storage(location)
    found = read_checkpoint(storage, location)
    if found.last_committed is None or found.offsets.ids.oldest is None:
        raise NoCommittedBatchError(
            "the checkpoint holds no committed batch",
            subject=checkpoint,
            found=_describe_nothing_committed(found),
            expected="a checkpoint whose query has committed a batch",
        )
    committed = _read_offset_entry(storage, location, found.last_committed)
    if not all(_is_resolved(line.offset) for line in committed.sources):
        raise NoCommittedBatchError(
            "how far the query has read is not written down",
            subject=f"{checkpoint}/{OFFSETS}/{found.last_committed}",
            found="the newest committed plan was made to end at the earliest or the latest offset",
            expected="a batch that was committed since then",
        )
    initial = {source.name: source.initial.offset for source in found.sources if source.initial is not None}
    initial = {name: began for name, began in initial.items() if _is_resolved(began)}
    is_start_known = all(line.source_id in initial for line in committed.sources)
    # A running query may remove its oldest entry at any time: it is asked for only if it is needed.
    if is_start_known:
        oldest = committed
    else:
        oldest = _read_offset_entry(storage, location, found.offsets.ids.oldest)
    return CommittedReads(found.last_committed, list_committed_ranges(committed, initial, oldest), is_start_known)


def _is_resolved(offset: SourceOffset) -> bool:
    """Whether an offset is a position: the earliest and the latest are none."""
    return all(each >= 0 for parts in get_topics(offset).values() for each in parts.values())


def _describe_nothing_committed(found: Checkpoint) -> str:
    if found.presence is not Presence.PRESENT:
        return "no such folder" if found.presence is Presence.MISSING else "an empty folder"
    if found.last_planned is None:
        return "no batch"
    return f"batch {found.last_planned}, planned and not committed"


def _read_offset_entry(storage: Storage, checkpoint: Location, batch_id: int) -> OffsetEntry:
    file = checkpoint / f"{OFFSETS}/{batch_id}"
    entry = read_file(storage, file, parse_offset_entry)
    if isinstance(entry, OffsetEntry):
        return entry
    raise NoCommittedBatchError(
        "the offsets of a committed batch cannot be read",
        subject=str(file),
        found="no such file" if entry is None else str(entry),
        expected="an entry of the offset log",
    )
