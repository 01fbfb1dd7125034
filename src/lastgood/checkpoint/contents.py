"""A whole checkpoint as it was found: what is there, what is damaged, what is missing. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import derive_compact_interval, list_ids_read_at_start
from lastgood.checkpoint.layout import COMMITS, OFFSETS
from lastgood.checkpoint.logs import BatchIds, BatchLog, SourceLog
from lastgood.checkpoint.offsets import OffsetEntry, SourceLine, SparkVersions
from lastgood.checkpoint.partitions import find_pinned_partitions
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import ContinuousRateOffset, FileOffset, KafkaOffset
from lastgood.checkpoint.state import State
from lastgood.frozen import dataclass

_IDS_MISSING_MAX = 1000
_WIDE_HOLE = 5

EntryT = TypeVar("EntryT", OffsetEntry | Damage, OffsetEntry | Damage | None)


class Presence(enum.Enum):
    """Whether there is anything at the location."""

    MISSING = "missing"
    """No such folder. Object stores cannot tell it from an empty one."""
    EMPTY = "empty"
    """A folder with nothing in it."""
    PRESENT = "present"


class Mode(enum.Enum):
    """How the query writes its logs."""

    MICRO_BATCH = "micro_batch"
    """Every batch; also real-time mode, whose files look the same."""
    ASYNC_PROGRESS = "async_progress"
    """Some batches, the same in both logs: holes that both have are normal."""
    CONTINUOUS = "continuous"
    """Epochs, offsets after the fact, no metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What `read_checkpoint` found."""

    location: str
    presence: Presence
    mode: Mode
    query: QueryMetadata | Damage | None
    """The file `metadata`; None if it is not there."""
    offsets: BatchLog[OffsetEntry]
    commits: BatchLog[CommitEntry]
    sources: tuple[SourceLog, ...]
    """What the sources keep for themselves; by index, then by name."""
    state: State | None
    """None if there is no folder `state`."""
    foreign: tuple[str, ...] = ()
    """What else lies in the checkpoint's own folder; folders end with a slash."""

    @property
    def is_there(self) -> bool:
        """Whether the folder holds anything of a query; without that it is no checkpoint, whatever else is in it.

        A folder that only bears the name of a part, such as a table called `state` or a query called `offsets`, is no
        sign of one.
        """
        logs = (self.offsets.listing, self.commits.listing)
        has_log = any(log.exists and (log.newest_listed is not None or not log.foreign) for log in logs)
        is_whole = all(log.exists for log in logs)
        noted = {source.name for source in self.sources if source.listing.newest_listed is not None}
        operators = self.state.operators if self.state else ()
        stores = [store for each in operators for store in each.stores]
        has_metadata = any(each.metadata_path for each in operators)
        has_files = any(store.files for store in stores)
        has_notes = bool(noted - {OFFSETS, COMMITS})
        return self.query is not None or has_log or is_whole or has_notes or has_metadata or has_files

    @property
    def last_planned(self) -> int | None:
        """L: the newest batch in the offset log."""
        return self.offsets.newest

    @property
    def last_committed(self) -> int | None:
        """C: the newest batch in the commit log."""
        return self.commits.newest

    @property
    def last_loadable(self) -> int | None:
        """V: the newest batch after which all state can be loaded; None for a stateless query or if there is none."""
        return self.state.last_loadable_batch if self.state else None

    @property
    def is_stateful(self) -> bool:
        """Whether the query keeps state, as far as its files show: a lost folder `state` may hide it."""
        if self.state is not None:  # Spark makes the folder for a stateful query only
            return True
        return any(isinstance(entry, CommitEntry) and entry.state_unique_ids for entry in self.commits.entries.values())

    @property
    def orphan(self) -> int | None:
        """The batch that is planned and not committed, and that a restart runs again; None if there is none."""
        planned = self.last_planned
        return (
            planned if planned is not None and (self.last_committed is None or planned > self.last_committed) else None
        )

    @property
    def is_done_below_newest(self) -> bool:
        """Whether every batch below the newest plan is known to be done although none has a commit.

        Without a commit log Spark plans a batch when the one before it is done.
        """
        planned = self.last_planned
        newest = None
        if planned is not None:
            newest = self.offsets.entries.get(planned)
        metadata = newest.metadata if isinstance(newest, OffsetEntry) else None
        return self.last_committed is None and metadata is not None and not metadata.keeps_commits

    @property
    def newest_offsets(self) -> OffsetEntry | None:
        """The newest entry of the offset log that was read and can be parsed."""
        return find_newest_parsed(self.offsets)

    @property
    def spark_versions(self) -> SparkVersions | None:
        """Which Spark wrote the newest batch, as far as the confs that it pinned tell."""
        newest = self.newest_offsets
        if newest and newest.metadata:
            return newest.metadata.spark_versions
        return None

    @property
    def shuffle_partitions(self) -> int | None:
        """The number of partitions that is pinned for stateful operators."""
        return find_pinned_partitions(self.newest_offsets)

    @property
    def damage(self) -> Mapping[str, Damage]:
        """Every damaged file among those that were read, by its path below the checkpoint."""
        found: dict[str, Damage] = {}
        if isinstance(self.query, Damage):
            found["metadata"] = self.query
        for damage in (self.offsets.damage, self.commits.damage, *(source.damage for source in self.sources)):
            found.update(damage)
        for operator in self.state.operators if self.state else ():
            if isinstance(operator.metadata, Damage) and operator.metadata_path:
                found[operator.metadata_path] = operator.metadata
        for obstacle in self.state.obstacles if self.state else ():
            if obstacle.damage:
                found[obstacle.name] = obstacle.damage
        return found

    @property
    def absent(self) -> tuple[str, ...]:
        """Files that the next start of Spark would look for and that are not there, by their path."""
        if self.query is not None or self.presence is not Presence.PRESENT:
            missing = []
        else:
            missing = ["metadata"]
        missing += self._absent_offsets()
        newest = self.newest_offsets
        for source in self.sources:
            line = None
            if newest:
                line = newest.source(source.name)
            missing += _find_absent_source_entries(source, line.offset if line else None)
        if newest:
            missing += self._absent_sources(newest)
        if self.state:
            missing += [obstacle.name for obstacle in self.state.obstacles if not obstacle.damage]
        return tuple(missing)

    @property
    def shared_logs(self) -> Mapping[str, str]:
        """Per source that may go by the log of another number than its own: that number.

        A stream that a query reads twice, as in a join with itself, has a line of each plan each time, and one log in
        all; those after it count on from there. It looks just so where two streams read the same and the log of the
        second is lost: nothing in a checkpoint tells the two apart, and the second is what is reckoned with.
        """
        newest = self.newest_offsets
        if newest is None or newest.version != 1:
            return {}
        plans = [plan for plan in self.offsets.entries.values() if isinstance(plan, OffsetEntry)]
        numbers: dict[tuple[str | None, ...], int] = {}
        logs: dict[str, int] = {}
        for line in newest.sources:
            texts = tuple(_get_text(plan.source(line.source_id)) for plan in plans)
            logs[line.source_id] = numbers.setdefault(texts, len(numbers))
        there = {source.name for source in self.sources}
        files = {str(logs[line.source_id]) for line in newest.sources if isinstance(line.offset, FileOffset)}
        has_own = any(str(number) in there for number in range(len(numbers), len(logs)))
        if has_own or not files <= there:
            return {}
        return {source_id: str(number) for source_id, number in logs.items() if source_id != str(number)}

    def _absent_offsets(self) -> list[str]:
        planned, committed = self.last_planned, self.last_committed
        if self.mode is Mode.CONTINUOUS:
            if committed is not None and committed not in self.offsets.ids:
                return [f"offsets/{committed}"]
            return []
        missing = []
        if planned and self.mode is Mode.MICRO_BATCH and planned - 1 not in self.offsets.ids:
            missing.append(planned - 1)
        if committed is not None and (planned is None or committed > planned):
            if planned is None:
                first = 0
            else:
                first = planned + 1
            missing += range(max(first, committed - _IDS_MISSING_MAX), committed + 1)
        return [f"offsets/{batch_id}" for batch_id in missing]

    def _absent_sources(self, newest: OffsetEntry) -> list[str]:
        there = {source.name for source in self.sources}
        lines = ((line.source_id, line.offset) for line in newest.sources if line.source_id not in there)
        return [
            f"sources/{source_id}/{offset.log_offset}"
            for source_id, offset in lines
            if isinstance(offset, FileOffset) and offset.log_offset >= 0
        ]


