"""Carries out a plan, finishes one that was interrupted, and takes one back.

Whatever happens, the checkpoint is sealed from before its first change until all changes are done and verified, or all
are taken back. What has been done so far is told by the files themselves; only the stages are noted down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lastgood.asked import Asked
from lastgood.checkpoint.layout import COMMITS, OFFSETS, SOURCES, find_newest_batch
from lastgood.errors import LastgoodError, Retry, StorageError
from lastgood.frozen import dataclass
from lastgood.journal.lease import Lease, LeaseLostError, raise_if_overtaken
from lastgood.journal.room import SETTLED, RecoveryStage, Room
from lastgood.journal.seal import is_in_place, list_seal_files, put_up, take_down
from lastgood.planning.plan import Plan, PlannedSink, Promise
from lastgood.planning.steps import compute_digest, list_files_after, list_files_before
from lastgood.recovery.driver_death import list_words_needed
from lastgood.settings.config import Config
from lastgood.sinks.changing import find_fencing
from lastgood.steps.carrying import Carrying, CheckpointChangedError, Site, UndoRefusedError
from lastgood.steps.kinds import open_carrying
from lastgood.steps.step import Step
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.overlay import OverlayStorage
from lastgood.storage.reading import Location, Storage
from lastgood.storage.writing import WritableStorage, open_writable


class PlanStaleError(LastgoodError):
    """The checkpoint or a sink is not as it was when the plan was made."""

    condition = "PLAN_STALE"
    exit_code = 52
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Surveyor:
    """Looks at what a plan rests on beside the files; from outside, because it asks sinks and predicts."""

    sinks: Callable[[], Sequence[PlannedSink]]
    """What the sinks show now."""
    promise: Callable[[Storage], Promise]
    """What Spark would do with the checkpoint as a storage shows it."""
    open_sink: Callable[[Location], WritableStorage] = open_writable
    """Gives access to the storage of a sink that is fenced or taken back."""


@dataclass(frozen=True, slots=True)
class Done:
    """What `apply` or `undo` did."""

    plan: Plan
    already: bool = False
    """It was done before, and nothing has moved since."""


Tell = Callable[[str], None]


class Engine:
    """One plan, its place, and the right to work there."""

    def __init__(  # noqa: PLR0913 - the last two by name
        self,
        room: Room,
        plan: Plan,
        lease: Lease,
        surveyor: Surveyor,
        tell: Tell,
        now_ms: Callable[[], int],
        *,
        settle: Callable[[], None] = lambda: None,
        config: Config | None = None,
    ) -> None:
        """Prepare; nothing is done yet.

        Args:
            room: Where.
            plan: What.
            lease: Held as long as this lives.
            surveyor: How to look at the rest of the world.
            tell: Gets a line for a person at each turn.
            now_ms: Tells the time, milliseconds since 1970, for what is noted down.
            settle: Waits as long as a driver's write may take that began before the seal stood.
            config: Of this command; None: the `lastgood.toml` here.
        """
        self._room = room
        self._plan = plan
        self._lease = lease
        self._surveyor = surveyor
        self._tell = tell
        self._now_ms = now_ms
        self._settle = settle
        self._config = config or Config()
        self._site = Site(
            recovery=plan.recovery,
            checkpoint=room.checkpoint,
            storage=room.storage,
            kept=room.before,
            now_ms=now_ms(),
            open_other=surveyor.open_sink,
        )

    def require_means(self) -> None:
        """See that every storage can do what the plan needs, before anything is begun.

        Raises:
            ExclusiveCreateUnsupportedError: of several who commit to a sink of the plan more than one could.
            StorageError: a sink cannot be written to (subclasses).
        """
        for step in self._plan.steps:
            self._carried(step).require_means()
        changed = {step.sink for step in self._plan.steps}  # a step needs no less than a fence
        for sink in self._plan.sinks:
            fence = find_fencing(sink.kind)
            if sink.fence is not None and fence is not None and sink.location not in changed:
                fence.require_means(self._site, sink.location)

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
        with raise_if_overtaken(self._lease):
            return self._apply(proof)

    def _apply(self, proof: str) -> Done:
        stage = self._room.stage()
        if stage is not None and stage.is_back:
            raise self._stale("the recovery was taken back", f"recovery {self._plan.recovery}")
        if stage is RecoveryStage.CLOSED:
            self._require_unmoved()
            return Done(self._plan, already=True)
        if stage in (None, RecoveryStage.BEGUN):
            self._begin(proof)
        if stage is not RecoveryStage.APPLIED:
            self._do_all()
        self._open(RecoveryStage.CLOSED, self._plan.seal)
        return Done(self._plan)

    def undo(self, proof: str) -> Done:
        """Put every byte back as it was before the plan, from wherever it stands.

        Raises:
            UndoRefusedError: the query has moved since.
            CheckpointChangedError, LeaseLostError, StorageError: as `apply`.
        """
        with raise_if_overtaken(self._lease):
            return self._take_back(proof)

    def _take_back(self, proof: str) -> Done:
        stage = self._close_applied()
        if stage is None:  # noted down, so that nobody who was overtaken begins with it late
            self._room.enter(RecoveryStage.TAKEN_BACK, self._facts())
        if stage is None or stage is RecoveryStage.TAKEN_BACK:
            return Done(self._plan, already=True)
        seal = self._plan.seal
        if stage is RecoveryStage.CLOSED or stage.is_back:
            if stage is RecoveryStage.CLOSED:
                seal = self._seal_now()
            else:
                seal = self._room.seal()
        if stage not in (
            RecoveryStage.BEGUN,
            RecoveryStage.UNDONE,
        ):  # nothing but a seal was put up by who has only begun
            if stage is RecoveryStage.CLOSED:
                self._require_unmoved()
            self._require_backups()
            facts = self._facts(proof=proof, seal=seal)
            self._room.enter(RecoveryStage.UNDOING, facts)
            self._seal_again(
                seal, is_closed=stage is not RecoveryStage.TAKING_BACK and bool(self._room.note(RecoveryStage.CLOSED))
            )
            self._room.enter(RecoveryStage.TAKING_BACK, facts)
            for step in reversed(self._plan.steps):
                self._take(step.undo, step, lambda each: each.undo(seal))
            self._require_seal(self._temporary(seal, RecoveryStage.UNDONE))
        self._open(RecoveryStage.TAKEN_BACK, seal)
        return Done(self._plan)

    def _close_applied(self) -> RecoveryStage | None:
        """The stage. Where all was applied the seal may be gone, and a driver have gone on: that is closed first."""
        if self._room.stage() is RecoveryStage.APPLIED:
            self._open(RecoveryStage.CLOSED, self._plan.seal)
        return self._room.stage()

    def _seal_again(self, seal: Sequence[str], *, is_closed: bool) -> None:
        """Seal a checkpoint to take a recovery back; a driver may have been quicker."""
        try:
            parts = self._seal(seal)
            if is_closed:
                self._settle()
                self._require_unmoved(seal)
                self._require_standing(parts)
        except (PlanStaleError, UndoRefusedError):
            if is_closed:
                self._lease.check()
                # Safe: it was closed, and no step is back yet: all is as the recovery left it, or as a driver that was
                # quicker has gone on from there; either may be started on. What that driver wrote is not empty.
                take_down(self._room, seal, self._lease.check)
                self._room.forget(RecoveryStage.UNDOING)
            raise

    # How a plan begins.

    def _begin(self, proof: str) -> None:
        """Seal, look again whether all is as planned, and back up what will be touched."""
        if self._room.stage() is None:
            self._require_as_planned(sealed=False)
        self._room.keep(self._plan)
        self._room.enter(RecoveryStage.BEGUN, self._facts(proof=proof))
        self._tell("sealing the checkpoint: no driver can go on with it, none can start")
        try:
            parts = self._seal(self._plan.seal)
            self._settle()
            self._fence()
            self._require_as_planned(sealed=True)
            self._require_standing(parts)
        except PlanStaleError:
            self._lease.check()
            # Safe: no step is done yet, so the checkpoint is as it was, and every empty file of the seal is ours.
            take_down(self._room, self._plan.seal, self._lease.check)
            self._room.forget(RecoveryStage.BEGUN)
            raise
        self._tell(f"backing up what is touched, to {self._room.folder}/before")
        for step in self._plan.steps:
            self._carried(step).back_up()
        self._room.enter(RecoveryStage.APPLYING, self._facts())

    def _seal(self, seal: Sequence[str]) -> Sequence[str]:
        """Put up the seal, but where a step has written or will rewrite; gives the parts that have to stand."""
        self._lease.check()
        left = list_files_after(self._plan.steps)
        parts = [path for path in seal if path not in left or not self._read(path)]
        taken = put_up(self._room, parts, self._lease.check)
        if taken is not None:
            raise self._stale("a driver has gone on meanwhile", taken, "another file")
        return parts

    def _require_standing(self, parts: Iterable[str]) -> None:
        """See that no driver has put its file over the seal: it looks whether there is one, and then writes."""
        for path in parts:
            if not is_in_place(self._room, path):
                raise self._stale("a driver has gone on meanwhile", path, "another file than the seal")

    def _fence(self) -> None:
        """Make writers in flight fail, so that what the sinks show next is what they will show."""
        for sink in self._plan.sinks:
            if sink.fence is None:
                continue
            self._lease.check()
            self._tell(f"fencing {sink.location}: a batch that is being written fails")
            fence = find_fencing(sink.kind)
            if fence is None:
                raise self._stale("a sink can no longer be fenced", sink.location, f"a sink of the kind {sink.kind}")
            obstacle = fence.put_up(self._site, sink.location, sink.fence)
            if obstacle is not None:
                raise self._stale("a sink can no longer be fenced", sink.location, obstacle)

    def _require_as_planned(self, *, sealed: bool) -> None:
        """See that logs, guarded files and sinks are as they were when the plan was made."""
        hidden = self._plan.seal if sealed else ()
        for folder, names in self._plan.listings.items():
            if names != compute_listing_digest(self._room.storage, self._room.file(folder), folder, hidden):
                raise self._stale("other files are there than when the plan was made", folder)
        for path, expected in self._plan.guards.items():
            found = self._read(path)
            if compute_digest(found) != expected and not (path in hidden and found == b""):
                raise self._stale("a file is not as it was when the plan was made", path)
        for step in self._plan.steps:
            if not self._carried(step).is_as_planned(hidden):
                raise self._stale("a file is not as it was when the plan was made", step.path)
        sinks = self._surveyor.sinks()
        require_answers(self._plan.sinks, sinks)
        for planned, shown in zip(self._plan.sinks, sinks, strict=True):
            if planned != shown:
                expected_batch, found_batch = f"batch {planned.batch}", f"batch {shown.batch}"
                raise self._stale("a sink is not as planned", planned.location, found_batch, expected_batch)

    # The steps.

    def _do_all(self) -> None:
        self._lease.check()
        self._require_seal(self._plan.seal)
        for step in self._plan.steps:
            self._take(step.do, step, lambda each: each.do(self._plan.seal))
        self._require_seal(self._plan.seal)
        for step in self._plan.steps:
            self._carried(step).require_done()
        hidden = dict.fromkeys(self._temporary(self._plan.seal, RecoveryStage.APPLIED))
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

    def _take(self, what: str, step: Step, act: Callable[[Carrying], None]) -> None:
        """One step forth or back. Who wakes up late, after somebody else took over, does not stand against him."""
        self._lease.check()
        self._tell(what)
        try:
            with raise_if_overtaken(self._lease):
                act(self._carried(step))
        except LeaseLostError:
            stage = self._room.stage()
            if stage is not None and stage.is_back:
                self._carried(step).undo(self._room.seal() if stage is RecoveryStage.TAKING_BACK else ())
            raise

    def _carried(self, step: Step) -> Carrying:
        return open_carrying(step, self._site)

    # How it ends.

    def _open(self, end: RecoveryStage, seal: Sequence[str]) -> None:
        """Note down that all is done, then take the seal away: from then on a driver may start."""
        self._lease.check()
        settled = SETTLED[end]
        ours = self._temporary(seal, settled)
        if self._room.stage() is not settled:
            names = {
                log: compute_listing_digest(self._room.storage, self._room.file(log), log, ours)
                for log in (OFFSETS, COMMITS)
            }
            self._room.enter(settled, self._facts(listings=names))
        self._tell("taking the seal away")
        # Safe: all steps are done and were looked at once more, or all are back, and the stage above says so; from here
        # on there is nothing to finish but this. A driver that starts at the instant at which the last part goes finds
        # one whole checkpoint. Killed before, whoever finishes it comes to this very line again.
        take_down(self._room, ours, self._lease.check)
        self._room.enter(end, self._facts())

    def _temporary(self, seal: Sequence[str], settled: RecoveryStage) -> tuple[str, ...]:
        """The parts of a seal where no file is in the end."""
        steps = self._plan.steps
        there = list_files_after(steps) if settled is RecoveryStage.APPLIED else list_files_before(steps)
        return tuple(path for path in seal if there.get(path) is None)

    def _require_unmoved(self, sealed: Sequence[str] = ()) -> None:
        """See that no batch was planned or committed, and no touched file changed, since the seal was taken away."""
        for folder, names in self._room.listings().items():
            if names != compute_listing_digest(self._room.storage, self._room.file(folder), folder, sealed):
                raise self._moved(self._room.file(folder))
        for step in self._plan.steps:
            if not self._carried(step).is_done(sealed):
                raise self._moved(self._room.file(step.path) if step.left else step.path)

    def _require_backups(self) -> None:
        """See that every byte that will be put back is there, before anything is."""
        for step in self._plan.steps:
            self._carried(step).require_backup()

    def _require_seal(self, seal: Sequence[str]) -> None:
        """See that the seal still stands, or what a step has written over it."""
        left = list_files_after(self._plan.steps)
        for path in seal:
            if self._read(path) not in (b"", left.get(path) or b""):
                raise CheckpointChangedError(
                    "the seal was broken by somebody else",
                    subject=str(self._room.file(path)),
                    effect="a driver may have started; nothing further has been changed",
                    next=self._looking("diagnose"),
                )

    def _seal_now(self) -> tuple[str, ...]:
        """A seal for the checkpoint as it stands, which also holds when it is as it was before."""
        planned, committed = (self._newest(log) for log in (OFFSETS, COMMITS))
        before = self._plan.position.get("planned")
        return list_seal_files(planned, committed, before if isinstance(before, int) else None)

    def _newest(self, log: str) -> int | None:
        return find_newest_batch(self._room.storage.names(self._room.file(log)) or ())

    # Words.

    def _read(self, path: str) -> bytes | None:
        return self._room.storage.read(self._room.file(path), limit=LOG_BYTES_MAX)

    def _facts(self, **more: Any) -> dict[str, Any]:
        """Each stage has its own time: what a mirror saw until the end is of the query before it."""
        return {"at_ms": self._now_ms(), "lease": self._lease.number, **more}

    def _undo_command(self) -> str:
        return self._looking("undo", self._plan.recovery, *list_words_needed(str(self._room.checkpoint), self._config))

    def _looking(self, verb: str, *options: str) -> str:
        """A command about the query, which looks where the plan did."""
        return Asked(str(self._room.checkpoint), self._plan.evidence).command(verb, *options)

    def _stale(self, why: str, subject: str, found: str | None = None, expected: str | None = None) -> PlanStaleError:
        return PlanStaleError(
            f"the plan does not fit any more: {why}",
            subject=subject,
            found=found,
            expected=expected,
            effect="nothing has been changed",
            next=self._plan.make_plan_command(),
        )

    def _moved(self, subject: object) -> LastgoodError:
        return UndoRefusedError(
            "the query has gone on since the recovery",
            subject=str(subject),
            effect="nothing has been changed",
            next=self._looking("plan"),
        )


def require_answers(planned: Sequence[PlannedSink], shown: Sequence[PlannedSink]) -> None:
    """See that every sink that told what it holds when the plan was made tells it now.

    Raises:
        StorageError: one does not.
    """
    for before, now in zip(planned, shown, strict=False):
        if before.known and not now.known:
            raise StorageError(
                "a sink does not tell what it shows",
                subject=before.location,
                expected=f"an answer, as when the plan was made: batch {before.batch}",
                next="repeat the command once it can be read",
            )


def compute_listing_digest(storage: Storage, location: Location, folder: str, hidden: Iterable[str] = ()) -> str:
    """What tells whether a folder of the logs holds other entries than before; what is hidden does not count."""
    names = {name for name in storage.names(location) or () if not name.startswith(".")}
    names -= {path.removeprefix(f"{folder}/") for path in hidden if path.startswith(f"{folder}/")}
    return compute_digest("\n".join(sorted(names)).encode(errors="surrogatepass")) or ""


def list_log_folders(storage: Storage, checkpoint: Location) -> list[str]:
    """The folders of a checkpoint whose names a plan rests on."""
    sources = sorted(name.rstrip("/") for name in storage.names(checkpoint / SOURCES) or () if name.endswith("/"))
    return [OFFSETS, COMMITS, *(f"{SOURCES}/{name}" for name in sources)]
