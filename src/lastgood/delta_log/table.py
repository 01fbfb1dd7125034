"""Reads the log of a Delta table from a storage: the newest versions one by one, what is older from a checkpoint.

Nothing is written. A version is read from its commit file, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from lastgood.checkpoint.damage import Damage, DamageKind, damaged
from lastgood.checkpoint.reader import read_file
from lastgood.delta_log.actions import Protocol, TableCommit, TableMetadata, Transaction, parse_commit
from lastgood.delta_log.listing import (
    DELTA_LOG,
    CheckpointFiles,
    DeltaLogListing,
    checksum_name,
    commit_name,
    list_delta_log,
)
from lastgood.delta_log.snapshot import TableSnapshot, parse_checkpoint, parse_checksum
from lastgood.parallel import Deadline, ask_all, ask_one
from lastgood.storage import Location, Storage

COMMITS_DEFAULT = 500
"""How many of the newest versions are read one by one: five rounds of requests to an object store."""

_COMMIT_BYTES_MAX = 256 * 1024 * 1024
_SNAPSHOT_BYTES_MAX = 1024 * 1024 * 1024
_CATALOG_FEATURES = frozenset({"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"})

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class TableLog:
    """The log of a table as it was when it was read."""

    location: str
    newest_version: int
    commits: tuple[TableCommit, ...]
    """The newest versions without a gap, oldest first. Empty if the newest one is left in a checkpoint only."""
    transactions: Mapping[str, Transaction] = field(default_factory=dict)
    """The last one of each application: the last in the log, not the largest. Also those that have expired."""
    metadata: TableMetadata | None = None
    protocol: Protocol | None = None
    unknown: str | None = None
    """Why `transactions`, `metadata` and `protocol` hold only what the `commits` say; None if they are complete."""
    listing: DeltaLogListing = field(default_factory=DeltaLogListing)

    @property
    def oldest_read(self) -> int:
        """The oldest version that was read one by one; one past the newest if none was."""
        return self.commits[0].version if self.commits else self.newest_version + 1

    @property
    def is_in_catalog(self) -> bool:
        """Whether a catalog decides what is committed, so that newer versions may exist than the log shows."""
        features = {*self.protocol.reader_features, *self.protocol.writer_features} if self.protocol else set()
        properties = self.metadata.configuration if self.metadata else {}
        return bool(features & _CATALOG_FEATURES) or any(
            "coordinatedCommits.commitCoordinator" in key for key in properties
        )


def read_table_log(
    storage: Storage,
    table: Location,
    *,
    deadline: Deadline,
    commits_max: int = COMMITS_DEFAULT,
    since: int | None = None,
) -> TableLog | Damage | None:
    """Read the log of the table at `table`.

    Args:
        storage: From `open_storage(table)`.
        table: The folder that holds `_delta_log`.
        deadline: When to stop waiting.
        commits_max: How many versions to read one by one at most; more where no checkpoint covers the rest.
        since: Read one by one from this version on, however many that are.

    Returns:
        The log; None if there is no table; a Damage if a version that is needed is missing or is no JSON.

    Raises:
        StorageError: the storage does not answer, or does not let us look.
        ExtraMissingError: old versions have to be read from Parquet, and pyarrow is not installed.
    """
    folder = table / DELTA_LOG
    names = ask_one(lambda: list(storage.names(folder) or ()), deadline=deadline, subject=str(folder))
    listing = list_delta_log(names or ())
    newest = listing.newest
    if newest is None:
        return None
    checkpoint = listing.checkpoints[-1] if listing.checkpoints else None
    covered = checkpoint.version if checkpoint else -1
    unbroken = listing.unbroken
    if covered < newest and unbroken.start > covered + 1:
        return damaged(DamageKind.MISSING_PART, commit_name(unbroken.start - 1))
    wanted = newest - commits_max + 1 if since is None else since
    first = max(unbroken.start, min(wanted, covered + 1)) if unbroken else newest + 1
    reader = _Reader(storage, folder, deadline)
    commits = reader.commits(range(first, newest + 1))
    if isinstance(commits, Damage):
        return commits
    snapshot = TableSnapshot(-1) if first == 0 else reader.snapshot(newest, listing, checkpoint)
    return _assembled(str(table), listing, commits, snapshot)


def _assembled(
    location: str, listing: DeltaLogListing, commits: Sequence[TableCommit], snapshot: TableSnapshot | Damage
) -> TableLog:
    unknown = f"the checkpoint of its log cannot be read: {snapshot}" if isinstance(snapshot, Damage) else None
    known = TableSnapshot(-1) if isinstance(snapshot, Damage) else snapshot
    transactions = dict(known.transactions)
    metadata, protocol = known.metadata, known.protocol
    for commit in commits:
        if commit.version > known.version:
            transactions |= commit.by_app
            metadata, protocol = commit.metadata or metadata, commit.protocol or protocol
    return TableLog(
        location=location,
        newest_version=listing.newest or 0,
        commits=tuple(commits),
        transactions=transactions,
        metadata=metadata,
        protocol=protocol,
        unknown=unknown,
        listing=listing,
    )


class _Reader:
    def __init__(self, storage: Storage, folder: Location, deadline: Deadline) -> None:
        self._storage = storage
        self._folder = folder
        self._deadline = deadline

    def commits(self, versions: range) -> list[TableCommit] | Damage:
        answers = ask_all(
            [partial(self._commit, version) for version in versions],
            parallel=self._storage.parallel,
            deadline=self._deadline,
            subject=str(self._folder),
        )
        commits = []
        for version, answer in zip(versions, answers, strict=True):
            commit = answer.or_raise()
            if commit is None:
                return damaged(DamageKind.MISSING_PART, commit_name(version))
            if isinstance(commit, Damage):
                return damaged(commit.kind, f"{commit_name(version)}: {commit.found}", commit.line)
            commits.append(commit)
        return commits

    def snapshot(
        self, newest: int, listing: DeltaLogListing, checkpoint: CheckpointFiles | None
    ) -> TableSnapshot | Damage:
        """The state at the newest version, from its `.crc` file if that will do; else that of the checkpoint."""
        if newest in listing.checksums:
            raw = self._ask(lambda: self._storage.read(self._folder / checksum_name(newest), limit=_SNAPSHOT_BYTES_MAX))
            found = None if raw is None else parse_checksum(newest, raw)
            if found is not None and found.metadata is not None:
                return found
        if checkpoint is None:
            return damaged(DamageKind.MISSING_PART, "no checkpoint")
        merged = TableSnapshot(checkpoint.version)
        for name in checkpoint.names:
            part = self._ask(partial(self._checkpoint_file, checkpoint.version, name))
            if part is None:
                return damaged(DamageKind.MISSING_PART, name)
            if isinstance(part, Damage):
                return part
            merged = merged.merged(part)
        return merged

    def _commit(self, version: int) -> TableCommit | Damage | None:
        file = self._folder / commit_name(version)
        return read_file(self._storage, file, partial(parse_commit, version), limit=_COMMIT_BYTES_MAX)

    def _checkpoint_file(self, version: int, name: str) -> TableSnapshot | Damage | None:
        parse = partial(parse_checkpoint, version, name)
        return read_file(self._storage, self._folder / name, parse, limit=_SNAPSHOT_BYTES_MAX)

    def _ask(self, question: Callable[[], AnswerT]) -> AnswerT | None:
        return ask_one(question, deadline=self._deadline, subject=str(self._folder))