def _get_text(line: SourceLine | None) -> str | None:
    if line is None:
        return None
    return line.text


def _find_absent_source_entries(source: SourceLog, offset: object) -> list[str]:
    """Entries of a file source's log that Spark reads at its start: since the newest compaction, up to the offset."""
    if not isinstance(offset, FileOffset) or offset.log_offset < 0:
        return []
    listing = source.listing
    newest = max(offset.log_offset, -1 if listing.ids.newest is None else listing.ids.newest)
    compact = listing.compact
    if compact:
        needed = list_ids_read_at_start(newest, derive_compact_interval(compact))
    else:
        needed = range(newest + 1)
    first = max(needed.start, newest - _IDS_MISSING_MAX)
    return [f"{source.folder}/{log_id}" for log_id in range(first, newest + 1) if log_id not in listing.ids]


def recognise_mode(offsets: BatchLog[OffsetEntry], commits: BatchLog[CommitEntry], *, has_state: bool) -> Mode:
    """Tell how the query writes its logs, from their ids and newest entries."""
    entries = [entry for entry in offsets.entries.values() if isinstance(entry, OffsetEntry)]
    if entries and all(entry.metadata is None and _can_be_continuous(entry) for entry in entries):
        return Mode.CONTINUOUS
    has_holes = bool(offsets.ids.gaps or commits.ids.gaps)
    if has_holes and not has_state and _is_sparse(BatchIds.of((*offsets.ids, *commits.ids))):
        return Mode.ASYNC_PROGRESS
    return Mode.MICRO_BATCH


