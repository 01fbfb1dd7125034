"""Carries out a plan, finishes one that was interrupted, and takes one back.

Whatever happens, the checkpoint is sealed from before its first change until all changes are done and verified, or all
are taken back. What has been done so far is told by the files themselves; only the stages are noted down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lastgood.checkpoint.layout import COMMITS, OFFSETS, SOURCES
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.errors import LastgoodError, Retry, command_line
from lastgood.overlay import OverlayStorage
from lastgood.recovery.lease import Lease, LeaseLostError
from lastgood.recovery.plan import Plan, PlannedSink, Promise
from lastgood.recovery.room import Room, Stage
from lastgood.recovery.seal import put_up, seal_of, stands, take_down
from lastgood.recovery.steps import FileStep, MoveStep, Step, digest
from lastgood.storage import Location, Storage

LOG_BYTES_MAX = max(ENTRY_BYTES_MAX, 64 * 1024 * 1024)
"""Larger files are not log files of a query."""


class PlanStaleError(LastgoodError):
    """The checkpoint or a sink is not as it was when the plan was made."""

    condition = "PLAN_STALE"
    exit_code = 52
    retry = Retry.AFTER_CHANGE


class UndoRefusedError(LastgoodError):
    """The query has moved since: its bytes of before would not fit any more."""

    condition = "UNDO_REFUSED"
    exit_code = 55
    retry = Retry.AFTER_CHANGE


class CheckpointChangedError(LastgoodError):
    """A file was changed by somebody else while the checkpoint was sealed."""

    condition = "CHECKPOINT_CHANGED"
    exit_code = 59
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Surveyor:
    """Looks at what a plan rests on beside the files; from outside, because it asks sinks and predicts."""

    sinks: Callable[[], Sequence[PlannedSink]]
    """What the sinks show now."""
    promise: Callable[[Storage], Promise]
    """What Spark would do with the checkpoint as a storage shows it."""


@dataclass(frozen=True, slots=True)
class Done:
    """What `apply` or `undo` did."""

    plan: Plan
    already: bool = False
    """It was done before, and nothing has moved since."""


Tell = Callable[[str], None]


class Engine:
    """One plan, its place, and the right to work there."""

    def __init__(self, room: Room, plan: Plan, lease: Lease, surveyor: Surveyor, tell: Tell, now_ms: int) -> None:
        """Prepare; nothing is done yet.

        Args:
            room: Where.
            plan: What.
            lease: Held as long as this lives.
            surveyor: How to look at the rest of the world.
            tell: Gets a line for a person at each turn.
            now_ms: The time, for what is noted down.
        """
        self._room = room
        self._plan = plan
        self._lease = lease
        self._surveyor = surveyor
        self._tell = tell
        self._now_ms = now_ms

    def apply(self, proof: str) -> Done:
        """Carry out the plan, from where it stands.

        Args:
            proof: Why no driver is alive; one line for a person.

        Raises:
            PlanStaleError: something has moved since it was made; nothing has been changed.
            CheckpointChangedError: a file was changed under the seal; the seal stands.
            LeaseLostError: somebody else has taken over.
            StorageError: the storage does not answer (subclasses); the seal stands.
        """
        stage = self._room.stage()
        if stage in (Stage.UNDOING, Stage.UNDONE, Stage.TAKEN_BACK):
            raise self._stale("the recovery was taken back", f"recovery {self._plan.recovery}")
        if stage is Stage.CLOSED:
            self._require_unmoved()
            return Done(self._plan, already=True)
        if stage in (None, Stage.BEGUN):
            self._begin(proof)
        if stage is not Stage.APPLIED:
            self._do_all()
        self._open(Stage.APPLIED, Stage.CLOSED, self._plan.seal)
        return Done(self._plan)

    def undo(self, proof: str) -> Done:
        """Put every byte back as it was before the plan, from wherever it stands.

        Raises:
            UndoRefusedError: the query has moved since.
            CheckpointChangedError, LeaseLostError, StorageError: as `apply`.
        """
        stage = self._room.stage()
        if stage is None or stage is Stage.TAKEN_BACK:
            return Done(self._plan, already=True)
        seal = self._plan.seal
        if stage in (Stage.CLOSED, Stage.UNDOING, Stage.UNDONE):
            seal = self._seal_now() if stage is Stage.CLOSED else self._room.seal()
        if stage is not Stage.UNDONE:
            if stage is Stage.CLOSED:
                self._require_unmoved()
            self._require_backups()
            self._room.enter(Stage.UNDOING, self._facts(proof=proof, seal=seal))
            self._seal_again(seal, is_closed=stage is Stage.CLOSED)
            for step in reversed(self._plan.steps):
                self._take(step.undo, step, lambda each: self._undo(each, seal))
        self._open(Stage.UNDONE, Stage.TAKEN_BACK, seal)
        return Done(self._plan)

    def _seal_again(self, seal: Sequence[str], *, is_closed: bool) -> None:
        """Seal a checkpoint to take a recovery back; a driver may have been quicker."""
        try:
            self._seal(seal)
            if is_closed:
                self._require_unmoved(seal)
        except (PlanStaleError, UndoRefusedError):
            if is_closed:
                take_down(self._room, seal)
                self._room.forget(Stage.UNDOING)
            raise

    # How a plan begins.

    def _begin(self, proof: str) -> None:
        """Seal, look again whether all is as planned, and back up what will be touched."""
        if self._room.stage() is None:
            self._require_as_planned(sealed=False)
        self._room.keep(self._plan)
        self._room.enter(Stage.BEGUN, self._facts(proof=proof))
        self._tell("sealing the checkpoint: no driver can go on with it, none can start")
        try:
            self._seal(self._plan.seal)
            self._require_as_planned(sealed=True)
        except PlanStaleError:
            take_down(self._room, self._plan.seal)  # no step is done yet: every empty file of it is ours
            self._room.forget(Stage.BEGUN)
            raise
        self._tell(f"backing up what is touched, to {self._room.folder}/before")
        for step in self._plan.steps:
            self._back_up(step)
        self._room.enter(Stage.APPLYING, self._facts())

    def _seal(self, seal: Sequence[str]) -> None:
        self._lease.check()
        written = {step.path for step in self._plan.steps if self._read(step.path) is not None}
        taken = put_up(self._room, [path for path in seal if path not in written])
        if taken is not None:
            raise self._stale("a driver has gone on meanwhile", taken, "another file")

    def _require_as_planned(self, *, sealed: bool) -> None:
        """See that logs, guarded files and sinks are as they were when the plan was made."""
        hidden = self._plan.seal if sealed else ()
        for folder, names in self._plan.listings.items():
            if names != listing_digest(self._room.storage, self._room.file(folder), folder, hidden):
                raise self._stale("other files are there than when the plan was made", folder)
        touched = {step.path: step.before for step in self._plan.steps if isinstance(step, FileStep)}
        for path, expected in {**self._plan.guards, **touched}.items():
            found = self._read(path)
            if digest(found) != expected and not (path in hidden and found == b""):
                raise self._stale("a file is not as it was when the plan was made", path)
        for planned, shown in zip(self._plan.sinks, self._surveyor.sinks(), strict=True):
            if planned != shown:
                expected_batch, found_batch = f"batch {planned.batch}", f"batch {shown.batch}"
                raise self._stale("a sink is not as planned", planned.location, found_batch, expected_batch)

    def _back_up(self, step: Step) -> None:
        """Keep what a step will change, and read it back; what a step moves is its own backup."""
        if isinstance(step, MoveStep) or step.before is None:
            return
        content = self._read(step.path)
        kept = self._room.aside(step.path)
        if digest(content) == step.before and content is not None:
            self._room.storage.write(kept, content)
        if digest(self._room.storage.read(kept, limit=LOG_BYTES_MAX)) != step.before:
            raise CheckpointChangedError("the backup is not what it was made of", subject=str(kept))

    # The steps.

    def _do_all(self) -> None:
        self._require_seal(self._plan.seal)
        for step in self._plan.steps:
            self._take(step.do, step, self._do)
        hidden = dict.fromkeys(self._temporary(self._plan.seal, Stage.APPLIED))
        shown = OverlayStorage(self._room.storage, self._room.checkpoint, hidden)
        found = self._surveyor.promise(shown)
        if not found.agrees(self._plan.promise):
            raise CheckpointChangedError(
                "after all steps Spark would not do what the plan promised",
                subject=str(self._room.checkpoint),
                found=f"{found.outcome}, batch {found.batch}",
                expected=f"{self._plan.promise.outcome}, batch {self._plan.promise.batch}",
                effect="the checkpoint stays sealed; no driver can start on it",
                next=self._undo_command(),
            )

    def _take(self, what: str, step: Step, act: Callable[[Step], None]) -> None:
        """One step forth or back. Who wakes up late, after somebody else took over, does not stand against him."""
        self._lease.check()
        self._tell(what)
        act(step)
        try:
            self._lease.check()
        except LeaseLostError:
            if self._room.stage() in (Stage.UNDOING, Stage.UNDONE, Stage.TAKEN_BACK):
                self._undo(step, ())
            raise

    def _do(self, step: Step) -> None:
        if isinstance(step, MoveStep):
            self._move(self._room.file(step.path), self._room.aside(step.path), step)
        elif not self._is_after(step, self._read(step.path), self._plan.seal):
            if step.after is None:
                self._room.storage.remove(self._room.file(step.path))
            else:
                self._room.storage.write(self._room.file(step.path), step.after)

    def _undo(self, step: Step, seal: Sequence[str]) -> None:
        file = self._room.file(step.path)
        if isinstance(step, MoveStep):
            self._move(self._room.aside(step.path), file, step)
        elif self._is_after(step, self._read(step.path), seal):
            if step.before is not None:
                kept = self._room.storage.read(self._room.aside(step.path), limit=LOG_BYTES_MAX)
                self._room.storage.write(file, kept or b"")
            elif step.path in seal:
                self._room.storage.write(file, b"")
            else:
                self._room.storage.remove(file)

    def _is_after(self, step: FileStep, content: bytes | None, seal: Iterable[str]) -> bool:
        """Whether a step is done; False if it is not begun.

        Raises:
            CheckpointChangedError: the file is neither as the step found it nor as it leaves it.
        """
        if step.path in seal and content == b"":
            content = None  # a part of the seal stands where no file is
        if content == step.after:
            return True
        if digest(content) == step.before:
            return False
        raise CheckpointChangedError(
            "a file was changed while the checkpoint was sealed",
            subject=str(self._room.file(step.path)),
            effect="the checkpoint stays sealed; no driver can start on it",
            next="see who writes there; then finish or undo the recovery",
        )

    def _move(self, source: Location, target: Location, step: MoveStep) -> None:
        storage = self._room.storage
        there, here = storage.stat(target), storage.stat(source)
        if there is not None and here is not None and there.size == here.size == step.size:
            storage.remove(source)  # a copy that was not finished by removing what it was made of
        elif here is not None and there is None and here.size == step.size:
            storage.move(source, target)
        elif there is None or there.size != step.size:
            raise CheckpointChangedError(
                "a file of the state is not as it was when the plan was made",
                subject=str(source),
                found="no such file" if here is None else f"{here.size} bytes",
                expected=f"{step.size} bytes",
            )

    # How it ends.

    def _open(self, settled: Stage, end: Stage, seal: Sequence[str]) -> None:
        """Note down that all is done, then take the seal away: from then on a driver may start."""
        self._lease.check()
        ours = self._temporary(seal, settled)
        if self._room.stage() is not settled:
            names = {
                log: listing_digest(self._room.storage, self._room.file(log), log, ours) for log in (OFFSETS, COMMITS)
            }
            self._room.enter(settled, self._facts(listings=names))
        self._tell("taking the seal away")
        take_down(self._room, ours)
        self._room.enter(end, self._facts())

    def _temporary(self, seal: Sequence[str], settled: Stage) -> tuple[str, ...]:
        """The parts of a seal where no file is in the end."""
        there = {
            step.path: step.after if settled is Stage.APPLIED else step.before
            for step in self._plan.steps
            if isinstance(step, FileStep)
        }
        return tuple(path for path in seal if there.get(path) is None)

    def _require_unmoved(self, sealed: Sequence[str] = ()) -> None:
        """See that no batch was planned or committed, and no touched file changed, since the seal was taken away."""
        listings: dict[str, str] = self._room.note(Stage.APPLIED).get("listings", {})
        for folder, names in listings.items():
            if names != listing_digest(self._room.storage, self._room.file(folder), folder, sealed):
                raise self._moved(folder)
        for step in self._plan.steps:
            if isinstance(step, FileStep) and not self._is_after(step, self._read(step.path), sealed):
                raise self._moved(step.path)

    def _require_backups(self) -> None:
        """See that every byte that will be put back is there, before anything is."""
        for step in self._plan.steps:
            if isinstance(step, FileStep) and step.before is not None:
                kept = self._room.aside(step.path)
                found = digest(self._room.storage.read(kept, limit=LOG_BYTES_MAX))
                if found != step.before and digest(self._read(step.path)) != step.before:
                    raise UndoRefusedError(
                        "the backup is gone or was changed",
                        subject=str(kept),
                        found="no such file" if found is None else "another content",
                        effect="nothing has been changed",
                    )

    def _require_seal(self, seal: Sequence[str]) -> None:
        """See that the seal of an interrupted recovery still stands, where no step has written over it."""
        written = {step.path for step in self._plan.steps if isinstance(step, FileStep) and step.after is not None}
        for path in seal:
            if path not in written and not stands(self._room, path):
                raise CheckpointChangedError(
                    "the seal was broken by somebody else",
                    subject=str(self._room.file(path)),
                    effect="a driver may have started; nothing further has been changed",
                    next=command_line("diagnose", self._room.checkpoint),
                )

    def _seal_now(self) -> tuple[str, ...]:
        """A seal for the checkpoint as it stands, which also holds when it is as it was before."""
        planned, committed = (self._newest(log) for log in (OFFSETS, COMMITS))
        before = self._plan.position.get("planned")
        return seal_of(planned, committed, before if isinstance(before, int) else None)

    def _newest(self, log: str) -> int | None:
        names = self._room.storage.names(self._room.file(log)) or ()
        return max((int(name) for name in names if name.isdecimal()), default=None)

    # Words.

    def _read(self, path: str) -> bytes | None:
        return self._room.storage.read(self._room.file(path), limit=LOG_BYTES_MAX)

    def _facts(self, **more: Any) -> dict[str, Any]:
        return {"at_ms": self._now_ms, "lease": self._lease.number, **more}

    def _undo_command(self) -> str:
        return command_line("undo", self._plan.recovery, "--checkpoint", self._room.checkpoint)

    def _stale(self, why: str, subject: str, found: str | None = None, expected: str | None = None) -> PlanStaleError:
        return PlanStaleError(
            f"the plan does not fit any more: {why}",
            subject=subject,
            found=found,
            expected=expected,
            effect="nothing has been changed",
            next=command_line("plan", self._room.checkpoint),
        )

    def _moved(self, path: str) -> LastgoodError:
        return UndoRefusedError(
            "the query has gone on since the recovery",
            subject=str(self._room.file(path)),
            effect="nothing has been changed",
            next=command_line("plan", self._room.checkpoint),
        )


def listing_digest(storage: Storage, location: Location, folder: str, hidden: Iterable[str] = ()) -> str:
    """What tells whether a folder of the logs holds other entries than before; what is hidden does not count."""
    names = {name for name in storage.names(location) or () if not name.startswith(".")}
    names -= {path.removeprefix(f"{folder}/") for path in hidden if path.startswith(f"{folder}/")}
    return digest("\n".join(sorted(names)).encode()) or ""


def log_folders(storage: Storage, checkpoint: Location) -> list[str]:
    """The folders of a checkpoint whose names a plan rests on."""
    sources = sorted(name.rstrip("/") for name in storage.names(checkpoint / SOURCES) or () if name.endswith("/"))
    return [OFFSETS, COMMITS, *(f"{SOURCES}/{name}" for name in sources)]
