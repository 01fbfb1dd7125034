"""The agent in a process that is there already: it comes with each run of a query, and goes with its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lastgood.spark.agent import starts
from lastgood.spark.agent.agent import Agent
from lastgood.spark.agent.fit import KEPT_FILE
from lastgood.spark.agent.sessions import is_connect
from lastgood.spark.agent.standby import list_own
from lastgood.spark.silent_session import find_modules

_JOBS_LOOKED_AT = 50
"""Of those of a run the newest: a query runs one after the other, and few in a batch."""


class SessionAgent:
    """Has what happens to queries of this process written to a folder, as the agent does that `run` brings along.

    And knows which queries were started meanwhile: it observes starts, see `starts.Observer`.
    """

    def __init__(self, folder: Path, checkpoint: str) -> None:
        """Write to `folder`, which is for this alone, and look for queries of `checkpoint`."""
        self._folder = folder
        self._checkpoint = checkpoint
        self._agent: Agent | None = None
        self._session: Any = None
        self.own: list[Any] = []
        """Queries of the checkpoint that were started since `begin`, in their order."""
        self.others: list[str] = []
        """What else was started."""

    def forget(self) -> None:
        """What it has written of an earlier run is there no more; what the guard was told stays."""
        self.end()
        with contextlib.suppress(FileNotFoundError):
            for file in self._folder.iterdir():
                if file.name != KEPT_FILE:
                    # Safe: files of this agent alone, about runs that have ended, which were read.
                    file.unlink()

    def begin(self) -> None:
        """Look at what is started from now on."""
        self.own, self.others = [], []
        for module in find_modules():
            starts.watch(module)
        self._agent = Agent(self._folder)
        starts.observe(self._agent)
        starts.observe(self)

    def end(self) -> None:
        """Write what there is to write, and look no more."""
        starts.forget(self)
        agent, self._agent = self._agent, None
        if agent is not None:
            starts.forget(agent)
            agent.close()

    def before_start(self, start: starts.Start) -> None:
        """See `starts.Observer`."""

    def after_start(self, start: starts.Start, query: Any) -> None:
        """See `starts.Observer`."""
        if is_connect(start.session):
            self.others.append("a query of Spark Connect")
        elif start.checkpoint is None or starts.identify(start.checkpoint) != starts.identify(self._checkpoint):
            self.others.append(start.checkpoint or "a checkpoint that Spark makes up")
        else:
            self._session = start.session
            self.own.append(query)

    def start_failed(self, start: starts.Start, error: Exception) -> None:
        """See `starts.Observer`."""

    def report_trouble(self, error: Exception) -> None:
        """See `starts.Observer`: it does nothing that could fail but to compare names."""
        if self._agent is not None:
            self._agent.report_trouble(error)

    def is_active(self) -> bool:
        """Whether a query of the checkpoint runs in this Java, whoever has started it; before the first start: no."""
        if self._session is None:
            return False
        roots = (str(each.resolvedCheckpointRoot()) for each in list_own(self._session))
        return any(starts.identify(root) == starts.identify(self._checkpoint) for root in roots)


def make_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """A thread that does what the one that asks has set for its jobs in Spark, such as a pool; it ends with Python."""
    from pyspark import InheritableThread  # noqa: PLC0415 - loaded only by whoever asks for it

    thread = InheritableThread(target=target, name=name)
    thread.daemon = True
    return thread


def has_active_tasks(query: Any) -> bool:
    """Whether a task of a run still runs somewhere, though the run may have ended."""
    tracker = query._jsq.sparkSession().sparkContext().statusTracker()  # noqa: SLF001 - Python's tracker knows one context
    jobs = sorted(tracker.getJobIdsForGroup(str(query.runId)))[-_JOBS_LOOKED_AT:]
    stages = {stage for job in jobs for stage in _list_stages(tracker, job)}
    return any(_count_active_tasks(tracker, stage) for stage in stages)


def _list_stages(tracker: Any, job: int) -> list[int]:
    info = tracker.getJobInfo(job)
    return list(info.get().stageIds()) if info.isDefined() else []


def _count_active_tasks(tracker: Any, stage: int) -> int:
    info = tracker.getStageInfo(stage)
    return int(info.get().numActiveTasks()) if info.isDefined() else 0
