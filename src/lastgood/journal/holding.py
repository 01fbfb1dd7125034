"""Who works on a checkpoint: what the file of the lock, and the newest lease beside it, say. No lock is taken here."""

from __future__ import annotations

import enum
import hashlib
import time
from datetime import datetime
from pathlib import Path

import platformdirs

from lastgood.errors import StorageError, is_pid
from lastgood.frozen import dataclass
from lastgood.journal.lease import LEASE_SECONDS, Holder, LeaseInvalidError, read_newest_lease
from lastgood.notes import read_json
from lastgood.storage.reading import Location, Storage, open_storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.values import JsonValue

LOCK = "run.lock"
_BYTES_MAX = 4096


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
        several = {HoldReason.APPLY: "apply or recover", HoldReason.UNDO: "undo or load --undo"}
        return f"lastgood {several.get(self, self.value)}"


@dataclass(frozen=True, slots=True)
class LockHolder(JsonValue):
    """Who holds a checkpoint, in the file of the lock."""

    pid: int
    host: str
    since: str
    work: HoldReason = HoldReason.RUN
    machine: str | None = None
    """As of `Holder`; None: an older lastgood has written it."""
    started: int | None = None
    """As of `Holder`."""

    @property
    def process(self) -> Holder:
        """Who it is."""
        return Holder(self.host, self.machine, self.pid, self.started, user="")


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

    @property
    def may_load(self) -> bool:
        """Whether it can be a load."""
        return self.work in (HoldReason.LOAD, None)


def locate_lock_file(location: Location) -> Path:
    """Beside a local checkpoint, where whoever may write to it finds it; else in this user's state."""
    if location.scheme == "file":
        return Path(location.sibling(WORK_SUFFIX).path) / LOCK
    name = hashlib.sha256(location.identity.encode()).hexdigest()[:32]
    return platformdirs.user_state_path("lastgood") / "holds" / f"{name}.lock"


def find_holder(storage: Storage, checkpoint: Location) -> CheckpointHolder | None:
    """Which process works on a checkpoint; None if none does, or where that cannot be told.

    It is for people: whoever wants to change something takes the lock (`hold_checkpoint`).

    Args:
        storage: That of the checkpoint.
        checkpoint: Where it is.
    """
    if not checkpoint.name:
        return None
    return _find_on_this_machine(storage, checkpoint) or _find_by_lease(storage, checkpoint)


def _find_on_this_machine(storage: Storage, checkpoint: Location) -> CheckpointHolder | None:
    try:
        holder = LockHolder.from_json(read_json(_read_lock(storage, checkpoint) or b""))
        since_ms = _parse_ms(holder.since)
    except (StorageError, ValueError):
        return None
    # The file keeps the name of a holder that was killed.
    is_alive = is_pid(holder.pid) and holder.process.is_of_this_machine() and not holder.process.is_surely_dead()
    if not is_alive:
        return None
    return CheckpointHolder(work=holder.work, pid=holder.pid, host=holder.host, since_ms=since_ms, seen_ms=None)


def _read_lock(storage: Storage, checkpoint: Location) -> bytes | None:
    if checkpoint.scheme == "file":
        # By the storage whose root the checkpoint is: it follows no link that others have put beside it.
        return storage.read(checkpoint.sibling(WORK_SUFFIX) / LOCK, limit=_BYTES_MAX)
    file = parse_location(str(locate_lock_file(checkpoint)))
    return open_storage(file).read(file, limit=_BYTES_MAX)


def _find_by_lease(storage: Storage, checkpoint: Location) -> CheckpointHolder | None:
    try:
        record = read_newest_lease(storage, checkpoint.sibling(WORK_SUFFIX))
        if record is None or record.released or record.holder.is_surely_dead():
            return None
        since, seen = (_parse_ms(each) for each in (record.taken_at, record.beat_at))
    except (StorageError, LeaseInvalidError, ValueError):
        return None
    # Two clocks: who waits for the lease goes by none of them, but here nobody waits.
    if abs(time.time() * 1000 - seen) > LEASE_SECONDS * 1000:
        return None
    return CheckpointHolder(work=None, pid=record.holder.pid, host=record.holder.host, since_ms=since, seen_ms=seen)


def _parse_ms(text: str) -> int:
    """Of a time with its zone.

    Raises:
        ValueError: it is none.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    return round(found.timestamp() * 1000)
