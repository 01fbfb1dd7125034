"""One supervisor a checkpoint on one machine; a second one is told who holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lastgood.errors import LastgoodError, NoSpaceError, Retry, StorageError, is_pid, make_process_command
from lastgood.journal.holding import HoldReason, LockHolder
from lastgood.journal.lease import Holder
from lastgood.notes import read_json
from lastgood.storage.local_tree import Tree
from lastgood.storage.reading import StorageDeniedError
from lastgood.storage.rights import FILE, WORK_SUFFIX

_WORDS = {
    HoldReason.RUN: "another lastgood run supervises this checkpoint",
    HoldReason.APPLY: "a plan is being carried out on this checkpoint, by lastgood apply or recover",
    HoldReason.UNDO: "a recovery of this checkpoint, or a load by it, is being taken back, by lastgood undo or load",
    HoldReason.LOAD: "another lastgood load, or a job of lastgood, goes on with this checkpoint",
    HoldReason.REBUILD: "state of this checkpoint is being made anew, by lastgood rebuild",
    None: "another process of lastgood holds this checkpoint",
}


class CheckpointHeldError(LastgoodError):
    """Another lastgood on this machine holds the checkpoint: a `run` supervises its query, or it is being repaired."""

    condition = "CHECKPOINT_HELD"
    exit_code = 73
    retry = Retry.LATER


@contextlib.contextmanager
def hold_checkpoint(location: str, lock_file: Path, work: HoldReason = HoldReason.RUN) -> Iterator[int]:
    """Hold a checkpoint while the block runs; gives the descriptor of the lock.

    The kernel lets go when this process has ended, however it ends, and with it all that got the descriptor.

    Args:
        location: The checkpoint, as the user knows it.
        lock_file: What is locked; made if it is not there.
        work: For what it is held, which a second one is told.

    Raises:
        CheckpointHeldError: another process holds it; names it.
        StorageError: the lock file cannot be written (subclasses).
    """
    with _explain_write_errors(lock_file):
        # Whoever can write beside the checkpoint could let a link, or a second name, lead to a file of ours.
        tree = Tree(str(lock_file.parent).removesuffix(WORK_SUFFIX))
        tree.place(str(lock_file), make=True)
        descriptor = tree.open(str(lock_file), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, FILE)
    try:
        _require_own(lock_file, os.fstat(descriptor))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _make_held_error(location, os.pread(descriptor, 4096, 0)) from error
        with _explain_write_errors(lock_file):
            # Safe: we hold the lock, the file was just seen to be one of ours (`_require_own`), and what it says of a
            # holder is of one that has let go.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _encode_holder(work), 0)
        own = os.getpid()
        try:
            yield descriptor
        finally:
            if os.getpid() == own:  # else it is a fork, and its parent goes on
                with contextlib.suppress(OSError):  # a name that stays is asked whether it lives
                    # Safe: we still hold the lock, and it is our own name that goes.
                    os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _require_own(lock_file: Path, told: os.stat_result) -> None:
    if not stat.S_ISREG(told.st_mode) or told.st_nlink > 1:
        raise StorageError(
            "the checkpoint cannot be held",
            subject=str(lock_file),
            found="a file that has other names as well" if stat.S_ISREG(told.st_mode) else "no file",
            expected="a file of its own",
            effect="nothing was written to it",
        )


@contextlib.contextmanager
def _explain_write_errors(lock_file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        raise (StorageDeniedError if isinstance(error, PermissionError) else kind)(
            "the checkpoint cannot be held",
            subject=str(lock_file),
            found=error.strerror,
            expected="a folder that can be written to",
        ) from error


def _encode_holder(work: HoldReason) -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    own = Holder.make_own()
    return json.dumps(LockHolder(own.pid, own.host, since, work, own.machine, own.started).to_json()).encode()


def _make_held_error(location: str, holder: bytes) -> CheckpointHeldError:
    work: HoldReason | None = None
    found, ask = "a process that has not written its name", None
    with contextlib.suppress(ValueError):  # before it writes, or at its end
        who = LockHolder.from_json(read_json(holder))
        pid, host, since, work = who.pid, who.host, who.since, who.work
        if is_pid(pid):
            found, ask = f"process {pid} on {host}, since {since}", make_process_command(pid, host)
            if who.process.is_surely_dead():
                found, ask = f"the driver of {found}, which has died: it is being ended", None
    return CheckpointHeldError(
        _WORDS[work],
        subject=location,
        found=found,
        expected="nobody",
        effect="nothing was started",
        next=ask,
    )
