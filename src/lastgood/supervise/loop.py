"""The supervisor: start, watch, notice the end, start again."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from lastgood.errors import LastgoodError, Retry, StorageError
from lastgood.process.child import Child, Ending
from lastgood.process.driver import Launch
from lastgood.supervise import events
from lastgood.supervise.failure import last_error
from lastgood.supervise.output import Output
from lastgood.supervise.policy import GiveUp, Policy, after_failure

_AGENT_POLL_SECONDS = 0.25


class AttemptsExhaustedError(LastgoodError):
    """The command failed again and again without committing a batch."""

    condition = "ATTEMPTS_EXHAUSTED"
    exit_code = 71
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a query's logs have come."""

    planned: int | None
    """Newest batch in the offset log; None if there is none."""
    committed: int | None
    """Newest batch in the commit log."""


NOTHING = Progress(None, None)


class Watch(Protocol):
    """Looks at one checkpoint."""

    poll_seconds: float
    """How often a look is cheap enough."""

    def look(self) -> Progress:
        """The newest planned and committed batch; a checkpoint that is not there yet has none.

        Raises:
            StorageError: the checkpoint cannot be read.
        """
        ...


class Agent(Protocol):
    """Tells of the driver processes of the command from within."""

    def begin(self) -> None:
        """A new run of the command begins."""
        ...

    def watches(self) -> Mapping[str, Watch]:
        """Checkpoint location → how to look at it, for every query seen so far."""
        ...

    def notices(self) -> Sequence[events.Noticed]:
        """What a person should know of the agent itself, each thing once."""
        ...

    def last_error(self) -> str | None:
        """Why the run that has just ended did so, in one line; None if it did not tell."""
        ...


