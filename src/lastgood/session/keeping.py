"""A query of the session that calls it, kept running as `lastgood run` does."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from lastgood.cli.output import make_console
from lastgood.cli.timeline import open_timeline
from lastgood.errors import LastgoodError, UsageError
from lastgood.operations.run import supervise
from lastgood.settings.config import Config, ConfiguredQuery, Kafka, Pipeline
from lastgood.settings.target import resolve_target
from lastgood.spark.agent.driver import FOLDER_VARIABLE
from lastgood.spark.session_agent import make_thread
from lastgood.supervise.care import PersonNeededError
from lastgood.supervise.events import Event, Noticed, Started
from lastgood.supervise.loop import Supervisor
from lastgood.supervise.prepared import Prepared, find_ledger, prepare_here

_RETURN_SECONDS = 60.0
"""How long a function may go on after it has started its query."""


def keep_running(
    start: Callable[[], object],
    target: str,
    *,
    sink: str | None = None,
    kafka: str | None = None,
    source_replays: bool = False,
    first_start: bool = False,
    go_on: bool = False,
    driver_is_dead: bool = False,
    config: Path | None = None,
    tell: Callable[[Event], None] | None = None,
) -> KeptRunning:
    """What `lastgood run` does, for one query of this process: without a new Java, session, or class.

    The query is judged and, as far as its policy goes, repaired before each start; it is started, watched, and started
    again when it fails; what was promised is held against the first new batch. That goes on in a thread of its own,
    until `stop`, until the query or its session is stopped by whoever else, or until a person is needed. Other queries
    of the session are left alone.

    Example::

        def start():
            return orders.writeStream.option("checkpointLocation", "s3a://lake/chk/orders").start("s3a://lake/orders")

        kept = lastgood.spark.keep_running(start, "s3a://lake/chk/orders", sink="delta:s3a://lake/orders")

    Args:
        start: Builds the query and starts it, in a classic session. It is called for each start, in another thread, and
            must not wait for the query's end.
        target: Location of its checkpoint, or name in `lastgood.toml`, whose policy counts.
        sink: Where it writes; None: as `lastgood.toml` tells.
        kafka: `bootstrap.servers` of its source; None: as `lastgood.toml` tells.
        source_replays: Whether sources that cannot be asked serve their ranges again.
        first_start: The query has never run: do not warn where nobody can tell that.
        go_on: A person has looked: it is started as it stands, however often it failed or long it was down.
        driver_is_dead: You have seen that no other process runs it, and this one has not run it before.
        config: Another configuration than `lastgood.toml` here.
        tell: Gets each event; None: a line for each is printed.

    Returns:
        The query under supervision, once `start` was called for the first time.

    Raises:
        UsageError: `lastgood run` supervises this process already, or `start` starts no such query.
        CheckpointHeldError: another `run` holds the checkpoint.
        PersonNeededError: the policy does not allow what would have to be done.
        LastgoodError: nobody can tell what is the matter with the query (subclasses).
    """
    if FOLDER_VARIABLE in os.environ:
        raise UsageError(
            "lastgood run supervises this process already",
            expected="one of both",
            next="start the application without lastgood run, or its query without keep_running",
        )
    found = resolve_target(target, Config(config))
    pipeline = found.pipeline or Pipeline(name=found.location.name or "query", command=(), config=found.config)
    if kafka is not None:
        pipeline = replace(pipeline, kafka=Kafka(bootstrap=kafka))
    query = ConfiguredQuery(
        name=pipeline.name,
        checkpoint=found.checkpoint,
        sink=sink or found.sink,
        txn_app_id=found.txn_app_id,
        topics=found.topics,
        offset_columns=found.offset_columns,
        source_replays=source_replays or found.source_replays,
    )
    death = None
    if driver_is_dead:
        death = "you say so (driver_is_dead=True)"
    prepared = prepare_here(
        query, start, pipeline=pipeline, ledger=find_ledger(pipeline), first_start=first_start, go_on=go_on, death=death
    )
    kept = KeptRunning(prepared, tell)
    kept.begin()
    return kept


class KeptRunning:
    """A query that is kept running; made by `keep_running`."""

    def __init__(self, prepared: Prepared, tell: Callable[[Event], None] | None) -> None:
        """Prepare; nothing is started yet."""
        assert prepared.here is not None  # it was made by `prepare_here`
        self._prepared = prepared
        self._start = prepared.here
        self._tell = tell
        self._supervisor: Supervisor | None = None
        self._error: BaseException | None = None
        self._has_begun = threading.Event()
        self._is_stopped = False
        self._thread = make_thread(self._supervise, f"lastgood-{prepared.pipeline.stem}")

    def begin(self) -> None:
        """Start the query for the first time; called once.

        Raises:
            LastgoodError: as `keep_running`.
        """
        self._thread.start()
        try:
            self._await_begun()
        except BaseException:  # Ctrl-C among it: nobody would hold what could stop it
            self._end()
            raise
        if self._error is not None:
            raise self._error

    def _await_begun(self) -> None:
        started_at = None
        while not self._has_begun.wait(1.0):
            if started_at is None and self._start.agent.own:
                started_at = time.monotonic()
            if started_at is not None and time.monotonic() - started_at > _RETURN_SECONDS:
                raise UsageError(
                    "start() has started the query, and does not return",
                    found=f"it runs for more than {_RETURN_SECONDS:g} s since",
                    expected="a function that does not wait for the end of the query",
                    effect="the query was stopped",
                )

    @property
    def query(self) -> Any:
        """The `StreamingQuery` that was started last; None: none was so far."""
        return self._start.query

    @property
    def is_supervised(self) -> bool:
        """Whether the query is looked after; while it is judged, or waits for another try, it does not run."""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the supervision; whether it has ended.

        Raises:
            AttemptsExhaustedError: the query failed too often in a row without progress.
            PersonNeededError, LastgoodError: as `keep_running`.
        """
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop the query, and look after it no more.

        Raises:
            LastgoodError: as `wait`.
        """
        self._end()
        if threading.current_thread() is not self._thread:  # `tell` may have called us
            self.wait()

    def __enter__(self) -> Self:
        """Keep it running until the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def _end(self) -> None:
        """Have it end, however far it has come."""
        self._is_stopped = True
        if self._supervisor is not None:
            self._supervisor.stop()
        if not self._has_begun.is_set():  # `start` may wait for the end of what it has started
            for query in self._start.agent.own:
                query.stop()

    def _supervise(self) -> None:
        with open_timeline(make_console(), live=False) as listen:
            tell = listen if self._tell is None else self._tell
            try:
                supervise(self._prepared, tell=lambda event: self._hear(event, tell), on_supervisor=self._take)
            except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
                self._error = error
                if isinstance(error, LastgoodError) and not isinstance(error, PersonNeededError):
                    told = f"the query is looked after no more: {error.sentence}"
                    self._hear(Noticed(at=time.time(), condition=error.condition, sentence=told), tell)
            finally:
                self._has_begun.set()

    def _hear(self, event: Event, tell: Callable[[Event], None]) -> None:
        if isinstance(event, Started):
            self._has_begun.set()
        try:
            tell(event)
        except Exception:  # noqa: BLE001 - of the caller's: the query goes on, whatever becomes of who listens
            traceback.print_exc()

    def _take(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        if self._is_stopped:
            supervisor.stop()
