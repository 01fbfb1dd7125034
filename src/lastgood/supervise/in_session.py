"""A query of this very process under supervision: what stands for the command that `run` starts, and for its agent."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import psutil

from lastgood.checkpoint.layout import STATE
from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
from lastgood.process.child import CommandEnd
from lastgood.records.record import Record
from lastgood.spark.session_agent import SessionAgent, find_unsettled, has_active_tasks, is_running, is_stopped
from lastgood.storage.reading import Location, open_storage
from lastgood.supervise.agents import Agents
from lastgood.supervise.loop import Watch
from lastgood.supervise.output import Output

_Answer = TypeVar("_Answer")
_POLL_SECONDS = 0.05
_QUIET_SECONDS = 60.0
"""How long tasks of a run that has ended may take to end as well."""


class QueryNotEndedError(LastgoodError):
    """A query, or a task of it, does not end: nothing may be changed or started beside it."""

    condition = "QUERY_NOT_ENDED"
    exit_code = 98
    retry = Retry.AFTER_CHANGE


@dataclass(slots=True)
class QueryStart:
    """How a query of this process is started, again and again."""

    start: Callable[[], object]
    """Builds it and starts it."""
    checkpoint: str
    agent: SessionAgent
    log: Path
    """For what it ends with."""
    grace_seconds: float
    death: str | None = None
    """Why no driver of the query is alive before the first start, if somebody knows."""
    query: Any = None
    """The one that was started last."""
    holds: Sequence[int] = ()
    """Descriptors of the locks on the checkpoint."""

    def begin(self) -> tuple[QueryRun, EndOutput]:
        """Start it.

        Raises:
            UsageError: `start` has started no query of the checkpoint in a classic session.
            QueryNotEndedError: `start` has failed and left one that does not end, or the run before has left state that
                may still be written.
        """
        self._require_settled()
        started_at = time.time()
        self.agent.begin()
        error = None
        try:
            self.start()
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - whatever the function raises ends this run
            error = raised
        if error is None:
            self._require_own()
        self.query = self.agent.own[-1] if self.agent.own else None
        run = QueryRun(self.agent.own, self, started_at)
        if error is not None:
            run.fail(error)
        return run, run.output

    def give_up(self, found: str, sentence: str = "the query does not end") -> QueryNotEndedError:
        """That something of a run goes on, or nobody knows: the checkpoint is held as long as this process lives."""
        for descriptor in self.holds:
            os.dup(descriptor)
        return QueryNotEndedError(
            f"{sentence}, and nothing is changed or started beside it",
            subject=self.checkpoint,
            found=found,
            expected="a query that has ended, with all its tasks, and left nothing to write",
            effect="this process holds the checkpoint until it ends",
            next="end the session, then start the application again",
        )

    def _require_settled(self) -> None:
        """See that nothing which the run before has left in this Java may write beside the next one."""
        if self.query is None:
            return
        try:
            unsettled = find_unsettled(self.query)
        except Exception as error:
            raise self.give_up(f"its session does not answer ({error})") from error
        if unsettled is not None:
            raise self.give_up(unsettled, "what the query has left in this session may still be written")

    def _require_own(self) -> None:
        if not self.agent.own:
            self.agent.end()
            raise UsageError(
                "start() has started no query of this checkpoint",
                subject=self.checkpoint,
                found=", ".join(self.agent.others) or "nothing was started",
                expected="a query of a classic session",
                effect="what it has started goes on, and nobody looks after it" if self.agent.others else None,
            )


class QueryRun:
    """One run of a query; stands for `process.child.Child`."""

    def __init__(self, queries: Sequence[Any], start: QueryStart, started_at: float) -> None:
        """Take the queries that were started for it: the last one is it; others of the checkpoint must end as well."""
        self.pid = os.getpid()
        self.started_at = started_at
        self.output = EndOutput(start.log)
        """Gets what it ends with."""
        self._queries = queries
        self._start = start
        self._ending: CommandEnd | None = None
        self._stopping: threading.Thread | None = None

    @property
    def ending(self) -> CommandEnd | None:
        """How it ended, or None while it runs."""
        return self._ending

    def wait(self, timeout: float | None = None) -> CommandEnd | None:
        """Wait for the end of the query and of all its tasks; None if it still runs after `timeout`.

        Raises:
            QueryNotEndedError: a task of it goes on, or nobody knows whether it has ended.
        """
        if self._ending is None and self._has_ended(timeout):
            ended_at = time.time()
            self._await_quiet()
            is_stopped_by_user = self._ask(lambda: is_stopped(self._queries[-1]))
            error = None if is_stopped_by_user else self._ask(self._queries[-1].exception)
            self._end(error, ended_at)
        return self._ending

    def fail(self, error: BaseException) -> None:
        """What has started it has failed: what it has started all the same is ended.

        Raises:
            QueryNotEndedError: it does not end.
        """
        if self._queries:
            self.send(0)
            self._await(lambda: self._has_ended(None), "its thread runs")
            self._await_quiet()
        self._end(error, time.time())

    def _end(self, error: BaseException | None, ended_at: float) -> None:
        """It has ended, with all that belongs to it."""
        if error is not None:
            self.output.keep(error)
        self._start.agent.end()
        self._ending = CommandEnd(0 if error is None else 1, None, ended_at)

    def send(self, signum: int) -> None:
        """Have it stopped, whatever the signal; waits for nothing."""
        del signum
        if self._ending is None and self._stopping is None:
            self._stopping = threading.Thread(target=self._stop, name="lastgood-stop", daemon=True)
            self._stopping.start()

    def kill(self) -> CommandEnd:
        """Have it ended.

        Raises:
            QueryNotEndedError: it does not end.
        """
        if self._ending is None:
            self.send(0)
            self._await(lambda: self.wait() is not None, "its thread runs")
        assert self._ending is not None
        return self._ending

    def hold(self, descriptor: int) -> None:
        """Nothing: the locks are held by this process, which the query is a part of."""

    def processes(self) -> list[psutil.Process]:
        """None that is its own."""
        return []

    def _has_ended(self, timeout: float | None) -> bool:
        with contextlib.suppress(Exception):  # what it has ended with, and whether, is asked for itself
            if timeout:
                self._queries[-1].awaitTermination(timeout)
        return not self._ask(lambda: any(map(is_running, self._queries)))

    def _stop(self) -> None:
        for query in self._queries:
            with contextlib.suppress(Exception):  # whether it has ended is asked for itself
                query.stop()

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        """What Java answers; where it does not, nobody knows whether the query goes on."""
        try:
            return question()
        except Exception as error:
            raise self._start.give_up(f"its session does not answer ({error})") from error

    def _await_quiet(self) -> None:
        """Wait until none of its tasks runs any more: what they write must not come after a repair."""
        self._await(self._is_quiet, "it has ended, and a task of it runs, as far as anybody can tell")

    def _is_quiet(self) -> bool:
        try:
            return not any(map(has_active_tasks, self._queries))
        except Exception:  # noqa: BLE001 - the scheduler changes what is looked at: it is asked again, for so long
            return False

    def _await(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + max(self._start.grace_seconds, _QUIET_SECONDS)
        while not is_so():
            if time.monotonic() > deadline:
                raise self._start.give_up(otherwise)
            time.sleep(_POLL_SECONDS)


class EndOutput:
    """What a run has ended with; stands for `supervise.output.Output`, of which there is none before."""

    def __init__(self, log: Path) -> None:
        """Nothing is told yet; `log` gets what is."""
        self._log = log
        self._told = ""

    def keep(self, error: BaseException) -> None:
        """Keep what a query ended with."""
        output = Output(self._log)
        os.write(output.write_end, "".join(traceback.format_exception(error)).encode(errors="replace"))
        output.hand_over()
        output.finish()
        self._told = output.tail()

    def tail(self) -> str:
        """All of it."""
        return self._told

    def move(self, log: Path, copy_to: IO[bytes] | None, on_trouble: Callable[[OSError], None]) -> None:
        """Nothing: it stays where it is."""

    def finish(self) -> None:
        """Nothing more comes."""


class SessionAgents(Agents):
    """What the agent in this process tells of one query; of others that run here it is silent."""

    def __init__(self, folder: Path, location: Location, start: QueryStart) -> None:
        """Read what the agent of a start writes.

        Args:
            folder: Where it writes.
            location: Of the query.
            start: How the query is started.
        """
        super().__init__(folder, named={location.identity: str(location)})
        self._location = location
        self._agent = start.agent
        self._before = start.death

    def begin(self) -> None:
        """See `AgentReports`."""
        self._agent.forget()
        super().begin()

    def watches(self) -> Mapping[str, Watch]:
        """See `AgentReports`."""
        return {}

    def dead_query(self) -> None:
        """See `AgentReports`: the end of this one is the end of the run."""

    def judge_standby(self, checkpoints: Any, processes: Sequence[psutil.Process]) -> tuple[bool, str | None]:
        """See `AgentReports`."""
        return False, None

    @property
    def death(self) -> str | None:
        """See `Agents`; of a query that keeps state nobody knows.

        Executors of this session may hold what its last run made of the state, and write it down a minute later: beside
        what a repair has made.
        """
        if self._may_be_active():
            return None
        if not self._agent.has_run:
            return self._before
        if self._may_keep_state():
            return None
        return "its last run in this process has ended, and no task of it runs"

    def _may_keep_state(self) -> bool:
        if self.code_of(str(self._location)) is not None:
            return True
        try:
            return next(iter(open_storage(self._location).names(self._location / STATE) or ()), None) is not None
        except LastgoodError:  # nobody can tell
            return True

    def _may_be_active(self) -> bool:
        """Whether somebody else has started it here."""
        try:
            return self._agent.is_active()
        except Exception:  # noqa: BLE001 - where Java does not answer nobody knows
            return True

    def _records(self) -> list[Record]:
        return list(filter(self._may_tell, super()._records()))

    def _may_tell(self, record: Record) -> bool:
        """Whether a record is of this query, and no other of the session."""
        return record.checkpoint is not None and self._name(record.checkpoint) == str(self._location)
