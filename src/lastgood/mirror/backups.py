"""Backups: the logs of a query at one moment, in one file that needs nothing else.

CHECKPOINT.lastgood/backups/ID.json        what it holds
CHECKPOINT.lastgood/backups/ID.jsonl.gz    the copies
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import COMMITS, OFFSETS, parse_batch
from lastgood.checkpoint.lines import is_long, is_time_ms
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.mirror.copies import compress, decode_lines, decompress_lines, encode_lines
from lastgood.mirror.mirror import FILE_BYTES_MAX, require_there
from lastgood.notes import read_json
from lastgood.signing import BACKUP, SIGNATURE, Signer
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage
from lastgood.values import JsonValue, make_form
from lastgood.written import redact_written

FACTS_BYTES_MAX = 64 * 1024
OF_RUN_MAX = 2
"""So many of the backups that `run` makes by itself stay: while the newest is made, the one before it is whole."""
_FACTS_NAME = re.compile(r"(\d{8}-\d{6}-[0-9a-f]{4})\.json", re.ASCII)
_UNASKED = Signer()


class BackupMissingError(LastgoodError):
    """There is no such backup, or its file is not whole."""

    condition = "BACKUP_MISSING"
    exit_code = 41
    retry = Retry.AFTER_CHANGE


class CheckpointNotEmptyError(LastgoodError):
    """A lost checkpoint is to be restored where there still is one."""

    condition = "CHECKPOINT_NOT_EMPTY"
    exit_code = 42
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class KeptState(JsonValue):
    """What a backup says of the copies of the state that belong to it."""

    json = make_form(closed=True)

    batch: int
    """After which batch the state was so."""
    files: int
    size: int
    """Bytes of all files together."""
    copied: int
    """Bytes of those that were copied with this backup; older ones have copied the others."""
    sha256: str
    """Of the list of its files."""


@dataclass(frozen=True, slots=True)
class Backup(JsonValue):
    """What a backup holds."""

    json = make_form(closed=True, left_out="state by_run")

    id: str
    at_ms: int
    """When it was made, milliseconds since 1970."""
    query_id: str | None
    last_planned: int | None
    last_committed: int | None
    files: int
    size: int
    """Bytes of all files together."""
    kept: bool = False
    """True if it is not to be removed with age."""
    sha256: str | None = None
    """Of the copies, as `compute_digest` has it; None of a backup that was made before this was written down."""
    state: KeptState | None = None
    """Of the state, if it was to be kept as well."""
    by_run: bool = False
    """Whether `run` has made it by itself, for its state, and removes it for a newer one."""


def locate_backups(checkpoint: Location) -> Location:
    """Where the backups of a checkpoint are."""
    return checkpoint.sibling(WORK_SUFFIX) / "backups"


def make_backup(
    copies: Iterable[Copy], *, at_ms: int, backup_id: str, state: KeptState | None = None, by_run: bool = False
) -> tuple[Backup, bytes]:
    """A backup of these files, and the bytes of its file.

    Args:
        copies: One of each file.
        at_ms: The time, milliseconds since 1970.
        backup_id: By `make_id`.
        state: What was copied of the state; None: nothing.
        by_run: Whether `run` makes it by itself.
    """
    held = sorted(copies, key=restore_order)
    ids = [copy.query_id for copy in held if copy.query_id]
    backup = Backup(
        id=backup_id,
        at_ms=at_ms,
        query_id=ids[-1] if ids else None,
        last_planned=find_newest_in(held, OFFSETS),
        last_committed=find_newest_in(held, COMMITS),
        files=len(held),
        size=sum(copy.size for copy in held),
        sha256=compute_digest(held),
        state=state,
        by_run=by_run,
    )
    return backup, compress(encode_lines(held))


def compute_digest(copies: Iterable[Copy]) -> str:
    """SHA-256 of all that copies say, 64 hexadecimal digits; the same in whatever order, and however compressed."""
    digest = hashlib.sha256()
    for line in encode_lines(sorted(copies, key=restore_order)):
        digest.update(line)
    return digest.hexdigest()


def write_backup(
    storage: WritableStorage, folder: Location, backup: Backup, content: bytes, signer: Signer = _UNASKED
) -> None:
    """Put a backup in its place and read it back; what it holds comes last, so that a torn one is none.

    Raises:
        StorageError: it cannot be written, or does not come back as it was written.
    """
    file = folder / f"{backup.id}.jsonl.gz"
    storage.write(file, content)
    if storage.read(file, limit=FILE_BYTES_MAX) != content:
        # Safe: it was just written, under a new id, and its list of facts does not exist yet: it is no backup.
        storage.remove(file)
        raise BackupMissingError("the backup did not come back as it was written", subject=str(file))
    write_facts(storage, folder, backup, signer)


def write_facts(storage: WritableStorage, folder: Location, backup: Backup, signer: Signer = _UNASKED) -> None:
    """Write down what a backup holds, signed if there is a key."""
    told = signer.signed(BACKUP, (backup.id,), redact_written(backup.to_json()))
    storage.write(folder / f"{backup.id}.json", json.dumps(told).encode())


def list_backups(storage: Storage, folder: Location) -> list[Backup]:
    """Every backup, oldest first; a file that is none of ours, or says that it is another's, is left out."""
    found = (_read_backup_named(storage, folder, each) for each in list_backup_ids(storage, folder))
    return sorted((each for each in found if each is not None), key=lambda backup: (backup.at_ms, backup.id))


