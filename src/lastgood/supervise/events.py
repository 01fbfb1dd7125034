"""What happens to a supervised command, as values: the timeline, and the lines of `--format json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; `at` is a Unix time in seconds."""

    name: ClassVar[str]
    at: float

    def to_json(self) -> dict[str, Any]:
        """One line of `--format json`: `event`, `at` (ISO 8601, UTC), then the fields."""
        fields = asdict(self)
        fields["at"] = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return {"event": self.name, **fields}


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
    """Last error of its output; None if there was none."""
    positions: dict[str, dict[str, int | None]]
    """Checkpoint → newest `planned` and `committed` batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarting(Event):
    """It will be started again."""

    name: ClassVar[str] = "restarting"
    attempt: int
    of: int
    delay_seconds: float


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


def no_checkpoint(*, at: float) -> Noticed:
    """That nobody knows where to look for progress."""
    return Noticed(
        at=at,
        condition="NO_CHECKPOINT_NAMED",
        sentence="no checkpoint was named, and no query was seen: without progress every restart counts as an attempt",
    )
