"""State that cannot be loaded is made anew by the application itself, beside the checkpoint, without its sink."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import platformdirs

from lastgood.checkpoint.logs import name_batches
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.ids import make_id
from lastgood.journal.holding import HoldReason, locate_lock_file
from lastgood.journal.room import require_no_open
from lastgood.observe.open_query import OpenQuery, read_clock_ms
from lastgood.observe.survey import add_repair_facts, add_wanted, survey
from lastgood.planning.plan import Plan
from lastgood.planning.replay import Replay, choose_replay, list_grounds, price_replay
from lastgood.recovery.applying import WaiverNeededError
from lastgood.recovery.gathering import gather
from lastgood.recovery.hold import hold_checkpoint
from lastgood.recovery.plans import PlanOptions, list_needs, make_plan
from lastgood.recovery.rebuilding import Muted, RebuildFailedError, SilentCheckpoint
from lastgood.settings.config import Pipeline
from lastgood.settings.keys import TEXT_VARIABLE
from lastgood.settings.target import Target
from lastgood.spark.silent_session import SilentSession
from lastgood.supervise.agent_folder import name_agent_folder, put_kept
from lastgood.supervise.silent_driver import SilentDriver, prepare_silent, show_error

Tell = Callable[[str], None]
RunAll = Callable[[Muted], None]
"""Has the batches run, one after another."""


class RunsSilently(Protocol):
    """That of a query, which can be run without its sink."""

    def run_silently(self, silent: SilentCheckpoint, run_all: RunAll) -> None:
        """Start it, have the batches run, and end it.

        Raises:
            RebuildFailedError: it did not start the query.
            UsageError: it cannot be muted (subclasses).
        """
        ...


@dataclass(frozen=True, slots=True)
class CommandApplication:
    """One that a command starts, as a process of its own."""

    command: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path | None = None
    is_stopped: Callable[[], bool] = lambda: False
    """Whether it is to end."""

    @classmethod
    def of(
        cls, pipeline: Pipeline | None, command: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> CommandApplication:
        """That of a pipeline, or of a command that was typed.

        Raises:
            UsageError: nobody says how it is started.
        """
        env = dict(os.environ if environment is None else environment)
        if pipeline is not None:
            env |= pipeline.env
            command = command or pipeline.command
        if not command:
            raise UsageError(
                "which application runs the query?",
                subject="rebuild",
                expected="-- COMMAND..., or a pipeline by its name",
            )
        env.pop(TEXT_VARIABLE, None)  # the application signs nothing
        return cls(command, env, None if pipeline is None else pipeline.cwd)

    def run_silently(self, silent: SilentCheckpoint, run_all: RunAll) -> None:
        """See `RunsSilently`.

        Raises:
            CommandNotFoundError, PythonUnusableError, JavaMissingError: see `prepare_launch`.
            ToldToStopError: it is to end.
        """
        location = silent.query.location
        folder = name_agent_folder("rebuild")
        launch = prepare_silent(self.command, self.environment, folder, location)
        put_kept(folder, {str(location): silent.read_kept()})
        log = platformdirs.user_log_path("lastgood") / "rebuild.log"
        with SilentDriver(launch, folder, log, cwd=self.cwd, is_stopped=self.is_stopped) as driver:
            run_all(driver)


@dataclass(frozen=True, slots=True)
class SessionApplication:
    """One of this process: a function that builds the query and starts it."""

    start: Callable[[], object]

    def run_silently(self, silent: SilentCheckpoint, run_all: RunAll) -> None:
        """See `RunsSilently`."""
        location = silent.query.location
        session = SilentSession(self.start, str(location), silent.query.query_id, silent.read_kept())
        if not session.run(lambda run_once: run_all(_MutedSession(str(location), run_once))):
            found = "it has ended without"
            raise RebuildFailedError.of_others("start() starts no such query", str(location), found, session.passed)


@dataclass(frozen=True, slots=True)
class _MutedSession:
    subject: str
    run_once: Callable[[str], str | None]

    def run(self, below: str, batch: int) -> None:
        error = self.run_once(below)
        if error is not None:
            raise RebuildFailedError.of_batch(batch, self.subject, show_error(error))


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Has an application make the state of its query anew; see `recovery.rebuilding.Rebuilding`."""

    application: RunsSilently
    max_replay: int | None = None
    """How many offsets and files may be read again; None: however many."""
    is_new_code: bool = False
    """Whether it is to make other state than there is, of all batches since the beginning."""
    is_held: bool = False
    """Whether we hold the checkpoint already, as a `run` does."""
    note_begin: Tell = lambda _: None
    """Is told what will be done, once it is known that it can be."""

    def foresee(self, target: Target, options: PlanOptions) -> Replay:
        """Which batches would run again.

        Raises:
            RepairRefusedError: the state can be loaded, or cannot be made anew in a way of which anything can be
                promised.
            WaiverNeededError: the plan would cost what nobody has accepted.
        """
        return self._choose(target, options).replay

    def rebuild(self, target: Target, options: PlanOptions, tell: Tell) -> Plan:
        """Make the state anew, and plan how it is brought; see `operations.rebuild`."""
        if self.is_held:
            return self._rebuild_held(target, options, tell)
        self._choose(target, options)  # where there is nothing to be done, nothing is written either
        with hold_checkpoint(str(target.location), locate_lock_file(target.location), HoldReason.REBUILD):
            return self._rebuild_held(target, options, tell)

    def _rebuild_held(self, target: Target, options: PlanOptions, tell: Tell) -> Plan:
        silent = self._choose(target, options)
        batches = silent.replay.batches

        def run_all(muted: Muted) -> None:
            planned = batches
            if silent.replay.starts:
                gather(silent, muted, tell)
                planned = batches[2:]
            for batch in planned:
                tell(f"batch {batch} runs again, of {name_batches(batches)}, without a sink")
                silent.put_plan(batch)
                muted.run(silent.below, batch)
                silent.require_same(batch)

        try:
            silent.clear_older()
            self.note_begin(f"{name_batches(batches)} run again, without a sink, to make the state anew")
            tell("copying what the first batch begins with")
            silent.fill()
            self.application.run_silently(silent, run_all)
            tell("planning how it is brought")
            grounds = _list_grounds(_look(target, options), silent)  # what the batches have read was there to the end
            return make_plan(target, options, rebuilt=silent.collect(grounds), tell=tell)
        except BaseException:  # Ctrl-C among it: what was made so far would be brought by nobody
            silent.clear()
            raise

    def _choose(self, target: Target, options: PlanOptions) -> SilentCheckpoint:
        """What is to run again, of a query of which all is known that can be known before."""
        found = _look(target, options)
        replay = choose_replay(found.seen, found.spark, is_new_code=self.is_new_code)
        silent = SilentCheckpoint.of(found, replay, make_id(read_clock_ms()), is_new_code=self.is_new_code)
        _require_accepted(found, silent.replay, options, *(["--new-code"] if self.is_new_code else []))
        _list_grounds(found, silent)
        price_replay(found.seen, found.spark, silent.replay, silent.read_plans(), self.max_replay)
        return silent


