"""`backup restore`: a lost checkpoint back from its mirror or a backup, with the state that a backup has kept."""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.asked import Asked
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import COMMITS, OFFSETS
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.frozen import dataclass
from lastgood.journal.endings import Ending, find_endings, select_as_left
from lastgood.journal.room import require_no_open
from lastgood.mirror.backups import (
    Backup,
    BackupMissingError,
    find_backup,
    find_newest_in,
    list_backups,
    locate_backups,
    read_backup,
    require_signed,
)
from lastgood.mirror.mirror import locate_mirror, read_mirror
from lastgood.mirror.restoring import choose_newest, make_mirror_unsigned_error, put_back, require_lost
from lastgood.mirror.state_copies import (
    find_newest_kept,
    put_state_back,
    read_state_copies,
    require_none_newer,
    require_place,
)
from lastgood.settings.keys import make_signer
from lastgood.settings.target import Target
from lastgood.signing import Signer
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage, open_writable
from lastgood.values import JsonValue, make_form

MIRROR = "mirror"
"""What `backup restore --from` takes for the newest logs of the mirror."""


@dataclass(frozen=True, slots=True)
class Restored(JsonValue):
    """A checkpoint that was put back."""

    json = make_form("checkpoint from=source files last_planned last_committed state_batch absent")
    """What `backup restore --format json` prints."""

    checkpoint: str
    source: str
    """`mirror`, or the id of the backup."""
    files: int
    """Of the logs."""
    last_planned: int | None
    last_committed: int | None
    state_batch: int | None
    """After which batch the state was as it has come back; None: no backup has kept it."""
    absent: tuple[str, ...]
    """What a restart would still look for and not find."""


def restore(target: Target, *, source: str = MIRROR, unsigned_mirror: bool = False) -> Restored:
    """Put a lost checkpoint back, byte for byte.

    Only where offset log and commit log are gone: what is there is never overwritten. Its newest plan stands there
    empty until all else is back, so that no driver starts on half of it. What was interrupted goes on where it was.

    Args:
        target: Which query.
        source: `mirror`, the id of a backup, or `last`. To the logs of the mirror comes the newest state that a backup
            has kept of that query, as long as no repair was made since.
        unsigned_mirror: Whether a person trusts the mirror, which nobody signs, where there is a key.

    Raises:
        CheckpointNotEmptyError: there is a checkpoint, or a file of one with other content.
        RecoveryOpenError: a repair was begun there, and neither finished nor taken back.
        BackupMissingError: there is no such backup, or nothing in the mirror; or state that was kept is not whole.
        SignatureMissingError, SignatureWrongError: there is a key, and it was not signed by one.
        StorageError: it cannot be read or written (subclasses).
    """
    location, storage = target.location, open_writable(target.location)
    signer = make_signer(target.config, location)
    checkpoint = read_checkpoint(storage, location)
    if not require_lost(storage, checkpoint, location):
        # The empty plan may be the seal of a repair.
        require_no_open(storage, location, Asked(target.typed), target.config)
    backup: Backup | None
    if source == MIRROR:
        if signer.keys and not unsigned_mirror:
            raise make_mirror_unsigned_error(signer, target.typed, location)
        endings = find_endings(storage, location, signer.keys)
        copies = choose_newest(select_as_left(read_mirror(storage, locate_mirror(location)), endings))
        if find_newest_in(copies, OFFSETS) is None:
            raise BackupMissingError("the mirror holds no batch", subject=str(locate_mirror(location)))
        backup = _find_state_for(storage, location, copies, endings)
    else:
        backup = find_backup(storage, locate_backups(location), source)
        source, copies = backup.id, _read_signed(storage, location, backup, signer)
    state = None
    if backup is not None and backup.state is not None:
        require_signed(storage, locate_backups(location), backup, signer)
        state = read_state_copies(storage, location, backup)
        require_place(storage, location, backup, state)
        if source != MIRROR:  # its logs end with this state; those of a mirror go on behind it
            require_none_newer(storage, location, state)
    with put_back(storage, location, checkpoint, copies):
        if state is not None:
            put_state_back(storage, location, state)
    back = read_checkpoint(storage, location)
    newest = back.last_planned, back.last_committed
    return Restored(
        str(location), source, len(copies), *newest, None if state is None else state.batch, tuple(back.absent)
    )


def _read_signed(storage: WritableStorage, location: Location, backup: Backup, signer: Signer) -> list[Copy]:
    folder = locate_backups(location)
    require_signed(storage, folder, backup, signer)
    return read_backup(storage, folder, backup)


def _find_state_for(
    storage: WritableStorage, location: Location, copies: Sequence[Copy], endings: Sequence[Ending]
) -> Backup | None:
    """The newest backup whose state is of the very query whose logs come back, and of a batch of these; None if none.

    What a repair has made of the state since then is in no backup from before.
    """
    query_ids = {copy.query_id for copy in copies} - {None}
    contents = {copy.path: copy.content for copy in copies}
    since_ms = max((ending.at_ms for ending in endings), default=0)

    def is_of_it(backup: Backup) -> bool:
        if backup.state is None or backup.query_id not in query_ids or backup.at_ms <= since_ms:
            return False
        paths = {f"{log}/{backup.state.batch}" for log in (OFFSETS, COMMITS)}
        ours = {each.path: each.content for each in read_backup(storage, folder, backup) if each.path in paths}
        return ours == {path: contents[path] for path in paths & contents.keys()} and ours.keys() == paths

    folder = locate_backups(location)
    return find_newest_kept(list_backups(storage, folder), is_of_it)
