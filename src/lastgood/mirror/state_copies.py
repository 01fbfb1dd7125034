"""Copies of the state of a query: the files from which one version of all its stores is loaded, beside its backups.

CHECKPOINT.lastgood/backups/ID.state.json    which files these are, and with which backup each was copied
CHECKPOINT.lastgood/state/ID/PATH            those that were copied with this backup; PATH is below `state`

Spark writes a file of the state once. So what a backup has copied is not copied again with a later one, as long as
name, size and time are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.layout import (
    STATE,
    ImmutableFile,
    OperatorMetadataFile,
    SparkChecksumFile,
    StateSchemaFile,
    StateStoreFile,
    classify,
)
from lastgood.checkpoint.state import State
from lastgood.checkpoint.state_files import parse_state_file_name
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.ids import is_id, parse_time_ms
from lastgood.mirror.backups import (
    Backup,
    BackupMissingError,
    CheckpointNotEmptyError,
    KeptState,
    list_backups,
    list_unread,
    locate_backups,
)
from lastgood.notes import read_json
from lastgood.query.replays import list_files_read
from lastgood.storage.reading import Entry, Location, Storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import MoveRefusedError, WritableStorage
from lastgood.values import JsonValue, make_form

LIST_BYTES_MAX = 256 * 1024 * 1024
_LIST_SUFFIX = ".state.json"
_LEFT_BEHIND_MS = 24 * 3600 * 1000
"""What no backup names is no longer being made when it is older."""


class StateNotKeptError(LastgoodError):
    """The state of a query cannot be copied as it stands."""

    condition = "STATE_NOT_KEPT"
    exit_code = 87
    retry = Retry.AFTER_CHANGE


class KeptFile(NamedTuple):
    """A file of the state, and its copy."""

    path: str
    """Below the checkpoint."""
    size: int
    written_ms: int | None
    """When Spark wrote it, milliseconds since 1970; None: the storage does not tell."""
    backup: str
    """Id of the backup with which it was copied."""

    def name_backup(self, backup_id: str) -> KeptFile:
        """The same, copied with this backup if with none yet."""
        if self.backup:
            return self
        return self._replace(backup=backup_id)

    @property
    def is_of_state(self) -> bool:
        """Whether it is what a backup copies: a lake may name any path, and any id."""
        parts = self.path.split("/")
        is_below = parts[0] == STATE and not {"", ".", ".."} & set(parts)
        return is_below and is_id(self.backup) and _is_copied(classify(self.path))


@dataclass(frozen=True, slots=True)
class StateCopies(JsonValue):
    """All files of one version of the state."""

    json = make_form(closed=True)

    batch: int
    """After which batch the state was so."""
    files: tuple[KeptFile, ...]

    def describe(self, backup_id: str) -> KeptState:
        """What the backup of this id says of them."""
        own = [file for file in self.files if file.backup == backup_id]
        size = sum(file.size for file in self.files)
        return KeptState(self.batch, len(self.files), size, sum(file.size for file in own), self.compute_digest())

    @property
    def to_copy(self) -> list[KeptFile]:
        """Those that no backup has copied yet."""
        return [file for file in self.files if not file.backup]

    def compute_digest(self) -> str:
        """SHA-256 of all that it says, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The file that holds it."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()


