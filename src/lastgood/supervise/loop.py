"""The supervisor: start, watch, notice the end, start again."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Protocol

import psutil

from lastgood.errors import LastgoodError, StorageError, format_command_line
from lastgood.failures.ending import Cause, find_cause
from lastgood.journal.incident import ARCHIVE, COLD, SESSION, STANDBY, ComingBack
from lastgood.ladder.rungs import CommandStanding, Standings
from lastgood.observe.progress import NOTHING, LogProgress
from lastgood.process.child import Child, CommandEnd
from lastgood.process.driver import Launch
from lastgood.records.record import RecordedFailure
from lastgood.recovery.attempts import AttemptsExhaustedError
from lastgood.redaction import redact_words
from lastgood.settings.policy import Count, GiveUp, Policy, StartAgain, compute_backoff
from lastgood.supervise import events
from lastgood.supervise.care import Care, PersonNeededError
from lastgood.supervise.class_archives import ArchivePlace
from lastgood.supervise.output import Output
from lastgood.supervise.session_restarts import SessionRestarts
from lastgood.supervise.stalls import Stall, Stalls
from lastgood.supervise.standby import StandbyPlace, Taken

_AGENT_POLL_SECONDS = 0.25
_CALM_POLL_SECONDS = 1.0
_CALM_LOOK_SECONDS = 2.0
"""Once a query has committed a batch of this run: what is seen in its logs from then on, nobody waits for."""
_IDLE_LOOK_SECONDS = 2.0
_LET_GO_SECONDS = 300.0
"""How long a driver that was let go at its first start may take until that was tried: one that hangs helps nobody."""
_IDLE_AFTER_SECONDS = 60.0
"""How long a run that has nothing to commit goes on before the next start is made ready beside it."""


class Watch(Protocol):
    """Looks at one checkpoint."""

    poll_seconds: float
    """How often a look is cheap enough."""

    def look(self) -> LogProgress:
        """The newest planned and committed batch; a checkpoint that is not there yet has none.

        Raises:
            StorageError: the checkpoint cannot be read.
        """
        ...


class Run(Protocol):
    """One run of what is supervised: `process.child.Child` for a command."""

    pid: int
    started_at: float

    def wait(self, timeout: float | None = None) -> CommandEnd | None:
        """Wait for its end, and that of all that belongs to it; None if it still runs after `timeout`."""
        ...

    def send(self, signum: int) -> None:
        """Have it end."""
        ...

    def kill(self) -> CommandEnd:
        """End it at once, with all that belongs to it."""
        ...

    def hold(self, descriptor: int) -> None:
        """Keep a lock while anything of it is left."""
        ...

    def processes(self) -> list[psutil.Process]:
        """Those that it has started."""
        ...


class Printed(Protocol):
    """What a run has printed: `supervise.output.Output` for a command."""

    def tail(self) -> str:
        """The end of it."""
        ...

    def move(self, log: Path, copy_to: IO[bytes] | None, on_trouble: Callable[[OSError], None]) -> None:
        """See `Output`."""
        ...

    def finish(self) -> None:
        """Wait until all is read."""
        ...


class AgentReports(Protocol):
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

    def failure(self) -> tuple[str | None, RecordedFailure] | None:
        """The checkpoint of the query that ended the last run, if it was one, and why; None if it did not tell."""
        ...

    def has_started(self) -> bool:
        """Whether the last run has tried to start a query."""
        ...

    def judge_standby(
        self, checkpoints: Collection[str], processes: Sequence[psutil.Process]
    ) -> tuple[bool, str | None]:
        """Whether the last run has started the queries of these, and why no start of one could be held back."""
        ...

    def dead_query(self) -> tuple[str, RecordedFailure] | None:
        """The checkpoint of a query that has failed for good while its driver goes on, and why."""
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
        agent: AgentReports | None = None,
        care: Care | None = None,
        cwd: Path | None = None,
        show: IO[bytes] | None = None,
        holds: Sequence[int] = (),
        standbys: StandbyPlace | None = None,
        archives: ArchivePlace | None = None,
        start: Callable[[], tuple[Run, Printed]] | None = None,
        restarts: SessionRestarts | None = None,
    ) -> None:
        """Prepare to supervise.

        Args:
            launch: The command, made ready.
            policy: What may be done by itself.
            watches: Checkpoint location → how to look at it; may be empty.
            log: File for what the command prints.
            tell: Gets each event, in order, one at a time.
            agent: Tells of further checkpoints, and why the command ended.
            care: Looks at the queries before each start; None: they are started as they stand.
            cwd: Working directory of the command.
            show: Where the command's output is copied as it comes.
            holds: Descriptors of the locks that have to outlive us until the command has ended; may grow.
            standbys: Keeps a second driver warm; None: nobody does.
            archives: Keeps a class archive; None: nobody does.
            start: Starts what is supervised, in this process; None: the command is started.
            restarts: Decides which queries are started again in a driver that goes on; None: none.
        """
        self._launch = launch
        self._policy = policy
        self._watches = dict(watches)
        self._agent = agent
        self._care = care
        self._log = log
        self._tell_listener = tell
        self._tell_lock = threading.Lock()
        self._cwd = cwd
        self._show = show
        self._holds = holds
        self._handed_over = 0
        self._stop_signals: list[int] = []
        self._stop = threading.Event()
        self._seen = dict.fromkeys(watches, NOTHING)
        self._adopted: dict[str, LogProgress] = {}
        self._is_blind_told = agent is None
        self._unreadable: set[str] = set()
        self._next_look = dict.fromkeys(watches, 0.0)
        self._next_ask = 0.0
        self._failed: dict[str, float] = {}
        self._at_start: dict[str, LogProgress] = {}
        self._stalls = Stalls(policy.stall_after_seconds, care.is_ahead if care is not None else lambda _: False)
        self._stall: Stall | None = None
        self._dead: tuple[str, RecordedFailure] | None = None
        self._child: Run | None = None
        self._runs = 0
        self._standbys = standbys
        self._archives = archives
        self._start_here = start
        self._restarts = restarts
        self._restarted_at: dict[str, float] = {}
        self._began_at = 0.0
        self._way = COLD
        self._starts_by: float | None = None
        """Until when a driver that was let go at its first start has to have tried it."""
        self._next_idle = 0.0
        self._noticed_seconds: float | None = None

    @property
    def child(self) -> Run | None:
        """The command while it runs."""
        return self._child

    @property
    def is_stopped(self) -> bool:
        """Whether it is to end."""
        return self._stop.is_set()

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
            PersonNeededError: the policy does not allow what would have to be done.
            CommandNotFoundError: the command cannot be started.
        """
        standing, standings = CommandStanding(), Standings(self._policy)
        has_moved = True
        while self._is_ready(standing):
            if self._agent is not None:
                self._agent.begin()
            before = dict(self._look_at_all())
            ending, cause = self._run_once(self._take_standby(standing.cause, has_moved=has_moved))
            if self._stop.is_set() or cause is None:
                if self._care is not None:
                    self._care.note_end(None, is_done=not self._stop.is_set())
                if self._stop.is_set():
                    break
                return 0
            before = {**self._adopted, **before}
            moved = [each for each in before if self._has_moved(each, before[each])]
            has_moved = bool(moved)
            if self._archives is not None:
                self._archives.give_way(has_moved=has_moved)
            decision = self._count(standings, cause, moved)
            if isinstance(decision, GiveUp):
                raise self._given_up(decision, ending, cause)
            self._tell_restart(decision.delay_seconds, decision.count, cause)
            self._stop.wait(decision.delay_seconds)
            standing = standings.standing(cause, time.monotonic())
        return 128 + self._stop_signals[0]

    def _has_moved(self, location: str, before: LogProgress) -> bool:
        """Whether a query has made progress since."""
        now = self._seen[location]
        if now.committed is None or not _has_committed_more(before, now):
            return False
        return self._care is None or self._care.has_read(location, before.committed, now.committed)

    def _count(self, standings: Standings, cause: Cause, moved: Collection[str]) -> StartAgain | GiveUp:
        """Count a run that has failed, after those that were counted before we began."""
        if self._care is not None:
            standings.recall(self._care.recall_standings(), time.monotonic())
        decision = standings.decide_after_failure(cause, moved, time.monotonic())
        if self._care is not None:
            self._care.note_end(standings.standing(cause, time.monotonic()))
        return decision

    def _is_ready(self, standing: CommandStanding) -> bool:
        """Wait until the queries can be started; False if we are to stop."""
        tried, told = 0, ""
        while not self._stop.is_set():
            try:
                if self._care is None:
                    wait = None
                else:
                    wait = self._care.before_start(standing)
            except PersonNeededError as error:
                self._tell(events.Called(at=time.time(), because=error.sentence, file=error.file, next=error.next))
                raise
            if wait is None or self._stop.is_set():
                return not self._stop.is_set()
            tried += 1
            delay = compute_backoff(self._policy, tried)
            if wait.because != told:  # said once, not at every look
                told = wait.because
                self._tell(events.Waiting(at=time.time(), because=told, delay_seconds=delay))
            self._stop.wait(delay)
        return False

    def _take_standby(self, cause: Cause | None, *, has_moved: bool) -> Taken | None:
        """The driver that waits, if it may take the place of the one that has ended; that one is surely dead."""
        if self._standbys is None:
            return None
        if cause is not None and (cause.is_of_old_plan or (self._way == STANDBY and not has_moved)):
            self._standbys.give_up()  # a new process reads anew what this one has read before
            return None
        try:
            return self._standbys.take()
        except Exception as error:  # noqa: BLE001 - whatever it is, a new process is started, and none waits any more
            self._standbys.refuse(f"it could not be let go ({error!r})")
            return None

    def _start(self) -> tuple[Run, Printed, str]:
        """A new run, and how it came about."""
        if self._start_here is not None:
            return *self._start_here(), SESSION
        return *self._start_command(), ARCHIVE if self._archives is not None and self._archives.is_in_use else COLD

    def _start_command(self) -> tuple[Child, Output]:
        """A new process of the command."""
        env = self._launch.env
        if self._archives is not None:
            env = self._archives.begin(env)
        output = Output(self._log, copy_to=self._show, on_trouble=self._log_trouble)
        try:
            child = Child(
                self._launch.command,
                env=env,
                cwd=self._cwd,
                output=output.write_end,
                grace_seconds=self._policy.grace_seconds,
                holds=self._holds,
            )
        finally:
            output.hand_over()
        return child, output

    def _run_once(self, taken: Taken | None) -> tuple[CommandEnd, Cause | None]:
        """Run the command to its end; the cause is None if it succeeded.

        Args:
            taken: The process that waited for this; None: a new one is started.
        """
        self._begin()
        if taken is None:
            child, output, self._way = self._start()
            self._began_at = child.started_at
        else:
            child, output, self._way = taken.child, taken.output, STANDBY
            self._began_at = time.time()
        self._starts_by = time.monotonic() + _LET_GO_SECONDS if taken is not None and taken.is_at_gate else None
        self._handed_over = len(self._holds)
        self._child = child
        self._runs += 1
        try:
            if taken is not None:
                output.move(self._log, self._show, self._log_trouble)
            self._tell(self._started(child, taken))
            ending = self._watch(child)
            # Safe: the command itself has ended. What it has left behind would write to the checkpoint beside the
            # driver that is started next.
            child.kill()
            output.finish()
            ended_at = time.time()
            self._next_ask = 0.0
            self._ask_agent()
            self._look_at_all()  # what it has committed last was committed by this run
        finally:
            # Safe: as above; and after an error of our own nobody would watch the command any more. A batch that is
            # cut off runs again from its plan.
            child.kill()
            output.finish()
            self._child = None
        cause = None
        if self._stall is not None or not ending.is_success:
            self._failed = dict.fromkeys(self._seen, ended_at)
            self._noticed_seconds = None if ending.at is None else max(0.0, ended_at - ending.at)
            if self._stop.is_set():
                cause = Cause()
            else:
                cause = self._cause(ending, output)
        ended = self._ended(ending, ended_at, cause)
        self._tell(ended)
        self._tell_if_blind(ending)
        if self._care is not None and cause is not None and not self._stop.is_set():
            self._care.note_failure(ended, cause)
        return ending, cause

    def _begin(self) -> None:
        """A new run begins: what was seen of the last one is not of it."""
        self._stall = self._dead = None
        self._stalls.begin()
        self._at_start = dict(self._seen)
        self._restarted_at.clear()
        self._next_look, self._next_ask = dict.fromkeys(self._watches, 0.0), 0.0
        if self._restarts is not None:
            self._restarts.begin(self._seen)

    def _cause(self, ending: CommandEnd, output: Printed) -> Cause:
        """What the driver's agent says; a process that was killed had no time to say why."""
        if self._stall is not None:
            return replace(self._stall.cause, checkpoint=self._watched(self._stall.checkpoint))
        told = None
        if self._agent is not None and ending.exit_code is not None:
            told = self._agent.failure()
        checkpoint, failure = told or (None, None)
        has_started = self._agent is None or self._agent.has_started()
        cause = find_cause(output.tail(), failure, has_started=has_started, show_data=self._policy.show_data)
        return replace(cause, checkpoint=self._watched(checkpoint))

    def _watched(self, checkpoint: str | None) -> str | None:
        """The one of these queries that failed; of another one nobody sees whether it makes progress."""
        if len(self._watches) == 1:
            return next(iter(self._watches))
        return checkpoint if checkpoint in self._watches else None

    def _ask_agent(self) -> None:
        if self._agent is None:
            return
        self._adopt(self._agent)
        if time.monotonic() < self._next_ask:
            return
        is_awaited = bool(self._at_start) or not self._seen
        pause = self._find_pause(_AGENT_POLL_SECONDS, _CALM_POLL_SECONDS, is_awaited=is_awaited)
        self._next_ask = time.monotonic() + pause
        for notice in self._agent.notices():
            self._tell(notice)
        self._dead = self._agent.dead_query()

    def _adopt(self, agent: AgentReports) -> None:
        """Look after the queries that were seen since."""
        for location, watch in agent.watches().items():
            if location not in self._watches:
                self._watches[location] = watch
                self._next_look[location] = 0.0
                self._seen[location] = NOTHING
                with contextlib.suppress(StorageError):  # the next look tells
                    self._seen[location] = watch.look()
                self._adopted[location] = self._at_start[location] = self._seen[location]
                if self._restarts is not None:
                    self._restarts.add(location, self._seen[location])
        if self._child is not None:
            for descriptor in self._holds[self._handed_over :]:  # of checkpoints that nobody had named
                self._child.hold(descriptor)
            self._handed_over = len(self._holds)

    def _tell_if_blind(self, ending: CommandEnd) -> None:
        if not (self._watches or self._is_blind_told or ending.is_success or self._stop.is_set()):
            self._is_blind_told = True
            self._tell(events.make_no_checkpoint(at=time.time()))

    def _watch(self, child: Run) -> CommandEnd:
        kill_at: float | None = None
        while (ending := child.wait(self._poll_seconds)) is None:
            self._ask_agent()
            self._restart_dead(is_ending=kill_at is not None or self._stop.is_set())
            self._use_idle_time(child)
            for location in self._watches:
                if time.monotonic() >= self._next_look[location]:
                    self._look(location)
            if kill_at is None and (signum := self._end_with()) is not None:
                child.send(signum)
                kill_at = time.monotonic() + self._policy.grace_seconds
            if kill_at is not None and (time.monotonic() >= kill_at or len(self._stop_signals) > 1):
                # Safe: it was asked to end, and its time for that is over, or a person has asked twice. A batch that
                # is cut off runs again from its plan.
                return child.kill()
        return ending

    def _restart_dead(self, *, is_ending: bool) -> None:
        """Have queries that have failed started again in their driver, where that goes on."""
        if self._restarts is None:
            return
        if is_ending:
            self._restarts.leave_all()
            return
        for location, failed_at in self._restarts.answer(self._look_if_watched, is_stopped=self._stop.is_set).items():
            self._restarted_at[location] = time.time()
            self._failed[location] = failed_at
            self._at_start[location] = self._seen[location]
            self._stalls.restart(location)

    def _use_idle_time(self, child: Run) -> None:
        """Make the next start ready, once this one has got as far as it can: on a small machine both would be slow."""
        has_committed = self._at_start.keys() != self._seen.keys()
        is_early = not has_committed and time.time() - self._began_at < _IDLE_AFTER_SECONDS
        if self._stop.is_set() or is_early or time.monotonic() < self._next_idle:
            return
        self._next_idle = time.monotonic() + _IDLE_LOOK_SECONDS
        if self._standbys is not None:
            self._keep_standby(self._standbys, child)
        if self._archives is not None:
            self._keep_archive(self._archives, child)

    def _keep_archive(self, archives: ArchivePlace, child: Run) -> None:
        try:
            archives.look(child.processes())
        except Exception as error:  # noqa: BLE001 - whatever it is, the command goes on, and starts as ever
            archives.refuse(f"it was not possible to keep one ({error!r})")

    def _keep_standby(self, standbys: StandbyPlace, child: Run) -> None:
        """Have another driver wait."""
        if self._agent is None:
            return
        try:
            has_started, because = self._agent.judge_standby(self._watches, child.processes())
            if because is not None:
                standbys.refuse(because)
            elif has_started:
                standbys.look()
        except Exception as error:  # noqa: BLE001 - whatever it is, the command goes on, and no other waits
            standbys.refuse(f"it was not possible to keep one ({error!r})")

    def _end_with(self) -> int | None:
        """The signal to end the running command with, because we were told to, or because it goes on to no end."""
        if self._stop.is_set():
            signum, grace = self._stop_signals[0], self._policy.grace_seconds
            self._tell(events.Stopping(at=time.time(), signal=signal.Signals(signum).name, grace_seconds=grace))
            if self._standbys is not None:
                self._standbys.give_up()
            return signum
        if self._dead is None:
            stall = self._stalls.find_stalled()
        else:
            stall = Stall(self._dead[0], find_cause("", self._dead[1], show_data=self._policy.show_data))
        self._stall = stall or self._strayed() or self._find_silent_standby()
        if self._stall is None:
            return None
        because = self._stall.cause.line or "the query has ended, and its driver goes on"
        self._tell(events.Stalled(at=time.time(), checkpoint=self._stall.checkpoint, because=because))
        return signal.SIGTERM

    def _find_silent_standby(self) -> Stall | None:
        """That the driver that was let go does nothing: it stands still, or its Java does."""
        if self._agent is None or self._starts_by is None or time.monotonic() < self._starts_by:
            return None
        self._starts_by = None
        if self._agent.has_started():
            return None
        told = f"the driver that stood by was let go, and has started no query in {_LET_GO_SECONDS:g} s"
        return Stall(next(iter(self._watches)), Cause(line=told))

    def _strayed(self) -> Stall | None:
        if self._care is not None:
            for location in self._watches:
                cause = self._care.find_strayed(location)
                if cause is not None:
                    return Stall(location, cause)
        return None

    def _find_pause(self, seconds: float, calm: float, *, is_awaited: bool) -> float:
        """How long until the next look at what is looked at so often while its news is awaited."""
        if is_awaited:
            return seconds
        if self._policy.stall_after_seconds is not None:  # a query that was not looked at is none that stands still
            calm = min(calm, self._policy.stall_after_seconds / 4)
        return max(seconds, calm)

    @property
    def _poll_seconds(self) -> float:
        every = [watch.poll_seconds for watch in self._watches.values()]
        return min(every if self._agent is None else [*every, _AGENT_POLL_SECONDS], default=_AGENT_POLL_SECONDS)

    def _look_at_all(self) -> Mapping[str, LogProgress]:
        for location in self._watches:
            self._look(location)
        return self._seen

    def _look_if_watched(self, location: str) -> LogProgress | None:
        return self._look(location) if location in self._watches else None

    def _look(self, location: str) -> LogProgress:
        """Look at one query; gives how far it has come, as far as anybody can see."""
        watch = self._watches[location]
        pause = self._find_pause(watch.poll_seconds, _CALM_LOOK_SECONDS, is_awaited=location in self._at_start)
        self._next_look[location] = time.monotonic() + pause
        try:
            now = watch.look()
        except StorageError as error:
            if location not in self._unreadable:  # said once, not at every look
                self._unreadable.add(location)
                self._notice(error)
            return self._seen[location]
        self._unreadable.discard(location)
        before, self._seen[location] = self._seen[location], now
        self._stalls.note(location, now)
        if self._child is not None and now.committed is not None and _has_committed_more(before, now):
            self._tell(events.Committed(at=time.time(), checkpoint=location, batch=now.committed))
            self._note_first(location, before)
        return now

    def _note_first(self, location: str, before: LogProgress) -> None:
        """Tell of the first batch of this run, and that the query is back if it had failed."""
        at_start = self._at_start.pop(location, None)
        if at_start is None:
            return
        if before.committed is None:
            first = 0
        else:
            first = before.committed + 1
        rerun = at_start.planned is not None and at_start.planned >= first
        self._note_recovery(location, first, rerun=rerun)
        self._confirm_way()
        if self._care is not None:
            self._care.note_first_batch(location, first, rerun=rerun, back=self._find_back(location))

    def _note_recovery(self, location: str, batch: int, *, rerun: bool) -> None:
        failed_at = self._failed.pop(location, None)
        if failed_at is None:
            return
        at = time.time()
        self._tell(
            events.Recovered(at=at, checkpoint=location, batch=batch, rerun=rerun, seconds=round(at - failed_at, 3))
        )

    def _confirm_way(self) -> None:
        """See that Java did take what it was told of."""
        if self._way != ARCHIVE or self._archives is None or self._child is None:
            return
        try:
            is_taken = self._archives.confirm(self._child.processes())
        except Exception as error:  # noqa: BLE001 - whatever it is, the command goes on, and starts as ever
            self._archives.refuse(f"it was not possible to see whether it is used ({error!r})")
            is_taken = False
        if not is_taken:
            self._way = COLD

    def _find_back(self, location: str) -> ComingBack:
        """How a query came to run now."""
        restarted_at = self._restarted_at.pop(location, None)
        if restarted_at is not None:
            return ComingBack(
                way=SESSION, noticed_seconds=None, process_at_ms=int(restarted_at * 1000), query_at_ms=None
            )
        return ComingBack(
            way=self._way,
            noticed_seconds=self._noticed_seconds,
            process_at_ms=int(self._began_at * 1000),
            query_at_ms=None,
        )

    def _started(self, child: Run, taken: Taken | None) -> events.Started:
        python, java = self._launch.python, self._launch.java
        python_path = None
        if python is not None:
            python_path = str(python)
        java_version = None
        if java is not None:
            java_version = f"Java {java.version}"
        waited_seconds = None
        if taken is not None:
            waited_seconds = round(taken.waited_seconds, 3)
        return events.Started(
            at=self._began_at,
            run=self._runs,
            pid=child.pid,
            command=redact_words(self._launch.command),
            python=python_path,
            java=java_version,
            log=str(self._log),
            checkpoints=list(self._watches),
            way=self._way,
            waited_seconds=waited_seconds,
        )

    def _ended(self, ending: CommandEnd, at: float, cause: Cause | None) -> events.Ended:
        is_failure = cause is not None and not self._stop.is_set()
        error = cause.line if cause is not None else None
        failure = None
        if cause is not None and is_failure:
            failure = cause.cls.value
        return events.Ended(
            at=at,
            exit_code=ending.exit_code,
            signal=ending.signal,
            seconds=round(at - self._began_at, 3),
            error=error,
            failure=failure,
            positions={
                location: {"planned": seen.planned, "committed": seen.committed}
                for location, seen in self._seen.items()
            },
        )

    def _tell_restart(self, delay_seconds: float, count: Count, cause: Cause) -> None:
        self._tell(
            events.Restarting(
                at=time.time(),
                attempt=count.attempts,
                of=self._policy.max_attempts,
                delay_seconds=delay_seconds,
                is_counted=not cause.passes_by_itself,
            )
        )

    def _given_up(self, decision: GiveUp, ending: CommandEnd, cause: Cause) -> LastgoodError:
        self._tell(events.GaveUp(at=time.time(), attempts=decision.attempts, log=str(self._log)))
        left = None
        if self._care is not None:
            left = self._care.find_last_resort()
        if left is None:
            return self._exhausted(decision, ending, cause)
        self._tell(events.Called(at=time.time(), because=left.sentence, file=left.file, next=left.next))
        return left

    def _exhausted(self, decision: GiveUp, ending: CommandEnd, cause: Cause) -> AttemptsExhaustedError:
        if cause.checkpoint is not None and len(self._watches) > 1:
            of = f" of {cause.checkpoint}"
        else:
            of = ""
        look = f"less +G {self._log}"
        if cause.is_of_other_state and cause.checkpoint is not None:  # there is a way for some
            look = format_command_line("diagnose", cause.checkpoint, "--log", str(self._log))
        return AttemptsExhaustedError(
            f"the command failed {decision.attempts + 1} times in a row without a new committed batch{of}",
            subject=Path(self._launch.command[0]).name,  # in full, and redacted, where it was started
            found=str(ending),
            expected="exit code 0, or a new committed batch between two failures",
            effect="it is not started again; what failed at the same batch counts until a person says --go-on",
            next=look,
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
        if error.found:
            found = f" ({error.found})"
        else:
            found = ""
        self._tell(events.Noticed(at=time.time(), condition=error.condition, sentence=f"{error.sentence}{found}"))

    def _tell(self, event: events.Event) -> None:
        with self._tell_lock:
            self._tell_listener(event)


def _has_committed_more(before: LogProgress, now: LogProgress) -> bool:
    return now.committed is not None and (before.committed is None or now.committed > before.committed)
