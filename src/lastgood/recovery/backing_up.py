"""A backup of the logs of a query, and of its state: when a person asks for one, and now and then while it runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import COMMITS
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.ids import make_id
from lastgood.mirror.backups import (
    Backup,
    find_newest_in,
    list_backups,
    locate_backups,
    make_backup,
    remove_superseded,
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
from lastgood.observe.open_query import CheckpointMissingError, read_clock_ms
from lastgood.settings.keys import make_signer
from lastgood.settings.target import Target
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage, open_writable


def make_new_backup(
    target: Target,
    *,
    state: bool,
    tell: Callable[[StateCopies], None],
    by_run: bool = False,
    may_go_on: Callable[[], bool] = lambda: True,
) -> tuple[Backup, list[Copy]]:
    """Back up the logs of a query, into the mirror as well, and its state if that is wanted.

    Args:
        target: Which query.
        state: Whether the state is copied, as it was after the newest batch that is committed.
        tell: Is told what there is of the state, before any of it is copied.
        by_run: Whether `run` makes it by itself.
        may_go_on: Asked before each file of the state.

    Returns:
        The backup, and the copies of the logs that are in it.

    Raises:
        CheckpointMissingError: there is nothing to back up.
        StateNotKeptError: the state cannot be loaded, changed while it was copied, or it was not to go on.
        StorageError: checkpoint or work folder cannot be read or written (subclasses).
    """
    location, storage = target.location, open_writable(target.location)
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
    backup_id = make_id(at_ms)
    kept = _keep_state(storage, location, copies, backup_id, tell, may_go_on) if state else None
    try:
        described = None if kept is None else kept.describe(backup_id)
        backup, content = make_backup(copies, at_ms=at_ms, backup_id=backup_id, state=described, by_run=by_run)
        write_backup(storage, locate_backups(location), backup, content, signer)
    except BaseException:  # Ctrl-C among it: there is no backup, and the copies of the state would be nobody's
        if kept is not None:
            drop_copies(storage, location, kept, backup_id)
        raise
    return backup, copies


def keep_state(
    target: Target, *, after: int | None, tell: Callable[[StateCopies], None], may_go_on: Callable[[], bool]
) -> Backup | None:
    """Back up a query with its state, as `run` does now and then, in place of those that it has made before.

    Args:
        target: Which query.
        after: As of which batch its state was kept last; None: not yet.
        tell: As for `make_new_backup`.
        may_go_on: Asked before each file of the state.

    Returns:
        The backup; None where there is nothing new to keep.

    Raises:
        LastgoodError: as `make_new_backup`.
    """
    location, storage = target.location, open_writable(target.location)
    checkpoint = read_checkpoint(storage, location)
    if not checkpoint.is_stateful or checkpoint.last_committed in (None, after):
        return None
    backup, _ = make_new_backup(target, state=True, tell=tell, by_run=True, may_go_on=may_go_on)
    remove_superseded(storage, locate_backups(location))
    remove_unnamed(storage, location, now_ms=backup.at_ms)
    return backup


def _keep_state(
    storage: WritableStorage,
    location: Location,
    copies: Sequence[Copy],
    backup_id: str,
    tell: Callable[[StateCopies], None],
    may_go_on: Callable[[], bool],
) -> StateCopies | None:
    """Copy the state as it was after the newest batch that these logs have committed; None if there is none to keep."""
    checkpoint = read_checkpoint(storage, location)
    if not checkpoint.is_stateful:
        return None
    older = find_newest_kept(list_backups(storage, locate_backups(location)))
    chosen = choose_state(storage, location, checkpoint, find_newest_in(copies, COMMITS), older)
    tell(chosen)
    return copy_state(storage, location, chosen, backup_id, may_go_on)
