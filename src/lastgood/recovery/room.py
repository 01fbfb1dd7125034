"""Where a recovery works: its checkpoint, and its folder beside it; and what it has noted down there so far.

CHECKPOINT.lastgood/recoveries/ID/plan.json        what is done
CHECKPOINT.lastgood/recoveries/ID/STAGE.json       how far it has come, a file for each stage
CHECKPOINT.lastgood/recoveries/ID/before/PATH      each file that it touches, as it was
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lastgood.asked import Asked
from lastgood.errors import LastgoodError, Retry, command_line
from lastgood.recovery.mirror import WORK_SUFFIX
from lastgood.recovery.plan import PLAN_BYTES_MAX, Plan, PlanInvalidError, parse_plan
from lastgood.storage import Location, Storage
from lastgood.writing import WritableStorage

LAST = "last"
_NOTE_BYTES_MAX = 1024 * 1024
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}/?")


class RecoveryUnknownError(LastgoodError):
    """No recovery of this id ever touched the checkpoint."""

    condition = "RECOVERY_UNKNOWN"
    exit_code = 56
    retry = Retry.AFTER_CHANGE


class CheckpointChangedError(LastgoodError):
    """A file, or a sink, was changed by somebody else while the checkpoint was sealed."""

    condition = "CHECKPOINT_CHANGED"
    exit_code = 59
    retry = Retry.AFTER_CHANGE


class RecoveryOpenError(LastgoodError):
    """Another repair of the checkpoint was begun, and neither finished nor taken back."""

    condition = "RECOVERY_OPEN"
    exit_code = 49
    retry = Retry.AFTER_CHANGE


class Stage(enum.Enum):
    """How far a recovery has come; in this order."""

    BEGUN = "begun"
    """It may have put up its seal; nothing else has been touched."""
    APPLYING = "applying"
    """What it touches is backed up; some steps may be done."""
    APPLIED = "applied"
    """All steps are done and verified; the seal may stand."""
    CLOSED = "closed"
    """The seal is gone: a driver may start."""
    UNDOING = "undoing"
    """It is to be taken back, and may have put up its seal again; nothing else has been touched."""
    TAKING_BACK = "taking_back"
    """It is sealed; some steps may be back."""
    UNDONE = "undone"
    """Every byte is as it was; the seal may stand."""
    TAKEN_BACK = "taken_back"
    """As `UNDONE`, and the seal is gone."""

    @property
    def is_open(self) -> bool:
        """Whether the checkpoint may be sealed: somebody has to finish it or take it back."""
        return self not in (Stage.CLOSED, Stage.TAKEN_BACK)

    @property
    def is_sealed(self) -> bool:
        """Whether the seal surely stands: that the driver was dead was proven before, and none has started since."""
        return self in (Stage.APPLYING, Stage.APPLIED, Stage.TAKING_BACK, Stage.UNDONE)

    @property
    def is_back(self) -> bool:
        """Whether somebody has begun to take it back: then it cannot be carried out any more."""
        return self in (Stage.UNDOING, Stage.TAKING_BACK, Stage.UNDONE, Stage.TAKEN_BACK)


@dataclass(frozen=True, slots=True)
class Room:
    """The place of one recovery."""

    checkpoint: Location
    recovery: str
    storage: WritableStorage

    @property
    def folder(self) -> Location:
        """Its own folder."""
        return recoveries_folder(self.checkpoint) / self.recovery

    def file(self, path: str) -> Location:
        """A file of the checkpoint."""
        return self.checkpoint / path

    def aside(self, path: str) -> Location:
        """Where a file of the checkpoint is kept as it was."""
        return self.folder / f"before/{path}"

    def stage(self) -> Stage | None:
        """How far it has come; None: nothing was done."""
        return latest(self.storage, self.folder)

    def enter(self, stage: Stage, facts: Mapping[str, Any]) -> None:
        """Note down that a stage is reached; a second time changes nothing that counts."""
        self.storage.write(self.folder / f"{stage.value}.json", json.dumps(dict(facts)).encode())

    def note(self, stage: Stage) -> dict[str, Any]:
        """What was noted down with a stage; empty if it was never reached.

        Raises:
            PlanInvalidError: it is damaged.
        """
        return read_note(self.storage, self.folder, stage)

    def seal(self) -> tuple[str, ...]:
        """The files that seal the checkpoint while it is open.

        Raises:
            RecoveryUnknownError, PlanInvalidError: as `plan`.
        """
        told = self.note(Stage.TAKING_BACK).get("seal", self.note(Stage.UNDOING).get("seal"))
        return tuple(map(str, told)) if isinstance(told, list) else self.plan().seal

    def forget(self, stage: Stage) -> None:
        """Take back that a stage was reached."""
        self.storage.remove(self.folder / f"{stage.value}.json")

    def keep(self, plan: Plan) -> None:
        """Keep the plan, so that it can be finished and undone without its file."""
        self.storage.write(self.folder / "plan.json", plan.to_bytes())

    def plan(self) -> Plan:
        """The plan that was kept.

        Raises:
            RecoveryUnknownError: there is none.
            PlanInvalidError: it is damaged.
        """
        file = self.folder / "plan.json"
        raw = self.storage.read(file, limit=PLAN_BYTES_MAX)
        if raw is None:
            raise RecoveryUnknownError(f"there is no recovery {self.recovery}", subject=str(self.checkpoint))
        return parse_plan(raw, str(file))


def recoveries_folder(checkpoint: Location) -> Location:
    """Where all recoveries of a checkpoint are."""
    return checkpoint.sibling(WORK_SUFFIX) / "recoveries"


def recoveries(storage: Storage, checkpoint: Location) -> list[str]:
    """The ids of all recoveries of a checkpoint that were begun, oldest first."""
    names = storage.names(recoveries_folder(checkpoint)) or ()
    return sorted(name.rstrip("/") for name in names if _ID.fullmatch(name))


def newest_first(storage: Storage, checkpoint: Location) -> list[str]:
    """The same, newest first, whatever clocks did meanwhile."""
    return sorted(recoveries(storage, checkpoint), key=lambda each: _age(storage, checkpoint, each), reverse=True)


def open_recovery(storage: Storage, checkpoint: Location) -> str | None:
    """The newest recovery that somebody has to finish or take back; None if there is none."""
    for recovery in reversed(recoveries(storage, checkpoint)):
        stage = latest(storage, recoveries_folder(checkpoint) / recovery)
        if stage is not None and stage.is_open:
            return recovery
    return None


def finishing(checkpoint: Location, recovery: str) -> str:
    """The command that finishes a repair, by the plan that is kept with it."""
    return command_line("apply", recoveries_folder(checkpoint) / f"{recovery}/plan.json")


def require_no_open(storage: Storage, checkpoint: Location, *, but: str | None = None) -> None:
    """See that no repair of a checkpoint is half done.

    Raises:
        RecoveryOpenError: one is, another than `but`.
    """
    recovery = open_recovery(storage, checkpoint)
    if recovery in (None, but):
        return
    raise RecoveryOpenError(
        f"recovery {recovery} was begun here, and neither finished nor taken back",
        subject=str(checkpoint),
        effect="the checkpoint may be sealed; nothing has been changed",
        next=f"{finishing(checkpoint, recovery)}, or {Asked(str(checkpoint)).command('undo', recovery)}",
    )


def find_recovery(storage: Storage, checkpoint: Location, wanted: str) -> str:
    """The id of a recovery: `wanted` itself, or for `last` the one that is open, else the newest.

    Raises:
        RecoveryUnknownError: there is no such recovery; names those there are.
    """
    known = recoveries(storage, checkpoint)
    if wanted == LAST and known:
        return open_recovery(storage, checkpoint) or max(known, key=lambda each: _age(storage, checkpoint, each))
    if wanted in known:
        return wanted
    raise RecoveryUnknownError(
        f"there is no recovery {wanted}",
        subject=str(recoveries_folder(checkpoint)),
        found=", ".join(known[-5:]) or "no recovery",
    )


def _age(storage: Storage, checkpoint: Location, recovery: str) -> tuple[int, str]:
    """What grows from one recovery to the next; its id does not, where a clock went back."""
    number = read_note(storage, recoveries_folder(checkpoint) / recovery, Stage.BEGUN).get("lease")
    return number if isinstance(number, int) else 0, recovery


def read_note(storage: Storage, folder: Location, stage: Stage) -> dict[str, Any]:
    """What the recovery in a folder has noted down with a stage; empty if it was never reached.

    Raises:
        PlanInvalidError: it is damaged.
        StorageError: the storage does not answer (subclasses).
    """
    file = folder / f"{stage.value}.json"
    raw = storage.read(file, limit=_NOTE_BYTES_MAX)
    if raw is None:
        return {}
    try:
        told = json.loads(raw)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise PlanInvalidError(
            "what a recovery has noted down cannot be read",
            subject=str(file),
            found=f"{len(raw)} bytes that are no JSON object",
            expected="the note as lastgood wrote it, from a backup of this folder",
            effect="nobody can tell what that recovery has left",
        )
    return told


def latest(storage: Storage, folder: Location) -> Stage | None:
    """How far the recovery in a folder has come; None: nothing was done."""
    names = set(storage.names(folder) or ())
    reached = [stage for stage in Stage if f"{stage.value}.json" in names]
    return reached[-1] if reached else None
