"""`recover`: once, before the application starts: diagnose, plan, and carry out what the policy allows."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from lastgood.errors import LastgoodError, Retry, UsageError, command_line
from lastgood.operations.apply import Recovery, apply_plan
from lastgood.operations.driver_death import DriverNotProvenDeadError
from lastgood.operations.evidence import CheckpointMissingError
from lastgood.operations.plan import PlanOptions, make_plan
from lastgood.operations.survey import survey
from lastgood.operations.target import pipeline_of, resolve_target
from lastgood.recovery.draft import RepairRefusedError
from lastgood.recovery.engine import PlanStaleError
from lastgood.recovery.plan import Plan
from lastgood.recovery.price import Waiver
from lastgood.recovery.room import open_recovery, recoveries_folder
from lastgood.storage import Location, open_storage, parse_location

Tell = Callable[[str], None]


_ANSWERING = ("delta", "file", "iceberg", "fence")
"""Kinds of sinks that could tell of batches."""


class Verdict(enum.Enum):
    """What is to be done next."""

    START = "start"
    """Start the application now."""
    PERSON = "person"
    """A person has to decide."""
    LATER = "later"
    """Try again in a while."""

    @property
    def exit_code(self) -> int:
        """What `recover` exits with."""
        return {Verdict.START: 0, Verdict.PERSON: 3, Verdict.LATER: 75}[self]


@dataclass(frozen=True, slots=True)
class Decision:
    """What `recover` came to."""

    verdict: Verdict
    because: str
    """One line for a person."""
    plan: Plan | None = None
    file: Path | None = None
    """Where the plan is saved, if a person has to decide on it."""
    recovery: Recovery | None = None
    """What was carried out; None: nothing had to be changed, or nothing was."""
    error: LastgoodError | None = None
    """What stands in the way."""

    def to_json(self) -> dict[str, Any]:
        """What `recover --format json` prints: the plan, what became of it, and the decision."""
        made = self.recovery.to_json() if self.recovery else self.plan.to_json() if self.plan else {}
        return {
            **made,
            "decision": self.verdict.value,
            "because": self.because,
            "file": None if self.file is None else str(self.file),
            "error": None if self.error is None else self.error.to_json(),
        }


def recover(
    target: str,
    options: PlanOptions | None = None,
    *,
    observe: bool = False,
    driver_is_dead: bool = False,
    save_to: Path | None = None,
    tell: Tell = lambda _: None,
    config: Path | None = None,
) -> Decision:
    """Make a query ready to start, as far as the policy goes.

    Args:
        target: Location, or name in `lastgood.toml`.
        options: What is wanted; what the policy of the target's pipeline accepts is accepted too.
        observe: Change nothing; say what would be done.
        driver_is_dead: Whether a person says so.
        save_to: File for a plan that a person has to decide on; by default one of this user's state folder.
        tell: Gets a line for a person at each turn.
        config: Another configuration than `lastgood.toml` here.

    Raises:
        LastgoodError: nobody can tell what is the matter: an option is not understood, the storage forbids to look, the
            checkpoint was changed under the seal (subclasses). What may be otherwise in a while is a `Decision`.
    """
    options = _allowed(target, options or PlanOptions(), config)
    work = _Work(target, options, observe, driver_is_dead, save_to, tell, config)
    try:
        return work.finish() or work.plan()
    except CheckpointMissingError as error:
        return _first_start(target, options, error, config)
    except LastgoodError as error:
        return _told(error)


@dataclass(frozen=True, slots=True)
class _Work:
    """One recovery, and how to go about it."""

    target: str
    options: PlanOptions
    observe: bool
    driver_is_dead: bool
    save_to: Path | None
    tell: Tell
    config: Path | None

    def finish(self) -> Decision | None:
        """Finish a repair that was interrupted; None if there is none."""
        location = _location(self.target, self.config)
        recovery = open_recovery(open_storage(location), location)
        if recovery is None:
            return None
        if self.observe:
            return Decision(Verdict.START, f"recovery {recovery}, which was interrupted, would be finished")
        done = self._apply(str(recoveries_folder(location) / f"{recovery}/plan.json"))
        because = f"recovery {recovery}, which was interrupted, is finished"
        return Decision(Verdict.START, because, done.plan, recovery=done)

    def plan(self) -> Decision:
        """Plan, and do it."""
        plan = make_plan(self.target, self.options, config=self.config)
        if not plan.steps:
            return Decision(Verdict.START, f"Spark's own restart does it: {plan.promise.because}", plan)
        if self.observe and not plan.needs:
            return Decision(Verdict.START, "the plan would be carried out", plan)
        file = _saved(plan, self.save_to)
        if plan.needs:
            words = " and ".join(waiver.value for waiver in plan.needs)
            return Decision(Verdict.PERSON, f"nobody has accepted {words}", plan, file)
        try:
            done = self._apply(str(file))
        except LastgoodError as error:
            return replace(_told(error), plan=plan, file=file)
        return Decision(Verdict.START, "the plan was carried out", plan, recovery=done)

    def _apply(self, file: str) -> Recovery:
        return apply_plan(file, driver_is_dead=self.driver_is_dead, tell=self.tell, config=self.config)


def _told(error: LastgoodError) -> Decision:
    """What an error comes to: a person can mend it, or it may be otherwise in a while.

    Raises:
        LastgoodError: neither.
    """
    if isinstance(error, RepairRefusedError | DriverNotProvenDeadError):
        return Decision(Verdict.PERSON, error.sentence, error=error)
    if error.retry is Retry.LATER or isinstance(error, PlanStaleError):
        return Decision(Verdict.LATER, error.sentence, error=error)
    raise error


def _allowed(target: str, options: PlanOptions, config: Path | None) -> PlanOptions:
    """With what the policy of the target's pipeline accepts."""
    pipeline = pipeline_of(target, config)
    accepted = () if pipeline is None else tuple(map(Waiver, pipeline.policy.accept))
    return replace(options, accept=tuple(dict.fromkeys((*options.accept, *accepted))))


def _location(target: str, config: Path | None) -> Location:
    return parse_location((resolve_target(target) if config is None else resolve_target(target, config)).checkpoint)


def _first_start(target: str, options: PlanOptions, missing: CheckpointMissingError, config: Path | None) -> Decision:
    """There is no checkpoint, and no mirror of one: a first deployment, unless a sink knows better.

    Raises:
        LastgoodError: a sink does not let us look.
    """
    found = survey(target, evidence=options.evidence, spark=options.spark, config=config, may_be_missing=True)
    for sink in found.world.sinks:
        if sink.others or sink.last_batch is not None:
            missing.next = command_line("plan", target, "--goal", "fresh", *found.asked.words())
            missing.effect = (
                f"{sink.location} holds batches of a query: from batch 0 on they might be lost, or come twice"
            )
            return Decision(
                Verdict.PERSON, "there is no checkpoint, and a sink holds batches of a query", error=missing
            )
        if not sink.known and sink.kind in _ANSWERING:
            because = f"nobody can tell whether this is a first start: {sink.location}, {sink.because}"
            return Decision(Verdict.LATER, because, error=missing)
    told = "" if found.world.sinks else ", and no sink was named"
    return Decision(Verdict.START, f"a first start: no batch was ever planned here{told}")


def _saved(plan: Plan, file: Path | None) -> Path:
    path = file or platformdirs.user_state_path("lastgood") / "plans" / f"plan-{plan.recovery}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plan.to_bytes())
    except OSError as error:
        raise UsageError("the plan cannot be saved", subject=str(path), found=error.strerror) from error
    return path