class Supervisor:
    """Keeps one command running within a policy.

    `run` belongs to one thread; `stop` may be called from any other, and from a signal handler.
    """

    def __init__(  # noqa: PLR0913 - all but the command by name
        self,
        launch: Launch,
        *,
        policy: Policy,
        watches: Mapping[str, Watch],
        log: Path,
        tell: Callable[[events.Event], None],
        agent: Agent | None = None,
        cwd: Path | None = None,
        show: IO[bytes] | None = None,
    ) -> None:
        """Prepare to supervise.

        Args:
            launch: The command, made ready.
            policy: What may be done by itself.
            watches: Checkpoint location → how to look at it; may be empty.
            log: File for what the command prints.
            tell: Gets each event, in order, one at a time.
            agent: Tells of further checkpoints, and why the command ended.
            cwd: Working directory of the command.
            show: Where the command's output is copied as it comes.
        """
        self._launch = launch
        self._policy = policy
        self._watches = dict(watches)
        self._agent = agent
        self._log = log
        self._tell_listener = tell
        self._tell_lock = threading.Lock()
        self._cwd = cwd
        self._show = show
        self._stop_signals: list[int] = []
        self._stop = threading.Event()
        self._seen = dict.fromkeys(watches, NOTHING)
        self._adopted: dict[str, Progress] = {}
        self._is_blind_told = agent is None
        self._unreadable: set[str] = set()
        self._next_look = dict.fromkeys(watches, 0.0)
        self._failed_at: float | None = None
        self._at_failure: dict[str, Progress] = {}
        self._child: Child | None = None
        self._runs = 0

    @property
    def child(self) -> Child | None:
        """The command while it runs."""
        return self._child

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """End the command with `signum`; called a second time, kill it at once."""
        self._stop_signals.append(signum)
        self._stop.set()

    def run(self) -> int:
        """Supervise until the command succeeds, is given up, or `stop` is called.

        Returns:
            0 when the command ended with exit code 0, else 128 + the signal that stopped us.

        Raises:
            AttemptsExhaustedError: it failed too often in a row without progress.
            CommandNotFoundError: the command cannot be started.
        """
        attempts = 0
        while not self._stop.is_set():
            if self._agent is not None:
                self._agent.begin()
            before = dict(self._look_at_all())
            ending = self._run_once()
            if self._stop.is_set():
                break
            if ending.is_success:
                return 0
            before = {**self._adopted, **before}
            progressed = any(_committed_more(before[each], self._seen[each]) for each in before)
            decision = after_failure(self._policy, attempts, progressed=progressed)
            if isinstance(decision, GiveUp):
                self._tell(events.GaveUp(at=time.time(), attempts=decision.attempts, log=str(self._log)))
                raise self._exhausted(decision, ending)
            attempts = decision.attempt
            self._tell(
                events.Restarting(
                    at=time.time(),
                    attempt=decision.attempt,
                    of=self._policy.max_attempts,
                    delay_seconds=decision.delay_seconds,
                )
            )
            self._stop.wait(decision.delay_seconds)
        return 128 + self._stop_signals[0]

    def _run_once(self) -> Ending:
        output = Output(self._log, copy_to=self._show, on_trouble=self._log_trouble)
        try:
            child = Child(
                self._launch.command,
                env=self._launch.env,
                cwd=self._cwd,
                output=output.write_end,
                grace_seconds=self._policy.grace_seconds,
            )
        finally:
            output.hand_over()
        self._child = child
        self._runs += 1
        self._tell(self._started(child))
        try:
            ending = self._watch(child)
        finally:
            child.kill()
            output.finish()
            self._child = None
        ended_at = time.time()
        self._ask_agent()
        self._look_at_all()
        error = None
        if not ending.is_success:
            self._failed_at, self._at_failure = ended_at, dict(self._seen)
            error = None if self._stop.is_set() else self._error(ending, output)
        self._tell(self._ended(child, ending, ended_at, error))
        self._tell_if_blind(ending)
        return ending

    def _error(self, ending: Ending, output: Output) -> str | None:
        """What the driver's agent says; a process that was killed had no time to say why."""
        told = self._agent.last_error() if self._agent is not None and ending.exit_code is not None else None
        return told or last_error(output.tail())

    def _ask_agent(self) -> None:
        if self._agent is None:
            return
        for location, watch in self._agent.watches().items():
            if location not in self._watches:
                self._watches[location] = watch
                self._next_look[location] = 0.0
                self._seen[location] = NOTHING
                with contextlib.suppress(StorageError):  # the next look tells
                    self._seen[location] = watch.look()
                self._adopted[location] = self._seen[location]
        for notice in self._agent.notices():
            self._tell(notice)

    def _tell_if_blind(self, ending: Ending) -> None:
        if not (self._watches or self._is_blind_told or ending.is_success or self._stop.is_set()):
            self._is_blind_told = True
            self._tell(events.no_checkpoint(at=time.time()))

    def _watch(self, child: Child) -> Ending:
        kill_at: float | None = None
        while (ending := child.wait(self._poll_seconds)) is None:
            self._ask_agent()
            for location in self._watches:
                if time.monotonic() >= self._next_look[location]:
                    self._look(location)
            if self._stop.is_set() and kill_at is None:
                signum = self._stop_signals[0]
                grace = self._policy.grace_seconds
                self._tell(events.Stopping(at=time.time(), signal=signal.Signals(signum).name, grace_seconds=grace))
                child.send(signum)
                kill_at = time.monotonic() + grace
            if kill_at is not None and (time.monotonic() >= kill_at or len(self._stop_signals) > 1):
                return child.kill()
        return ending

    @property
    def _poll_seconds(self) -> float:
        every = [watch.poll_seconds for watch in self._watches.values()]
        return min(every if self._agent is None else [*every, _AGENT_POLL_SECONDS], default=_AGENT_POLL_SECONDS)

    def _look_at_all(self) -> Mapping[str, Progress]:
        for location in self._watches:
            self._look(location)
        return self._seen

    def _look(self, location: str) -> None:
        watch = self._watches[location]
        self._next_look[location] = time.monotonic() + watch.poll_seconds
        try:
            now = watch.look()
        except StorageError as error:
            if location not in self._unreadable:  # said once, not at every look
                self._unreadable.add(location)
                self._notice(error)
            return
        self._unreadable.discard(location)
        before, self._seen[location] = self._seen[location], now
        if self._child is not None and now.committed is not None and _committed_more(before, now):
            self._tell(events.Committed(at=time.time(), checkpoint=location, batch=now.committed))
            self._note_recovery(location, before)

    def _note_recovery(self, location: str, before: Progress) -> None:
        failed = self._at_failure.pop(location, None)
        if failed is None or self._failed_at is None:
            return
        first = 0 if before.committed is None else before.committed + 1
        at = time.time()
        self._tell(
            events.Recovered(
                at=at,
                checkpoint=location,
                batch=first,
                rerun=failed.planned is not None and failed.planned >= first,
                seconds=round(at - self._failed_at, 3),
            )
        )

    def _started(self, child: Child) -> events.Started:
        python, java = self._launch.python, self._launch.java
        return events.Started(
            at=child.started_at,
            run=self._runs,
            pid=child.pid,
            command=list(self._launch.command),
            python=None if python is None else str(python),
            java=None if java is None else f"Java {java.version}",
            log=str(self._log),
            checkpoints=list(self._watches),
        )

    def _ended(self, child: Child, ending: Ending, at: float, error: str | None) -> events.Ended:
        return events.Ended(
            at=at,
            exit_code=ending.exit_code,
            signal=ending.signal,
            seconds=round(at - child.started_at, 3),
            error=error,
            positions={
                location: {"planned": seen.planned, "committed": seen.committed}
                for location, seen in self._seen.items()
            },
        )

    def _exhausted(self, decision: GiveUp, ending: Ending) -> AttemptsExhaustedError:
        return AttemptsExhaustedError(
            f"the command failed {decision.attempts + 1} times in a row without a new committed batch",
            subject=" ".join(self._launch.command),
            found=str(ending),
            expected="exit code 0, or a new committed batch between two failures",
            effect="it is not started again",
            next=f"less +G {self._log}",
        )

    def _log_trouble(self, error: OSError) -> None:
        self._tell(
            events.Noticed(
                at=time.time(),
                condition="LOG_NOT_WRITTEN",
                sentence=f"{self._log} cannot be written ({error.strerror}); the command goes on without it",
            )
        )

    def _notice(self, error: LastgoodError) -> None:
        found = f" ({error.found})" if error.found else ""
        self._tell(events.Noticed(at=time.time(), condition=error.condition, sentence=f"{error.sentence}{found}"))

    def _tell(self, event: events.Event) -> None:
        with self._tell_lock:
            self._tell_listener(event)


def _committed_more(before: Progress, now: Progress) -> bool:
    return now.committed is not None and (before.committed is None or now.committed > before.committed)
