"""`status`: one checkpoint on one screen, or every checkpoint below a folder, graded."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import LastgoodError, StorageError
from lastgood.operations.evidence import require_checkpoint
from lastgood.operations.target import resolve_target
from lastgood.recovery.mirror import WORK_SUFFIX
from lastgood.sources.kafka_ranges import Offsets
from lastgood.storage import Location, Storage, open_storage, parse_location

_DEPTH_MAX = 6
_NEVER_INSIDE = ("_delta_log", "_spark_metadata", "metadata", "state")


class Grade(enum.IntEnum):
    """How bad it looks, from the files alone; worse is larger."""

    HEALTHY = 0
    """Every planned batch is committed, and all that a restart reads is there."""
    IN_FLIGHT = 1
    """One batch is planned and not committed: it is running, or the query died in it and a restart runs it again."""
    EMPTY = 2
    """No batch has been planned yet."""
    UNREADABLE = 3
    """The storage does not let us look, or does not answer."""
    DAMAGED = 4
    """Something that a restart reads is missing or damaged."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where one query stands."""

    location: Location
    grade: Grade
    checkpoint: Checkpoint | None
    error: LastgoodError | None = None

    @property
    def last_good(self) -> int | None:
        """The newest batch that is planned and committed, and whose state, if there is any, can be loaded."""
        if self.checkpoint is None:
            return None
        offsets, commits = self.checkpoint.offsets, self.checkpoint.commits
        found = commits.newest
        if found is not None and self.checkpoint.is_stateful:
            loadable = self.checkpoint.last_loadable
            found = None if loadable is None else min(found, loadable)
        while found is not None:
            records = (offsets.entries.get(found), commits.entries.get(found))
            if found in offsets.ids and found in commits.ids and not any(isinstance(each, Damage) for each in records):
                break
            found = commits.ids.before(found)
        return found

    @property
    def time_ms(self) -> int | None:
        """Processing time of the newest planned batch."""
        newest = self.checkpoint.newest_offsets if self.checkpoint else None
        return newest.metadata.batch_timestamp_ms if newest and newest.metadata else None

    @property
    def problems(self) -> tuple[str, ...]:
        """What is damaged or missing, by its path."""
        if self.checkpoint is None:
            return () if self.error is None else (self.error.sentence,)
        damaged = [f"{path}: {damage}" for path, damage in self.checkpoint.damage.items()]
        return (*damaged, *(f"{path}: not there" for path in self.checkpoint.absent))

    def next_offsets(self) -> Mapping[str, Offsets]:
        """Kafka sources: where the next batch begins, per source."""
        newest = self.checkpoint.newest_offsets if self.checkpoint else None
        lines = newest.sources if isinstance(newest, OffsetEntry) else ()
        return {line.source_id: line.offset.topics for line in lines if isinstance(line.offset, KafkaOffset)}

    def to_json(self) -> dict[str, Any]:
        """What `status --format json` prints of one checkpoint."""
        checkpoint = self.checkpoint
        query = checkpoint.query if checkpoint else None
        return {
            "checkpoint": str(self.location),
            "grade": self.grade.name.lower(),
            "query_id": query.query_id if isinstance(query, QueryMetadata) else None,
            "mode": checkpoint.mode.value if checkpoint else None,
            "stateful": checkpoint.is_stateful if checkpoint else None,
            "last_planned": checkpoint.last_planned if checkpoint else None,
            "last_committed": checkpoint.last_committed if checkpoint else None,
            "last_loadable_state": checkpoint.last_loadable if checkpoint else None,
            "last_good": self.last_good,
            "time_ms": self.time_ms,
            "problems": list(self.problems),
        }


def status(target: str, *, query: str | None = None, config: Path | None = None) -> Status:
    """Where one query stands, from its files alone.

    Args:
        target: Location, or name in `lastgood.toml`.
        query: `target` is a session-wide checkpoint root; the name of the query in it.
        config: Another configuration than `lastgood.toml` here.

    Raises:
        CheckpointMissingError: there is no such folder, or nothing in it.
        StorageError: the storage does not answer (subclasses).
    """
    resolved = resolve_target(target) if config is None else resolve_target(target, config)
    location = parse_location(resolved.checkpoint)
    if query is not None:
        location /= query
    found = _look(open_storage(location), location)
    if found.error is not None:
        raise found.error
    if found.checkpoint is not None:
        require_checkpoint(location, found.checkpoint)
    return found


def is_root(target: str) -> bool:
    """True for a folder that is no checkpoint itself, and may hold some."""
    location = parse_location(resolve_target(target).checkpoint)
    names = list(open_storage(location).names(location) or ())
    return bool(names) and not _is_checkpoint(names)


def status_below(root: str, *, progress: Callable[[int], None] | None = None) -> list[Status]:
    """Where every query below a folder stands, worst first.

    Args:
        root: A folder full of checkpoints, such as `spark.sql.streaming.checkpointLocation`, or a name in
            `lastgood.toml`.
        progress: Told how many have been read so far.

    Raises:
        StorageError: the folder itself cannot be listed.
    """
    location = parse_location(resolve_target(root).checkpoint)
    storage = open_storage(location)
    with ThreadPoolExecutor(max(2, storage.parallel // 4)) as pool:
        asked = [pool.submit(_look, storage, each) for each in checkpoints_below(storage, location)]
        found = []
        for done in as_completed(asked):
            found.append(done.result())
            if progress is not None:
                progress(len(found))
    return sorted(found, key=lambda each: (-each.grade, str(each.location)))


def checkpoints_below(storage: Storage, folder: Location) -> Iterator[Location]:
    """Every checkpoint below a folder, and every folder that cannot be listed: it may be one.

    Nothing is sought inside a checkpoint or beside it in its work folder.

    Raises:
        StorageError: the folder itself cannot be listed.
    """

    def listed(place: Location) -> list[str] | None:
        try:
            return list(storage.names(place) or ())
        except StorageError:
            if place == folder:
                raise
            return None

    level = [folder]
    with ThreadPoolExecutor(storage.parallel) as pool:
        for _ in range(_DEPTH_MAX):
            found = zip(level, pool.map(listed, level), strict=True)
            level = []
            for place, names in found:
                if names is None or _is_checkpoint(names):
                    yield place
                    continue
                level += [place / name[:-1] for name in names if name.endswith("/") and _may_hold(name[:-1])]


def _may_hold(name: str) -> bool:
    return not name.endswith(WORK_SUFFIX) and not name.startswith(".") and name not in _NEVER_INSIDE


def _is_checkpoint(names: list[str]) -> bool:
    present = set(names)
    return METADATA in present or {f"{OFFSETS}/", f"{COMMITS}/"} <= present


def _look(storage: Storage, location: Location) -> Status:
    try:
        checkpoint = read_checkpoint(storage, location, batches=2)
    except StorageError as error:
        return Status(location, Grade.UNREADABLE, None, error)
    return Status(location, _grade(checkpoint), checkpoint)


def _grade(checkpoint: Checkpoint) -> Grade:
    if checkpoint.damage or checkpoint.absent:
        return Grade.DAMAGED
    if checkpoint.last_planned is None:
        return Grade.EMPTY
    return Grade.HEALTHY if checkpoint.orphan is None else Grade.IN_FLIGHT
