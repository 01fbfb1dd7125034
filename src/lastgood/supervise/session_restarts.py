"""Queries that fail while their driver and its others go on: which of them are started again in it.

Only as it stands, and only one that has come further since it began: all else ends the driver as ever, and goes on from
there. The agent starts it (`spark.agent.restarts`), in whose driver the application waits meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from lastgood.failures.ending import Cause, find_cause
from lastgood.frozen import dataclass
from lastgood.observe.progress import NOTHING, LogProgress
from lastgood.records.record import RecordedFailure
from lastgood.supervise import events

LEAST_SECONDS = 10.0
"""A query that was started here and fails sooner is left to the application, and so to a start of the whole command."""


@dataclass(frozen=True, slots=True)
class DeadQuery:
    """A query that has failed while its driver goes on."""

    checkpoint: str
    """As it is called here."""
    run_id: str
    query_id: str | None = None
    at: float = 0.0
    """When it failed, a Unix time."""
    failure: RecordedFailure | None = None
    """None if nobody told in time, or it runs again."""


class DeadQueries(Protocol):
    """What tells of queries that have failed: `supervise.agents.Agents`."""

    def list_dead(self) -> Sequence[DeadQuery]:
        """Those whose driver goes on, and of which nothing was decided yet."""
        ...

    def answer(self, ended: DeadQuery, *, is_to_start: bool) -> None:
        """Say what becomes of one.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def leave_all(self) -> None:
        """Leave all others to the application, as far as that can be written."""
        ...


class BesideCare(Protocol):
    """Judges one query whose driver goes on: `supervise.heal.Healer`."""

    def has_read(self, checkpoint: str, since: int | None, committed: int) -> bool:
        """See `Care`."""
        ...

    def may_start_beside(self, ended: events.Ended, cause: Cause) -> bool:
        """Whether it can be started as it stands; if so, that is written down.

        Args:
            ended: Of this query alone.
            cause: With its checkpoint.
        """
        ...


class SessionRestarts:
    """Belongs to the supervisor's thread."""

    def __init__(
        self,
        agents: DeadQueries,
        care: BesideCare,
        tell: Callable[[events.Event], None],
        *,
        show_data: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            agents: In the driver.
            care: Judges.
            tell: Gets each event.
            show_data: Whether the line that is told of a failure may hold rows of the data.
            clock: Seconds.
        """
        self._agents = agents
        self._care = care
        self._tell = tell
        self._show_data = show_data
        self._clock = clock
        self._since: dict[str, LogProgress] = {}
        self._started_at: dict[str, float] = {}
        self._has_left = False

    def begin(self, seen: Mapping[str, LogProgress]) -> None:
        """The command is started.

        Args:
            seen: How far each query had come before.
        """
        self._since = dict(seen)
        self._started_at.clear()
        self._has_left = False

    def add(self, checkpoint: str, seen: LogProgress) -> None:
        """A query was seen that nobody had named, at which batch it stood then."""
        self._since[checkpoint] = seen

    def leave_all(self) -> None:
        """The driver is to end: whoever waits in it is told of what has failed."""
        self._has_left = True
        self._agents.leave_all()

    def answer(
        self, look: Callable[[str], LogProgress | None], *, is_stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, float]:
        """Decide on those that have failed since.

        Args:
            look: How far a query has come by now; None: nobody looks after it.
            is_stopped: Whether the driver is to end by now.

        Returns:
            The checkpoints of those that are started again, with the time when each had failed.
        """
        started = {}
        for ended in self._agents.list_dead():
            try:
                cause = self._find_startable(ended, look)
                is_to_start = cause is not None and not is_stopped()
                self._agents.answer(ended, is_to_start=is_to_start)
            except Exception as error:  # noqa: BLE001 - whatever it is, the application is told as if nobody had asked
                self._agents.leave_all()
                self._tell_trouble(ended, error)
                continue
            if cause is not None and is_to_start:
                self._note_started(ended, cause)
                started[ended.checkpoint] = ended.at
        return started

    def _find_startable(self, ended: DeadQuery, look: Callable[[str], LogProgress | None]) -> Cause | None:
        """Why one has failed that can be started again here; None: it cannot."""
        if ended.failure is None or self._has_left:
            return None
        cause = self._find_cause(ended, ended.failure)
        if cause.is_of_old_plan or cause.is_of_other_state:
            return None  # the same plan would fail again: a new process reads anew what this one has read before
        checkpoint = ended.checkpoint
        now = look(checkpoint)
        if now is None or not self._has_moved(checkpoint, now) or self._is_early(checkpoint):
            return None
        told = _make_ended(ended, cause, now)
        if not self._care.may_start_beside(told, cause):
            return None
        self._since[checkpoint] = now
        return cause

    def _note_started(self, ended: DeadQuery, cause: Cause) -> None:
        self._started_at[ended.checkpoint] = self._clock()
        self._tell(
            events.QueryRestarted(
                at=time.time(), checkpoint=ended.checkpoint, error=cause.line, failure=cause.cls.value
            )
        )

    def _find_cause(self, ended: DeadQuery, failure: RecordedFailure) -> Cause:
        found = find_cause("", failure, show_data=self._show_data)
        return replace(found, checkpoint=ended.checkpoint)

    def _has_moved(self, checkpoint: str, now: LogProgress) -> bool:
        since = self._since.get(checkpoint, NOTHING)
        if now.committed is None or now.committed <= (-1 if since.committed is None else since.committed):
            return False
        return self._care.has_read(checkpoint, since.committed, now.committed)

    def _is_early(self, checkpoint: str) -> bool:
        started_at = self._started_at.get(checkpoint)
        return started_at is not None and self._clock() - started_at < LEAST_SECONDS

    def _tell_trouble(self, ended: DeadQuery, error: Exception) -> None:
        sentence = f"{ended.checkpoint} is not started again in its driver: {error!r}"
        self._tell(events.Noticed(at=time.time(), condition="QUERY_NOT_RESTARTED", sentence=sentence))


def _make_ended(ended: DeadQuery, cause: Cause, now: LogProgress) -> events.Ended:
    """That one query has ended, as of a command."""
    return events.Ended(
        at=ended.at,
        exit_code=None,
        signal=None,
        seconds=0.0,
        error=cause.line,
        failure=cause.cls.value,
        positions={ended.checkpoint: {"planned": now.planned, "committed": now.committed}},
    )
