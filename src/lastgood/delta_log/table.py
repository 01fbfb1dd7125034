"""Reads the log of a Delta table from a storage: the newest versions one by one, what is older from a checkpoint.

Nothing is written. A version is read from its commit file, never guessed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeVar

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.reader import read_file
from lastgood.delta_log.actions import (
    TRANSACTION_RETENTION,
    Protocol,
    TableCommit,
    TableMetadata,
    Transaction,
    parse_commit,
)
from lastgood.delta_log.listing import (
    DELTA_LOG,
    LAST_CHECKPOINT,
    SIDECARS,
    STAGED_FOLDERS,
    CheckpointFiles,
    DeltaLogListing,
    list_delta_log,
    list_staged_versions,
    name_checksum,
    name_commit,
)
from lastgood.delta_log.protocol import find_judging_obstacle
from lastgood.delta_log.snapshot import TableSnapshot, parse_checkpoint, parse_checksum, parse_json_size
from lastgood.errors import ExtraMissingError
from lastgood.frozen import dataclass
from lastgood.storage.parallel import Deadline, ask_all, ask_one
from lastgood.storage.reading import Location, Storage

COMMITS_DEFAULT = 500
"""How many of the newest versions are read one by one: five rounds of requests to an object store."""

_COMMIT_BYTES_MAX = 256 * 1024 * 1024
_SNAPSHOT_BYTES_MAX = 1024 * 1024 * 1024
_LAST_CHECKPOINT_BYTES_MAX = 64 * 1024 * 1024

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
    newer: str | None = None
    """What speaks for versions that are newer than the newest that is there; None if nothing does."""
    contested: str | None = None
    """Why its newest checkpoint, by which Delta goes, is not what its commits tell, which are all there; else None."""

    @property
    def oldest_read(self) -> int:
        """The oldest version that was read one by one; one past the newest if none was."""
        if self.commits:
            return self.commits[0].version
        return self.newest_version + 1

    @property
    def unjudged(self) -> str | None:
        """Why the table cannot be judged by its log, whatever that says; None if it can.

        Then nothing that the log does not show is known to be absent, and nothing that it shows to be shown still.
        """
        return find_judging_obstacle(self.protocol, self.metadata) or self.newer or self.contested


@dataclass(frozen=True, slots=True)
class LogDamage(Damage):
    """What is wrong with the log of a table, and what can be seen in it all the same."""

    marks: Mapping[str, int] = field(default_factory=dict)
    """The last version of the transactions of each application, in the commits that can be read."""


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
        The log; None if there is no table; a Damage if a version that is needed is missing, or is not as it should be.

    Raises:
        StorageError: the storage does not answer, or does not let us look.
        ExtraMissingError: old versions have to be read from Parquet, and pyarrow is not installed.
    """
    folder = table / DELTA_LOG
    names = ask_one(lambda: list(storage.names(folder) or ()), deadline=deadline, subject=str(folder))
    names = names or []
    listing = list_delta_log(names)
    newest = listing.newest
    reader = _Reader(storage, folder, deadline)
    newer = _find_newer(listing, reader.staged(names), has_pointer=LAST_CHECKPOINT in names)
    if newest is None:
        if newer is None:
            return None
        return make_damage(DamageKind.MISSING_PART, newer)
    checkpoint = None
    if listing.checkpoints:
        checkpoint = listing.checkpoints[-1]
    covered = checkpoint.version if checkpoint else -1
    unbroken = listing.unbroken
    if covered < newest and unbroken.start > covered + 1:
        missing = make_damage(DamageKind.MISSING_PART, name_commit(unbroken.start - 1))
        return _make_log_damage(missing, reader.answers(unbroken[-commits_max:]))
    if since is None:
        wanted = newest - commits_max + 1
    else:
        wanted = since
    if unbroken:
        first = max(unbroken.start, min(wanted, covered + 1))
    else:
        first = newest + 1
    commits = reader.commits(range(first, newest + 1))
    if isinstance(commits, Damage):
        return commits
    if first > 0:
        return _assemble(str(table), listing, commits, reader.snapshot(listing, checkpoint, commits), newer)
    found = _assemble(str(table), listing, commits, TableSnapshot(-1), newer)
    return replace(found, contested=reader.contested(checkpoint, commits))


def read_commits(
    storage: Storage, table: Location, versions: Sequence[int], *, deadline: Deadline
) -> list[TableCommit]:
    """The commits of these versions, of those that are there and can be read.

    Raises:
        StorageError: the storage does not answer, or does not let us look.
    """
    answers = _Reader(storage, table / DELTA_LOG, deadline).answers(versions)
    return [answer for answer in answers if isinstance(answer, TableCommit)]


