"""Where a recovery works: its checkpoint, and its folder beside it; and what it has noted down there so far.

CHECKPOINT.lastgood/recoveries/ID/plan.json        what is done
CHECKPOINT.lastgood/recoveries/ID/STAGE.json       how far it has come, a file for each stage
CHECKPOINT.lastgood/recoveries/ID/before/PATH      each file that it touches, as it was
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

from lastgood.asked import Asked
from lastgood.errors import LastgoodError, Otherwise, Retry
from lastgood.frozen import dataclass
from lastgood.ids import is_id
from lastgood.journal.plan_file import PLAN_BYTES_MAX, parse_plan
from lastgood.notes import read_json
from lastgood.planning.plan import SEALS, Plan, PlanInvalidError
from lastgood.settings.config import Config
from lastgood.settings.target import list_words_of_death
from lastgood.signing import NO_KEYS, STAGE, KeyRing, SignatureMissingError, SignatureWrongError, Signer
from lastgood.storage.reading import Location, LocationInvalidError, Storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage
from lastgood.written import redact_written

LAST = "last"
_NOTE_BYTES_MAX = 1024 * 1024
_UNASKED = Signer()


class RecoveryUnknownError(LastgoodError):
    """No recovery of this id ever touched the checkpoint."""

    condition = "RECOVERY_UNKNOWN"
    exit_code = 56
    retry = Retry.AFTER_CHANGE


class PlanNotOfThisPlaceError(PlanInvalidError):
    """A plan lies where it does not belong: it is of another checkpoint, recovery or query.

    A checkpoint that got another name in the middle of a repair, since a disk is mounted elsewhere, is one of another
    place as well: whoever copies a repair beside another checkpoint of the same query would have it look just so. Have
    the old name lead to it again, by a mount, or by a link in the place of the folder above it, and finish the repair
    or take it back under that name; then go on under the new one. Of a copy, go on with the original, or copy it anew.
    """

    condition = "PLAN_NOT_OF_THIS_PLACE"
    exit_code = 23
    retry = Retry.AFTER_CHANGE


class RecoveryOpenError(LastgoodError):
    """Another repair of the checkpoint was begun, and neither finished nor taken back."""

    condition = "RECOVERY_OPEN"
    exit_code = 49
    retry = Retry.AFTER_CHANGE


class RecoveryStage(enum.Enum):
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
        return self not in (RecoveryStage.CLOSED, RecoveryStage.TAKEN_BACK)

    @property
    def was_sealed(self) -> bool:
        """Whether a seal stood: that the driver was dead was proven before. Once all is settled it may be gone."""
        return self in (RecoveryStage.APPLYING, RecoveryStage.APPLIED, RecoveryStage.TAKING_BACK, RecoveryStage.UNDONE)

    @property
    def is_back(self) -> bool:
        """Whether somebody has begun to take it back: then it cannot be carried out any more."""
        return self in (
            RecoveryStage.UNDOING,
            RecoveryStage.TAKING_BACK,
            RecoveryStage.UNDONE,
            RecoveryStage.TAKEN_BACK,
        )


SETTLED = {RecoveryStage.CLOSED: RecoveryStage.APPLIED, RecoveryStage.TAKEN_BACK: RecoveryStage.UNDONE}
"""For each end what is noted down before the seal goes: all is as it stays."""


@dataclass(frozen=True, slots=True)
class Room:
    """The place of one recovery."""

    checkpoint: Location
    recovery: str
    storage: WritableStorage
    keys: KeyRing = NO_KEYS
    """What is written is signed by the first of them, and what is read has to be signed by one; none: as it stands."""

    @property
    def folder(self) -> Location:
        """Its own folder."""
        return locate_recoveries(self.checkpoint) / self.recovery

    def file(self, path: str) -> Location:
        """A file of the checkpoint."""
        return self.checkpoint / path

    @property
    def before(self) -> Location:
        """The folder in which every file that it touches is kept as it was."""
        return self.folder / "before"

    @property
    def signer(self) -> Signer:
        """The keys, at this checkpoint."""
        return Signer.at(self.keys, self.checkpoint)

    def stage(self) -> RecoveryStage | None:
        """How far it has come; None: nothing was done.

        Raises:
            PlanInvalidError, SignatureMissingError, SignatureWrongError: with a key, as `note` of any stage.
        """
        found = find_latest_stage(self.storage, self.folder)
        if self.keys and found is not None:
            for stage in RecoveryStage:  # one that anybody has put in would lead it to another end
                self.note(stage)
        return found

    def enter(self, stage: RecoveryStage, facts: Mapping[str, Any]) -> None:
        """Note down that a stage is reached; a second time changes nothing that counts."""
        told = self.signer.signed(STAGE, (self.recovery, stage.value), redact_written(facts))
        self.storage.write(self.folder / f"{stage.value}.json", json.dumps(told).encode())

    def note(self, stage: RecoveryStage) -> dict[str, Any]:
        """What was noted down with a stage; empty if it was never reached.

        Raises:
            PlanInvalidError: it is damaged.
            SignatureMissingError, SignatureWrongError: there is a key, and it was not signed for this place.
        """
        return read_note(self.storage, self.folder, stage, self.signer)

    def signed_proof(self) -> str | None:
        """Why no driver was alive when it was sealed, by the word of who has the key; None: nobody with a key says so.

        Raises:
            PlanInvalidError, SignatureMissingError, SignatureWrongError: as `stage`.
        """
        stage = None
        if self.keys:
            stage = self.stage()
        if stage is None or not stage.was_sealed:
            return None
        proof = self.note(RecoveryStage.UNDOING if stage.is_back else RecoveryStage.BEGUN).get("proof")
        return proof if isinstance(proof, str) else None

    def seal(self) -> tuple[str, ...]:
        """The files that seal the checkpoint while it is open.

        Raises:
            RecoveryUnknownError, PlanInvalidError: as `plan` (subclasses).
        """
        told = self.note(RecoveryStage.TAKING_BACK).get("seal", self.note(RecoveryStage.UNDOING).get("seal"))
        if not isinstance(told, list):
            return self.plan().seal
        if not all(isinstance(path, str) and SEALS.fullmatch(path) for path in told):
            raise self._no("seal", told, "names of entries in offsets and commits")
        return tuple(told)

    def listings(self) -> Mapping[str, str]:
        """What tells, of each folder of the logs, whether it is as the recovery left it; empty if none is noted down.

        Raises:
            PlanInvalidError: as `note`, or it is none.
        """
        told = self.note(RecoveryStage.APPLIED).get("listings", {})
        if not isinstance(told, dict) or not all(isinstance(digest, str) for digest in told.values()):
            raise self._no("listing of the logs", told, "a digest for each folder")
        return told

    def _no(self, what: str, told: object, expected: str) -> PlanInvalidError:
        return PlanInvalidError(
            f"what a recovery has noted down is no {what}",
            subject=str(self.folder),
            found=f"{told!r:.200}",
            expected=expected,
            effect="nothing has been changed",
        )

    def forget(self, stage: RecoveryStage) -> None:
        """Take back that a stage was reached."""
        # Safe for who holds the lease and has taken back all that the note stands for: it goes last, so that who is
        # killed before is found at this stage, and takes it back once more.
        self.storage.remove(self.folder / f"{stage.value}.json")

    def keep(self, plan: Plan) -> None:
        """Keep the plan, so that it can be finished and undone without its file.

        One that is there already and does the same stays as it is: the machine that has begun it knows it by its bytes.
        With a key it stays only if one of ours has signed it.
        """
        try:
            kept = self.plan()
        except (RecoveryUnknownError, PlanInvalidError, SignatureMissingError, SignatureWrongError):
            kept = None
        if kept is None or kept.said_here(plan.checkpoint, ()) != plan.said_here(plan.checkpoint, ()):
            self.storage.write(self.folder / "plan.json", plan.to_bytes(self.keys))

    def plan(self) -> Plan:
        """The plan that was kept.

        Raises:
            RecoveryUnknownError: there is none.
            PlanNotOfThisPlaceError: it is of another checkpoint, or of another recovery.
            PlanInvalidError: it is damaged.
            SignatureMissingError, SignatureWrongError: there is a key, and it was not signed for this place.
        """
        file = self.folder / "plan.json"
        raw = self.storage.read(file, limit=PLAN_BYTES_MAX)
        if raw is None:
            raise RecoveryUnknownError(f"there is no recovery {self.recovery}", subject=str(self.checkpoint))
        plan = parse_plan(raw, str(file), self.keys, (self.checkpoint, self.recovery))
        if not _is_at(plan.checkpoint, self.checkpoint) and plan.recovery == self.recovery:
            raise _make_moved_error(plan, self.checkpoint, file)
        if not _is_at(plan.checkpoint, self.checkpoint) or plan.recovery != self.recovery:
            raise PlanNotOfThisPlaceError(
                "the plan is not of the place where it lies",
                subject=str(file),
                found=f"recovery {plan.recovery} of {plan.checkpoint}",
                expected=f"recovery {self.recovery} of {self.checkpoint}",
                effect="nothing has been changed",
            )
        return plan


def _make_moved_error(plan: Plan, here: Location, file: Location) -> PlanNotOfThisPlaceError:
    """That a mount is the same place nobody can tell from within it; a person can, who has the old name lead there."""
    return PlanNotOfThisPlaceError(
        "the plan was made while the checkpoint had another name: it was moved, is mounted elsewhere, or is a copy",
        subject=str(file),
        found=f"recovery {plan.recovery} of {plan.checkpoint}",
        expected=f"recovery {plan.recovery} of {here}",
        effect="nothing has been changed",
        # A person pastes what stands here: it names no place that only the lake names.
        next=(
            "if it is the same folder, and no copy of it: mount the folder above it where it was, or put a link there,"
            " and name the checkpoint as it was named then; see lastgood explain PLAN_NOT_OF_THIS_PLACE"
        ),
    )


def _is_at(text: str, location: Location) -> bool:
    try:
        return parse_location(text).identity == location.identity
    except LocationInvalidError:
        return False


def locate_recoveries(checkpoint: Location) -> Location:
    """Where all recoveries of a checkpoint are."""
    return checkpoint.sibling(WORK_SUFFIX) / "recoveries"


def list_recoveries(storage: Storage, checkpoint: Location) -> list[str]:
    """The ids of all recoveries of a checkpoint that were begun, oldest first."""
    names = storage.names(locate_recoveries(checkpoint)) or ()
    ids = (name.removesuffix("/") for name in names)
    return sorted(each for each in ids if is_id(each))


def list_newest_first(storage: Storage, checkpoint: Location) -> list[str]:
    """The same, newest first, whatever clocks did meanwhile."""
    return sorted(
        list_recoveries(storage, checkpoint), key=lambda each: _find_age(storage, checkpoint, each), reverse=True
    )


def find_open_recovery(storage: Storage, checkpoint: Location) -> str | None:
    """The newest recovery that somebody has to finish or take back; None if there is none."""
    for recovery in reversed(list_recoveries(storage, checkpoint)):
        stage = find_latest_stage(storage, locate_recoveries(checkpoint) / recovery)
        if stage is not None and stage.is_open:
            return recovery
    return None


def locate_plan(checkpoint: Location, recovery: str) -> Location:
    """The file of a recovery's plan, by which it can be finished."""
    return locate_recoveries(checkpoint) / f"{recovery}/plan.json"


