"""`run`: supervise a command."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import IO

from lastgood.errors import LastgoodError
from lastgood.journal.holding import locate_lock_file
from lastgood.observe.progress import LogWatch
from lastgood.process.driver import prepare_launch
from lastgood.recovery.hold import hold_checkpoint
from lastgood.settings.config import Pipeline
from lastgood.settings.keys import TEXT_VARIABLE
from lastgood.settings.target import Target
from lastgood.storage.reading import Location, parse_location
from lastgood.supervise.agent_folder import instrument, make_agent_folder, name_agent_folder
from lastgood.supervise.events import Event, Noticed, make_no_checkpoint, shield_tell
from lastgood.supervise.filling import Filling, keep_filled
from lastgood.supervise.heal import Healer
from lastgood.supervise.loop import Supervisor
from lastgood.supervise.mirroring import keep_mirrored
from lastgood.supervise.prepared import (
    Prepared,
    _make_start_variables,
    _require_archivable,
    _require_distinct,
    _require_restartable,
    _require_standby,
    find_ledger,
)
from lastgood.supervise.signals import pass_signals_to
from lastgood.supervise.state_mirroring import keep_state_mirrored


def prepare(
    pipeline: Pipeline,
    environment: Mapping[str, str] | None = None,
    *,
    agent: bool = True,
    repairs: bool = True,
    first_start: bool = False,
    go_on: bool = False,
) -> Prepared:
    """Check all that can be checked before a start; changes nothing.

    Args:
        pipeline: What is to run.
        environment: Its environment variables, before its own settings; ours if None.
        agent: Whether every driver it starts gets the agent.
        repairs: Whether queries are repaired where a plain restart is not enough.
        first_start: Whether a person says that they have never run.
        go_on: A person has looked: however long they were down, they are started as they stand.

    Raises:
        CommandNotFoundError, PythonUnusableError, JavaMissingError: see `prepare_launch`.
        LocationInvalidError: a checkpoint location that cannot be understood.
        UsageError: a checkpoint that is named twice, or a standby where there can be none.
        ExtraMissingError: the library for its storage is not installed.
        LedgerUrlError: what `LASTGOOD_LEDGER` says cannot be understood.
    """
    env = {**(os.environ if environment is None else environment), **pipeline.env}
    env = {**_make_start_variables(pipeline, env), **env}
    env.pop(TEXT_VARIABLE, None)  # the application signs nothing, and whoever writes it is not to
    checkpoints = [parse_location(query.checkpoint) for query in pipeline.queries]
    _require_distinct(checkpoints)
    if pipeline.standby:
        _require_standby(pipeline, env, agent=agent)
    if pipeline.restart_in_session:
        _require_restartable(pipeline, env, agent=agent, repairs=repairs)
    log = pipeline.log
    launch = prepare_launch(pipeline.command, env)
    if pipeline.class_archive:
        _require_archivable(pipeline, env, launch)
    watches = {each: LogWatch(each) for each in checkpoints}
    ledger = find_ledger(pipeline, env)
    if not agent:
        return Prepared(
            pipeline, launch, watches, log, ledger=ledger, repairs=repairs, first_start=first_start, go_on=go_on
        )
    folder = name_agent_folder(pipeline.stem)
    instrumented = instrument(launch, folder, restarts=pipeline.restart_in_session)
    return Prepared(pipeline, instrumented, watches, log, folder, ledger, repairs, first_start, go_on)


def supervise(
    prepared: Prepared,
    *,
    tell: Callable[[Event], None],
    show: IO[bytes] | None = None,
    on_supervisor: Callable[[Supervisor], None] | None = None,
) -> int:
    """Keep a pipeline running until it succeeds, is given up, or a signal stops us.

    Args:
        prepared: What `prepare` returned.
        tell: Gets each event as it happens.
        show: Where the command's output is copied.
        on_supervisor: Gets the supervisor before it starts, for a caller that wants to stop it.

    Returns:
        0 when the command ended with exit code 0, else 128 + the signal that stopped us.

    Raises:
        CheckpointHeldError: another run holds one of the checkpoints.
        AttemptsExhaustedError: the command failed too often in a row without progress.
        PersonNeededError: the policy does not allow what would have to be done.
        LastgoodError: nobody can tell what is the matter with a query (subclasses).
    """
    tell = shield_tell(tell)
    with contextlib.ExitStack() as held:
        holds = [held.enter_context(hold_checkpoint(str(each), locate_lock_file(each))) for each in prepared.watches]
        agents = prepared.agent and prepared.agent.parent
        filled = held.enter_context(keep_filled(prepared.ledger, tell, agents=agents))
        held.enter_context(keep_mirrored(prepared.watches, tell, filled))
        every = prepared.pipeline.mirror_state_seconds
        held.enter_context(keep_state_mirrored(prepared.targets.values(), every, tell))
        agent = None
        healer = None
        if prepared.repairs:
            healer = Healer(
                prepared.pipeline,
                prepared.targets,
                tell=tell,
                first_start=prepared.first_start,
                go_on=prepared.go_on,
            )
            held.callback(healer.close)
        if prepared.agent is not None:
            make_agent_folder(prepared.agent, tell)
            agent = prepared.make_agents(_make_adopt(prepared.pipeline, held, holds, tell, filled, healer))
            if healer is not None:
                healer.agents = agent
        elif not prepared.watches:
            tell(make_no_checkpoint(at=time.time()))
        archives = prepared.make_archives(tell)
        if archives is not None:
            held.callback(archives.close)
        standbys = prepared.make_standbys(holds, tell, dict if archives is None else archives.complete)
        if standbys is not None:
            held.callback(standbys.close)
        if prepared.here is not None:
            prepared.here.holds = holds
            prepared.here.agent.observe()
            held.callback(prepared.here.agent.close)
        supervisor = Supervisor(
            prepared.launch,
            policy=prepared.pipeline.policy,
            watches={str(location): watch for location, watch in prepared.watches.items()},
            log=prepared.log,
            tell=tell,
            agent=agent,
            care=healer,
            cwd=prepared.pipeline.cwd,
            show=show,
            holds=holds,
            standbys=standbys,
            archives=archives,
            start=None if prepared.here is None else prepared.here.begin,
            restarts=prepared.make_restarts(agent, healer, tell),
        )
        if healer is not None and prepared.agent is not None:
            healer.rebuilder = prepared.make_rebuilder(lambda: supervisor.is_stopped, tell)
        if on_supervisor is not None:
            on_supervisor(supervisor)
        with pass_signals_to(supervisor):
            return supervisor.run()


def _make_adopt(
    pipeline: Pipeline,
    held: contextlib.ExitStack,
    holds: list[int],
    tell: Callable[[Event], None],
    filled: Filling | None,
    healer: Healer | None,
) -> Callable[[Location], None]:
    """What is done with a checkpoint that nobody named: as much as with one that somebody did."""

    def adopt(location: Location) -> None:
        try:
            holds.append(held.enter_context(hold_checkpoint(str(location), locate_lock_file(location))))
            target = Target(str(location), config=pipeline.config)
            held.enter_context(keep_mirrored([location], tell, filled))
            held.enter_context(keep_state_mirrored([target], pipeline.mirror_state_seconds, tell))
            if healer is not None:
                healer.adopt(location, target)
        except LastgoodError as error:
            tell(Noticed(at=time.time(), condition=error.condition, sentence=f"{location}: {error.sentence}"))

    return adopt