def _find_newer(listing: DeltaLogListing, staged: BatchIds, *, has_pointer: bool) -> str | None:
    """What speaks for versions above the newest that is there; None if nothing does.

    Args:
        listing: What is there.
        staged: Versions that are staged.
        has_pointer: Whether there is a `_last_checkpoint`, which only a table has.
    """
    newest = -1 if listing.newest is None else listing.newest
    if staged.newest is not None and staged.newest > newest:
        return f"version {staged.newest} is staged; whether it counts, a catalog decides"
    if listing.newest_trace is not None and listing.newest_trace > newest:
        return f"there are traces of version {listing.newest_trace}, which is gone"
    if has_pointer and newest < 0:
        return f"there is a {LAST_CHECKPOINT}, and no version"
    if listing.commits.newest != listing.newest:
        # Whoever cleans a log up keeps the commit of its newest checkpoint: somebody else took it, and maybe more.
        return f"version {newest} is left in a checkpoint only"
    return None


def _assemble(
    location: str,
    listing: DeltaLogListing,
    commits: Sequence[TableCommit],
    snapshot: TableSnapshot | Damage,
    newer: str | None,
) -> TableLog:
    unknown = None
    if isinstance(snapshot, Damage):
        unknown = f"the checkpoint of its log cannot be read: {snapshot}"
    if isinstance(snapshot, Damage):
        known = TableSnapshot(-1)
    else:
        known = snapshot
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
        newer=newer,
    )


def _make_log_damage(found: Damage, answers: Sequence[TableCommit | Damage | None]) -> LogDamage:
    marks: dict[str, int] = {}
    for commit in answers:
        if isinstance(commit, TableCommit):
            marks |= {transaction.app_id: transaction.version for transaction in commit.transactions}
    return LogDamage(found.kind, found.found, found.line, marks)


def _is_agreeing(found: TableSnapshot, commits: Sequence[TableCommit]) -> bool:
    """Whether a checksum file tells what the commits do that were read; Delta itself goes by the commits."""
    last: dict[str, Transaction] = {}
    metadata, protocol = found.metadata, found.protocol
    for commit in commits:
        last |= commit.by_app
        metadata, protocol = commit.metadata or metadata, commit.protocol or protocol
    told = found.transactions
    return found.metadata == metadata and found.protocol == protocol and last.items() <= told.items()


def _find_contradiction(found: TableSnapshot, commits: Sequence[TableCommit]) -> str | None:
    """What a checkpoint tells otherwise than the commits that it stands for; None for nothing.

    Versions that were taken away by hand leave it behind, and others come in their place: then it is of another life.
    """
    last: dict[str, Transaction] = {}
    table_id = None
    for commit in commits:
        if commit.version <= found.version:
            last |= commit.by_app
            table_id = commit.metadata.table_id if commit.metadata else table_id
    if table_id is not None and found.metadata is not None and table_id != found.metadata.table_id:
        return f"table {found.metadata.table_id}, not {table_id}"
    is_whole = bool(commits) and commits[0].version == 0
    if is_whole:
        unheard = sorted(found.transactions.keys() - last.keys())
    else:
        unheard = []
    if unheard:
        return f"transaction {found.transactions[unheard[0]].version} of {unheard[0]}, of which no commit tells"
    may_lack = found.metadata is not None and TRANSACTION_RETENTION in found.metadata.configuration
    for app_id, transaction in last.items():
        told = found.transactions.get(app_id)
        if (told is None and not may_lack) or (told is not None and told.version != transaction.version):
            return f"transaction {told.version if told else None} of {app_id}, not {transaction.version}"
    return None