def choose_state(
    storage: Storage, location: Location, checkpoint: Checkpoint, committed: int | None, older: Backup | None
) -> StateCopies:
    """Which files hold the state after a batch, and which of them an older backup has copied already.

    Args:
        storage: Of the checkpoint.
        location: Where it is.
        checkpoint: As it stands.
        committed: The newest batch that is committed in the logs that are backed up.
        older: The backup before this one that has copied state; None if there is none.

    Returns:
        All files; of those that are still to be copied, `backup` is empty.

    Raises:
        StateNotKeptError: it cannot be loaded.
        StorageError: the storage does not answer (subclasses).
    """
    state = checkpoint.state
    version = -1 if committed is None else committed + 1
    if state is None or version not in state.loadable:
        raise StateNotKeptError(
            "the state cannot be copied",
            subject=str(location),
            found=f"newest batch that is committed: {committed}; its state cannot be loaded",
            expected="state that can be loaded",
            effect="no backup was made",
        )
    copied = _list_copied(storage, location, older)
    files = []
    for entry in _list_files(state, version, storage, location):
        path, size = f"{STATE}/{entry.name}", entry.size or 0
        before = copied.get(path)
        is_same = before is not None and (before.size, before.written_ms) == (size, entry.modified_ms)
        files.append(before if before and is_same else KeptFile(path, size, entry.modified_ms, ""))
    return StateCopies(version - 1, tuple(sorted(files)))


def _list_copied(storage: Storage, location: Location, older: Backup | None) -> dict[str, KeptFile]:
    """What an older backup holds of the state, by its path; only what is still there."""
    if older is None:
        return {}
    try:
        known = read_state_copies(storage, location, older)
    except BackupMissingError:
        return {}  # it is copied anew
    missing = set(list_missing(storage, location, known))
    return {file.path: file for file in known.files if file not in missing}


def _list_files(state: State, version: int, storage: Storage, location: Location) -> Iterator[Entry]:
    wanted = set(list_files_read(state, version))
    for entry in storage.walk(location / STATE) or ():
        path = f"{STATE}/{entry.name}"
        main = path.removesuffix(".crc") if isinstance(classify(path), SparkChecksumFile) else path
        file = classify(main)
        is_noted = isinstance(file, OperatorMetadataFile | StateSchemaFile)
        if main in wanted or is_noted:
            yield entry


def _is_copied(file: object) -> bool:
    if isinstance(file, SparkChecksumFile):
        file = file.of
    return isinstance(file, StateStoreFile | ImmutableFile | OperatorMetadataFile | StateSchemaFile)


def copy_state(
    storage: WritableStorage,
    location: Location,
    chosen: StateCopies,
    backup_id: str,
    may_go_on: Callable[[], bool] = lambda: True,
) -> StateCopies:
    """Copy what no older backup has copied; if that fails, nothing of it stays.

    Args:
        storage: Of the checkpoint.
        location: Where it is.
        chosen: By `choose_state`.
        backup_id: Of the backup to which it belongs.
        may_go_on: Asked before each file.

    Raises:
        StateNotKeptError: a file went, or was changed, meanwhile; or it was not to go on.
        StorageError: it cannot be copied (subclasses).
    """
    named = tuple(file.name_backup(backup_id) for file in chosen.files)
    new = [file for file in named if file.backup == backup_id]
    try:
        for file in new:
            _require_going_on(may_go_on, location)
            _copy_file(storage, location, file)
        content = StateCopies(chosen.batch, named)
        storage.write(_locate_list(location, backup_id), content.to_bytes())
    except BaseException:  # Ctrl-C among it: what was copied so far belongs to no backup
        drop_copies(storage, location, StateCopies(chosen.batch, named), backup_id)
        raise
    return content


def drop_copies(storage: WritableStorage, location: Location, copies: StateCopies, backup_id: str) -> None:
    """Remove what was copied with a backup that was not made after all."""
    # Safe, as all that follows: no backup of this id is there, and so nobody names its list, or copies in its folder.
    storage.remove(_locate_list(location, backup_id))
    for file in copies.files:
        if file.backup == backup_id:
            storage.remove(locate_copy(location, file))


def _copy_file(storage: WritableStorage, location: Location, file: KeptFile) -> None:
    source, copy = location / file.path, locate_copy(location, file)
    try:
        storage.copy(source, copy)
    except MoveRefusedError as error:
        raise _make_changed_error(source, "it is gone") from error
    copied, there = storage.stat(copy), storage.stat(source)
    is_whole = copied is not None and copied.size == file.size
    if not is_whole or there is None or (there.size, there.modified_ms) != (file.size, file.written_ms):
        raise _make_changed_error(source, "it was written anew")


