"""Who works on a checkpoint: what the file of the lock, and the newest lease beside it, say. No lock is taken here."""

from __future__ import annotations

import enum
import hashlib
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import platformdirs
import psutil

from lastgood.errors import StorageError, is_pid
from lastgood.frozen import dataclass
from lastgood.journal.lease import LEASE_SECONDS, LeaseInvalidError, read_newest_lease
from lastgood.notes import read_json
from lastgood.storage.reading import Location, Storage, open_storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.values import JsonValue

_BYTES_MAX = 4096
_BEGUN_BEFORE_SECONDS = 2
"""A process has begun so long after it took a lock at most, as two clocks tell it."""


class HoldReason(enum.Enum):
    """For what a checkpoint is held."""

    RUN = "run"
    APPLY = "apply"
    """A plan is carried out, by whichever verb."""
    REBUILD = "rebuild"
    LOAD = "load"
    UNDO = "undo"

    def __str__(self) -> str:
        """The verbs that hold it for that."""
        return f"lastgood {'apply or recover' if self is HoldReason.APPLY else self.value}"


@dataclass(frozen=True, slots=True)
class LockHolder(JsonValue):
    """Who holds a checkpoint, in the file of the lock."""

    pid: int
    host: str
    since: str
    work: HoldReason = HoldReason.RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHolder(JsonValue):
    """A process of lastgood that works on a checkpoint now."""

    work: HoldReason | None
    """For what; None where only a lease tells of it, which is one that repairs or loads."""
    pid: int
    host: str
    since_ms: int
    """Milliseconds since 1970, by its clock."""
    seen_ms: int | None
    """Its newest sign of life, by its clock; None of one of this machine, which was seen to live."""


def locate_lock_file(location: Location) -> Path:
    """Beside a local checkpoint, where every user of this machine finds it; else in this user's state."""
    if location.scheme == "file":
        return Path(location.sibling(WORK_SUFFIX).path) / "run.lock"
    name = hashlib.sha256(location.identity.encode()).hexdigest()[:32]
    return platformdirs.user_state_path("lastgood") / "holds" / f"{name}.lock"


def find_holder(storage: Storage, checkpoint: Location) -> CheckpointHolder | None:
    """Which process works on a checkpoint; None if none does, or where that cannot be told.

    It is for people: whoever wants to change something takes the lock (`hold_checkpoint`).

    Args:
        storage: That of the checkpoint.
        checkpoint: Where it is.
    """
    return _find_on_this_machine(checkpoint) or _find_by_lease(storage, checkpoint)


def _find_on_this_machine(checkpoint: Location) -> CheckpointHolder | None:
    file = Location("file", "", str(locate_lock_file(checkpoint)))
    try:
        holder = LockHolder.from_json(read_json(open_storage(file).read(file, limit=_BYTES_MAX) or b""))
        since = datetime.fromisoformat(holder.since)
        if holder.host != socket.gethostname() or not is_pid(holder.pid):
            return None
        begun = datetime.fromtimestamp(psutil.Process(holder.pid).create_time(), UTC)
        # The file keeps the name of a holder that was killed, and another process may bear its number.
        if begun - since > timedelta(seconds=_BEGUN_BEFORE_SECONDS):
            return None
    except (StorageError, ValueError, TypeError, psutil.Error):
        return None
    since_ms = round(since.timestamp() * 1000)
    return CheckpointHolder(work=holder.work, pid=holder.pid, host=holder.host, since_ms=since_ms, seen_ms=None)


def _find_by_lease(storage: Storage, checkpoint: Location) -> CheckpointHolder | None:
    try:
        record = read_newest_lease(storage, checkpoint.sibling(WORK_SUFFIX))
        if record is None or record.released or record.holder.is_surely_dead():
            return None
        since, seen = (_parse_ms(each) for each in (record.taken_at, record.beat_at))
    except (StorageError, LeaseInvalidError, ValueError):
        return None
    if time.time() * 1000 - seen > LEASE_SECONDS * 1000:
        return None
    return CheckpointHolder(work=None, pid=record.holder.pid, host=record.holder.host, since_ms=since, seen_ms=seen)


def _parse_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