def _look(target: Target, options: PlanOptions) -> OpenQuery:
    found = survey(target, evidence=options.evidence, spark=options.spark, fail_on_data_loss=options.fail_on_data_loss)
    found = add_wanted(found, (), options.accept)
    require_no_open(found.storage, found.location, found.seen.asked, target.config)
    return add_repair_facts(found, reads_all_again=True)


def _require_accepted(found: OpenQuery, replay: Replay, options: PlanOptions, *words: str) -> None:
    """See that the plan will not need what nobody has accepted: whoever has waited for it could not carry it out."""
    needed = list_needs(replay.foreseen, options.accept)
    if needed:
        because = (*replay.against, *replay.foreseen.rests_on[-1:])[0]
        price = ",".join(each.value for each in (*options.accept, *needed))
        raise WaiverNeededError(
            "the plan would cost what nobody has accepted",
            subject=str(found.location),
            found=f"it would be {replay.foreseen.guarantee.value}: {because}",
            expected=f"--accept {price}",
            effect="nothing was run, and nothing has been changed",
            next=found.seen.asked.about(found.seen.location).make_rebuild_command(*words, "--accept", price),
        )


def _list_grounds(found: OpenQuery, silent: SilentCheckpoint) -> tuple[str, ...]:
    return list_grounds(found.seen, found.spark, silent.replay, silent.read_plans())
