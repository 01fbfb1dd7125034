"""Reads a checkpoint from a storage: as few requests as it takes, at the same time where they do not need each other.

Nothing is written and nothing is judged; what is damaged or missing is part of the result.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from lastgood.checkpoint.checksums import HadoopChecksum, parse_hadoop_checksum
from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.contents import (
    Checkpoint,
    Presence,
    recognise_mode,
    take_log_in_mode,
)
from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.file_logs import FileLogEntry, SourceLogEntry, parse_source_log_entry
from lastgood.checkpoint.initial import InitialOffset, parse_source_entry
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, STATE
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.checkpoint.logs import BatchLog, SourceLog, list_log
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.partitions import collect_pins
from lastgood.checkpoint.query import parse_query_metadata
from lastgood.checkpoint.source_offsets import FileOffset
from lastgood.checkpoint.state import State, StateOperator, judge_state
from lastgood.checkpoint.state_reader import list_commits_needed, list_made_again, list_operators, look_into_stores
from lastgood.frozen import dataclass
from lastgood.storage.parallel import QUICK_SECONDS, open_threads
from lastgood.storage.reading import Location, Storage

BATCHES_DEFAULT = 10
ALL_BATCHES = sys.maxsize
"""For `read_checkpoint(batches=…)`; `read_batches` parses every entry too, but does not hold them all."""

_PARTS = 6
"""So many parts of a checkpoint are read side by side."""
_CHUNK = 64
_BATCHES_AT_ONCE = 8192
"""So many are read by several threads before it is tried again whether one alone is quick."""
_SOURCE_ENTRIES_MAX = 64
_SOURCE_ENTRY_BYTES_MAX = 1024 * 1024
_ONE_LONG_FILE = threading.Lock()
"""Many files are asked for at once, and the length that one tells costs nothing to whoever has made it: of those that
are longer than an entry, one is held at a time."""
_OWN_NAMES = (f"{OFFSETS}/", f"{COMMITS}/", f"{SOURCES}/", f"{STATE}/", METADATA)

EntryT = TypeVar("EntryT")
_Asked = TypeVar("_Asked")


def read_checkpoint(storage: Storage, location: Location, *, batches: int = BATCHES_DEFAULT) -> Checkpoint:
    """Read what is at `location`.

    Args:
        storage: From `open_storage(location)`.
        location: The checkpoint, as it is given to Spark.
        batches: How many of the newest entries of each log to parse; all of them are listed in any case.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    with _open_threads(storage) as pool:
        return _Reader(storage, location, pool).read(max(batches, 2))


@dataclass(frozen=True, slots=True)
class Batch:
    """Both records of one batch; None where there is no such file."""

    batch_id: int
    offsets: OffsetEntry | Damage | None
    commit: CommitEntry | Damage | None


