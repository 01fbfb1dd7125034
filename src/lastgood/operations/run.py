"""`run`: supervise a command."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

import platformdirs
import psutil

from lastgood.errors import LastgoodError, UsageError
from lastgood.ledger.url import VARIABLE, LedgerPlace, parse_place
from lastgood.observe.progress import LogWatch
from lastgood.process.driver import Launch, prepare_launch
from lastgood.recovery.hold import hold_checkpoint, lock_file
from lastgood.redaction import redacted_words
from lastgood.settings.config import Pipeline
from lastgood.settings.keys import TEXT_VARIABLE
from lastgood.settings.target import Target, target_of
from lastgood.sources.kafka.starting_offsets import FOLDER_VARIABLE as STARTING_OFFSETS
from lastgood.sources.kafka.starting_offsets import KEY_VARIABLE
from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.driver import FOLDER_VARIABLE
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.rights import make_private
from lastgood.supervise.agents import Agents
from lastgood.supervise.events import Event, Noticed, no_checkpoint
from lastgood.supervise.filling import Filling, filling
from lastgood.supervise.heal import Healer
from lastgood.supervise.loop import Supervisor
from lastgood.supervise.mirroring import mirroring

_AGENT_FOLDERS_KEPT = 20
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline whose command, Python, Java and locations were found to be usable."""

    pipeline: Pipeline
    launch: Launch
    watches: Mapping[Location, LogWatch]
    """How to look at each checkpoint."""
    log: Path
    agent: Path | None = None
    """Where the agent in the driver writes; None without one."""
    ledger: LedgerPlace | None = None
    """What is filled meanwhile; None without one."""
    repairs: bool = True
    """Whether queries are looked at before each start, and brought back to their last good batch."""
    first_start: bool = False
    """Whether a person says that the queries have never run."""
    go_on: bool = False
    """Whether they are started as they stand, however long they were down."""

    @property
    def targets(self) -> dict[Location, Target]:
        """What is known of the query of each checkpoint."""
        queries = zip(self.watches, self.pipeline.queries, strict=True)
        return {location: target_of(self.pipeline, query) for location, query in queries}

    def to_json(self) -> dict[str, Any]:
        """What `run --check` shows."""
        return {
            "pipeline": self.pipeline.name,
            "command": redacted_words(self.launch.command),
            "python": self.launch.python and str(self.launch.python),
            "java": self.launch.java and f"Java {self.launch.java.version} ({self.launch.java.home})",
            "checkpoints": [str(each) for each in self.watches],
            "log": str(self.log),
            "agent": None if self.agent is None else str(self.agent.parent),
            "ledger": None if self.ledger is None else str(self.ledger),
        }


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
        UsageError: a checkpoint that is named twice.
        ExtraMissingError: the library for its storage is not installed.
        LedgerUrlError: what `LASTGOOD_LEDGER` says cannot be understood.
    """
    env = {**(os.environ if environment is None else environment), **pipeline.env}
    env = {**_start_variables(pipeline, env), **env}
    env.pop(TEXT_VARIABLE, None)  # the application signs nothing, and whoever writes it is not to
    checkpoints = [parse_location(query.checkpoint) for query in pipeline.queries]
    _require_distinct(checkpoints)
    name = re.sub(r"[^\w.-]+", "_", pipeline.name)
    log = platformdirs.user_log_path("lastgood") / f"{name}.log"
    launch = prepare_launch(pipeline.command, env)
    watches = {each: LogWatch(each) for each in checkpoints}
    ledger = pipeline.ledger or (parse_place(env[VARIABLE]) if env.get(VARIABLE) else None)
    if not agent:
        return Prepared(
            pipeline, launch, watches, log, ledger=ledger, repairs=repairs, first_start=first_start, go_on=go_on
        )
    folder = _agent_folder(name)
    instrumented = _instrumented(launch, folder)
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
    tell = _undisturbed(tell)
    with contextlib.ExitStack() as held:
        holds = [held.enter_context(hold_checkpoint(str(each), lock_file(each))) for each in prepared.watches]
        agents = prepared.agent and prepared.agent.parent
        filled = held.enter_context(filling(prepared.ledger, tell, agents=agents))
        held.enter_context(mirroring(prepared.watches, tell, filled))
        agent: Agents | None = None
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
            _make_agent_folder(prepared.agent, tell)
            named = {location.identity: str(location) for location in prepared.watches}
            agent = Agents(
                prepared.agent,
                on_checkpoint=_adopted(prepared.pipeline, held, holds, tell, filled, healer),
                named=named,
            )
            if healer is not None:
                healer.agents = agent
        elif not prepared.watches:
            tell(no_checkpoint(at=time.time()))
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
        )
        if on_supervisor is not None:
            on_supervisor(supervisor)
        with _signals_to(supervisor):
            return supervisor.run()


def _undisturbed(tell: Callable[[Event], None]) -> Callable[[Event], None]:
    """The same, where nothing that becomes of who listens disturbs the command: a full disk, a pipe that nobody reads.

    One event at a time, whatever thread it comes from.
    """
    lock = threading.Lock()

    def told(event: Event) -> None:
        with lock, contextlib.suppress(OSError, SystemExit):  # so rich leaves where nobody reads a pipe
            tell(event)

    return told


def _start_variables(pipeline: Pipeline, env: Mapping[str, str]) -> dict[str, str]:
    """What tells `read_kafka` in the driver which file says where to begin; nothing if somebody has told it already."""
    via = pipeline.policy.via
    if via is None or env.get(STARTING_OFFSETS):
        return {}
    return {STARTING_OFFSETS: via.location, **({} if via.key is None else {KEY_VARIABLE: via.key})}


def _require_distinct(checkpoints: Sequence[Location]) -> None:
    """See that no checkpoint is named twice."""
    seen: dict[str, Location] = {}
    for each in checkpoints:
        first = seen.setdefault(each.identity, each)
        if first is not each:
            raise UsageError(
                "a checkpoint is named twice", found=f"{first} and {each}", expected="one checkpoint for each query"
            )


def _agent_folder(name: str) -> Path:
    """A folder of this run, on this machine."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return platformdirs.user_state_path("lastgood") / "agent" / name / f"{stamp}-{os.getpid()}"


