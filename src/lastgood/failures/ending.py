"""Why a driver ended: class, and innermost cause in one line; from what it printed, and from what its agent saw."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TypeAlias

from lastgood.failures.classify import classify_causes
from lastgood.failures.driver_log import read_driver_log
from lastgood.failures.failure_class import FailureClass
from lastgood.failures.of_checkpoint import CODE_STATE, SOURCE_SCHEMA, STATE_SCHEMA
from lastgood.frozen import dataclass
from lastgood.records.record import Crashed, QueryStarted, Record, RecordedFailure, StartFailed, Terminated
from lastgood.redaction import redact_told

_ERROR_LINE = re.compile(
    r"(?:.*?\b(?:ERROR|FATAL)\b\s+|(?=[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b))(.+)"
)
"""A logged line, or the last one of a traceback."""
_WRAPPERS = ("[STREAM_FAILED]", "[FOREACH_BATCH_USER_FUNCTION_ERROR]", "[TASK_WRITE_FAILED]")
_LONGEST = 500
Failed: TypeAlias = Terminated | StartFailed | Crashed
"""A record that may hold a failure."""
_AWAY = ("kafka_silent", "not_reached", "throttled")
"""Rules about services that do not answer: no start brings them back, and none harms."""

_OF_PLAN = (FailureClass.CODE_INCOMPATIBLE, FailureClass.SOURCE_EXPIRED, FailureClass.SOURCE_RECREATED)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a command ended, as far as anybody told."""

    cls: FailureClass = FailureClass.UNKNOWN
    because: str | None = None
    """The rule that decided, in one line for a person; None if none did."""
    line: str | None = None
    """The error itself, in one line."""
    condition: str | None = None
    """Spark's name for it."""
    passes_by_itself: bool = False
    """Whether something else was away, and the same start can work once it is back."""
    is_of_other_state: bool = False
    """Whether the code keeps other state than the checkpoint holds."""
    is_of_old_plan: bool = False
    """Whether what an application has read before its first query, as the columns of its sources, may hold no more."""
    checkpoint: str | None = None
    """Of the query that failed; None where nobody told, or where it was not a query."""


def find_cause(
    output: str, seen: RecordedFailure | None, *, has_started: bool = True, show_data: bool = False
) -> Cause:
    """Why a command ended.

    Args:
        output: The last part of standard output and error.
        seen: What its agent saw; a process that was killed had no time to tell.
        has_started: Whether a query of it was started, as far as the agent knows.
        show_data: Whether its line may hold rows of the data.
    """
    told = None
    if seen is not None:
        told = classify_causes(seen.causes)
    line = None
    if seen is not None:
        line = format_error(seen, show_data=show_data)
    if line is None or told is None or told.rule is None or told.is_aftermath:
        logged = read_driver_log(io.BytesIO(output.encode(errors="replace"))).failure
        if logged is not None and logged.rule is not None:
            told = logged
        else:
            told = told or logged
        line = line or (
            format_error(RecordedFailure(causes=logged.chain), show_data=show_data) if logged is not None else None
        )
    line = line or _find_last_words(output, show_data=show_data)
    if seen is not None and not has_started and (told is None or told.rule is None) and _is_of_python(seen):
        return Cause(FailureClass.CODE_INCOMPATIBLE, "the application failed before it started a query", line)
    if told is None:
        return Cause(line=line)
    because = told.because if told.rule is not None else None
    return Cause(
        told.cls,
        because,
        line,
        told.condition,
        passes_by_itself=told.rule in _AWAY,
        is_of_other_state=told.rule in (STATE_SCHEMA, CODE_STATE),
        is_of_old_plan=told.rule == SOURCE_SCHEMA or told.cls in _OF_PLAN,
    )


def _is_of_python(failure: RecordedFailure) -> bool:
    """Whether neither Spark nor a server of it had a part in it: an import that fails, a variable that is not set."""
    return bool(failure.causes) and all(each.language == "python" for each in failure.causes)


def _find_last_words(text: str, *, show_data: bool) -> str | None:
    """The last line of an output that speaks of an error; None if none does."""
    found = [match.group(1) for line in text.splitlines() if (match := _ERROR_LINE.match(line))]
    if not found:
        return None
    return _show_line(found[-1].strip(), show_data=show_data)


def find_decisive_failure(records: Iterable[Record]) -> Failed | None:
    """The record of what ended a driver, from those of its life, in their order.

    An exception that nobody caught counts before the end of a query, which the application may have outlived; the end
    of a query that was started again does not count.

    Returns:
        None if the records hold nothing that could have ended it.
    """
    ends: dict[str | None, Failed] = {}
    crash: Crashed | None = None
    for record in records:
        if isinstance(record, QueryStarted):
            ends.pop(record.query_id, None)
            ends.pop(None, None)
        elif isinstance(record, Terminated | StartFailed) and record.failure is not None:
            ends.pop(record.query_id, None)  # so that the latest comes last
            ends[record.query_id] = record
        elif isinstance(record, Crashed):
            crash = record
    last = next(reversed(ends.values()), None)
    if crash is None:
        return last
    # The end of a query tells more (its offsets, what `foreachBatch` raised) than the exception made of it; that of
    # Spark Connect does not say which query it is of.
    if crash.query_id is not None:
        return ends.get(crash.query_id, crash)
    is_of_a_query = any(str(each.class_name).endswith(".StreamingQueryException") for each in crash.failure.causes)
    if is_of_a_query and last is not None:
        return last
    return crash


def has_failed(records: Iterable[Record], query_id: str | None) -> bool | None:
    """Whether a query has failed in the life of a driver, as its records tell; None if they do not.

    The end of the driver for another query's sake is no failure of this one.

    Args:
        records: Of one life, in their order.
        query_id: Its id; None: nobody knows it.
    """
    ended: bool | None = None
    for record in records:
        is_own = record.query_id is not None and record.query_id == query_id
        if isinstance(record, QueryStarted) and is_own:
            ended = None
        elif isinstance(record, Terminated | Crashed) and is_own:
            ended = record.failure is not None
        elif isinstance(record, StartFailed):  # `start` raised: which query it was to be, the folder tells
            ended = True
    return ended


def format_error(failure: RecordedFailure, *, show_data: bool = False) -> str | None:
    """A failure in one line: its innermost cause that says something, at most 500 characters, no secrets.

    Args:
        failure: What was seen.
        show_data: Whether it may hold rows of the data.
    """
    if not failure.causes:
        return failure.message and _show_line(_take_first_line(failure.message), show_data=show_data)
    telling = [each for each in failure.causes if each.condition and f"[{each.condition}]" not in _WRAPPERS]
    innermost = failure.causes[-1]
    if innermost.language == "python" or not telling:
        cause = innermost
    else:
        cause = telling[-1]
    line = _take_first_line(cause.message)
    if cause.condition and not line.startswith("["):
        line = f"[{cause.condition}] {line}"
    elif not cause.condition and cause.class_name:
        if line:
            line = f"{cause.class_name}: {line}"
        else:
            line = cause.class_name
    return _show_line(line, show_data=show_data)


def _show_line(line: str, *, show_data: bool) -> str:
    """The line as it goes into events, incidents and reports: the one place where it is made, and whole until here."""
    return redact_told(line, show_data=show_data)[:_LONGEST]


def _take_first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]