def require_no_open(
    storage: Storage, checkpoint: Location, asked: Asked, config: Config, *, but: str | None = None
) -> None:
    """See that no repair of a checkpoint is half done.

    Args:
        storage: Of the checkpoint.
        checkpoint: Where it is.
        asked: For the commands that end the repair.
        config: Of this command.
        but: The recovery that may be.

    Raises:
        RecoveryOpenError: another one is.
    """
    recovery = find_open_recovery(storage, checkpoint)
    if recovery in (None, but):
        return
    stage = find_latest_stage(storage, locate_recoveries(checkpoint) / recovery)
    words, about = list_words_of_death(str(checkpoint), config), asked.about(str(checkpoint))
    finish = about.make_apply_command(locate_plan(checkpoint, recovery), *words)
    back = about.make_undo_command(recovery, None, *words)
    is_back = stage is not None and stage.is_back
    error = RecoveryOpenError(
        f"recovery {recovery} was begun here, and neither finished nor taken back",
        subject=str(checkpoint),
        effect="the checkpoint may be sealed; nothing has been changed",
        next=back if is_back else finish,
    )
    if not is_back:
        error.alternatives = (Otherwise("take it back", back),)
    raise error


def require_newest_signed(storage: Storage, checkpoint: Location, keys: KeyRing) -> None:
    """See that how far the newest recovery says it has come is its own word; without a key nothing is asked.

    A stage that anybody has put in would let one that is half done look as if it had come to an end.

    Raises:
        PlanInvalidError, SignatureMissingError, SignatureWrongError: as `read_note`.
        StorageError: the storage does not answer (subclasses).
    """
    if keys:
        known = list_recoveries(storage, checkpoint)
    else:
        known = []
    for newest in known[-1:]:
        for stage in RecoveryStage:
            read_note(storage, locate_recoveries(checkpoint) / newest, stage, Signer.at(keys, checkpoint))