def _make_changed_error(source: Location, found: str) -> StateNotKeptError:
    return StateNotKeptError(
        "the state changed while it was copied",
        subject=str(source),
        found=found,
        expected="a file that stays as it is",
        effect="no backup was made; the next attempt may find it at rest",
    )


def _require_going_on(may_go_on: Callable[[], bool], location: Location) -> None:
    if not may_go_on():
        raise StateNotKeptError(
            "the state was not copied to its end",
            subject=str(location),
            found="who copies it was told to stop",
            effect="no backup was made",
        )


def read_state_copies(storage: Storage, location: Location, backup: Backup) -> StateCopies:
    """Which copies of the state belong to a backup.

    Raises:
        BackupMissingError: that is not written down as the backup says.
    """
    file, facts = _locate_list(location, backup.id), backup.state
    raw = storage.read(file, limit=LIST_BYTES_MAX) or b""
    if facts is None or hashlib.sha256(raw).hexdigest() != facts.sha256:
        raise BackupMissingError(
            f"the state of backup {backup.id} is not as it was kept",
            subject=str(file),
            found=f"{len(raw)} bytes of another content",
            expected="the list of its files, as it was written",
            effect="nothing was written",
        )
    try:
        copies = StateCopies.from_json(read_json(raw))
    except ValueError as error:
        raise BackupMissingError("a list of copies cannot be read", subject=str(file), found=str(error)) from error
    if all(each.is_of_state for each in copies.files):
        return copies
    wrong = next(each for each in copies.files if not each.is_of_state)
    raise BackupMissingError(
        "a list of copies names what is no file of a state",
        subject=str(file),
        found=f"{wrong.path} of backup {wrong.backup}",
        expected="files of the state, and ids of backups",
        effect="nothing was written",
    )


def list_missing(storage: Storage, location: Location, copies: StateCopies) -> list[KeptFile]:
    """Copies that are gone, or have another size."""
    there: dict[tuple[str, str], int | None] = {}
    for backup_id in {file.backup for file in copies.files}:
        folder = _locate_copies(location) / backup_id
        there.update({(backup_id, f"{STATE}/{each.name}"): each.size for each in storage.walk(folder) or ()})
    return [file for file in copies.files if there.get((file.backup, file.path)) != file.size]


def require_place(storage: Storage, location: Location, backup: Backup, copies: StateCopies) -> None:
    """See that every copy is whole, and that nothing else stands where it is to come.

    Raises:
        BackupMissingError, CheckpointNotEmptyError: not so; nothing was written.
        StorageError: the storage does not answer (subclasses).
    """
    missing = list_missing(storage, location, copies)
    if missing:
        raise BackupMissingError(
            f"the state of backup {backup.id} is not whole",
            subject=str(locate_copy(location, missing[0])),
            found=f"{len(missing)} of {len(copies.files)} copies are gone, or cut off",
            effect="nothing was written",
        )
    sizes = {f"{STATE}/{each.name}": each.size for each in storage.walk(location / STATE) or ()}
    for file in copies.files:
        if sizes.get(file.path, file.size) != file.size:
            raise CheckpointNotEmptyError(
                "a file of the state is there with another size",
                subject=str(location / file.path),
                found=f"{sizes[file.path]} bytes",
                expected=f"no such file, or one of {file.size} bytes",
                effect="nothing was written",
            )


