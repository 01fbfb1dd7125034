"""`apply` and `undo`: exactly that plan, or refusal; and the bytes as they were."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from lastgood.errors import LastgoodError, Retry, UsageError, command_line
from lastgood.operations.driver_death import prove_driver_dead
from lastgood.operations.evidence import now_ms
from lastgood.operations.surroundings import options_of
from lastgood.operations.survey import Survey, survey
from lastgood.operations.target import resolve_target
from lastgood.overlay import OverlayStorage
from lastgood.recovery.engine import Done, Engine, PlanStaleError, Surveyor
from lastgood.recovery.lease import Holder, Lease, take_lease
from lastgood.recovery.mirror import WORK_SUFFIX
from lastgood.recovery.plan import PLAN_BYTES_MAX, Plan, PlanInvalidError, PlannedSink, parse_plan
from lastgood.recovery.room import LAST, RecoveryUnknownError, Room, Stage, find_recovery, require_no_open
from lastgood.recovery.steps import FileStep
from lastgood.storage import Location, open_storage, parse_location
from lastgood.supervise.config import CONFIG_NAME, load_config
from lastgood.supervise.hold import hold_checkpoint, lock_file
from lastgood.writing import WritableStorage, open_writable, require_exclusive_create

Tell = Callable[[str], None]

_SEALED = (Stage.APPLYING, Stage.APPLIED, Stage.UNDONE)
"""Stages in which the seal surely stands."""


class WaiverNeededError(LastgoodError):
    """A plan costs what nobody has accepted."""

    condition = "WAIVER_NEEDED"
    exit_code = 51
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Recovery:
    """A plan that was carried out, or taken back."""

    plan: Plan
    backup: str
    """Where every touched file is kept as it was; empty for a plain restart."""
    undone: bool = False
    already: bool = False
    """It was done before, and nothing has moved since."""

    @property
    def undo_command(self) -> str:
        """What takes it back."""
        return command_line("undo", self.plan.recovery, "--checkpoint", self.plan.checkpoint)

    def to_json(self) -> dict[str, Any]:
        """The plan, and what became of it."""
        state = "undone" if self.undone else "applied"
        return {
            **self.plan.to_json(),
            "state": f"already {state}" if self.already else state,
            "backup": self.backup or None,
            "undo": self.undo_command if self.plan.steps and not self.undone else None,
        }


def apply_plan(
    file: str, *, driver_is_dead: bool = False, tell: Tell = lambda _: None, config: Path | None = None
) -> Recovery:
    """Carry out a saved plan, from where it stands.

    Args:
        file: What `plan` wrote, or the copy of it that a recovery keeps; a path or a location.
        driver_is_dead: Whether a person says so.
        tell: Gets a line for a person at each turn.
        config: Another configuration than `lastgood.toml` here.

    Raises:
        PlanInvalidError: it is no plan, or was changed.
        WaiverNeededError: it costs what nobody has accepted.
        PlanStaleError: the world has moved since it was made; nothing has been changed.
        DriverNotProvenDeadError: nobody knows whether the driver is dead.
        LeaseHeldError, CheckpointHeldError: somebody else is at work.
        RecoveryOpenError: another repair was begun here, and neither finished nor taken back.
        StorageError: the storage does not answer, or cannot keep others out (subclasses).
    """
    plan = _read(file)
    if plan.needs:
        words = ",".join(waiver.value for waiver in (*plan.accepted, *plan.needs))
        raise WaiverNeededError(
            "the plan costs what nobody has accepted",
            subject=file,
            found=f"it is {plan.guarantee.value}",
            expected=f"--accept {words}",
            effect="nothing has been changed",
            next=command_line("plan", plan.checkpoint, "--goal", plan.goal, "--accept", words, *plan.evidence),
        )
    location = parse_location(plan.checkpoint)
    found = _survey(plan, config)
    if not plan.steps:
        _require_same(plan, found)
        return Recovery(plan, backup="")
    with _Work(plan, location, driver_is_dead, tell, config).begun(found) as (engine, proof):
        done = engine.apply(proof)
    return _recovered(done, location)


def undo(
    recovery: str,
    *,
    checkpoint: str | None = None,
    driver_is_dead: bool = False,
    tell: Tell = lambda _: None,
    config: Path | None = None,
) -> Recovery:
    """Put every byte back as it was before a recovery, while nothing has moved since.

    Args:
        recovery: Its id, or `last`.
        checkpoint: Location, or name in `lastgood.toml`; None: this machine remembers where the recovery was.
        driver_is_dead: Whether a person says so.
        tell: Gets a line for a person at each turn.
        config: Another configuration than `lastgood.toml` here.

    Raises:
        RecoveryUnknownError: there is no such recovery.
        UndoRefusedError: the query has gone on since; nothing has been changed.
        DriverNotProvenDeadError, LeaseHeldError, CheckpointHeldError, StorageError: as `apply_plan`.
    """
    location = _remembered(recovery) if checkpoint is None else parse_location(_target(checkpoint, config))
    storage = open_writable(location)
    room = Room(location, find_recovery(storage, location, recovery), storage)
    plan = room.plan()
    with _Work(plan, location, driver_is_dead, tell, config).begun() as (engine, proof):
        done = engine.undo(proof)
    return _recovered(done, location, undone=True)


@dataclass(frozen=True, slots=True)
class _Work:
    """What two callers have in common: one plan, its place, and how to go about it."""

    plan: Plan
    location: Location
    driver_is_dead: bool
    tell: Tell
    config: Path | None

    @contextlib.contextmanager
    def begun(self, found: Survey | None = None) -> Iterator[tuple[Engine, str]]:
        """The engine and the proof of death, as long as nobody else may touch the checkpoint."""
        storage = open_writable(self.location)
        room = Room(self.location, self.plan.recovery, storage)
        work = self.location.sibling(WORK_SUFFIX)
        with contextlib.ExitStack() as held:
            held.enter_context(hold_checkpoint(str(self.location), lock_file(self.location)))
            require_exclusive_create(storage, work)
            lease = held.enter_context(_lease(storage, work, self.plan.recovery))
            require_no_open(storage, self.location, but=self.plan.recovery)
            proof = self._proof(room, is_forth=found is not None)
            if found is not None and room.stage() in (None, Stage.BEGUN):
                _require_same(self.plan, found, room)
            _remember(self.plan)
            surveyor = Surveyor(sinks=self._sinks, promise=lambda shown: self._survey().promise(shown))
            yield Engine(room, self.plan, lease, surveyor, self.tell, now_ms()), proof

    def _survey(self) -> Survey:
        return _survey(self.plan, self.config)

    def _sinks(self) -> Sequence[PlannedSink]:
        return self._survey().sinks

    def _proof(self, room: Room, *, is_forth: bool) -> str:
        """Why no driver is alive. What is sealed already was proven before, and nobody has started since."""
        stage = room.stage()
        if stage is Stage.TAKEN_BACK or (is_forth and stage is Stage.CLOSED):
            return "nothing is left to do"
        if stage in _SEALED:
            noted = room.note(Stage.UNDOING if stage is Stage.UNDONE else Stage.BEGUN).get("proof")
            if isinstance(noted, str):
                return noted
        check = _driver_check(self.location, self.config)
        return prove_driver_dead(str(self.location), told=self.driver_is_dead, check=check)


def _lease(storage: WritableStorage, work: Location, recovery: str) -> Lease:
    return take_lease(
        storage,
        work,
        recovery,
        holder=Holder.this_process(),
        clock=time.monotonic,
        wait=time.sleep,
        now_ms=now_ms,
    )


def _require_same(plan: Plan, found: Survey, room: Room | None = None) -> None:
    """See that Spark would still do what was promised: Kafka may have moved since."""
    files = {step.path: step.after if isinstance(step, FileStep) else None for step in plan.steps}
    if room is not None and room.stage() is Stage.BEGUN:
        files = {**dict.fromkeys(plan.seal), **files}
    promise = found.promise(OverlayStorage(found.evidence.storage, found.location, files))
    if not promise.agrees(plan.promise) or found.sinks != plan.sinks:
        raise PlanStaleError(
            "the plan does not fit any more: Spark would do something else, or a sink has moved",
            subject=plan.checkpoint,
            found=f"{promise.outcome}, batch {promise.batch}: {promise.because}",
            expected=f"{plan.promise.outcome}, batch {plan.promise.batch}",
            effect="nothing has been changed",
            next=command_line("plan", plan.checkpoint, "--goal", plan.goal, *plan.evidence),
        )


def _survey(plan: Plan, config: Path | None) -> Survey:
    return survey(
        plan.checkpoint,
        evidence=options_of(plan.evidence),
        spark=plan.promise.spark,
        fail_on_data_loss=bool(plan.options.get("fail_on_data_loss", True)),
        config=config,
        with_mirror=False,
    )


def _recovered(done: Done, location: Location, *, undone: bool = False) -> Recovery:
    folder = Room(location, done.plan.recovery, open_writable(location)).folder / "before"
    return Recovery(done.plan, str(folder), undone=undone, already=done.already)


def _read(file: str) -> Plan:
    location = parse_location(file)
    raw = open_storage(location).read(location, limit=PLAN_BYTES_MAX + 1)
    if raw is None:
        raise UsageError("there is no such plan", subject=file, expected="a file that `lastgood plan` has saved")
    if len(raw) > PLAN_BYTES_MAX:
        raise PlanInvalidError("this is no plan", subject=file, found=f"more than {PLAN_BYTES_MAX:,} bytes")
    return parse_plan(raw, file)


def _target(text: str, config: Path | None) -> str:
    return (resolve_target(text) if config is None else resolve_target(text, config)).checkpoint


def _driver_check(location: Location, config: Path | None) -> Sequence[str]:
    """The command of the pipeline that has this checkpoint; none if no configuration knows it."""
    path = Path(CONFIG_NAME) if config is None else config
    if not path.exists():
        return ()
    for pipeline in load_config(path).values():
        places = (parse_location(query.checkpoint).identity for query in pipeline.queries)
        if location.identity in places:
            return pipeline.driver_check
    return ()


def _remember(plan: Plan) -> None:
    """Note on this machine where a recovery works, so that `undo ID` needs no checkpoint."""
    file = _memory(plan.recovery)
    with contextlib.suppress(OSError):  # a convenience: --checkpoint does without
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"checkpoint": plan.checkpoint}), encoding="utf-8")


def _remembered(recovery: str) -> Location:
    if recovery == LAST:
        raise UsageError("the last recovery of which checkpoint?", expected="--checkpoint LOCATION")
    try:
        return parse_location(json.loads(_memory(recovery).read_text(encoding="utf-8"))["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecoveryUnknownError(
            f"this machine does not remember a recovery {recovery}",
            expected="--checkpoint LOCATION",
            next=command_line("undo", recovery, "--checkpoint", "LOCATION"),
        ) from error


def _memory(recovery: str) -> Path:
    return platformdirs.user_state_path("lastgood") / "recoveries" / f"{Path(recovery).name}.json"