class _Reader:
    def __init__(self, storage: Storage, folder: Location, deadline: Deadline) -> None:
        self._storage = storage
        self._folder = folder
        self._deadline = deadline

    def commits(self, versions: range) -> list[TableCommit] | LogDamage:
        """The commits of these versions, or what is wrong with the first of them that is no commit."""
        answers = self.answers(versions)
        commits = [each for each in answers if isinstance(each, TableCommit)]
        if len(commits) == len(answers):
            return commits
        version, wrong = next(
            each for each in zip(versions, answers, strict=True) if not isinstance(each[1], TableCommit)
        )
        if not isinstance(wrong, Damage):
            return _make_log_damage(make_damage(DamageKind.MISSING_PART, name_commit(version)), answers)
        return _make_log_damage(make_damage(wrong.kind, f"{name_commit(version)}: {wrong.found}", wrong.line), answers)

    def answers(self, versions: Sequence[int]) -> list[TableCommit | Damage | None]:
        """What is in the commit files of these versions; None where there is none."""
        answers = ask_all(
            [partial(self._commit, version) for version in versions],
            parallel=self._storage.parallel,
            deadline=self._deadline,
            subject=str(self._folder),
        )
        return [answer.or_raise() for answer in answers]

    def staged(self, names: Sequence[str]) -> BatchIds:
        """The versions that wait for a catalog, or did."""
        folders = [name for name in STAGED_FOLDERS if f"{name}/" in names]
        found = [name for folder in folders for name in self._names(folder)]
        return list_staged_versions(found)

    def snapshot(
        self, listing: DeltaLogListing, checkpoint: CheckpointFiles | None, commits: Sequence[TableCommit]
    ) -> TableSnapshot | Damage:
        """The state at the newest version, from its `.crc` file if that will do; else that of the checkpoint."""
        if commits and commits[-1].version in listing.checksums:
            found = self._checksum(commits[-1])
            if found is not None and _is_agreeing(found, commits):
                return found
        if checkpoint is None:
            return make_damage(DamageKind.MISSING_PART, "no checkpoint")
        return self._checkpoint(checkpoint, commits)

    def contested(self, checkpoint: CheckpointFiles | None, commits: Sequence[TableCommit]) -> str | None:
        """Why a checkpoint cannot stand for the commits, which are all there; None if it can, or there is none.

        Delta reads it all the same, and whoever took versions away or put them back by hand may have left it behind.
        """
        if checkpoint is None:
            return None
        found: TableSnapshot | Damage | None = None
        with contextlib.suppress(ExtraMissingError):  # all that a sound checkpoint tells the commits tell as well
            found = self._checkpoint(checkpoint, commits)
        if not isinstance(found, Damage):
            return None
        return f"its checkpoint at version {checkpoint.version}: {found}"

    def _checkpoint(self, checkpoint: CheckpointFiles, commits: Sequence[TableCommit]) -> TableSnapshot | Damage:
        """What a checkpoint tells, or what is wrong with it."""
        merged = TableSnapshot(checkpoint.version)
        for name in checkpoint.names:
            part = self._checkpoint_part(checkpoint.version, name)
            together = part if isinstance(part, Damage) else merged.merge(part)
            if isinstance(together, Damage):
                return together
            merged = together
        lacking = self._incomplete(merged, checkpoint)
        if lacking is not None:
            return lacking
        contradiction = _find_contradiction(merged, commits)
        if contradiction is None:
            return merged
        return make_damage(DamageKind.CHECKSUM_MISMATCH, contradiction)

    def _checksum(self, commit: TableCommit) -> TableSnapshot | None:
        file = self._folder / name_checksum(commit.version)
        raw = self._ask(lambda: self._storage.read(file, limit=_SNAPSHOT_BYTES_MAX))
        if raw is None:
            return None
        return parse_checksum(commit.version, raw, commit.txn_id)

    def _incomplete(self, found: TableSnapshot, checkpoint: CheckpointFiles) -> Damage | None:
        """What a checkpoint lacks; None if it is whole."""
        if found.protocol is None or found.metadata is None:
            missing = "protocol" if found.protocol is None else "metaData"
            return make_damage(DamageKind.MISSING_PART, f"no {missing} in {checkpoint.names[0]}")
        if not found.is_v2 and checkpoint.has_own_name:
            return make_damage(DamageKind.MISSING_PART, f"no checkpointMetadata in {checkpoint.names[0]}")
        lost = found.sidecars - set(self._names(SIDECARS)) if found.sidecars else ()
        if not lost:
            return None
        return make_damage(DamageKind.MISSING_PART, f"{SIDECARS}/{min(lost)}")

    def _commit(self, version: int) -> TableCommit | Damage | None:
        file = self._folder / name_commit(version)
        return read_file(self._storage, file, partial(parse_commit, version), limit=_COMMIT_BYTES_MAX)

    def _checkpoint_part(self, version: int, name: str) -> TableSnapshot | Damage:
        file = self._folder / name
        raw = self._ask(lambda: self._storage.read(file, limit=_SNAPSHOT_BYTES_MAX))
        if raw is None:
            return make_damage(DamageKind.MISSING_PART, name)
        size = None
        if name.endswith(".json"):
            size = self._told_size(name)
        if size is not None and size != len(raw):
            return make_damage(DamageKind.TRUNCATED, f"{name}: {len(raw)} bytes of {size}")
        return parse_checkpoint(version, name, raw)

    def _told_size(self, name: str) -> int | None:
        pointer = self._folder / LAST_CHECKPOINT
        raw = self._ask(lambda: self._storage.read(pointer, limit=_LAST_CHECKPOINT_BYTES_MAX))
        if raw is None:
            return None
        return parse_json_size(raw, name)

    def _names(self, below: str) -> list[str]:
        folder = self._folder / below
        return self._ask(lambda: list(self._storage.names(folder) or ())) or []

    def _ask(self, question: Callable[[], AnswerT]) -> AnswerT | None:
        return ask_one(question, deadline=self._deadline, subject=str(self._folder))
