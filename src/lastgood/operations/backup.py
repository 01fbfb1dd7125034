"""`backup create|list|keep`: the logs of a query at one moment, and its state if that is wanted."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import COMMITS
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import LastgoodError
from lastgood.ids import make_id
from lastgood.ledger.opening import open_ledger, require_libraries
from lastgood.ledger.url import LedgerPlace
from lastgood.mirror.backups import (
    Backup,
    find_backup,
    find_newest_in,
    keep_backup,
    list_backups,
    list_unread,
    locate_backups,
    make_backup,
    remove_older,
    write_backup,
)
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.mirror.state_copies import (
    StateCopies,
    choose_state,
    copy_state,
    drop_copies,
    find_newest_kept,
    remove_unnamed,
)
from lastgood.observe.ledger import choose_ledger, fill_with
from lastgood.observe.open_query import CheckpointMissingError, read_clock_ms
from lastgood.settings.keys import make_signer
from lastgood.settings.target import Target
from lastgood.storage.reading import Location, open_storage
from lastgood.storage.writing import WritableStorage, open_writable


def create(
    target: Target,
    *,
    retain_ms: int | None = None,
    ledger: str | None = None,
    state: bool = False,
    environment: Mapping[str, str] | None = None,
    tell: Callable[[StateCopies], None] = lambda _: None,
) -> tuple[Backup, list[Backup]]:
    """Back up the logs of a query, into the mirror as well, and fill the ledger if there is one.

    Args:
        target: Which query.
        retain_ms: Remove older backups that are not kept; none if None.
        state: Whether the state is copied as well, as it was after the newest batch that is committed.
        ledger: URL or path; None: that of the configuration, else of `LASTGOOD_LEDGER`, else none.
        environment: Environment variables; ours if None.
        tell: Is told what there is of the state, before any of it is copied.

    Returns:
        The backup, and those that were removed.

    Raises:
        CheckpointMissingError: there is nothing to back up.
        StateNotKeptError: the state cannot be loaded, or changed while it was copied; no backup was made.
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
    backup_id, folder = make_id(at_ms), locate_backups(location)
    kept = _keep_state(storage, location, copies, backup_id, tell) if state else None
    try:
        described = None if kept is None else kept.describe(backup_id)
        backup, content = make_backup(copies, at_ms=at_ms, backup_id=backup_id, state=described)
        write_backup(storage, folder, backup, content, signer)
    except BaseException:
        if kept is not None:
            drop_copies(storage, location, kept, backup_id)
        raise
    if retain_ms is None:
        removed = []
    else:
        removed = remove_older(storage, folder, before_ms=at_ms - retain_ms)
    remove_unnamed(storage, location, now_ms=at_ms)
    if place is not None:
        _fill(place, location, copies, backup)
    return backup, removed


def _keep_state(
    storage: WritableStorage,
    location: Location,
    copies: Sequence[Copy],
    backup_id: str,
    tell: Callable[[StateCopies], None],
) -> StateCopies | None:
    """Copy the state as it was after the newest batch that these logs have committed; None if there is none to keep."""
    checkpoint = read_checkpoint(storage, location)
    if not checkpoint.is_stateful:
        return None
    older = find_newest_kept(list_backups(storage, locate_backups(location)))
    chosen = choose_state(storage, location, checkpoint, find_newest_in(copies, COMMITS), older)
    tell(chosen)
    return copy_state(storage, location, chosen, backup_id)


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


def _open(target: Target) -> tuple[Location, WritableStorage]:
    return target.location, open_writable(target.location)
