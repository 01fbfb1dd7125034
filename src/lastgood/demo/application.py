"""The flights application under `lastgood run`: started, killed and stopped at will, and everything told is kept."""

from __future__ import annotations

import concurrent.futures
import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from lastgood.demo.events import Killed, SceneStep
from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.observe.progress import LogProgress, LogWatch
from lastgood.operations.run import prepare, supervise
from lastgood.settings.config import Pipeline
from lastgood.settings.policy import Policy
from lastgood.supervise.events import Event
from lastgood.supervise.loop import Supervisor
from lastgood.supervise.prepared import Prepared

PATIENCE_SECONDS = 300.0
"""How long any one thing may take before it is said to have failed."""
_POLL_SECONDS = 0.05
_BATCH_POLL_SECONDS = 0.01
_BATCH_SECONDS = 1.2
"""About how long a batch takes here: a kill comes at a random instant of it."""

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Event)


class DemoFailedError(LastgoodError):
    """The demo did not get as far as its audit."""

    condition = "DEMO_FAILED"
    exit_code = 79


@dataclass(slots=True)
class _Run:
    """One `lastgood run`."""

    code: Future[int]
    supervisor: Supervisor | None = None


class Application:
    """An application that appends a topic to a table, and `lastgood run` around it, in a thread of its own.

    All methods belong to one thread. Call `close` in the end.
    """

    def __init__(self, pipeline: Pipeline, *, options: Path, log: Path, tell: Callable[[Event], None]) -> None:
        """Prepare; nothing is started.

        Args:
            pipeline: The application, with one query.
            options: File of further words for its command, which reads it at each start.
            log: File for what it prints.
            tell: Gets each event.

        Raises:
            LastgoodError: it cannot be started on this machine (subclasses).
        """
        self._prepared = replace(prepare(pipeline), log=log)
        (watch,) = self._prepared.watches.values()
        self._watch: LogWatch = watch
        self._options = options
        self._tell = tell
        self._events: list[Event] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lastgood-run")
        self._run: _Run | None = None

    @property
    def is_running(self) -> bool:
        """Whether `lastgood run` runs, be its command alive or not."""
        return self._run is not None and not self._run.code.done()

    @property
    def progress(self) -> LogProgress:
        """The newest planned and committed batch."""
        return self._watch.look()

    @property
    def mark(self) -> int:
        """How many events there were so far, to wait for later ones only."""
        return len(self._events)

    def events(self, kind: type[_E], since: int = 0) -> list[_E]:
        """Everything of one kind that was told since a mark, oldest first."""
        return [event for event in self._events[since:] if isinstance(event, kind)]

    def start(self, policy: Policy | None = None, *, limit: int | None = None, standby: bool = False) -> int:
        """Begin to supervise it.

        Args:
            policy: What may be done by itself; the default one if None.
            limit: Its `maxOffsetsPerTrigger`; None: none.
            standby: Whether another driver waits beside it.

        Returns:
            The mark before its first event.

        Raises:
            DemoFailedError: it runs already.
        """
        if self.is_running:
            raise DemoFailedError("the application runs already", expected="a stop before the next start")
        self.limit(limit)
        pipeline = replace(self._prepared.pipeline, policy=policy or Policy(), standby=standby)
        if standby:
            # It would take the driver that waits for one that is alive.
            pipeline = replace(pipeline, driver_check=())
        mark = self.mark
        run = _Run(Future())
        run.code = self._pool.submit(self._supervise, replace(self._prepared, pipeline=pipeline), run)
        self._run = run
        return mark

    def limit(self, offsets: int | None) -> None:
        """Set its `maxOffsetsPerTrigger` for every later start of the command; None: none."""
        self._options.write_text("" if offsets is None else f"--max-offsets-per-trigger {offsets}\n")

    def stop(self) -> None:
        """End `lastgood run` and the application with SIGTERM, and wait for both; nothing happens if none runs.

        Raises:
            LastgoodError: the run had given up before (subclasses).
        """
        run, self._run = self._run, None
        if run is not None:
            self._end(run)
            run.code.result()

    def wait(self) -> LastgoodError | None:
        """Wait until `lastgood run` ends by itself; what it ended with, None for exit code 0.

        Raises:
            DemoFailedError: it does not end.
        """
        run, self._run = self._run, None
        if run is None:
            return None
        try:
            error = run.code.exception(PATIENCE_SECONDS)
        except concurrent.futures.TimeoutError:
            self._end(run)
            raise _make_too_long_error("the run to end") from None
        if error is not None and not isinstance(error, LastgoodError):
            raise error
        return error

    def close(self) -> None:
        """End what still runs, whatever it has come to."""
        run, self._run = self._run, None
        if run is not None:
            self._end(run)
        self._pool.shutdown()

    def kill(self) -> Killed:
        """Kill the driver with SIGKILL, wherever it is, once there is one."""
        supervisor = self._supervisor()
        child = self.await_that("a driver", lambda: supervisor.child)
        batch, at = self.progress.in_flight, time.time()
        # Safe: the demo's own driver. Should it have ended by itself, its id is given to another only after all the
        # other ids.
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        killed = Killed(at=at, pid=child.pid, batch=batch)
        self._told(killed)
        return killed

    def kill_in_a_batch(self, chance: random.Random) -> Killed:
        """Kill the driver at a random instant of a batch; again, should that commit just before the signal."""
        supervisor = self._supervisor()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self._check()
            batch, child = self.progress.in_flight, supervisor.child
            if batch is None or child is None:
                time.sleep(_BATCH_POLL_SECONDS)
                continue
            time.sleep(chance.uniform(0, _BATCH_SECONDS))
            if self.progress.in_flight != batch:
                continue
            at = time.time()
            try:
                # Safe, as in `kill`.
                os.kill(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has ended by itself meanwhile: the next one is killed
            child.wait()
            if self.progress.in_flight == batch:
                killed = Killed(at=at, pid=child.pid, batch=batch)
                self._told(killed)
                return killed
            self.tell(f"batch {batch} was committed just before: once more")
        raise _make_too_long_error("a batch to kill the driver in")

    def await_commits(self, count: int) -> None:
        """Wait until so many more batches are committed than now."""
        before = _number_batch(self.progress.committed)
        self.await_that("batches to commit", lambda: _number_batch(self.progress.committed) - before >= count or None)

    def await_event(self, kind: type[_E], since: int, *, after: float = 0.0) -> _E:
        """Wait for the first event of one kind since a mark, and not before a Unix time in seconds."""

        def first() -> _E | None:
            return next((event for event in self.events(kind, since) if event.at >= after), None)

        return self.await_that(f"'{kind.name}'", first)

    def await_that(self, what: str, get: Callable[[], _T | None]) -> _T:
        """Wait until `get` gives something.

        Raises:
            DemoFailedError: it does not, or `lastgood run` has ended.
            LastgoodError: with what it ended (subclasses).
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if (got := get()) is not None:
                return got
            self._check()
            time.sleep(_POLL_SECONDS)
        raise _make_too_long_error(what)

    def tell(self, sentence: str) -> None:
        """Tell what is done next."""
        self._told(SceneStep(at=time.time(), sentence=sentence))

    def _supervise(self, prepared: Prepared, run: _Run) -> int:
        def take(supervisor: Supervisor) -> None:
            run.supervisor = supervisor

        return supervise(prepared, tell=self._told, on_supervisor=take)

    def _supervisor(self) -> Supervisor:
        run = self._run
        if run is None:
            raise DemoFailedError("the application does not run", expected="a start")
        return self.await_that("a supervisor", lambda: run.supervisor)

    def _end(self, run: _Run) -> None:
        while not run.code.done():
            if run.supervisor is not None:
                run.supervisor.stop(signal.SIGTERM)
                concurrent.futures.wait([run.code])
            time.sleep(_POLL_SECONDS)

    def _check(self) -> None:
        """See that `lastgood run` has not ended meanwhile."""
        if self._run is not None and self._run.code.done():
            code = self._run.code.result()
            raise DemoFailedError("the application has ended by itself", found=f"exit code {code}")

    def _told(self, event: Event) -> None:
        self._events.append(event)
        self._tell(event)


def _number_batch(batch: int | None) -> int:
    return -1 if batch is None else batch


def _make_too_long_error(what: str) -> DemoFailedError:
    return DemoFailedError(f"waited {PATIENCE_SECONDS:.0f} s for {what}", effect="nothing was counted")