def require_none_newer(storage: Storage, location: Location, copies: StateCopies) -> None:
    """See that no snapshot of the state stands there that is newer than these copies: a start would load it one day.

    Raises:
        CheckpointNotEmptyError: one does; nothing was written.
        StorageError: the storage does not answer (subclasses).
    """
    named = {file.path for file in copies.files}
    parsed = [parse_state_file_name(path.rpartition("/")[2]) for path in named]
    newest = max((each.version for each in parsed if each is not None), default=0)
    for entry in storage.walk(location / STATE) or ():
        path = f"{STATE}/{entry.name}"
        found = parse_state_file_name(path.rpartition("/")[2])
        if found is not None and found.is_snapshot_that_stays and found.version > newest and path not in named:
            raise CheckpointNotEmptyError(
                "a snapshot of the state is there that is newer than the backup",
                subject=str(location / path),
                found=f"version {found.version}",
                expected=f"none above version {newest}, which the backup has",
                effect="nothing was written: once the query comes to that version it would load what it has not made",
            )


def put_state_back(storage: WritableStorage, location: Location, copies: StateCopies) -> None:
    """Bring every file that is not there; see `require_place`.

    Raises:
        StorageError: it cannot be brought (subclasses).
    """
    there = {f"{STATE}/{each.name}" for each in storage.walk(location / STATE) or ()}
    for file in copies.files:
        if file.path not in there:
            folder, _, name = file.path.rpartition("/")
            for checksum in {f"{folder}/.{name}.crc", f"{file.path}.crc"} & there:
                # Safe: it is the checksum of a file that is gone, and would be held against the one that comes back. If
                # that has one of its own, it comes next.
                storage.remove(location / checksum)
                there.remove(checksum)
            storage.copy(locate_copy(location, file), location / file.path)


def remove_unnamed(storage: WritableStorage, location: Location, *, now_ms: int) -> None:
    """Remove the copies, and the lists of copies, that no backup names any more; none if that cannot be told of one.

    Args:
        storage: Of the checkpoint.
        location: The checkpoint.
        now_ms: A backup that is being made is not yet listed: what is younger than a day stays.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    folder = locate_backups(location)
    lists = [name for name in storage.names(folder) or () if name.endswith(_LIST_SUFFIX)]
    folders = list(storage.names(_locate_copies(location)) or ())
    if not lists and not folders:
        return
    backups = list_backups(storage, folder)
    if list_unread(storage, folder, backups):
        return
    try:
        named = {
            (file.backup, file.path)
            for each in backups
            if each.state is not None
            for file in read_state_copies(storage, location, each).files
        }
    except BackupMissingError:
        return
    for name in folders:
        backup_id = name.removesuffix("/")
        if is_id(backup_id) and _is_left(backup_id, now_ms):
            for each in list(storage.walk(_locate_copies(location) / backup_id) or ()):
                if (backup_id, f"{STATE}/{each.name}") not in named:
                    # Safe: it is a copy, no backup names it, and every backup was read.
                    storage.remove(_locate_copies(location) / backup_id / each.name)
    listed = {each.id for each in backups}
    for name in lists:
        backup_id = name.removesuffix(_LIST_SUFFIX)
        if is_id(backup_id) and backup_id not in listed and _is_left(backup_id, now_ms):
            # Safe: there is no backup of this id, and since a day nobody has been making one.
            storage.remove(folder / name)


def _is_left(backup_id: str, now_ms: int) -> bool:
    try:
        return now_ms - parse_time_ms(backup_id) >= _LEFT_BEHIND_MS
    except ValueError:
        return False  # no day of a calendar: nobody of ours has drawn it


def find_newest_kept(backups: Iterable[Backup], is_wanted: Callable[[Backup], bool] = lambda _: True) -> Backup | None:
    """The newest backup that has copied state; None if there is none."""
    kept = [each for each in backups if each.state is not None and is_wanted(each)]
    return max(kept, key=lambda each: (each.at_ms, each.id), default=None)


def locate_copy(location: Location, file: KeptFile) -> Location:
    """Where the copy of a file lies."""
    return _locate_copies(location) / file.backup / file.path.removeprefix(f"{STATE}/")


def _locate_copies(location: Location) -> Location:
    return location.sibling(WORK_SUFFIX) / STATE


def _locate_list(location: Location, backup_id: str) -> Location:
    return locate_backups(location) / f"{backup_id}{_LIST_SUFFIX}"
