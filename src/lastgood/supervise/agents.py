"""What the agents in the driver processes of one command tell: the queries that run, and why they end."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from lastgood.errors import LastgoodError
from lastgood.failures.ending import Failed, find_decisive_failure
from lastgood.notes import read_json
from lastgood.observe.progress import LogWatch
from lastgood.records.files import DRIVER_FILE, TROUBLE_FILE, Driver, parse_driver, parse_records, sort_record_files
from lastgood.records.record import (
    TEMPORARY_CHECKPOINT,
    Progress,
    QueryStarted,
    Record,
    RecordedFailure,
    StartFailed,
    Terminated,
)
from lastgood.spark.agent.fit import CODE_SUFFIX
from lastgood.spark.agent.restarts import ANSWER_SUFFIX, ENDED_SUFFIX, QUIET_SECONDS, START
from lastgood.storage.reading import Location, parse_location
from lastgood.supervise.agent_folder import put_answer, put_kept
from lastgood.supervise.driver_java import is_driver_java, is_java
from lastgood.supervise.events import Noticed
from lastgood.supervise.loop import Watch
from lastgood.supervise.session_restarts import DeadQuery

_DEAD_AFTER_SECONDS = 30.0
"""How long an application may take to start a query again by itself."""
_LEFT_SECONDS = 15.0
"""How long of that it is left to the application where nobody waits for the query."""
_RESTART_SECONDS = QUIET_SECONDS + 30.0
"""How long a query that is started again in its driver may take to run."""
_LEAVE = "leave"
_RECORD_SECONDS = 15.0
"""How long after the end of a query its record may come."""
_TAIL_BYTES = 8 * 1024 * 1024
"""What ended a process stands at the end of its records."""
_HINDERED_AFTER_SECONDS = 30.0
_LACKING_SECONDS = 300.0
"""For so long queries that none may stand by for need not run before that is told."""
_PROGRESS = b'{"kind":"progress"'
"""Nearly all lines begin like this, and none of them tells why something ended."""


class Agents:
    """Reads the folder that `LASTGOOD_AGENT_DIR` names; belongs to one thread. What it cannot read is not there."""

    def __init__(
        self,
        folder: Path,
        *,
        named: Mapping[str, str] | None = None,
        on_checkpoint: Callable[[Location], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read a folder.

        Args:
            folder: Where the agents write; it need not be there.
            named: `Location.identity` of the checkpoints that are watched already, and what each is called.
            on_checkpoint: Is told once of each further one.
            clock: Seconds.
        """
        self._folder = folder
        self._known = dict(named or {})
        self._on_checkpoint = on_checkpoint
        self._clock = clock
        self._beats: dict[str, tuple[int, Driver | None]] = {}
        self._of_earlier_runs: frozenset[str] = frozenset()
        self._watches: dict[str, Watch] = {}
        self._seen: set[str] = set()
        self._untold: list[Noticed] = []
        self._told: set[str] = set()
        self._renamed: set[str] = set()
        self._running: dict[str, str] = {}
        self._gone_since: dict[str, float] = {}
        self._death: str | None = None
        self._hindered_since: float | None = None
        self._lacking_since: float | None = None
        self._ended_since: dict[str, float] = {}
        self._restarted_at: dict[str | None, float] = {}

    def begin(self) -> None:
        """A new run of the command begins: what was written before is not of it."""
        self._of_earlier_runs = frozenset(self._all_names())
        self._beats.clear()
        self._running.clear()
        self._gone_since.clear()
        self._hindered_since = self._lacking_since = None
        self._ended_since.clear()
        self._restarted_at.clear()

    def watches(self) -> Mapping[str, Watch]:
        """How to look at the checkpoints of the queries seen so far, but those named and those that Spark made up."""
        for driver in self._drivers():
            for query in driver.queries:
                if query.checkpoint is not None and query.checkpoint not in self._seen:
                    self._seen.add(query.checkpoint)
                    self._add(query.checkpoint)
        return self._watches

    def notices(self) -> list[Noticed]:
        """What went wrong in an agent, or with a checkpoint that it told of; each thing once."""
        troubles = {driver.trouble for driver in self._drivers() if driver.trouble is not None}
        troubles |= {_take_last_line(self._read(name)) for name in self._names() if TROUBLE_FILE.fullmatch(name)}
        new = sorted(troubles - self._told)
        self._told.update(new)
        renamed = {line for told in self._codes() for line in _list_renamed(told)} - self._renamed
        self._renamed |= renamed
        untold, self._untold = self._untold, []
        untold += [_make_noticed("CODE_RENAMED", line) for line in sorted(renamed)]
        return untold + [_make_noticed("AGENT_TROUBLE", f"the agent in the driver: {each}") for each in new]

    def failure(self) -> tuple[str | None, RecordedFailure] | None:
        """The checkpoint of the query that ended this run of the command, if it was one, and why; None: none knows."""
        return self._failure_of(find_decisive_failure(self._records()))

    def has_started(self) -> bool:
        """Whether this run of the command has tried to start a query."""
        seen = any(driver.queries for driver in self._drivers())
        return seen or any(isinstance(each, QueryStarted | StartFailed) for each in self._records())

    def find_query_start_ms(self, checkpoint: str) -> int | None:
        """When the query of a checkpoint began in this run of the command, the last time; None: nobody told."""
        newest = None
        for record in self._records():
            if not isinstance(record, QueryStarted) or record.checkpoint is None:
                continue
            if self._name(record.checkpoint) == checkpoint:
                newest = record.started_at_ms
        return newest

    def judge_standby(
        self, checkpoints: Collection[str], processes: Sequence[psutil.Process]
    ) -> tuple[bool, str | None]:
        """Whether this run of the command has started its queries, and why no start of one could be held back.

        Args:
            checkpoints: Of the queries that are watched; one that does not run now has yet to be started.
            processes: All that the command has started, with itself.
        """
        drivers = list(filter(_has_queries, self._drivers()))
        queries = itertools.chain.from_iterable(driver.queries for driver in drivers)
        running = {self._name(str(query.checkpoint)) for query in queries}
        self._note_lack(set(checkpoints) - running)
        if not drivers:
            return False, None
        because = _find_hindrance(drivers, processes)
        if because is not None:
            return True, because
        because = _find_seeming_hindrance(drivers[0], processes)
        if because is None:
            self._hindered_since = None
        elif self._hindered_since is None:  # in the middle of a start it looks as if nobody had stood before that
            self._hindered_since = self._clock()
        if self._hindered_since is not None and self._clock() - self._hindered_since >= _HINDERED_AFTER_SECONDS:
            return True, because
        return because is None and running >= set(checkpoints), None

    def _note_lack(self, lacking: Collection[str]) -> None:
        """Tell, once, of queries that are watched and that no agent sees: while they do not run none stands by."""
        if not lacking:
            self._lacking_since = None
            return
        if self._lacking_since is None:
            self._lacking_since = self._clock()
        if self._clock() - self._lacking_since >= _LACKING_SECONDS:
            self._lacking_since = math.inf
            sentence = f"no driver stands by yet: nobody has seen the query of {min(lacking)} start in a Python of the"
            self._untold.append(_make_noticed("STANDBY_WAITS", f"{sentence} command on this machine"))

    def dead_query(self) -> tuple[str, RecordedFailure] | None:
        """The checkpoint of a query that failed a while ago and was not started again, and why; its driver lives."""
        running: dict[str, str] = {}
        for driver in self._drivers():
            if driver.exited_at_ms is None:
                running |= {query.query_id: query.checkpoint for query in driver.queries if query.checkpoint}
        gone = self._running.keys() - running.keys() - self._list_restarting()
        for query_id in gone:
            self._gone_since.setdefault(query_id, self._clock())
        for query_id in self._gone_since.keys() - gone:
            del self._gone_since[query_id]
        self._running |= running
        for query_id, since in self._gone_since.items():
            if self._clock() - since >= _DEAD_AFTER_SECONDS:
                self._gone_since[query_id] = math.inf  # one that was stopped on purpose is asked about once
                told = self._failure_of(
                    find_decisive_failure(each for each in self._records() if each.query_id == query_id)
                )
                if told is not None:
                    return self._name(self._running[query_id]), told[1]
        return None

    def list_dead(self) -> list[DeadQuery]:
        """Queries that have failed and that their driver can start again, of which nothing was decided yet.

        One that nobody waits for in the driver is left to the application for a while: it may look after it itself.
        """
        found = map(self._find_dead, self._list_undecided())
        return [each for each in found if each is not None]

    def answer(self, ended: DeadQuery, *, is_to_start: bool) -> None:
        """Have the agent start a query again, or leave it to the application.

        Raises:
            OSError: it cannot be written.
        """
        put_answer(self._folder, f"{ended.run_id}{ANSWER_SUFFIX}", START if is_to_start else _LEAVE)
        if is_to_start:
            self._restarted_at[ended.query_id] = self._clock()

    def leave_all(self) -> None:
        """Leave those to the application of which nothing was decided yet; the agent waits for no answer for ever."""
        for run_id in self._list_undecided():
            with contextlib.suppress(OSError):
                put_answer(self._folder, f"{run_id}{ANSWER_SUFFIX}", _LEAVE)

    def _list_undecided(self) -> list[str]:
        names = self._names()
        return sorted(_list_stems(names, ENDED_SUFFIX) - _list_stems(names, ANSWER_SUFFIX))

    def _list_restarting(self) -> set[str | None]:
        """Queries that are about to be started again in their driver: they need not run yet."""
        now = self._clock()
        return {query_id for query_id, at in self._restarted_at.items() if now - at < _RESTART_SECONDS}

    def _find_dead(self, run_id: str) -> DeadQuery | None:
        """One of which it is time to decide; None: not yet."""
        for_seconds = self._clock() - self._ended_since.setdefault(run_id, self._clock())
        if for_seconds < _LEFT_SECONDS and not self._is_awaited(run_id):
            return None
        record = self._find_end(run_id)
        if record is None or record.checkpoint is None:
            return DeadQuery("", run_id) if for_seconds >= _RECORD_SECONDS else None
        name = self._name(record.checkpoint)
        # A heartbeat may be older than the end.
        is_back = not self._find_runs(record.query_id) <= {run_id}
        failure = None if is_back else record.failure
        return DeadQuery(name, run_id, record.query_id, record.recorded_at_ms / 1000, failure)

    def _find_runs(self, query_id: str | None) -> set[str]:
        """The runs of a query that go on, as the heartbeats tell."""
        running = itertools.chain.from_iterable(driver.queries for driver in filter(_has_queries, self._drivers()))
        return {query.run_id for query in running if query.query_id == query_id}

    def _is_awaited(self, run_id: str) -> bool:
        """Whether the application waits for it in the driver."""
        try:
            told = read_json(self._read(f"{run_id}{ENDED_SUFFIX}"))
        except ValueError:
            return False
        return isinstance(told, dict) and told.get("is_awaited") is True

    def _find_end(self, run_id: str) -> Terminated | None:
        ends = (each for each in self._records() if isinstance(each, Terminated))
        return next((each for each in ends if each.run_id == run_id), None)

    def _failure_of(self, record: Failed | None) -> tuple[str | None, RecordedFailure] | None:
        if record is None or record.failure is None:
            return None
        return None if record.checkpoint is None else self._name(record.checkpoint), record.failure

    def _name(self, checkpoint: str) -> str:
        """What a checkpoint is called here."""
        try:
            location = parse_location(checkpoint)
        except LastgoodError:  # one of those that were told of as not to be seen
            return checkpoint
        return self._known.get(location.identity, str(location))

    def put_kept(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Tell the guard in the drivers what checkpoints keep.

        Args:
            kept: Checkpoint → see `spark.agent.fit.compare`.

        Raises:
            OSError: it cannot be written.
        """
        put_kept(self._folder, kept)

    def code_of(self, checkpoint: str) -> Mapping[str, Any] | None:
        """The code with which the query of a checkpoint was started last in this run, if it keeps state."""
        found = [told["code"] for told in self._codes() if self._name(told["checkpoint"]) == checkpoint]
        return found[-1] if found else None

    def _codes(self) -> list[dict[str, Any]]:
        """What the guard has let start in this run, oldest first."""
        told = (_parse_code(self._read(name)) for name in self._names() if name.endswith(CODE_SUFFIX))
        return [each for each in told if each is not None]

    def rows_of(self, checkpoint: Location, batch: int) -> int | None:
        """How many rows a batch of this run read; None if no agent has told yet. Any thread may ask."""
        for name in reversed(sort_record_files(self._names())):
            lines = self._read(name, tail_bytes=_TAIL_BYTES).splitlines()
            newest = b"\n".join(line for line in lines if line.startswith(_PROGRESS))
            for record in reversed(parse_records(newest).records):
                if isinstance(record, Progress) and record.batch_id == batch and _is_of(record, checkpoint):
                    return record.num_input_rows
        return None

    @property
    def death(self) -> str | None:
        """Why no driver is alive once the command has ended, in one line; None: none was seen on this machine."""
        for driver in self._drivers():
            if driver.is_classic and driver.host == socket.gethostname():
                seen = f"process {driver.pid} on {driver.host}"
                self._death = f"the driver, {seen}, was started here and has ended with all that it started"
        return self._death

    def _add(self, checkpoint: str) -> None:
        try:
            location = parse_location(checkpoint)
            if location.identity not in self._known and not location.name.startswith(TEMPORARY_CHECKPOINT):
                self._known[location.identity] = str(location)
                self._watches[str(location)] = LogWatch(location)
                self._on_checkpoint(location)
        except LastgoodError as error:
            sentence = f"the progress of {checkpoint} cannot be seen: {error.sentence}"
            self._untold.append(_make_noticed(error.condition, sentence))

    def _drivers(self) -> list[Driver]:
        """The heartbeats of this run; a file is read again only when it has been replaced."""
        for name in self._names():
            if DRIVER_FILE.fullmatch(name):
                modified = self._modified(name)
                if modified is not None and self._beats.get(name, (None, None))[0] != modified:
                    self._beats[name] = (modified, parse_driver(self._read(name)))
        return [driver for _, driver in self._beats.values() if driver is not None]

    def _records(self) -> list[Record]:
        """Those of this run that may tell why it ended, oldest first."""
        contents: list[bytes] = []
        left = _TAIL_BYTES
        for name in reversed(sort_record_files(self._names())):
            contents.insert(0, self._read(name, tail_bytes=left))
            left -= len(contents[0])
            if left <= 0:
                break
        lines = (line for content in contents for line in content.splitlines() if not line.startswith(_PROGRESS))
        return list(parse_records(b"\n".join(lines)).records)

    def _names(self) -> list[str]:
        return [name for name in self._all_names() if name not in self._of_earlier_runs]

    def _all_names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._folder))  # noqa: PTH208 - names are all we need
        except OSError:
            return []

    def _modified(self, name: str) -> int | None:
        try:
            return (self._folder / name).stat().st_mtime_ns
        except OSError:
            return None

    def _read(self, name: str, *, tail_bytes: int | None = None) -> bytes:
        """A file, or the whole lines at its end."""
        try:
            with (self._folder / name).open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                if tail_bytes is None:
                    begin = 0
                else:
                    begin = max(0, size - tail_bytes)
                stream.seek(begin)
                content = stream.read()
        except OSError:
            return b""
        if not begin:
            return content
        return content.partition(b"\n")[2]


def _list_stems(names: Sequence[str], suffix: str) -> set[str]:
    """What stands before a suffix, of the names that have it."""
    return {name.removesuffix(suffix) for name in names if name.endswith(suffix)}


def _has_queries(driver: Driver) -> bool:
    return bool(driver.queries) and driver.exited_at_ms is None


def _find_hindrance(drivers: Sequence[Driver], processes: Sequence[psutil.Process]) -> str | None:
    """Why the starts of queries of a command could not be held back in another process of it; None: nothing is seen."""
    if len(drivers) > 1:
        return "several Python processes of the command start queries"
    if not drivers[0].is_classic:
        return "a client of Spark Connect has no driver of its own to keep warm"
    if sum(map(is_driver_java, processes)) > 1:
        return "the command runs more than one Spark, and starts queries in the other as well, as far as anybody knows"
    return None


def _find_seeming_hindrance(driver: Driver, processes: Sequence[psutil.Process]) -> str | None:
    """The same of what may look so for a moment."""
    runs, pids = {query.run_id for query in driver.queries}, {each.pid for each in processes}
    if driver.has_unheld or not runs <= set(driver.held):
        return "a query of the command was started in another way than by Python's DataStreamWriter"
    if driver.host != socket.gethostname() or driver.pid not in pids:
        return "its driver is no process below this one, so that nobody would see it dead"
    if sum(map(is_java, processes)) > 1:
        return "the command runs another Java as well, and starts queries in it, as far as anybody knows"
    return None


def _is_of(record: Record, checkpoint: Location) -> bool:
    try:
        return record.checkpoint is not None and parse_location(record.checkpoint).identity == checkpoint.identity
    except LastgoodError:  # one of those that were told of as not to be seen
        return False


def _parse_code(raw: bytes) -> dict[str, Any] | None:
    """What the guard has told of one start; None if it did not."""
    try:
        told = read_json(raw)
    except ValueError:
        return None
    is_told = isinstance(told, dict) and isinstance(told.get("checkpoint"), str) and {"code", "misfits"} <= told.keys()
    return told if is_told else None


def _list_renamed(told: Mapping[str, Any]) -> Iterator[str]:
    """What only a person can tell of code that was let start."""
    for each in told["misfits"]:
        differs = f"{each['subject']}: {each['found']}; there: {each['expected']}"
        yield f"{told['checkpoint']}: {differs}; that is right only if it is another name for the same"


def _make_noticed(condition: str, sentence: str) -> Noticed:
    return Noticed(at=time.time(), condition=condition, sentence=sentence)


def _take_last_line(content: bytes) -> str:
    return (content.decode(errors="replace").strip().splitlines() or ["it could not begin"])[-1]