def list_unread(storage: Storage, folder: Location, known: Iterable[Backup]) -> list[str]:
    """The ids of backups that do not say what they hold, oldest first; `known` are all that do."""
    readable = {backup.id for backup in known}
    return sorted(set(list_backup_ids(storage, folder)) - readable)


def list_backup_ids(storage: Storage, folder: Location) -> list[str]:
    """The ids of which there is a file with facts, whatever that says; a file of another name is none of ours."""
    named = (_FACTS_NAME.fullmatch(name) for name in storage.names(folder) or ())
    return [name[1] for name in named if name is not None]


def _read_backup_named(storage: Storage, folder: Location, backup_id: str) -> Backup | None:
    """The backup whose file bears this name: what it says of its id must agree, since paths are made of that."""
    backup = parse_backup(storage.read(folder / f"{backup_id}.json", limit=FACTS_BYTES_MAX) or b"")
    if backup is not None and backup.id == backup_id:
        return backup
    return None


def parse_backup(raw: bytes) -> Backup | None:
    """What the file of a backup says; None if it is none of ours."""
    try:
        backup = Backup.from_json(_drop_signature(read_json(raw)))
    except ValueError:
        return None
    numbers = [backup.files, backup.size, *(n for n in (backup.last_planned, backup.last_committed) if n is not None)]
    if backup.state is not None:
        numbers += [backup.state.batch, backup.state.files, backup.state.size, backup.state.copied]
    if all(map(is_long, numbers)) and is_time_ms(backup.at_ms):
        return backup
    return None


def _drop_signature(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: told[name] for name in told if name != SIGNATURE}
    return told


def find_backup(storage: Storage, folder: Location, backup_id: str) -> Backup:
    """The backup of this id; `last` is the newest.

    Raises:
        BackupMissingError: there is none, or a newer one than `last` cannot be read; names those there are.
    """
    known = list_backups(storage, folder)
    if backup_id == "last" and known:
        _require_newest(storage, folder, known)
        return known[-1]
    for backup in known:
        if backup.id == backup_id:
            return backup
    raise BackupMissingError(
        f"there is no backup {backup_id}",
        subject=str(folder),
        found=", ".join(backup.id for backup in known[-5:]) or "no backup",
    )


def _require_newest(storage: Storage, folder: Location, known: list[Backup]) -> None:
    """See that no newer one is there that does not say what it holds: who wants the last would get an older one."""
    unread = list_unread(storage, folder, known)
    if unread and unread[-1] > known[-1].id:  # ids begin with their time
        raise BackupMissingError(
            "the newest backup does not say what it holds",
            subject=str(folder / f"{unread[-1]}.json"),
            found="nothing that can be read",
            expected=f"what a backup says; or, by its id, the one before it: {known[-1].id}",
        )


