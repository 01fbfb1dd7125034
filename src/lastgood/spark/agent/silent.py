"""The query of an application, run with its sink muted: batch after batch, as lastgood has planned them beside it.

The application is not changed. When it starts the query whose state is to be rebuilt, the query runs on another
checkpoint, without a sink, once for each batch that lastgood asks for; `start` never returns. Other queries are not
started. Whatever goes wrong here ends the application: it must not run as it stands.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from . import starts
from .fit import FAILS, RENAMED, REUSED
from .guarding import CodeGuard

VARIABLE = "LASTGOOD_REBUILD"
"""Environment variable: the checkpoint location of the query that is to run silently; nothing else is started then."""
_LOOK_SECONDS = 0.02
_ERROR_MAX = 100_000
_MARK = "_muted_by_lastgood"


def name_turn(number: int) -> str:
    """The file by which a batch is asked for; it says where, below the checkpoint's name, the query is to run."""
    return f"turn-{number:06d}.json"


def name_answer(number: int) -> str:
    """The file that answers it, with the error that the query has ended with, or none."""
    return f"answer-{number:06d}.json"


def name_passed() -> str:
    """The file that holds, one a line, the checkpoints of queries that the application has started beside it."""
    return "passed.txt"


def mute(module: ModuleType, folder: Path, checkpoint: str) -> None:
    """Mute the DataStreamWriter of a module of pyspark; a second time nothing happens.

    Args:
        module: That defines it.
        folder: Through which lastgood asks and is answered.
        checkpoint: Of the query that is to run.
    """
    writer = module.DataStreamWriter
    if _MARK in vars(writer):
        return
    starts.watch(module)  # by which a writer knows its own options
    start = writer.start
    setattr(writer, _MARK, True)

    def start_silently(told: Any, *args: Any, **kwargs: Any) -> Any:
        begun = starts.Start(told, args, kwargs)
        location = begun.checkpoint
        if location is None or starts.identify(location) != starts.identify(checkpoint):
            _note_passed(folder, location)
            return NotStarted(checkpoint)
        try:
            CodeGuard(folder).check(begun, (FAILS, REUSED, RENAMED))  # without a state Spark would stop at nothing
        except starts.NotToStartError as misfit:
            _answer(folder, 0, str(misfit))
            raise
        if not hasattr(begun.session, "_jsparkSession"):
            raise RuntimeError("lastgood rebuild needs a classic session: a client of Spark Connect cannot be muted")
        return _run_turns(folder, location, mute_writer(told, args, kwargs), start)

    writer.start = writer.toTable = start_silently


class NotStarted:
    """Stands for a query that is not started while the state of another one is rebuilt."""

    isActive = True  # noqa: N815 - Spark's name
    name = None

    def __init__(self, checkpoint: str) -> None:
        """Take the checkpoint of the one that is."""
        self.id = str(uuid.uuid4())
        self.runId = str(uuid.uuid4())
        self._checkpoint = checkpoint

    def __getattr__(self, name: str) -> Any:
        """Nothing else can be asked of it.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"lastgood rebuild starts no query but that of {self._checkpoint}, and the application asks another one,"
            f" which it has started before, for {name}"
        )


def mute_writer(writer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Have a DataStreamWriter run its newest plan once, and write nothing.

    Args:
        writer: The same one is given back.
        args: What its `start` or `toTable` was called with.
        kwargs: And by name.
    """
    named = {**dict(zip(("format", "outputMode"), args[1:])), **kwargs}  # noqa: B905 - Python 3.9 has no strict
    if named.get("outputMode"):
        writer.outputMode(named["outputMode"])
    return writer.format("noop").trigger(once=True)


def _run_turns(folder: Path, location: str, writer: Any, start: Callable[..., Any]) -> Any:
    """Answer every turn; whoever asks ends the process in the end."""
    number = 0
    while True:
        turn = folder / name_turn(number)
        while not turn.exists():
            time.sleep(_LOOK_SECONDS)
        below = json.loads(turn.read_text())["below"]
        query = start(writer.option("checkpointLocation", location.rstrip("/") + below))
        error = None
        try:
            query.awaitTermination()
        except Exception as failure:  # noqa: BLE001 - whatever the query ended with is told
            error = str(failure)[:_ERROR_MAX] or type(failure).__name__
        _answer(folder, number, error)
        number += 1


def _answer(folder: Path, number: int, error: str | None) -> None:
    file = folder / name_answer(number)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"error": error}))
    # Safe: both are names of this run alone, in its own folder.
    os.replace(draft, file)  # noqa: PTH105 - as short


def _note_passed(folder: Path, location: str | None) -> None:
    with (folder / name_passed()).open("a") as passed:
        passed.write(f"{location or 'a checkpoint that Spark makes up'}\n")