def find_recovery(storage: Storage, checkpoint: Location, wanted: str) -> str:
    """The id of a recovery: `wanted` itself, or for `last` the one that is open, else the newest.

    Raises:
        RecoveryUnknownError: there is no such recovery; names those there are.
    """
    known = list_recoveries(storage, checkpoint)
    if wanted == LAST and known:
        return find_open_recovery(storage, checkpoint) or max(
            known, key=lambda each: _find_age(storage, checkpoint, each)
        )
    if wanted in known:
        return wanted
    raise RecoveryUnknownError(
        f"there is no recovery {wanted}",
        subject=str(locate_recoveries(checkpoint)),
        found=", ".join(known[-5:]) or "no recovery",
    )


def _find_age(storage: Storage, checkpoint: Location, recovery: str) -> tuple[int, str]:
    """What grows from one recovery to the next; its id does not, where a clock went back."""
    number = read_note(storage, locate_recoveries(checkpoint) / recovery, RecoveryStage.BEGUN).get("lease")
    return number if isinstance(number, int) else 0, recovery


def read_settled_ms(storage: Storage, folder: Location, end: RecoveryStage, signer: Signer = _UNASKED) -> int | None:
    """When the recovery in a folder had left all as it stays, milliseconds since 1970; None if nobody noted it down.

    The end itself may be noted down much later: by who finishes what was killed after the seal had gone, and a driver
    may have run meanwhile.

    Raises:
        PlanInvalidError, SignatureMissingError, SignatureWrongError, StorageError: as `read_note`.
    """
    at_ms = read_noted_ms(storage, folder, SETTLED[end], signer)
    if at_ms is not None:
        return at_ms
    return read_noted_ms(storage, folder, end, signer)  # it was given up before there was anything to settle