def read_batches(storage: Storage, location: Location, batch_ids: Iterable[int]) -> Iterator[Batch]:
    """Read the entries of many batches, in the order of `batch_ids`, holding only a few at a time.

    Where nothing has to be waited for, as on a local disk, one thread reads faster than several in each other's way.

    Args:
        storage: From `open_storage(location)`.
        location: The checkpoint.
        batch_ids: Such as `checkpoint.offsets.ids`.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    logs = _Logs(storage, location)
    ids = iter(batch_ids)
    first = list(itertools.islice(ids, 2 * storage.parallel))
    yield from _read_at_once(logs, first)
    while len(first) == 2 * storage.parallel:  # a long log
        yield from _read_while_quick(logs, ids)
        first = list(itertools.islice(ids, 2 * storage.parallel))
        yield from _read_at_once(logs, itertools.chain(first, itertools.islice(ids, _BATCHES_AT_ONCE)))


class _Logs:
    """Where the two records of a batch are read."""

    def __init__(self, storage: Storage, location: Location) -> None:
        self.storage = storage
        self._offsets = location / OFFSETS
        self._commits = location / COMMITS

    def plan(self, batch_id: int) -> OffsetEntry | Damage | None:
        return read_file(self.storage, self._offsets / str(batch_id), parse_offset_entry)

    def commit(self, batch_id: int) -> CommitEntry | Damage | None:
        return read_file(self.storage, self._commits / str(batch_id), parse_commit_entry)


def _read_at_once(logs: _Logs, batch_ids: Iterable[int]) -> Iterator[Batch]:
    """Batches in their order, which several threads read ahead."""

    def asked() -> Iterator[tuple[int, Future[OffsetEntry | Damage | None], Future[CommitEntry | Damage | None]]]:
        for batch_id in batch_ids:
            yield batch_id, pool.submit(logs.plan, batch_id), pool.submit(logs.commit, batch_id)

    parallel = logs.storage.parallel
    with _open_threads(logs.storage) as pool:
        for batch_id, plan, commit in _take_ahead(asked(), parallel):
            yield Batch(batch_id, plan.result(), commit.result())


def _take_ahead(asked: Iterator[_Asked], count: int) -> Iterator[_Asked]:
    """The same, of which `count` more are taken before one is given."""
    waiting: deque[_Asked] = deque()
    for each in asked:
        waiting.append(each)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def _read_while_quick(logs: _Logs, ids: Iterator[int]) -> Iterator[Batch]:
    """Batches one after the other, until the storage takes its time twice in a row."""
    count, slow = 1, 0
    while slow < 2 and (chunk := list(itertools.islice(ids, count))):
        began = time.perf_counter()
        batches = [Batch(batch_id, logs.plan(batch_id), logs.commit(batch_id)) for batch_id in chunk]
        if time.perf_counter() - began > len(chunk) * QUICK_SECONDS:
            slow = slow + 1
        else:
            slow = 0
        yield from batches
        count = min(2 * count, _CHUNK)


def read_file(
    storage: Storage, file: Location, parse: Callable[[bytes], EntryT | Damage], *, limit: int = ENTRY_BYTES_MAX
) -> EntryT | Damage | None:
    """Read and parse one file; None if there is none.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    short = min(limit, ENTRY_BYTES_MAX)
    raw = storage.read(file, limit=short + 1)
    if raw is None or len(raw) <= short:
        if raw is None:
            return None
        return parse(raw)
    if limit <= short:
        return make_damage(DamageKind.TOO_LARGE, f"more than {limit} bytes")
    del raw
    with _ONE_LONG_FILE:
        raw = storage.read(file, limit=limit + 1)
        if raw is not None and len(raw) > limit:
            return make_damage(DamageKind.TOO_LARGE, f"more than {limit} bytes")
        if raw is None:
            return None
        return parse(raw)


def _is_side_file(name: str, names: Collection[str] | None) -> bool:
    """Whether it is the checksum of `metadata`, and not left over."""
    return name == f".{METADATA}.crc" and METADATA in (names or ())