def _is_sparse(known: BatchIds) -> bool:
    """Whether the batches that either log holds are mostly no neighbours, as where progress is written now and then.

    Both logs together, because what only one of them has lost tells nothing: a batch in either was written down. Of
    progress that is written now and then there are many holes, or wide ones; a single small one is damage.
    """
    gaps = known.gaps
    return 2 * len(gaps) >= len(known) - 1 and (len(gaps) > 1 or any(len(gap) >= _WIDE_HOLE for gap in gaps))


def _can_be_continuous(entry: OffsetEntry) -> bool:
    return all(isinstance(line.offset, KafkaOffset | ContinuousRateOffset) for line in entry.sources)


def take_log_in_mode(log: BatchLog[OffsetEntry], mode: Mode) -> Mapping[int, OffsetEntry | Damage]:
    """The entries as that mode takes them: a micro-batch without metadata is damaged."""
    return {batch_id: take_entry_in_mode(entry, mode) for batch_id, entry in log.entries.items()}


def take_entry_in_mode(entry: EntryT, mode: Mode) -> EntryT | Damage:
    """One entry of the offset log as that mode takes it."""
    if isinstance(entry, OffsetEntry) and entry.metadata is None and mode is not Mode.CONTINUOUS:
        return Damage(DamageKind.BLANK_METADATA_LINE, line=2)
    return entry


def find_newest_parsed(log: BatchLog[OffsetEntry]) -> OffsetEntry | None:
    """The newest entry that was read and can be parsed."""
    entries = (log.entries[batch_id] for batch_id in sorted(log.entries, reverse=True))
    return next((entry for entry in entries if isinstance(entry, OffsetEntry)), None)
