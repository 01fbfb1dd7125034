"""The query that a function starts, run in this process without its sink: batch after batch, as they were planned."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import ModuleType
from typing import Any

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.spark.agent import fit
from lastgood.spark.agent.sessions import is_connect
from lastgood.spark.agent.silent import NotStarted, mute_writer
from lastgood.spark.agent.starts import Start, identify, watch

_CLASSIC = "pyspark.sql.streaming.readwriter"
_CONNECT = "pyspark.sql.connect.streaming.readwriter"
_BEGINNINGS = ("start", "toTable")


@dataclass(slots=True)
class SilentSession:
    """A function that starts the query of a checkpoint, in this process."""

    start: Callable[[], object]
    """Builds the query and starts it; what else it starts is not started."""
    checkpoint: str
    query_id: str | None
    kept: Mapping[str, Any]
    """By the checkpoint; see `agent.fit.compare`."""
    passed: list[str] = field(default_factory=list)
    """Checkpoints of the queries that it has started beside the one."""
    _loop: Callable[[Callable[[str], str | None]], None] | None = None
    _is_done: bool = False
    _failure: BaseException | None = None

    def run(self, loop: Callable[[Callable[[str], str | None]], None]) -> bool:
        """Call the function, and have the query run silently.

        Args:
            loop: Is called instead of the query's start, with what runs its newest plan once: it takes what is added
                to the name of the checkpoint, and gives the error that the query has ended with, or None.

        Returns:
            Whether the query was started; else `passed` tells which ones were.

        Raises:
            UsageError: it cannot be muted, it runs, or it does not go with the checkpoint.
        """
        self._loop = loop
        writers = [module.DataStreamWriter for module in find_modules()]
        before = [_list_beginnings(writer) for writer in writers]
        me = threading.get_ident()
        for writer, methods in zip(writers, before, strict=True):
            for name in _BEGINNINGS:
                setattr(writer, name, self._mute(methods[name], inspect.unwrap(methods["start"]), me))
        try:
            self.start()
        except Exception as error:  # noqa: BLE001 - what it does with a query that has ended is of no account
            if not self._is_done:
                raise self._failure or error from None
        finally:
            for writer, methods in zip(writers, before, strict=True):
                for name, method in methods.items():
                    setattr(writer, name, method)
        if self._failure is not None:  # whatever the function has made of it
            raise self._failure
        return self._is_done

    def _mute(self, method: Callable[..., Any], start: Callable[..., Any], me: int) -> Callable[..., Any]:
        """A way to start a query, muted in one thread; in others the application may go on with other queries."""

        def begin(writer: Any, *args: Any, **kwargs: Any) -> Any:
            begun = Start(writer, args, kwargs)
            location = begun.checkpoint
            is_it = location is not None and identify(location) == identify(self.checkpoint)
            if threading.get_ident() != me and not is_it:
                return method(writer, *args, **kwargs)
            if location is None or not is_it:
                self.passed.append(location or "a checkpoint that Spark makes up")
                return NotStarted(self.checkpoint)
            if self._is_done:
                return EndedQuery()
            try:
                self._require_fit(begun)
                mute_writer(writer, args, kwargs)
                assert self._loop is not None
                self._loop(
                    lambda below: _run_once(start, writer.option("checkpointLocation", location.rstrip("/") + below))
                )
            except BaseException as failure:  # Ctrl-C among it: the function may swallow it
                self._failure = failure
                raise
            self._is_done = True
            return EndedQuery()

        return begin

    def _require_fit(self, begun: Start) -> None:
        if is_connect(begun.session):
            raise UsageError("a client of Spark Connect cannot be muted", subject="start", expected="a classic session")
        if any(each.id == self.query_id for each in begun.session.streams.active):
            raise UsageError("the query runs", subject=self.checkpoint, expected="a query that has ended")
        from lastgood.spark.agent import shape  # noqa: PLC0415 - a client of Spark Connect has no py4j

        frame = begun.writer._df  # noqa: SLF001 - a writer has no other way to its DataFrame
        misfits = fit.compare(self.kept, shape.describe(frame, shape.find_output_mode(begun.writer)))
        if misfits:  # without a state Spark would stop at nothing
            raise UsageError(
                "the code of the query does not go with its checkpoint",
                subject=f"{self.checkpoint}: {misfits[0]['subject']}",
                found=misfits[0]["found"],
                expected=misfits[0]["expected"],
                effect="nothing was run, and nothing has been changed",
            )


class EndedQuery:
    """Stands for the query once all its batches have run."""

    id = runId = name = lastProgress = None  # noqa: N815 - Spark's names
    isActive = False  # noqa: N815 - Spark's name
    recentProgress: tuple[Any, ...] = ()  # noqa: N815 - Spark's name

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        """It has ended."""
        del timeout
        return True

    def stop(self) -> None:
        """Nothing is left to do."""

    def exception(self) -> None:
        """It has none."""


def _list_beginnings(writer: type) -> dict[str, Callable[..., Any]]:
    return {name: getattr(writer, name) for name in _BEGINNINGS}


def find_modules() -> Iterator[ModuleType]:
    """Where queries may be started from in this process."""
    for name in (_CLASSIC, _CONNECT):
        try:
            module = importlib.import_module(name)
        except ImportError:  # what the function cannot import either
            continue
        watch(module)
        yield module


def _run_once(start: Callable[..., Any], writer: Any) -> str | None:
    query = start(writer)
    try:
        query.awaitTermination()
    except Exception as failure:  # noqa: BLE001 - whatever the query ended with is told
        return str(failure) or type(failure).__name__
    finally:
        query.stop()  # where we are interrupted it would go on
    return None
