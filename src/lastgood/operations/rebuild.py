"""`rebuild`: state that cannot be loaded is made anew by the own batches of a query, without a sink, beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import platformdirs

from lastgood.checkpoint.logs import name_batches
from lastgood.errors import UsageError
from lastgood.ids import make_id
from lastgood.journal.room import require_no_open
from lastgood.observe.open_query import OpenQuery, read_clock_ms
from lastgood.observe.survey import add_repair_facts, add_wanted, survey
from lastgood.planning.plan import Plan
from lastgood.planning.replay import Replay, choose_replay, list_grounds
from lastgood.recovery.applying import WaiverNeededError
from lastgood.recovery.hold import HoldReason, hold_checkpoint, locate_lock_file
from lastgood.recovery.plans import PlanOptions, list_needs, make_plan
from lastgood.recovery.rebuilding import SilentCheckpoint
from lastgood.settings.config import Pipeline
from lastgood.settings.keys import TEXT_VARIABLE
from lastgood.settings.target import Target
from lastgood.supervise.agent_folder import name_agent_folder
from lastgood.supervise.silent_driver import SilentDriver, prepare_silent


def rebuild(
    target: Target,
    command: Sequence[str] = (),
    options: PlanOptions | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Make the state of a query anew, and plan how it is brought; the checkpoint and its sinks are not changed.

    The application runs, and its query starts: on a checkpoint beside its own, and with no sink, one batch after
    another as they were planned.

    Args:
        target: Which query.
        command: That starts its application; empty: that of its pipeline.
        options: What is wanted of the plan, and where to look.
        environment: Environment variables of the application, before those of its pipeline; ours if None.
        tell: Is told, in a few words, what takes time.

    Raises:
        CheckpointHeldError: a `run` supervises the query, or it is being repaired.
        WaiverNeededError: the plan would cost what nobody has accepted.
        RepairRefusedError: the state can be loaded, or cannot be made anew in a way of which anything can be promised.
        RebuildFailedError: the application did not run a batch.
        RebuildDivergedError: a batch came to something else than when it ran first.
        CommandNotFoundError, PythonUnusableError, JavaMissingError, UsageError: the command.
        StorageError: the checkpoint cannot be read, or nothing can be written beside it (subclasses).
    """
    options = options or PlanOptions()
    pipeline = target.pipeline
    if not command and pipeline is not None:
        command = pipeline.command
    if not command:
        raise UsageError(
            "which application runs the query?", subject="rebuild", expected="-- COMMAND..., or a pipeline by its name"
        )
    env = _make_environment(environment, pipeline)
    location = target.location
    _choose(target, options)  # where there is nothing to be done, nothing is written either
    with hold_checkpoint(str(location), locate_lock_file(location), HoldReason.REBUILD):
        silent = _choose(target, options)
        folder = name_agent_folder("rebuild")
        launch = prepare_silent(command, env, folder, location)
        log = platformdirs.user_log_path("lastgood") / "rebuild.log"
        try:
            silent.clear_older()
            tell("copying what the first batch begins with")
            silent.fill()
            with SilentDriver(launch, folder, log, cwd=None if pipeline is None else pipeline.cwd) as driver:
                _run_batches(silent, driver, tell)
            tell("planning how it is brought")
            grounds = _list_grounds(_look(target, options), silent)  # what the batches have read was there to the end
            return make_plan(target, options, rebuilt=silent.collect(grounds), tell=tell)
        except BaseException:  # Ctrl-C among it: what was made so far would be brought by nobody
            silent.clear()
            raise


def _make_environment(environment: Mapping[str, str] | None, pipeline: Pipeline | None) -> dict[str, str]:
    env = dict(os.environ if environment is None else environment)
    if pipeline is not None:
        env |= pipeline.env
    env.pop(TEXT_VARIABLE, None)  # the application signs nothing
    return env


def _choose(target: Target, options: PlanOptions) -> SilentCheckpoint:
    """What is to run again, of a query of which all is known that can be known before."""
    found = _look(target, options)
    silent = SilentCheckpoint.of(found, choose_replay(found.seen, found.spark), make_id(read_clock_ms()))
    _require_accepted(found, silent.replay, options)
    _list_grounds(found, silent)
    return silent


def _look(target: Target, options: PlanOptions) -> OpenQuery:
    found = survey(target, evidence=options.evidence, spark=options.spark, fail_on_data_loss=options.fail_on_data_loss)
    found = add_wanted(found, (), options.accept)
    require_no_open(found.storage, found.location, found.seen.asked, target.config)
    return add_repair_facts(found, reads_all_again=True)


def _require_accepted(found: OpenQuery, replay: Replay, options: PlanOptions) -> None:
    """See that the plan will not need what nobody has accepted: whoever has waited for it could not carry it out."""
    needed = list_needs(replay.foreseen, options.accept)
    if needed:
        price = ",".join(each.value for each in (*options.accept, *needed))
        raise WaiverNeededError(
            "the plan would cost what nobody has accepted",
            subject=str(found.location),
            found=f"it would be {replay.foreseen.guarantee.value}: {replay.foreseen.rests_on[-1]}",
            expected=f"--accept {price}",
            effect="nothing was run, and nothing has been changed",
            next=found.seen.asked.about(found.seen.location).make_rebuild_command("--accept", price),
        )


def _run_batches(silent: SilentCheckpoint, driver: SilentDriver, tell: Callable[[str], None]) -> None:
    batches = silent.replay.batches
    for batch in batches:
        tell(f"batch {batch} runs again, of {name_batches(batches)}, without a sink")
        silent.put_plan(batch)
        driver.run(silent.below, batch)
        silent.require_same(batch)


def _list_grounds(found: OpenQuery, silent: SilentCheckpoint) -> tuple[str, ...]:
    return list_grounds(found.seen, found.spark, silent.replay, silent.read_plans())
