"""The agent in a process that is there already: it comes with each run of a query, and goes with its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lastgood.spark.agent import left_state, starts, tasks
from lastgood.spark.agent.agent import Agent
from lastgood.spark.agent.fit import KEPT_FILE
from lastgood.spark.agent.sessions import is_connect
from lastgood.spark.agent.standby import list_own
from lastgood.spark.silent_session import find_modules


class SessionAgent:
    """Has what happens to queries of this process written to a folder, as the agent does that `run` brings along.

    And knows which queries were started meanwhile: it observes starts, see `starts.Observer`. Between the runs nobody
    else starts a query of the checkpoint here.
    """

    def __init__(self, folder: Path, checkpoint: str) -> None:
        """Write to `folder`, which is for this alone, and look for queries of `checkpoint`."""
        self._folder = folder
        self._checkpoint = checkpoint
        self._agent: Agent | None = None
        self.own: list[Any] = []
        """Queries of the checkpoint that were started since `begin`, in their order."""
        self.others: list[str] = []
        """What else was started."""
        self.has_run = False
        """Whether a query of the checkpoint was ever started."""

    def observe(self) -> None:
        """See to it from now on that a query of the checkpoint starts only between `begin` and `end`."""
        for module in find_modules():
            starts.watch(module)
        starts.observe(self)

    def close(self) -> None:
        """Look at nothing any more."""
        self.end()
        starts.forget(self)

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
        self._agent = Agent(self._folder, is_of_process=False)
        starts.observe(self._agent)

    def end(self) -> None:
        """Write what there is to write."""
        agent, self._agent = self._agent, None
        if agent is not None:
            starts.forget(agent)
            agent.close()

    def before_start(self, start: starts.Start) -> None:
        """See `starts.Observer`.

        Raises:
            NotToStartError: the query is just being judged.
        """
        if self._agent is None and self._is_named(start.checkpoint):
            raise starts.NotToStartError("[QUERY_KEPT_RUNNING] lastgood looks after this query, and starts it itself")

    def after_start(self, start: starts.Start, query: Any) -> None:
        """See `starts.Observer`."""
        if is_connect(start.session):
            self.others.append("a query of Spark Connect")
            return
        # Spark's own answer: the same words may name another place to a Spark with another default storage.
        root = str(query._jsq.streamingQuery().resolvedCheckpointRoot())  # noqa: SLF001 - Python's has no way to it
        if self._is_named(root):
            self.has_run = True
            self.own.append(query)
        else:
            self.others.append(root)

    def start_failed(self, start: starts.Start, error: Exception) -> None:
        """See `starts.Observer`."""

    def report_trouble(self, error: Exception) -> None:
        """See `starts.Observer`."""
        if self._agent is not None:
            self._agent.report_trouble(error)

    def is_active(self) -> bool:
        """Whether a query of the checkpoint runs in this Java, whoever has started it."""
        session = _find_session()
        if session is None:
            return False
        return any(self._is_named(str(each.resolvedCheckpointRoot())) for each in list_own(session))

    def _is_named(self, checkpoint: str | None) -> bool:
        return checkpoint is not None and starts.identify(checkpoint) == starts.identify(self._checkpoint)


def _find_session() -> Any:
    """A classic session of this process; None: there is none."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loaded only by whoever asks for it

    session = SparkSession._instantiatedSession  # noqa: SLF001 - the active one is that of a thread
    return None if session is None or is_connect(session) else session


def make_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """A thread that does what the one that asks has set for its jobs in Spark, such as a pool; it ends with Python."""
    from pyspark import InheritableThread, SparkContext  # noqa: PLC0415 - loaded only by whoever asks for it

    # Without a context nothing was set, and InheritableThread would not be made.
    kind = threading.Thread if SparkContext._active_spark_context is None else InheritableThread  # noqa: SLF001
    thread: threading.Thread = kind(target=target, name=name)
    thread.daemon = True
    return thread


def is_running(query: Any) -> bool:
    """Whether a run goes on."""
    return tasks.is_running(query._jsq)  # noqa: SLF001 - Python's has no way to its thread


def is_stopped(query: Any) -> bool:
    """Whether somebody has stopped the whole Spark that it ran in."""
    return bool(query._jsq.sparkSession().sparkContext().isStopped())  # noqa: SLF001


def has_active_tasks(query: Any) -> bool:
    """Whether a task or a job of a query still runs somewhere, though its thread has ended."""
    return tasks.has_active_tasks(query._jsq, str(query.id))  # noqa: SLF001 - Python's knows of no jobs


def find_unsettled(query: Any) -> str | None:
    """Why a next run of a query whose run has ended would not be alone with its state; None: it would be."""
    from pyspark import SparkContext  # noqa: PLC0415 - loaded only by whoever asks for it

    return left_state.find_unsettled(SparkContext._jvm, query._jsq)  # noqa: SLF001 - Python's has no way to files
