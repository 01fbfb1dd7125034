"""`backup create|list|keep`: the logs of a query at one moment, and its state if that is wanted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from lastgood.checkpoint.copies import Copy
from lastgood.errors import LastgoodError
from lastgood.ledger.opening import open_ledger, require_libraries
from lastgood.ledger.url import LedgerPlace
from lastgood.mirror.backups import (
    Backup,
    find_backup,
    keep_backup,
    list_backups,
    list_unread,
    locate_backups,
    remove_older,
)
from lastgood.mirror.state_copies import StateCopies, remove_unnamed
from lastgood.observe.ledger import choose_ledger, fill_with
from lastgood.recovery.backing_up import make_new_backup
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
    place = choose_ledger(ledger, target, os.environ if environment is None else environment)
    if place is not None:
        require_libraries(place)
    backup, copies = make_new_backup(target, state=state, tell=tell)
    location, storage = _open(target)
    if retain_ms is None:
        removed = []
    else:
        removed = remove_older(storage, locate_backups(location), before_ms=backup.at_ms - retain_ms)
    remove_unnamed(storage, location, now_ms=backup.at_ms)
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


def _open(target: Target) -> tuple[Location, WritableStorage]:
    return target.location, open_writable(target.location)
