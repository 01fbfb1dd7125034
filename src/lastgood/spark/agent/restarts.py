"""Queries of this driver that failed, started again in it where lastgood says so, while the application waits on.

An application that waits for its queries (`awaitTermination`, `awaitAnyTermination`) is told of a failure only once
lastgood has said that it does not start the query here. What it holds of the query, it holds of the new run.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .driver import FILE, make_private
from .left_state import find_unsettled
from .standby import list_own
from .starts import Start
from .tasks import has_active_tasks, is_running

VARIABLE = "LASTGOOD_RESTARTS"
"""Environment variable: there are restarts here."""
ENDED_SUFFIX, ANSWER_SUFFIX = ".ended.json", ".answer"
"""Of the file in which a run that failed is told of, behind its id, and of that with lastgood's answer."""
START = "start"
"""The answer by which it is started here; any other leaves that to whoever waits for it."""
_LOOK_SECONDS = 0.02
_RUNS_OF_A_QUERY = 3
"""So many are known of each query: whoever waits for an older one waits in vain."""
_ANSWER_SECONDS = 300.0
QUIET_SECONDS = 60.0
"""How long tasks of a run that has failed may take to end as well."""
_LEAST_SECONDS = 0.001
"""Spark takes no shorter wait."""
_MARK = f"_watched_by_{__package__}_restarts"
_Answer = TypeVar("_Answer")


class _Run:
    """One run of a query."""

    def __init__(self, start: Start, query: Any) -> None:
        self.start = start
        self.checkpoint = start.checkpoint
        self.query = query
        """What the application holds of it, which may stand for another run later."""
        self.java = query._jsq  # noqa: SLF001 - Python's query is no more than a name for it
        self.query_id, self.run_id = str(query.id), str(query.runId)
        self.manager = _identify(start.session._jvm, start.session.streams._jsqm)  # noqa: SLF001
        self.attempt: _Attempt | None = None
        self.is_awaited = False
        self.is_stopped = False
        """Whether the application has stopped it."""
        self.is_shared = False
        """Whether its writer has started another query as well, so that nobody knows what it would start now."""
        self.is_forgotten = False
        """Whether its manager tells of its failure no more."""

    def is_active(self) -> bool:
        return bool(self.java.isActive())

    def has_failed(self) -> bool:
        return not self.is_active() and bool(self.java.exception().isDefined())

    def is_of_interest(self) -> bool:
        """Whether anybody may still wait for it, or be told of its failure."""
        return self.is_active() or self.has_failed()

    def is_left(self) -> bool:
        """Whether it was decided that it is not started here."""
        return self.attempt is not None and self.attempt.is_over.is_set() and self.attempt.java is None


