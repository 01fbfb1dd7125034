"""`backup create|list|keep|restore`: the logs of a query at one moment, and a lost checkpoint back from them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from lastgood.asked import Asked
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import LastgoodError
from lastgood.ids import make_id
from lastgood.journal.endings import find_endings, select_as_left
from lastgood.journal.room import require_no_open
from lastgood.ledger.opening import open_ledger, require_libraries
from lastgood.ledger.url import LedgerPlace
from lastgood.mirror.backups import (
    Backup,
    BackupMissingError,
    find_backup,
    find_newest_in,
    keep_backup,
    list_backups,
    list_unread,
    locate_backups,
    make_backup,
    read_backup,
    remove_older,
    require_signed,
    write_backup,
)
from lastgood.mirror.mirror import MirrorWriter, locate_mirror, read_mirror
from lastgood.mirror.restoring import choose_newest, make_mirror_unsigned_error, put_back, require_lost
from lastgood.observe.ledger import choose_ledger, fill_with
from lastgood.observe.open_query import CheckpointMissingError, read_clock_ms
from lastgood.settings.keys import make_signer
from lastgood.settings.target import Target
from lastgood.storage.reading import Location, open_storage
from lastgood.storage.writing import WritableStorage, open_writable
from lastgood.values import JsonValue, make_form

MIRROR = "mirror"
"""What `backup restore --from` takes for the newest state of the mirror."""


@dataclass(frozen=True, slots=True)
class Restored(JsonValue):
    """A checkpoint that was put back."""

    json = make_form("checkpoint from=source files last_planned last_committed absent")
    """What `backup restore --format json` prints."""

    checkpoint: str
    source: str
    """`mirror`, or the id of the backup."""
    files: int
    last_planned: int | None
    last_committed: int | None
    absent: tuple[str, ...]
    """What a restart would still look for and not find; state among it, which no backup holds."""


def create(
    target: Target,
    *,
    retain_ms: int | None = None,
    ledger: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Backup, list[Backup]]:
    """Back up the logs of a query, into the mirror as well, and fill the ledger if there is one.

    Args:
        target: Which query.
        retain_ms: Remove older backups that are not kept; none if None.
        ledger: URL or path; None: that of the configuration, else of `LASTGOOD_LEDGER`, else none.
        environment: Environment variables; ours if None.

    Returns:
        The backup, and those that were removed.

    Raises:
        CheckpointMissingError: there is nothing to back up.
        StorageError: checkpoint or work folder cannot be read or written (subclasses).
        LedgerUrlError, ExtraMissingError: the ledger cannot be meant so, or not be opened; nothing was done.
        LedgerError, NoSpaceError: the ledger was not filled; the backup is made.
    """
    location, storage = _open(target)
    place = choose_ledger(ledger, target, os.environ if environment is None else environment)
    if place is not None:
        require_libraries(place)
    signer = make_signer(target.config, location)
    at_ms = read_clock_ms()
    writer = MirrorWriter(
        location,
        storage=storage,
        folder=locate_mirror(location),
        target=storage,
        writer=secrets.token_hex(4),
        now_ms=lambda: at_ms,
    )
    copies = writer.snapshot()
    if not copies:
        raise CheckpointMissingError(
            "there is nothing to back up", subject=str(location), found="no log files", expected="a checkpoint"
        )
    writer.look()
    writer.settle()
    backup, content = make_backup(copies, at_ms=at_ms, backup_id=make_id(at_ms))
    folder = locate_backups(location)
    write_backup(storage, folder, backup, content, signer)
    if retain_ms is None:
        removed = []
    else:
        removed = remove_older(storage, folder, before_ms=at_ms - retain_ms)
    if place is not None:
        _fill(place, location, copies, backup)
    return backup, removed


def _fill(place: LedgerPlace, location: Location, copies: list[Copy], backup: Backup) -> None:
    try:
        with open_ledger(place) as opened:
            fill_with(location, copies, opened)
    except LastgoodError as error:
        error.effect = f"the ledger was not filled; backup {backup.id} is made"
        raise


def find_backups(target: Target) -> tuple[list[Backup], list[str]]:
    """Every backup of a query, oldest first; and the ids of those that do not say what they hold.

    Raises:
        StorageError: the work folder cannot be read (subclasses).
    """
    storage, folder = open_storage(target.location), locate_backups(target.location)
    found = list_backups(storage, folder)
    return found, list_unread(storage, folder, found)


def keep(target: Target, backup_id: str, *, kept: bool = True) -> Backup:
    """Pin a backup, so that age does not remove it, or unpin it.

    Raises:
        BackupMissingError: there is no such backup.
        StorageError: the work folder cannot be written (subclasses).
    """
    location, storage = _open(target)
    folder = locate_backups(location)
    found = find_backup(storage, folder, backup_id)
    return keep_backup(storage, folder, found, kept=kept, signer=make_signer(target.config, location))


def restore(target: Target, *, source: str = MIRROR, unsigned_mirror: bool = False) -> Restored:
    """Put a lost checkpoint back, byte for byte.

    Only where offset log and commit log are gone: what is there is never overwritten. Its newest plan stands there
    empty until all else is back, so that no driver starts on half of it. What was interrupted goes on where it was.

    Args:
        target: Which query.
        source: `mirror`, the id of a backup, or `last`.
        unsigned_mirror: Whether a person trusts the mirror, which nobody signs, where there is a key.

    Raises:
        CheckpointNotEmptyError: there is a checkpoint, or a file of one with other content.
        RecoveryOpenError: a repair was begun there, and neither finished nor taken back.
        BackupMissingError: there is no such backup, or nothing in the mirror.
        SignatureMissingError, SignatureWrongError: there is a key, and it was not signed by one.
        StorageError: it cannot be read or written (subclasses).
    """
    location, storage = _open(target)
    signer = make_signer(target.config, location)
    checkpoint = read_checkpoint(storage, location)
    if not require_lost(storage, checkpoint, location):
        # The empty plan may be the seal of a repair.
        require_no_open(storage, location, Asked(target.typed), target.config)
    if source == MIRROR:
        if signer.keys and not unsigned_mirror:
            raise make_mirror_unsigned_error(signer, target.typed, location)
        mirrored = read_mirror(storage, locate_mirror(location))
        copies = choose_newest(select_as_left(mirrored, find_endings(storage, location, signer.keys)))
        if find_newest_in(copies, OFFSETS) is None:
            raise BackupMissingError("the mirror holds no batch", subject=str(locate_mirror(location)))
    else:
        folder = locate_backups(location)
        backup = find_backup(storage, folder, source)
        require_signed(storage, folder, backup, signer)
        source, copies = backup.id, read_backup(storage, folder, backup)
    put_back(storage, location, checkpoint, copies)
    back = read_checkpoint(storage, location)
    newest = back.last_planned, back.last_committed
    return Restored(str(location), source, len(copies), *newest, tuple(back.absent))


def _open(target: Target) -> tuple[Location, WritableStorage]:
    return target.location, open_writable(target.location)
