"""Which copies come back to a lost checkpoint, and what must not be in their way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.copies import Copy, select_standing
from lastgood.checkpoint.file_logs import COMPACT_SUFFIX
from lastgood.checkpoint.layout import COMMITS, OFFSETS, parse_log_name
from lastgood.errors import LastgoodError, format_command_line
from lastgood.mirror.backups import (
    CheckpointNotEmptyError,
    restore_order,
)
from lastgood.mirror.mirror import locate_mirror
from lastgood.signing import Signer
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage

_BATCHES_RESTORED = 101
"""As many as Spark keeps: `spark.sql.streaming.minBatchesToRetain` and the one that is planned."""


def require_lost(checkpoint: Checkpoint, location: Location) -> None:
    """Refuse to restore where a checkpoint still is.

    Raises:
        CheckpointNotEmptyError: it has planned or committed a batch.
    """
    if checkpoint.last_planned is not None or checkpoint.last_committed is not None:
        raise CheckpointNotEmptyError(
            "there still is a checkpoint",
            subject=str(location),
            found=f"batch {checkpoint.last_planned} planned, batch {checkpoint.last_committed} committed",
            expected="empty logs: only a lost checkpoint is restored",
            next=format_command_line("inspect", location),
        )


def put_back(storage: WritableStorage, location: Location, lost: Checkpoint, copies: Sequence[Copy]) -> None:
    """Write copies where a checkpoint was lost, and nothing over what is there.

    Args:
        storage: Of the checkpoint.
        location: Where it was.
        lost: What is left there.
        copies: What comes back, in the order in which it is written.

    Raises:
        CheckpointNotEmptyError: a file of it is there with other content; `effect` says what was written before.
        StorageError: the storage does not answer (subclasses).
    """
    _refuse_other_content(storage, location, copies)
    checksums = _list_left_over_checksums(lost)
    for copy in copies:
        checksum = _name_checksum(copy.path)
        if checksum in checksums:
            # Safe: it is the checksum of a file that is gone. Hadoop would hold it against the one that comes back.
            storage.remove(location / checksum)
        # Safe: a file is created where there is none. No seal keeps a driver away that starts at this instant, and what
        # it has written since we looked stays as it is.
        if not storage.create(location / copy.path, copy.content):
            _refuse_other_content(storage, location, [copy], effect="what was restored before it stays")


def _refuse_other_content(
    storage: WritableStorage, location: Location, copies: Iterable[Copy], *, effect: str = "nothing was written"
) -> None:
    for copy in copies:
        there = storage.read(location / copy.path, limit=copy.size + 1)
        if there is not None and there != copy.content:
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
    error.next = (
        f"{format_command_line('backup', 'restore', typed, '--from', 'last')}, or --unsigned-mirror if you trust it"
    )
    return error
