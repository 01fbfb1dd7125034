"""Why a driver ended, from its log: the last failure of each query, which of them decides, and what else is told."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from dataclasses import field, replace
from typing import IO

from lastgood.failures.causes import continue_chain, read_causes
from lastgood.failures.classify import Failure, classify_causes, classify_record, find_checkpoint_file, find_run
from lastgood.failures.failure_class import FailureClass
from lastgood.failures.log_entries import LogEntry, read_entries
from lastgood.failures.log_facts import FactsReader, LogFacts
from lastgood.frozen import dataclass
from lastgood.records.record import ChainedException, Crashed, StartFailed, Terminated
from lastgood.values import JsonValue, make_form

_ENDED = "terminated with error"
_SIGNAL = "RECEIVED SIGNAL "
_WENT_ON = "Streaming query made progress"
_LOGGED_MAX = 16
_WITHOUT_QUERY_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLog(JsonValue):
    """What a log tells."""

    json = make_form("failure failures num_failures facts num_lines")
    """The object `log` of `diagnose --log --format json`."""

    failure: Failure | None
    """What ended the driver, or its last query; None if nothing failed."""
    failures: tuple[Failure, ...] = ()
    """The last of each query, and those of no query, in the order in which they stand in the log."""
    num_failures: int = 0
    """All of them: earlier ones of the same query count here only."""
    facts: LogFacts = field(default_factory=LogFacts)
    num_lines: int = 0


def read_driver_log(stream: IO[bytes]) -> DriverLog:
    """Read a driver's log, a traceback, records of the agent, or all of them in one.

    Memory stays bounded however large the log is.

    Args:
        stream: Of bytes, as they are; it is read to its end and left open.
    """
    reader = _Reader()
    for entry in read_entries(stream):
        reader.read(entry)
    return reader.log()


class _Reader:
    def __init__(self) -> None:
        self._facts = FactsReader()
        self._last: dict[str, Failure] = {}  # by query, or by a number where there is none
        self._num_failures = 0
        self._num_lines = 0
        self._num_without_query = 0
        # What tasks and others logged: it tells causes that the driver's own line may lack.
        self._logged: collections.deque[_Logged] = collections.deque(maxlen=_LOGGED_MAX)
        self._last_error: _Logged | None = None  # since a query last went on

    def read(self, entry: LogEntry) -> None:
        self._num_lines = entry.last_line
        self._facts.read(entry)
        is_trouble = entry.level in ("ERROR", "FATAL", "WARN")
        if entry.record is not None:
            self._read_record(entry)
        elif entry.level == "" or (is_trouble and _ENDED in entry.text.partition("\n")[0]):
            self._read_exception(entry)
        elif is_trouble and _SIGNAL in entry.text:
            self._add(self._failure(entry, (ChainedException(language="java", message=entry.text),)))
        elif is_trouble and ("Exception" in entry.text or "Error" in entry.text):
            logged = _Logged(entry)
            self._logged.append(logged)
            self._last_error = self._last_error if entry.level == "WARN" else logged
        elif _WENT_ON in entry.text:
            self._last_error = None

    def log(self) -> DriverLog:
        failures = sorted(self._last.values(), key=lambda each: each.lines or (0, 0))
        return DriverLog(
            failure=self._decisive(failures),
            failures=tuple(failures),
            num_failures=self._num_failures,
            facts=self._facts.facts(),
            num_lines=self._num_lines,
        )

    def _read_record(self, entry: LogEntry) -> None:
        record = entry.record
        if isinstance(record, Terminated | StartFailed | Crashed):
            failure = classify_record(record)
            if failure is not None:
                self._add(self._known(replace(failure, lines=(entry.first_line, entry.last_line))))

    def _read_exception(self, entry: LogEntry) -> None:
        causes = read_causes(entry.text)
        is_end = entry.level != ""
        if not causes and not is_end:
            return  # other output
        failure = self._failure(entry, causes)
        if failure.cls is FailureClass.UNKNOWN:
            longer = continue_chain(causes, (each.causes for each in reversed(self._logged)))
            if len(longer) > len(causes):
                failure = self._failure(entry, longer)
                self._logged.clear()  # the next time, the same words may have another cause
        self._add(failure)

    def _failure(self, entry: LogEntry, causes: tuple[ChainedException, ...]) -> Failure:
        ids = entry.context
        batch = ids.get("BATCH_ID", ids.get("batch_id", ""))
        named = classify_causes(
            causes,
            query_id=ids.get("QUERY_ID"),
            run_id=ids.get("RUN_ID"),
            batch_id=int(batch) if batch.isdecimal() and len(batch) < 19 else None,
            lines=(entry.first_line, entry.last_line),
        )
        if named.query_id is None:
            # The engine's own line names the query, where its exception does not.
            query_id, run_id = find_run(entry.text.partition("\n")[0])
            named = replace(named, query_id=query_id, run_id=run_id)
        if named.cls is FailureClass.LOG_DAMAGED and named.checkpoint_file is None:
            named = replace(named, checkpoint_file=self._file_of(causes))
        return self._known(named)

    def _file_of(self, causes: Sequence[ChainedException]) -> str | None:
        """The file that a log line names which shows the same exception: Jackson's own words name none."""
        for each in reversed(self._logged):
            if each.causes and each.causes[-1].message == causes[-1].message:
                return find_checkpoint_file(each.entry.text.partition("\n")[0])
        return None

    def _known(self, failure: Failure) -> Failure:
        """With what the log told before of its query."""
        query = self._facts.query(failure.query_id)
        if query is None:
            return failure
        return replace(
            failure,
            query_name=failure.query_name or query.name,
            checkpoint=failure.checkpoint or query.checkpoint,
            batch_id=query.last_planned if failure.batch_id is None else failure.batch_id,
        )

    def _add(self, failure: Failure) -> None:
        before = self._last.get(failure.query_id or "")
        if failure.query_id is None:
            self._num_without_query += 1
            self._num_failures += 1
            self._last[str(self._num_without_query)] = failure
            self._last.pop(str(self._num_without_query - _WITHOUT_QUERY_MAX), None)
        elif before is not None and before.run_id == failure.run_id:
            self._last[failure.query_id] = _merge_told_twice(before, failure)
        else:
            self._num_failures += 1
            self._last[failure.query_id] = failure

    def _decisive(self, failures: Sequence[Failure]) -> Failure | None:
        """The last one that is not the mere aftermath of another, best one of which something is known.

        What was only logged counts if nothing else is told but its aftermath: of a driver that ran out of memory, say,
        or where the end of the log is missing.
        """
        reasons = [each for each in failures if not each.is_aftermath]
        telling = [each for each in reasons if each.cls is not FailureClass.UNKNOWN or each.query_id is not None]
        if reasons:
            return (telling or reasons)[-1]
        logged = self._last_error
        if logged is not None and logged.causes:
            return self._failure(logged.entry, logged.causes)
        if not failures:
            return None
        return failures[-1]


