"""A pipeline that was checked before its start."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.ledger.url import VARIABLE, LedgerPlace, parse_place
from lastgood.observe.progress import LogWatch
from lastgood.process.driver import Launch
from lastgood.process.java import JAVA_MINIMUM
from lastgood.redaction import redact_words
from lastgood.settings.config import ConfiguredQuery, Pipeline
from lastgood.settings.policy import REBUILD
from lastgood.settings.target import Target, make_target
from lastgood.sources.kafka.starting_offsets import FOLDER_VARIABLE as STARTING_OFFSETS
from lastgood.sources.kafka.starting_offsets import KEY_VARIABLE
from lastgood.spark.session_agent import SessionAgent
from lastgood.storage.reading import Location, parse_location
from lastgood.supervise.agent_folder import name_agent_folder
from lastgood.supervise.agents import Agents
from lastgood.supervise.class_archives import ClassArchives
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.in_session import QueryStart, SessionAgents
from lastgood.supervise.rebuilding import CommandApplication, Rebuilder
from lastgood.supervise.session_restarts import BesideCare, SessionRestarts
from lastgood.supervise.standby import Standbys
from lastgood.values import JsonValue, make_form

_CLUSTER_MODE = re.compile(r"--deploy-mode[ =]cluster\b|\bspark\.submit\.deployMode=cluster\b")


@dataclass(frozen=True, slots=True)
class Prepared(JsonValue):
    """A pipeline whose command, Python, Java and locations were found to be usable."""

    json = make_form(
        "pipeline=pipeline.name command=_command python=launch.python java=_java checkpoints=_checkpoints log "
        "agent=agent.parent ledger standby=pipeline.standby class_archive=pipeline.class_archive "
        "restart_in_session=pipeline.restart_in_session",
        texts="python log agent ledger",
    )
    """What `run --check` shows."""

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
    here: QueryStart | None = None
    """The query of this process that is started; None: the command is."""

    @property
    def targets(self) -> dict[Location, Target]:
        """What is known of the query of each checkpoint."""
        queries = zip(self.watches, self.pipeline.queries, strict=True)
        return {location: make_target(self.pipeline, query) for location, query in queries}

    def make_rebuilder(self, is_stopped: Callable[[], bool], tell: Callable[[Event], None]) -> Rebuilder | None:
        """What makes state anew that is lost; None where the policy leaves that to a person.

        Args:
            is_stopped: Whether it is to end.
            tell: Gets each event.
        """
        pipeline = self.pipeline
        if pipeline.policy.on_state_loss != REBUILD or self.here is not None:
            return None

        def note(doing: str) -> None:
            tell(Noticed(at=time.time(), condition="STATE_REBUILDING", sentence=doing))

        application = CommandApplication.of(pipeline, environment=self.launch.env)
        muted = replace(application, is_stopped=is_stopped)
        return Rebuilder(muted, pipeline.policy.max_replay, is_held=True, note_begin=note)

    def make_standbys(
        self,
        holds: Sequence[int],
        tell: Callable[[Event], None],
        complete: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> Standbys | None:
        """What keeps a second driver warm; None where none is wanted.

        Args:
            holds: Descriptors of the locks on the checkpoints; may grow.
            tell: Gets each event.
            complete: Makes the environment for a start now of that of the command.
        """
        pipeline = self.pipeline
        if not pipeline.standby or self.agent is None:
            return None
        via = pipeline.policy.via
        start_file = None
        if via is not None:
            start_file = parse_location(via.location)
        return Standbys(
            self.launch,
            folder=self.agent,
            log=self.log,
            tell=tell,
            holds=holds,
            grace_seconds=pipeline.policy.grace_seconds,
            cwd=pipeline.cwd,
            memory_max=pipeline.standby_memory,
            start_file=start_file,
            complete=complete,
        )

    def make_archives(self, tell: Callable[[Event], None]) -> ClassArchives | None:
        """What keeps a class archive; None where none is wanted.

        Args:
            tell: Gets each event.
        """
        if not self.pipeline.class_archive:
            return None
        return ClassArchives(self.launch, name=self.pipeline.name, tell=tell)

    def make_restarts(
        self, agents: Agents | None, care: BesideCare | None, tell: Callable[[Event], None]
    ) -> SessionRestarts | None:
        """What has queries that have failed started again in a driver that goes on; None where none are to be.

        Args:
            agents: In the drivers.
            care: Judges the queries.
            tell: Gets each event.
        """
        if agents is None or care is None or not self.pipeline.restart_in_session:
            return None
        return SessionRestarts(agents, care, tell, show_data=self.pipeline.policy.show_data)

    def make_agents(self, on_checkpoint: Callable[[Location], None]) -> Agents | None:
        """What reads what the agent tells; None where there is none.

        Args:
            on_checkpoint: Is told of each checkpoint that nobody has named.
        """
        if self.agent is None:
            return None
        if self.here is not None:
            return SessionAgents(self.agent, next(iter(self.watches)), self.here)
        named = {location.identity: str(location) for location in self.watches}
        return Agents(self.agent, on_checkpoint=on_checkpoint, named=named)

    @property
    def _command(self) -> list[str]:
        return redact_words(self.launch.command)

    @property
    def _java(self) -> str | None:
        java = self.launch.java
        if java is None:
            return None
        return f"Java {java.version} ({java.home})"

    @property
    def _checkpoints(self) -> list[str]:
        return [str(each) for each in self.watches]


def prepare_here(
    query: ConfiguredQuery,
    start: Callable[[], object],
    *,
    pipeline: Pipeline,
    ledger: LedgerPlace | None,
    first_start: bool,
    go_on: bool,
    death: str | None,
) -> Prepared:
    """A query of this process instead of a command.

    Args:
        query: Its checkpoint, and what is known beside it.
        start: Builds it and starts it.
        pipeline: Whose policy and services count.
        ledger: What is filled meanwhile; None: none.
        first_start: Whether a person says that it has never run.
        go_on: A person has looked: however long it was down, it is started as it stands.
        death: Why no driver of it is alive; None: nobody knows.

    Raises:
        LocationInvalidError: its checkpoint cannot be understood.
        ExtraMissingError: the library for its storage is not installed.
    """
    location = parse_location(query.checkpoint)
    own = replace(pipeline, command=(), queries=(query,), env={}, standby=False, class_archive=False)
    own = replace(own, restart_in_session=False)
    # A driver_check would take this process for a driver that is alive.
    own = replace(own, is_configured=False, driver_check=())
    folder, log = name_agent_folder(own.stem), own.log
    here = QueryStart(start, str(location), SessionAgent(folder, str(location)), log, own.policy.grace_seconds, death)
    launch = Launch((getattr(start, "__qualname__", "start"),), {}, None, None)
    return Prepared(
        own,
        launch,
        {location: LogWatch(location)},
        log,
        folder,
        ledger,
        first_start=first_start,
        go_on=go_on,
        here=here,
    )


def find_ledger(pipeline: Pipeline, env: Mapping[str, str] | None = None) -> LedgerPlace | None:
    """The ledger that is filled while queries run: of the pipeline, or of the environment, by default ours.

    Raises:
        LedgerUrlError: what `LASTGOOD_LEDGER` says cannot be understood.
    """
    place = (os.environ if env is None else env).get(VARIABLE)
    if pipeline.ledger or not place:
        return pipeline.ledger
    return parse_place(place)


def _make_start_variables(pipeline: Pipeline, env: Mapping[str, str]) -> dict[str, str]:
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


def _require_standby(pipeline: Pipeline, env: Mapping[str, str], *, agent: bool) -> None:
    """See that a second driver could wait beside the first, as far as the command tells."""
    if not agent:
        found = "--no-agent"
        expected = "the agent, which alone keeps the second driver from starting a query"
    elif (elsewhere := _find_driver_elsewhere(pipeline, env)) is not None:
        found, expected = elsewhere
    elif pipeline.driver_check:
        found = "driver_check, which would take it for a driver that is alive"
        expected = "no driver_check: that the first one is dead is seen by its own process"
    else:
        return
    raise UsageError("no second driver can stand by", subject=pipeline.name, found=found, expected=expected)


def _require_restartable(pipeline: Pipeline, env: Mapping[str, str], *, agent: bool, repairs: bool) -> None:
    """See that a query could be started again in its driver, as far as the command tells."""
    if not agent:
        found = "--no-agent"
        expected = "the agent, which starts it"
    elif not repairs:
        found = "--restart-only"
        expected = "that the query may be looked at before it is started"
    elif (elsewhere := _find_driver_elsewhere(pipeline, env)) is not None:
        found, expected = elsewhere
    else:
        return
    raise UsageError(
        "no query can be started again in its driver", subject=pipeline.name, found=found, expected=expected
    )


def _require_archivable(pipeline: Pipeline, env: Mapping[str, str], launch: Launch) -> None:
    """See that the command starts a driver here whose Java can have a class archive, as far as it tells."""
    elsewhere = _find_driver_elsewhere(pipeline, env)
    if elsewhere is not None:
        found, expected = elsewhere
    elif launch.python is None or launch.java is None:
        found = "a command that is not known to start a driver with Python"
        expected = "python … or spark-submit …"
    elif launch.java.version < JAVA_MINIMUM:
        found = f"Java {launch.java.version}"
        expected = f"Java {JAVA_MINIMUM} or newer: with an older one it was not tried"
    else:
        return
    raise UsageError("no class archive can be made", subject=pipeline.name, found=found, expected=expected)


def _find_driver_elsewhere(pipeline: Pipeline, env: Mapping[str, str]) -> tuple[str, str] | None:
    """What says that the driver is no process of this machine, and what is expected; None: nothing does."""
    if _CLUSTER_MODE.search(" ".join(pipeline.command)):
        return "cluster mode, in which the driver is no process of this machine", "client mode"
    if "SPARK_REMOTE" in env or any(map(_is_remote_option, pipeline.command)):
        return "a client of Spark Connect, which has no driver of its own", "a classic session"
    return None


def _is_remote_option(word: str) -> bool:
    return word.partition("=")[0] == "--remote"
