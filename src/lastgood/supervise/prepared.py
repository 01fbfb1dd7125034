"""A pipeline that was checked before its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.ledger.url import LedgerPlace
from lastgood.observe.progress import LogWatch
from lastgood.process.driver import Launch
from lastgood.redaction import redact_words
from lastgood.settings.config import Pipeline
from lastgood.settings.policy import REBUILD
from lastgood.settings.target import Target, make_target
from lastgood.sources.kafka.starting_offsets import FOLDER_VARIABLE as STARTING_OFFSETS
from lastgood.sources.kafka.starting_offsets import KEY_VARIABLE
from lastgood.storage.reading import Location
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.rebuilding import CommandApplication, Rebuilder
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class Prepared(JsonValue):
    """A pipeline whose command, Python, Java and locations were found to be usable."""

    json = make_form(
        "pipeline=pipeline.name command=_command python=launch.python java=_java checkpoints=_checkpoints log "
        "agent=agent.parent ledger",
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
        if pipeline.policy.on_state_loss != REBUILD:
            return None

        def note(doing: str) -> None:
            tell(Noticed(at=time.time(), condition="STATE_REBUILDING", sentence=doing))

        application = CommandApplication.of(pipeline, environment=self.launch.env)
        muted = replace(application, is_stopped=is_stopped)
        return Rebuilder(muted, pipeline.policy.max_replay, is_held=True, note_begin=note)

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
