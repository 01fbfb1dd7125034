"""Which copies come back to a lost checkpoint, and what must not be in their way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from lastgood.asked import make_typeable
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.copies import Copy, select_standing
from lastgood.checkpoint.file_logs import COMPACT_SUFFIX
from lastgood.checkpoint.layout import COMMITS, OFFSETS, parse_log_name
from lastgood.errors import LastgoodError, format_command_line
from lastgood.mirror.backups import (
    CheckpointNotEmptyError,
    find_newest_in,
    restore_order,
)
from lastgood.mirror.mirror import locate_mirror
from lastgood.signing import Signer
from lastgood.storage.reading import Location, Storage
from lastgood.storage.writing import WritableStorage

_BATCHES_RESTORED = 101
"""As many as Spark keeps: `spark.sql.streaming.minBatchesToRetain` and the one that is planned."""


def require_lost(storage: Storage, checkpoint: Checkpoint, location: Location) -> bool:
    """Refuse to restore where a checkpoint still is.

    Returns:
        Whether it is lost as a whole; False: somebody has begun to restore it, by all that its newest plan tells.

    Raises:
        CheckpointNotEmptyError: it has planned or committed a batch.
        StorageError: the storage does not answer (subclasses).
    """
    newest = _find_newest_plan(storage, location)
    if checkpoint.last_planned is None and checkpoint.last_committed is None and newest is None:
        return True
    if newest is not None and storage.read(location / newest, limit=1) == b"":
        return False
    raise _make_not_lost_error(checkpoint, location)


@contextlib.contextmanager
def put_back(storage: WritableStorage, location: Location, lost: Checkpoint, copies: Sequence[Copy]) -> Iterator[None]:
    """Write copies where a checkpoint was lost, and nothing over what is there; what is done within comes to them.

    The newest plan is put there empty before all else, and its content after all else: a driver that starts in between,
    or after this was interrupted, dies at it, as at the seal of a repair. It would begin anew, or go on in the middle.

    Args:
        storage: Of the checkpoint.
        location: Where it was.
        lost: What is left there.
        copies: What comes back, in the order in which it is written.

    Raises:
        CheckpointNotEmptyError: a file of it is there with other content; `effect` says what was written before.
        StorageError: the storage does not answer (subclasses).
    """
    seal = _find_seal(copies)
    if _find_newest_plan(storage, location) is not None:
        _require_begun(storage, lost, location, copies)
    _refuse_other_content(storage, location, copies, seal=seal)
    checksums = _list_left_over_checksums(lost)
    for checksum in checksums & {_name_checksum(copy.path) for copy in copies}:
        # Safe: it is the checksum of a file that is gone. Hadoop would hold it against the one that comes back.
        storage.remove(location / checksum)
    is_sealed_here = seal is not None and storage.create(location / seal, b"")
    try:
        for copy in copies:
            # Safe: a file is created where there is none. A driver that was started before the seal stood may still
            # write, and what it has written since we looked stays as it is.
            if copy.path != seal and not storage.create(location / copy.path, copy.content):
                _refuse_other_content(storage, location, [copy], effect="what was restored before it stays")
        yield
        for copy in copies:
            if copy.path == seal:
                _open_to_drivers(storage, location, copy)
    except CheckpointNotEmptyError:
        if is_sealed_here and seal is not None and storage.read(location / seal, limit=1) == b"":
            # Safe: we have created it above, and a driver has gone on without it.
            storage.remove(location / seal)
        raise


def _require_begun(storage: Storage, checkpoint: Checkpoint, location: Location, copies: Sequence[Copy]) -> None:
    """Refuse to go on with what is no restore of these copies that was interrupted.

    Raises:
        CheckpointNotEmptyError: there is a plan or a commit that is none of them, or the empty plan is not the newest.
        StorageError: the storage does not answer (subclasses).
    """
    paths = {copy.path for copy in copies}
    plans = {f"{OFFSETS}/{name}" for name in _list_entries(storage, location, OFFSETS)}
    there = plans | {f"{COMMITS}/{name}" for name in _list_entries(storage, location, COMMITS)}
    if _find_newest_plan(storage, location) != _find_seal(copies) or not there <= paths:
        raise _make_not_lost_error(checkpoint, location)


def _open_to_drivers(storage: WritableStorage, location: Location, newest: Copy) -> None:
    file = location / newest.path
    if storage.read(file, limit=1) == b"":
        # Safe: it was just seen to be empty, and no plan of a query is, since Spark writes a version first: it is ours.
        # A driver that had looked before it stood would write its plan where the logs were empty, at batch 0.
        storage.write(file, newest.content)
    else:
        _refuse_other_content(storage, location, [newest], effect="what was restored before it stays")


def _find_seal(copies: Iterable[Copy]) -> str | None:
    """The path of the newest plan that comes back; None if none does."""
    newest = find_newest_in(copies, OFFSETS)
    return None if newest is None else f"{OFFSETS}/{newest}"


def _find_newest_plan(storage: Storage, location: Location) -> str | None:
    newest = max(map(int, _list_entries(storage, location, OFFSETS)), default=None)
    return None if newest is None else f"{OFFSETS}/{newest}"


def _list_entries(storage: Storage, location: Location, log: str) -> list[str]:
    parsed = (parse_log_name(name) for name in storage.names(location / log) or ())
    logs = (each for each in parsed if each is not None)
    return [str(each.batch_id) for each in logs if each.is_canonical]


def _make_not_lost_error(checkpoint: Checkpoint, location: Location) -> CheckpointNotEmptyError:
    return CheckpointNotEmptyError(
        "there still is a checkpoint",
        subject=str(location),
        found=f"batch {checkpoint.last_planned} planned, batch {checkpoint.last_committed} committed",
        expected="empty logs: only a lost checkpoint is restored",
        next=format_command_line("inspect", location),
    )


def _refuse_other_content(
    storage: WritableStorage,
    location: Location,
    copies: Iterable[Copy],
    *,
    seal: str | None = None,
    effect: str = "nothing was written",
) -> None:
    for copy in copies:
        there = storage.read(location / copy.path, limit=copy.size + 1)
        is_seal = copy.path == seal and there == b""
        if there is not None and there != copy.content and not is_seal:
            raise CheckpointNotEmptyError(
                "a file of the checkpoint is there with other content",
                subject=str(location / copy.path),
                found=f"{len(there)} bytes",
                expected=f"no such file, or the {copy.size} bytes of the copy",
                effect=effect,
            )


def _list_left_over_checksums(checkpoint: Checkpoint) -> set[str]:
    listings = {log.folder: log.listing for log in (checkpoint.offsets, checkpoint.commits)}
    listings |= {source.folder: source.listing for source in checkpoint.sources}
    return {f"{folder}/{name}" for folder, listing in listings.items() for name in listing.stale_checksums}


def _name_checksum(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def choose_newest(copies: Iterable[Copy]) -> list[Copy]:
    """What counts of the newest query in a mirror, as much as Spark itself keeps of each log."""
    held = list(copies)
    newest = max(held, key=lambda copy: copy.seen_ms, default=None)
    current = select_standing(copy for copy in held if newest is not None and copy.query_id == newest.query_id)
    oldest = _find_oldest_kept(current)
    kept = (copy for copy in current.values() if _parse_log_id(copy.path) >= oldest[_take_folder(copy.path)])
    return sorted(kept, key=restore_order)


def _find_oldest_kept(paths: Iterable[str]) -> dict[str, int]:
    """The oldest entry to restore, per folder: of a log the newest batches, of a source's all since its compact one."""
    oldest: dict[str, int] = {}
    for path in paths:
        folder = _take_folder(path)
        if folder in (OFFSETS, COMMITS):
            first = _parse_log_id(path) + 1 - _BATCHES_RESTORED
        elif path.endswith(COMPACT_SUFFIX):
            first = _parse_log_id(path)
        else:
            first = 0
        oldest[folder] = max(first, oldest.get(folder, 0))
    return oldest


def _take_folder(path: str) -> str:
    return path.rpartition("/")[0]


def _parse_log_id(path: str) -> int:
    log = parse_log_name(path.rpartition("/")[2], compactible=True)
    return log.batch_id if log else 0


def make_mirror_unsigned_error(signer: Signer, typed: str, location: Location) -> LastgoodError:
    """The error where there is a key, and a checkpoint is to come back from a mirror, which nobody signs."""
    error = signer.missing(locate_mirror(location), "a mirror, which is as much worth as the logs that it copies")
    error.effect = "nothing was written"
    restore = format_command_line("backup", "restore", make_typeable(typed), "--from", "last")
    error.next = f"{restore}, or --unsigned-mirror if you trust it"
    return error