def _instrumented(launch: Launch, folder: Path) -> Launch:
    """The same command; every Python that it starts finds the agent."""
    inherited = launch.env.get("PYTHONPATH")
    path = str(SITE_FOLDER) if not inherited else f"{SITE_FOLDER}{os.pathsep}{inherited}"
    return replace(launch, env={**launch.env, "PYTHONPATH": path, FOLDER_VARIABLE: str(folder)})


def _make_agent_folder(folder: Path, tell: Callable[[Event], None]) -> None:
    """Make it, and remove those of runs long past."""
    try:
        make_private(folder)  # exceptions may quote data
        old = sorted(each for each in folder.parent.iterdir() if each != folder)[:-_AGENT_FOLDERS_KEPT]
        for each in old:
            owner = each.name.rpartition("-")[2]
            if not (owner.isdigit() and psutil.pid_exists(int(owner))):
                # Safe: a folder that was named after a run of this pipeline, whose process is gone, and older than the
                # newest ones, which stay: what it holds was for that run alone. No link is followed.
                shutil.rmtree(each)
    except OSError as error:
        tell(
            Noticed(
                at=time.time(),
                condition="AGENT_FOLDER_NOT_WRITTEN",
                sentence=f"{folder} cannot be written ({error.strerror}): nothing of what the agent sees is kept",
            )
        )


def _adopted(
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
            holds.append(held.enter_context(hold_checkpoint(str(location), lock_file(location))))
            held.enter_context(mirroring([location], tell, filled))
            if healer is not None:
                healer.adopt(location, Target(str(location), config=pipeline.config))
        except LastgoodError as error:
            tell(Noticed(at=time.time(), condition=error.condition, sentence=f"{location}: {error.sentence}"))

    return adopt


@contextlib.contextmanager
def _signals_to(supervisor: Supervisor) -> Iterator[None]:
    """Pass Ctrl-C, SIGTERM and SIGHUP on to the command; only a main thread can. `nohup` keeps its word."""

    def stop(signum: int, _frame: FrameType | None) -> None:
        supervisor.stop(signum)

    try:
        heard = [signum for signum in _STOP_SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]
        before = {signum: signal.signal(signum, stop) for signum in heard}
    except ValueError:  # not the main thread: whoever called us handles signals
        before = {}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