class _Attempt:
    """What becomes of one that has failed."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.java: Any = None
        """The new run; None: there is none."""


class _Settled(NamedTuple):
    """What becomes of a wait for any of several queries, one of which has failed."""

    is_back: bool = False
    """It goes on: all that have failed run again."""
    is_stopped: bool = False
    """It is over: meanwhile one has ended by itself, or was stopped."""
    is_late: bool = False
    """Its time is over."""
    left: _Run | None = None
    """The one of which the application is told."""


class _Wait(NamedTuple):
    """How the queries of one manager stood when somebody began to wait for any of them."""

    manager: Any
    active: set[str]
    left: set[str]
    """Those that had failed and were left to the application before."""


class Restarts:
    """Knows every run that Python's DataStreamWriter has started in this process; any thread may ask."""

    def __init__(self, folder: Path, report: Callable[[Exception], None]) -> None:
        """Begin.

        Args:
            folder: Of the agent, by which lastgood is asked.
            report: Gets what goes wrong; then the application is told of the failure as ever.
        """
        self._folder = folder
        self._report = report
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def note_properties(self, start: Start) -> None:
        """A query is about to start: keep what its thread has set for its jobs, such as a pool."""
        start.properties = _find_context(start).getLocalProperties().clone()

    def note_start(self, start: Start, query: Any) -> None:
        """A query runs; from now on the application waits for it here."""
        hold_waits(query, start.session.streams, self)
        run = _Run(start, query)
        kept = self._list_kept(run)
        with self._lock:
            self._runs = {each.run_id: each for each in (*kept, run)}

    def note_failure(self, run_id: str) -> None:
        """A run has failed, whether anybody waits for it or not."""
        run = self._runs.get(run_id)
        if run is not None:
            self._begin(run, is_awaited=False)

    def note_stop(self, run_id: str) -> None:
        """The application stops a run."""
        run = self._runs.get(run_id)
        if run is not None:
            run.is_stopped = True

    def try_or(self, call: Callable[[], _Answer], *, otherwise: _Answer) -> _Answer:
        """What `call` gives; where it fails, the application goes on as if nobody had asked."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - Java may be gone, the disk full
            self._report(error)
            return otherwise

    def bring_back(self, run_id: str, seconds: float | None) -> Any:
        """See that a query that failed runs again, as lastgood decides.

        Args:
            run_id: Of the run that has failed.
            seconds: How long to wait for that; None: as long as it takes.

        Returns:
            The new run in Java; False if there is none, None if that was not known in time.
        """
        run = self._runs.get(run_id)
        if run is None or not run.has_failed():
            return False
        return self._await(run, seconds)

    def begin_wait(self, manager: Any) -> _Wait:
        """Somebody begins to wait for any query of a manager."""
        runs = self._list_of(manager)
        active = {run.run_id for run in runs if run.is_active()}
        return _Wait(manager, active, {run.run_id for run in runs if run.is_left()})

    def settle(self, wait: _Wait, until: float | None) -> _Settled:
        """See that all queries of a manager that have failed run again.

        Args:
            wait: Of somebody whom the manager has told that one has failed.
            until: When he has waited long enough; None: never.
        """
        settled = _Settled()
        while failed := self._list_failed(wait):
            for run in failed:
                self._begin(run, is_awaited=True)
            for run in failed:
                back = self._await(run, _find_left(until))
                if not back:
                    return _Settled(left=None if back is None else run, is_late=back is None)
            # Spark keeps the newest end alone, and forgets it only together with those that came meanwhile.
            wait.manager.resetTerminated()
            for run in failed:
                run.is_forgotten = True
            if self._has_stopped(wait):
                return _Settled(is_stopped=True)
            settled = _Settled(is_back=True)
        return settled

    def _list_failed(self, wait: _Wait) -> list[_Run]:
        runs = itertools.filterfalse(lambda run: run.is_forgotten, self._list_of(wait.manager))
        untold = (run for run in runs if run.run_id not in wait.left)
        return list(filter(_Run.has_failed, untold))

    def _has_stopped(self, wait: _Wait) -> bool:
        """Whether one of those that went on was ended by somebody, or has nothing more to do."""
        runs = {run.run_id: run for run in self._list_of(wait.manager)}
        if not wait.active <= runs.keys():  # such are not kept
            return True
        before = [runs[run_id] for run_id in wait.active]
        ended = itertools.filterfalse(_Run.is_active, before)
        return not all(map(_Run.has_failed, ended))

    def _list_of(self, manager: Any) -> list[_Run]:
        with self._lock:
            runs = list(self._runs.values())
        if not runs:
            return []
        wanted = _identify(runs[0].start.session._jvm, manager._jsqm)  # noqa: SLF001
        return [run for run in runs if run.manager == wanted]

    def _list_kept(self, new: _Run) -> list[_Run]:
        """The runs that are still of interest beside a new one."""
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            if run.start.writer is new.start.writer and run.query_id != new.query_id:
                run.is_shared = new.is_shared = True
        older = [run for run in runs if run.query_id == new.query_id]
        others = [run for run in runs if run.query_id != new.query_id]
        return [*filter(_Run.is_of_interest, others), *older[1 - _RUNS_OF_A_QUERY :]]

    def _await(self, run: _Run, seconds: float | None) -> Any:
        attempt = self._begin(run, is_awaited=True)
        if not attempt.is_over.wait(seconds):
            return None
        return attempt.java or False

    def _begin(self, run: _Run, *, is_awaited: bool) -> _Attempt:
        with self._lock:
            is_new = run.attempt is None
            attempt = run.attempt = run.attempt or _Attempt()
        if attempt.is_over.is_set():
            return attempt
        try:
            self._tell(run, is_awaited=is_awaited)
            if is_new:
                work = functools.partial(self._bring_back, run, attempt)
                threading.Thread(target=work, name=f"lastgood-restart-{run.run_id}", daemon=True).start()
        except Exception as error:  # noqa: BLE001 - a full disk, no thread left: whoever waits is told of the failure
            self._report(error)
            attempt.is_over.set()
        return attempt

    def _bring_back(self, run: _Run, attempt: _Attempt) -> None:
        try:
            if self._await_answer(run) == START:
                self._start(run, attempt)
        except Exception as error:  # noqa: BLE001 - the application is told of the failure as ever
            self._report(error)
        attempt.is_over.set()

    def _await_answer(self, run: _Run) -> str:
        file = self._folder / f"{run.run_id}{ANSWER_SUFFIX}"
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not file.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody says what becomes of query {run.query_id}, which has failed")
            time.sleep(_LOOK_SECONDS)
        return file.read_text()

    def _start(self, run: _Run, attempt: _Attempt) -> None:
        """Start it again as the application did, with what that thread had set for its jobs."""
        self._await_quiet(run)
        self._require_startable(run)
        unsettled = find_unsettled(run.start.session._jvm, run.java)  # noqa: SLF001 - Python's has no way to files
        if unsettled is not None:
            raise RuntimeError(f"query {run.query_id} is not started again in its driver: {unsettled}")
        _find_context(run.start).setLocalProperties(run.start.properties)
        new = run.start.again()
        _require_wanted(run, new)
        run.query._jsq = new._jsq  # noqa: SLF001
        _require_wanted(run, new)  # whoever has stopped it before that has met the old run
        attempt.java = new._jsq  # noqa: SLF001
        known = self._runs.get(str(new.runId))
        if known is not None:
            known.query = run.query

    def _await_quiet(self, run: _Run) -> None:
        """Wait until nothing of the failed run writes any more."""
        deadline = time.monotonic() + QUIET_SECONDS
        while not _is_quiet(run):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a task of query {run.query_id}, which has failed, does not end")
            time.sleep(_LOOK_SECONDS)

    def _require_startable(self, run: _Run) -> None:
        """See that the same start would start the same query, and that nobody has started or stopped it since."""
        running = {str(each.id().toString()) for each in list_own(run.start.session)}
        if run.is_stopped or run.query_id in running:
            raise RuntimeError(f"the application has stopped query {run.query_id}, or started it again")
        if run.is_shared or run.checkpoint is None or run.start.checkpoint != run.checkpoint:
            raise RuntimeError(f"what started query {run.query_id} would start another one now")

    def _tell(self, run: _Run, *, is_awaited: bool) -> None:
        with self._telling:
            run.is_awaited = run.is_awaited or is_awaited
            told = {"query_id": run.query_id, "run_id": run.run_id, "is_awaited": run.is_awaited}
            make_private(self._folder)
            draft = self._folder / f"{run.run_id}.ended.tmp"
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE), "w") as stream:  # noqa: PTH123 - a descriptor
                stream.write(json.dumps(told))
            # Safe: it is what this process tells of this run, and what is told now holds instead of what was before.
            draft.replace(self._folder / f"{run.run_id}{ENDED_SUFFIX}")


def hold_waits(query: Any, manager: Any, restarts: Restarts) -> None:
    """Have the waits of an application end only where they have to; a second time nothing happens.

    Args:
        query: A StreamingQuery of pyspark; all of its kind are meant.
        manager: Likewise a StreamingQueryManager.
        restarts: Is asked.
    """
    query_kind, manager_kind = type(query), type(manager)
    if _MARK in vars(query_kind):
        return
    setattr(query_kind, _MARK, True)
    wait = query_kind.awaitTermination

    def fail(java: Any) -> None:
        """Raise what a run has failed with."""
        wait(query_kind(java))

    query_kind.awaitTermination = _hold_wait(wait, restarts)
    query_kind.stop = _note_stop(query_kind.stop, restarts)
    manager_kind.awaitAnyTermination = _hold_wait_for_any(manager_kind.awaitAnyTermination, restarts, fail)


def _note_stop(stop: Callable[..., Any], restarts: Restarts) -> Callable[..., Any]:
    @functools.wraps(stop)
    def stop_noted(query: Any, *args: Any, **kwargs: Any) -> Any:
        restarts.try_or(lambda: restarts.note_stop(str(query.runId)), otherwise=None)
        return stop(query, *args, **kwargs)

    return stop_noted


def _hold_wait(wait: Callable[..., Any], restarts: Restarts) -> Callable[..., Any]:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - loaded by whoever has a query

    @functools.wraps(wait)
    def await_termination(query: Any, timeout: float | None = None) -> Any:
        until, left = _find_end(timeout), timeout
        while True:
            run_id = restarts.try_or(lambda: str(query.runId), otherwise="")
            try:
                return wait(query, left)
            except StreamingQueryException:
                back = restarts.try_or(
                    functools.partial(restarts.bring_back, run_id, _find_left(until)), otherwise=False
                )
                if back is False:
                    raise
            left = _find_left(until)
            if back is None or (left is not None and left < _LEAST_SECONDS):
                return False
            query._jsq = back  # noqa: SLF001 - there may be several names for one query

    return await_termination


def _hold_wait_for_any(wait: Callable[..., Any], restarts: Restarts, fail: Callable[[Any], None]) -> Callable[..., Any]:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - as above

    @functools.wraps(wait)
    def await_any_termination(manager: Any, timeout: float | None = None) -> Any:
        until, left = _find_end(timeout), timeout
        while True:
            begun = restarts.try_or(
                functools.partial(restarts.begin_wait, manager), otherwise=_Wait(manager, set(), set())
            )
            try:
                return wait(manager, left)
            except StreamingQueryException:
                settled = restarts.try_or(functools.partial(restarts.settle, begun, until), otherwise=_Settled())
                if settled == _Settled():
                    raise
            if settled.left is not None:
                fail(settled.left.java)
            left = _find_left(until)
            if settled.is_stopped:
                return None if timeout is None else True
            if settled.is_late or (left is not None and left < _LEAST_SECONDS):
                return False

    return await_any_termination


def _find_end(timeout: object) -> float | None:
    """When a wait of so many seconds ends; None: never, or Spark is about to say that it is no time."""
    if not isinstance(timeout, (int, float)):
        return None
    return time.monotonic() + timeout


def _find_left(until: float | None) -> float | None:
    """Seconds until then; None: for ever."""
    if until is None:
        return None
    return max(0.0, until - time.monotonic())


def _require_wanted(run: _Run, new: Any) -> None:
    """See that a new run is one of the same query, and that the application has not stopped it meanwhile."""
    if str(new.id) != run.query_id or run.is_stopped:
        new.stop()
        raise RuntimeError(f"query {run.query_id} was stopped, or is another one by now")


def _is_quiet(run: _Run) -> bool:
    try:
        return not (is_running(run.java) or has_active_tasks(run.java, run.query_id))
    except Exception:  # noqa: BLE001 - the scheduler changes what is looked at: it is asked again, for so long
        return False


def _find_context(start: Start) -> Any:
    return start.session.sparkContext._jsc.sc()  # noqa: SLF001 - Python's has no way to the properties


def _identify(jvm: Any, java: Any) -> int:
    """The same number for every Python object that stands for the same one in Java."""
    return int(jvm.java.lang.System.identityHashCode(java))