@contextmanager
def _open_threads(
    storage: Storage, count: int | None = None, *, quick_seconds: float = QUICK_SECONDS
) -> Iterator[Executor]:
    pool = open_threads(storage, count, quick_seconds=quick_seconds)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Reader:
    """Where requests have to be waited for, each part is conducted by a thread, which gives single ones to `pool`."""

    def __init__(self, storage: Storage, location: Location, pool: Executor) -> None:
        self._storage = storage
        self._location = location
        self._pool = pool

    def read(self, batches: int) -> Checkpoint:
        with _open_threads(self._storage, _PARTS, quick_seconds=_PARTS * QUICK_SECONDS) as parts:
            root = parts.submit(self._root)
            query = parts.submit(read_file, self._storage, self._location / METADATA, parse_query_metadata)
            planned = parts.submit(self._log, OFFSETS, parse_offset_entry, batches)
            committed = parts.submit(self._log, COMMITS, parse_commit_entry, batches)
            sources = parts.submit(self._sources)
            operators = parts.submit(list_operators, self._storage, self._location, self._pool)
            offsets, commits, found = planned.result(), committed.result(), operators.result()
            mode = recognise_mode(offsets, commits, has_state=bool(found))
            offsets = replace(offsets, entries=take_log_in_mode(offsets, mode))
            names = root.result()
            if names is None:
                presence = Presence.MISSING
            elif names:
                presence = Presence.PRESENT
            else:
                presence = Presence.EMPTY
            listed = names or ()
            foreign = tuple(name for name in listed if name not in _OWN_NAMES and not _is_side_file(name, listed))
            return Checkpoint(
                location=str(self._location),
                presence=presence,
                mode=mode,
                query=query.result(),
                offsets=offsets,
                commits=commits,
                sources=tuple(self._as_planned(log, offsets) for log in sources.result()),
                state=None if found is None else self._state(found, offsets, commits),
                foreign=foreign,
            )

    def _root(self) -> list[str] | None:
        names = self._storage.names(self._location)
        if names is None:
            return None
        return sorted(names)

    def _log(self, folder: str, parse: Callable[[bytes], EntryT | Damage], batches: int) -> BatchLog[EntryT]:
        log: BatchLog[EntryT] = BatchLog(folder, list_log(self._storage.names(self._location / folder)))
        wanted = log.ids.last(batches)
        if not wanted:
            return log
        facts = self._pool.submit(self._storage.stat, self._location / f"{folder}/{wanted[-1]}")
        sums = [batch_id for batch_id in wanted if batch_id in log.listing.checksums]
        checksums = self._pool.map(lambda batch_id: self._checksum(folder, batch_id), sums)
        contents = self._pool.map(lambda batch_id: self._content(folder, batch_id), wanted)
        # What is gone by now was purged since it was listed.
        held = {batch_id: raw for batch_id, raw in zip(wanted, contents, strict=True) if raw is not None}
        checked = ((n, _check(held[n], found)) for n, found in zip(sums, checksums, strict=True) if n in held)
        newest = facts.result()
        entries = {batch_id: parse(raw) for batch_id, raw in held.items()}
        checksum_damage = {batch_id: wrong for batch_id, wrong in checked if wrong}
        newest_modified_ms = newest.modified_ms if newest else None
        return replace(log, entries=entries, checksum_damage=checksum_damage, newest_modified_ms=newest_modified_ms)

    def _content(self, folder: str, batch_id: int) -> bytes | None:
        return self._storage.read(self._location / f"{folder}/{batch_id}", limit=ENTRY_BYTES_MAX + 1)

    def _checksum(self, folder: str, batch_id: int) -> HadoopChecksum | Damage | None:
        return read_file(self._storage, self._location / f"{folder}/.{batch_id}.crc", parse_hadoop_checksum)

    def _sources(self) -> tuple[SourceLog, ...]:
        names = self._storage.names(self._location / SOURCES)
        folders = [name[:-1] for name in names or () if name.endswith("/")]
        folders.sort(key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
        logs = list(self._pool.map(self._source, folders))
        wanted = [(log, log_id) for log in logs for log_id in _list_source_entries_wanted(log)]
        read = self._pool.map(lambda pair: self._source_entry(*pair), wanted)
        entries: dict[str, dict[int, SourceLogEntry | InitialOffset | Damage]] = {log.name: {} for log in logs}
        for (log, log_id), entry in zip(wanted, read, strict=True):
            if entry is not None:
                entries[log.name][log_id] = entry
        return tuple(replace(log, entries=entries[log.name]) for log in logs)

    def _as_planned(self, log: SourceLog, offsets: BatchLog[OffsetEntry]) -> SourceLog:
        """The same; of a file source, which only the plans tell for sure, the first entry is one of its log.

        A damaged one may look as what Kafka's source writes there, and Spark says another thing of each.
        """
        first = log.entries.get(0)
        if first is None or isinstance(first, FileLogEntry):
            return log
        if not any(_is_reading_files(plan, log.name) for plan in offsets.entries.values()):
            return log
        file = self._location / f"{log.folder}/{log.entry_name(0)}"
        entry = read_file(self._storage, file, parse_source_log_entry, limit=_SOURCE_ENTRY_BYTES_MAX)
        if entry is None:
            return log
        return replace(log, entries={**log.entries, 0: entry})

    def _source(self, name: str) -> SourceLog:
        names = self._storage.names(self._location / SOURCES / name)
        return SourceLog(name, list_log(names, compactible=True))

    def _source_entry(self, log: SourceLog, log_id: int) -> SourceLogEntry | InitialOffset | Damage | None:
        file = self._location / f"{log.folder}/{log.entry_name(log_id)}"
        parse = parse_source_entry if log_id == 0 else parse_source_log_entry  # only the first tells where it began
        return read_file(self._storage, file, parse, limit=_SOURCE_ENTRY_BYTES_MAX)

    def _state(
        self, operators: list[StateOperator], offsets: BatchLog[OffsetEntry], commits: BatchLog[CommitEntry]
    ) -> State:
        version = None
        if commits.newest is not None:
            version = commits.newest + 1
        batch_ids = list_commits_needed(operators, commits.ids, version)
        unread = [batch_id for batch_id in batch_ids if batch_id not in commits.entries]
        read = self._pool.map(_Logs(self._storage, self._location).commit, unread)
        entries = {**commits.entries, **dict(zip(unread, read, strict=True))}
        ids = {n: entry.state_unique_ids for n, entry in entries.items() if isinstance(entry, CommitEntry)}
        looked = look_into_stores(self._storage, self._location, self._pool, operators, ids, version)
        newest = offsets.newest
        if newest not in (None, commits.newest, version):  # of which commits were lost, or plans
            looked = look_into_stores(self._storage, self._location, self._pool, looked, ids, newest)
        if newest is not None and newest == version:  # a sink may skip it: then the batch after it is the first to load
            looked = look_into_stores(self._storage, self._location, self._pool, looked, ids, newest + 1)
        judged = judge_state(looked, ids, restart_version=version, pins=collect_pins(offsets.entries, commits.newest))
        return replace(judged, planned_ms=self._read_plan_times(list_made_again(operators), offsets))

    def _read_plan_times(self, batch_ids: list[int], offsets: BatchLog[OffsetEntry]) -> dict[int, int]:
        """When batches were planned, of those whose plan was not read with the newest ones."""
        planned = (batch_id for batch_id in batch_ids if batch_id in offsets.ids)
        unread = [batch_id for batch_id in planned if batch_id not in offsets.entries]
        plans = self._pool.map(_Logs(self._storage, self._location).plan, unread)
        return {
            batch_id: plan.metadata.batch_timestamp_ms
            for batch_id, plan in zip(unread, plans, strict=True)
            if isinstance(plan, OffsetEntry) and plan.metadata is not None
        }


def _check(raw: bytes, checksum: HadoopChecksum | Damage | None) -> Damage | None:
    """What is wrong with the checksum file of a content."""
    if not isinstance(checksum, HadoopChecksum):
        return checksum
    return checksum.check(raw)


def _list_source_entries_wanted(log: SourceLog) -> list[int]:
    """The entries since the newest compact file, which Spark reads at its start, and where the source began."""
    ids = log.listing.ids
    since = log.listing.compact.newest or 0
    newest = [log_id for log_id in ids.last(_SOURCE_ENTRIES_MAX) if log_id >= since]
    if 0 in newest or 0 not in ids:
        return newest
    return [0, *newest]


def _is_reading_files(plan: OffsetEntry | Damage, source_id: str) -> bool:
    """Whether this plan can be read, and says that the source reads files."""
    line = None
    if isinstance(plan, OffsetEntry):
        line = plan.source(source_id)
    return line is not None and isinstance(line.offset, FileOffset)