def require_signed(storage: Storage, folder: Location, backup: Backup, signer: Signer) -> None:
    """See that what a backup says of itself, and of its content, was signed; without a key nothing is asked.

    Raises:
        SignatureMissingError, SignatureWrongError: as `Signer.require`.
        BackupMissingError: it was changed meanwhile.
    """
    if not signer.keys:
        return
    file = folder / f"{backup.id}.json"
    raw = storage.read(file, limit=FACTS_BYTES_MAX) or b""
    if parse_backup(raw) != backup:
        raise BackupMissingError(f"there is no backup {backup.id}", subject=str(file), found="another one in its file")
    signer.require(BACKUP, (backup.id,), read_json(raw), file)
    if backup.sha256 is None:
        raise signer.missing(file, "a signature that says nothing of its content")


def read_backup(storage: Storage, folder: Location, backup: Backup) -> list[Copy]:
    """The files of a backup, in the order in which they are put back.

    Raises:
        BackupMissingError: its file is gone or not whole.
    """
    file = folder / f"{backup.id}.jsonl.gz"
    require_there(storage, file)
    raw = storage.read(file, limit=FILE_BYTES_MAX)
    copies = list(decode_lines(decompress_lines(raw or b"", str(file))))
    if len(copies) != backup.files or sum(copy.size for copy in copies) != backup.size:
        raise BackupMissingError(
            f"backup {backup.id} is not whole",
            subject=str(file),
            found="no such file" if raw is None else f"{len(copies)} files",
            expected=f"{backup.files} files, {backup.size} bytes",
        )
    if backup.sha256 not in (None, compute_digest(copies)):
        raise BackupMissingError(
            f"backup {backup.id} is not as it was made",
            subject=str(file),
            found="another content",
            expected=f"the content with SHA-256 {backup.sha256}",
            effect="nothing was written",
        )
    return sorted(copies, key=restore_order)


def keep_backup(
    storage: WritableStorage, folder: Location, backup: Backup, *, kept: bool, signer: Signer = _UNASKED
) -> Backup:
    """Mark a backup as one that age does not remove, or take the mark away.

    Raises:
        SignatureMissingError, SignatureWrongError: there is a key, and its facts were not signed by one.
    """
    require_signed(storage, folder, backup, signer)  # else our signature would come to stand under another's words
    marked = replace(backup, kept=kept)
    write_facts(storage, folder, marked, signer)
    return marked


def remove_older(storage: WritableStorage, folder: Location, *, before_ms: int) -> list[Backup]:
    """Remove the backups made before a time, but those that are kept; return them."""
    older = [each for each in list_backups(storage, folder) if each.at_ms < before_ms]
    # Safe: a person has set how long they are kept, and did not mark these.
    return _remove(storage, folder, older)


def remove_superseded(storage: WritableStorage, folder: Location) -> list[Backup]:
    """Remove the backups that `run` has made, but the newest ones and those that are kept; return them."""
    of_run = [each for each in list_backups(storage, folder) if each.by_run]
    # Safe: no person has asked for them, and newer ones hold what they were made for.
    return _remove(storage, folder, of_run[:-OF_RUN_MAX])


def _remove(storage: WritableStorage, folder: Location, backups: Iterable[Backup]) -> list[Backup]:
    removed = [each for each in backups if not each.kept]
    for backup in removed:
        # Safe, as whoever chose it has argued. First what lists it: killed in between, no backup is left that lacks its
        # content.
        storage.remove(folder / f"{backup.id}.json")
        # Safe: nobody can take it for a backup any more.
        storage.remove(folder / f"{backup.id}.jsonl.gz")
    return removed


def restore_order(copy: Copy) -> tuple[int, int, str]:
    """`metadata`, sources, offsets, commits, each ascending: at no instant is a batch committed and not planned."""
    folder, _, name = copy.path.rpartition("/")
    rank = {"": 0, OFFSETS: 2, COMMITS: 3}.get(folder, 1)
    number = name.removesuffix(".compact")
    return rank, int(number) if number.isdecimal() else -1, copy.path


def find_newest_in(copies: Iterable[Copy], folder: str) -> int | None:
    """The newest batch id among the copies of one log."""
    batches = (parse_batch(copy.path, folder) for copy in copies)
    return max((batch_id for batch_id in batches if batch_id is not None), default=None)