def read_noted_ms(storage: Storage, folder: Location, stage: RecoveryStage, signer: Signer = _UNASKED) -> int | None:
    """When the recovery in a folder came to a stage, milliseconds since 1970; None if it never did.

    Raises:
        PlanInvalidError, SignatureMissingError, SignatureWrongError, StorageError: as `read_note`.
    """
    at_ms = read_note(storage, folder, stage, signer).get("at_ms")
    return at_ms if isinstance(at_ms, int) else None


def read_note(storage: Storage, folder: Location, stage: RecoveryStage, signer: Signer = _UNASKED) -> dict[str, Any]:
    """What the recovery in a folder has noted down with a stage; empty if it was never reached.

    Raises:
        PlanInvalidError: it is damaged.
        SignatureMissingError, SignatureWrongError: there is a key, and it was not signed for this place.
        StorageError: the storage does not answer (subclasses).
    """
    file = folder / f"{stage.value}.json"
    raw = storage.read(file, limit=_NOTE_BYTES_MAX)
    if raw is None:
        return {}
    try:
        told = read_json(raw)
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
    signer.require(STAGE, (folder.name, stage.value), told, file)
    return told


def find_latest_stage(storage: Storage, folder: Location) -> RecoveryStage | None:
    """How far the recovery in a folder has come; None: nothing was done."""
    names = set(storage.names(folder) or ())
    reached = [stage for stage in RecoveryStage if f"{stage.value}.json" in names]
    if not reached:
        return None
    return reached[-1]
