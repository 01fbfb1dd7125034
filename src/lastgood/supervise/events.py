"""What happens to a supervised command, as values: the timeline, and the lines of `--format json`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, ClassVar

from lastgood.frozen import dataclass
from lastgood.journal.incident import COLD
from lastgood.written import redact_written


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; `at` is a Unix time in seconds."""

    name: ClassVar[str]
    at: float

    def to_json(self) -> dict[str, Any]:
        """One line of `--format json`: `event`, `at` (ISO 8601, UTC), then the fields; without secrets."""
        fields = asdict(self)
        fields["at"] = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return redact_written({"event": self.name, **fields})


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """The command runs."""

    name: ClassVar[str] = "started"
    run: int
    """1 for the first start, 2 for the first restart, …"""
    pid: int
    command: list[str]
    python: str | None
    """Python and pyspark of the driver, as text; None if the command is not known to be Spark."""
    java: str | None
    log: str
    """File that holds what the command prints."""
    checkpoints: list[str]
    way: str = COLD
    """Of `journal.incident.WAYS`."""
    waited_seconds: float | None = None
    """How old the process was that waited; None for a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingBy(Event):
    """A second driver waits, warm."""

    name: ClassVar[str] = "standing_by"
    pid: int
    seconds: float
    """From its start until it was warm."""
    memory_bytes: int
    """What it and all that it has started hold."""
    master: str | None
    """Where its executors run."""
    cores: int | None
    """How many tasks they can run at once."""
    warmed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """A new batch stands in the commit log."""

    name: ClassVar[str] = "committed"
    checkpoint: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Event):
    """The first batch after a failure is committed."""

    name: ClassVar[str] = "recovered"
    checkpoint: str
    batch: int
    rerun: bool
    """True if the batch had been planned before the failure: Spark ran it again with the same ranges."""
    seconds: float
    """From the end of the failed run to this commit, as seen by polling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """The command has ended."""

    name: ClassVar[str] = "ended"
    exit_code: int | None
    signal: str | None
    seconds: float
    """How long it ran."""
    error: str | None
    """The error that ended it, in one line; None if nobody told."""
    failure: str | None
    """Class of the failure (`FailureClass`); None if it succeeded, or was told to end."""
    positions: dict[str, dict[str, int | None]]
    """Checkpoint → newest `planned` and `committed` batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarting(Event):
    """It will be started again."""

    name: ClassVar[str] = "restarting"
    attempt: int
    """How many restarts have counted since the last progress, with this one."""
    of: int
    delay_seconds: float
    is_counted: bool
    """False where something else was away: such a restart does not use up an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed(Event):
    """A query was looked at before a start."""

    name: ClassVar[str] = "diagnosed"
    checkpoint: str
    because: str
    """What Spark will do, and why nothing has to be changed."""
    guarantee: str | None
    """None where no batch was ever planned, and there is no plan."""
    rests_on: list[str]
    """What that rests on, a line each."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairing(Event):
    """A plan is made, or carried out."""

    name: ClassVar[str] = "repairing"
    checkpoint: str
    doing: str
    """What takes time just now, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired(Event):
    """A plan was carried out."""

    name: ClassVar[str] = "repaired"
    checkpoint: str
    recovery: str
    goal: str
    guarantee: str
    because: str
    """What was done about what, in one line."""
    price: list[str]
    """What it costs, a line for each source; empty if nothing."""
    backup: str
    undo: str
    """The command that takes it back."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Event):
    """It is not started yet, because nobody can tell how the query stands."""

    name: ClassVar[str] = "waiting"
    because: str
    delay_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Event):
    """The command runs, and is ended all the same."""

    name: ClassVar[str] = "stalled"
    checkpoint: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRestarted(Event):
    """A query has failed, and is started again in the driver that goes on."""

    name: ClassVar[str] = "query_restarted"
    checkpoint: str
    error: str | None
    """What it has failed with, in one line; None if nobody told."""
    failure: str
    """Class of the failure (`FailureClass`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(Event):
    """A person is needed."""

    name: ClassVar[str] = "called"
    because: str
    file: str | None
    """Where the plan is saved that a person has to decide on."""
    next: str | None
    """What to type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseChecked(Event):
    """The first new batch was compared with what was promised."""

    name: ClassVar[str] = "promised"
    checkpoint: str
    batch: int
    state: str
    """`kept`, `broken`, or `unknown`."""
    because: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp(Event):
    """It will not be started again."""

    name: ClassVar[str] = "gave_up"
    attempts: int
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Event):
    """We were told to stop, and pass it on."""

    name: ClassVar[str] = "stopping"
    signal: str
    grace_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed(Event):
    """Something that a person should know and that stops nothing."""

    name: ClassVar[str] = "noticed"
    condition: str
    sentence: str


def make_no_checkpoint(*, at: float) -> Noticed:
    """That nobody knows where to look for progress."""
    return Noticed(
        at=at,
        condition="NO_CHECKPOINT_NAMED",
        sentence="no checkpoint was named, and no query was seen: without progress every restart counts as an attempt",
    )


def shield_tell(tell: Callable[[Event], None]) -> Callable[[Event], None]:
    """The same, where nothing that becomes of who listens disturbs the command: a full disk, a pipe that nobody reads.

    One event at a time, whatever thread it comes from.
    """
    lock = threading.Lock()

    def told(event: Event) -> None:
        with lock, contextlib.suppress(OSError, SystemExit):  # so rich leaves where nobody reads a pipe
            tell(event)

    return told