class _Logged:
    """A line that a task, or anybody, logged with an exception; it is read when it is needed, which is seldom."""

    def __init__(self, entry: LogEntry) -> None:
        self.entry = entry

    @functools.cached_property
    def causes(self) -> tuple[ChainedException, ...]:
        return read_causes(self.entry.text)


def _merge_told_twice(before: Failure, after: Failure) -> Failure:
    """One failure out of two tellings: the engine's log line has the causes, the application's traceback seldom."""
    if _rank_failure(before) >= _rank_failure(after):
        better, other = (before, after)
    else:
        better, other = (after, before)
    user_code = better.user_code
    if not user_code and other.cls is better.cls:
        user_code = other.user_code
    return replace(
        better,
        offsets=better.offsets or other.offsets,
        user_code=user_code,
        checkpoint_file=better.checkpoint_file or other.checkpoint_file,
        batch_id=other.batch_id if better.batch_id is None else better.batch_id,
        lines=_unite_spans(before.lines, after.lines),
    )


def _rank_failure(failure: Failure) -> tuple[bool, bool, int]:
    return failure.cls is not FailureClass.UNKNOWN, failure.class_name is not None, len(failure.chain)


def _unite_spans(one: tuple[int, int] | None, two: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or two is None:
        return one or two
    return min(one[0], two[0]), max(one[1], two[1])
