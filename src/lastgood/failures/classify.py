"""Why a query died: the class of a failure, the exception that decides it, and what the failure names. Pure.

The innermost exception that a rule knows decides; outer ones only say where it came through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from lastgood.failures.causes import Thrown, take_first_line, take_simple_name
from lastgood.failures.failure_class import ChainPart, FailureClass, Rule
from lastgood.failures.of_checkpoint import CHECKPOINT_RULES
from lastgood.failures.of_running import NOT_REACHED, RESOURCE_RULES, RUN_RULES
from lastgood.failures.of_sources import SOURCE_RULES
from lastgood.frozen import dataclass
from lastgood.records.record import ChainedException, Crashed, StartFailed, Terminated
from lastgood.redaction import redact, redact_told

RULES: tuple[Rule, ...] = (*SOURCE_RULES, *RESOURCE_RULES, *CHECKPOINT_RULES, *RUN_RULES)
"""In this order, for one exception; that data is gone comes before what user code made of it."""
_OF_DRIVER = [rule for rule in RULES if rule.is_of_driver]
_OF_CONNECTION = [rule for rule in RULES if rule.name == NOT_REACHED]

_ENGINE = ("org.apache.spark.sql.execution.streaming.", "org.apache.spark.sql.kafka010.")
_NOT_ENGINE = (".streaming.state.", "ForeachBatch", "ForeachWriter")
_USER_FUNCTIONS = (
    "FOREACH_BATCH_USER_FUNCTION_ERROR",
    "FOREACH_USER_FUNCTION_ERROR",
    "TRANSFORM_WITH_STATE_USER_FUNCTION_ERROR",
    "FLATMAPGROUPSWITHSTATE_USER_FUNCTION_ERROR",
    "FAILED_EXECUTE_UDF",
)
_NOT_USERS = ("org.apache.spark.", "io.delta.", "py4j.", "pyspark.")
_ABOUT_FILES = (FailureClass.LOG_DAMAGED, FailureClass.STATE_DAMAGED, FailureClass.CONCURRENT_RUN)
_CALLED_BY_SPARK = ("StreamingQueryException", "Py4JJavaError")

_QUERY = re.compile(r"\[id = ([0-9a-f-]{36}), runId = ([0-9a-f-]{36})\]")
_PYTHON_FRAME = re.compile(r'^ *File "([^"]+)", line (\d{1,9}), in (.+)$', re.MULTILINE)
_LIBRARIES = re.compile(r"site-packages|dist-packages|pyspark|py4j|/lib/python\d|^<|/runpy\.py$")
_CALLED_FROM = re.compile(r"was called from\s+(\S+):(\d{1,9})")
_REASON = re.compile(r"^Reason: (.+)$", re.MULTILINE)
_CHECKPOINT_FILE = re.compile(
    r"(?:[a-z0-9]+:)?/[^\s,;\"']{0,1000}/"
    r"(?:(?:offsets|commits|_spark_metadata)/\.?\d[^\s,;:\])]*|sources/[^\s,;:\])]+|state/\d[^\s,;:\])]*|metadata\b)"
)
_PARTITION = r"(?P<topic>[\w.-]+)-(?P<partition>\d{1,9})"
_START, _END = r"(?P<start>\d{1,19})", r"(?P<end>\d{1,19})"
_OFFSETS = (
    re.compile(rf"Could not read records in offset \[{_START}, {_END}\) for topic partition {_PARTITION}"),
    re.compile(rf"Partition {_PARTITION}(?:'s)? offset was changed from {_START} to {_END}"),
    re.compile(rf"Cannot fetch offset {_START} \(GroupId: [^,]*, TopicPartition: {_PARTITION}\)"),
    re.compile(rf"Added partition {_PARTITION} starts from {_END} instead of 0"),
    re.compile(rf"Starting offset for {_PARTITION} was {_START} but consumer reset to {_END}"),
)
_PARTITION_SETS = re.compile(r"(?:Partitions |offsets of |for partitions )?Set\(([\w., -]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsNamed:
    """Offsets of one partition of a topic, as the failure names them."""

    topic: str
    partition: int
    start: int | None = None
    """Where the batch was to read from; None where only the partition is named."""
    end: int | None = None
    """Where it was to end; below `start`: where the topic ends now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A place in the user's own code."""

    file: str
    line: int
    function: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a query, or the driver, ended."""

    cls: FailureClass
    because: str
    """The rule that decided, in one line for a person."""
    rule: str | None = None
    """Its name; None if no rule knows any of the exceptions."""
    is_aftermath: bool = False
    """It follows from something else that ended the driver."""
    condition: str | None = None
    """Spark's name for the exception that decided; None where it has none."""
    class_name: str | None = None
    """Of the exception that decided; None where only its message is known."""
    message: str = ""
    """Of the exception that decided: the line that tells most."""
    chain: tuple[ChainedException, ...] = ()
    """Outermost first, through Java and Python alike."""
    query_id: str | None = None
    run_id: str | None = None
    query_name: str | None = None
    batch_id: int | None = None
    """The batch it was at."""
    checkpoint: str | None = None
    """As Spark names it."""
    checkpoint_file: str | None = None
    """The file in it that the failure is about."""
    offsets: tuple[OffsetsNamed, ...] = ()
    user_code: CodeLine | None = None
    """Where the user's own code was, if it fails on data."""
    lines: tuple[int, int] | None = None
    """First and last line in the log, from 1."""

    def to_json(self) -> dict[str, Any]:
        """The object `failure` of `diagnose --log --format json`."""
        told = asdict(self)
        told["class"], told["message"] = self.cls.value, redact(self.message)
        del told["cls"]
        names = ("language", "class_name", "condition", "message")
        told["chain"] = [{name: getattr(each, name) for name in names} for each in self.chain]
        for link in told["chain"]:
            link["message"] = redact(take_first_line(link["message"]))
        return told


def show_failure(failure: Failure, *, show_data: bool = False) -> Failure:
    """The same as it may be shown: of each message the first line, without secrets.

    Args:
        failure: What was told.
        show_data: Whether somebody has asked for the rows of the data that it quotes.
    """
    lines = [redact_told(take_first_line(each.message), show_data=show_data) for each in failure.chain]
    chain = (
        replace(each, message=line, message_parameters={}, traceback=None)
        for each, line in zip(failure.chain, lines, strict=True)
    )
    return replace(failure, message=redact_told(failure.message, show_data=show_data), chain=tuple(chain))


def classify_causes(
    causes: Sequence[ChainedException],
    *,
    query_id: str | None = None,
    run_id: str | None = None,
    query_name: str | None = None,
    batch_id: int | None = None,
    checkpoint: str | None = None,
    lines: tuple[int, int] | None = None,
) -> Failure:
    """The failure that a chain of exceptions stands for.

    Args:
        causes: Outermost first.
        query_id: Of the query that it ended, if that is known from elsewhere; else the chain may tell, as `run_id`.
        run_id: See `query_id`.
        query_name: Of that query.
        batch_id: The batch it was at.
        checkpoint: Of that query, as Spark names it.
        lines: Where it stands in a log.
    """
    rule, cause = _decide(causes)
    cls = rule.cls if rule else FailureClass.UNKNOWN
    found = next((ids for each in causes if (ids := find_run(each.message)) != (None, None)), (None, None))
    if rule:
        because = rule.because
    else:
        because = _explain_unknown(causes)
    rule_name = rule.name if rule else None
    is_aftermath = rule.is_aftermath if rule else False
    condition = cause.condition if cause else None
    class_name = cause.class_name if cause else None
    if cause:
        message = _choose_telling_line(cause.message)
    else:
        message = ""
    checkpoint_file = None
    if cls in _ABOUT_FILES:
        checkpoint_file = _find_checkpoint_file(causes)
    user_code = None
    if cause and cls is FailureClass.POISON_DATA:
        user_code = _find_user_code(cause)
    return Failure(
        cls=cls,
        because=because,
        rule=rule_name,
        is_aftermath=is_aftermath,
        condition=condition,
        class_name=class_name,
        message=message,
        chain=tuple(causes),
        query_id=query_id or found[0],
        run_id=run_id or found[1],
        query_name=query_name,
        batch_id=batch_id,
        checkpoint=checkpoint,
        checkpoint_file=checkpoint_file,
        offsets=tuple(dict.fromkeys(_find_offsets(causes))),
        user_code=user_code,
        lines=lines,
    )


def classify_record(record: Terminated | StartFailed | Crashed) -> Failure | None:
    """The failure that an agent or a recorder saw; None if the query was stopped, or was done."""
    if record.failure is None:
        return None
    return classify_causes(
        record.failure.causes,
        query_id=record.query_id,
        run_id=record.run_id,
        query_name=record.query_name,
        batch_id=record.batch_id if isinstance(record, Terminated) else None,
        checkpoint=record.checkpoint,
    )


def find_run(text: str) -> tuple[str | None, str | None]:
    """Query id and run id of the first query that a text names."""
    found = _QUERY.search(text)
    if found:
        return (found[1], found[2])
    return (None, None)


def _decide(causes: Sequence[ChainedException]) -> tuple[Rule | None, ChainedException | None]:
    """The rule that decides, and the exception it is about; without a rule, the innermost exception."""
    causes = _leave_out_own_connections(causes)
    for is_weak in (False, True):
        for number in reversed(range(len(causes))):
            cause = causes[number]
            name = take_simple_name(cause.class_name)
            for rule in RULES:
                if (
                    rule.is_weak is is_weak
                    and rule.fits(class_name=name, condition=cause.condition, message=cause.message)
                    and _is_standing(rule.where, causes, number)
                ):
                    return rule, cause
    return None, causes[-1] if causes else None


def _leave_out_own_connections(causes: Sequence[ChainedException]) -> Sequence[ChainedException]:
    """The chain, up to where Python and Java of the driver lost each other, if nothing else stands further in."""
    lost = [number for number, cause in enumerate(causes) if _is_of_any(cause, _OF_DRIVER)]
    if not lost:
        return causes
    inner = causes[lost[-1] + 1 :]
    if all(_is_of_any(cause, _OF_CONNECTION) for cause in inner):
        return causes[: lost[-1] + 1]
    return causes


def _is_of_any(cause: ChainedException, rules: Sequence[Rule]) -> bool:
    name = take_simple_name(cause.class_name)
    return any(rule.fits(class_name=name, condition=cause.condition, message=cause.message) for rule in rules)


def _is_standing(where: ChainPart, causes: Sequence[ChainedException], number: int) -> bool:
    match where:
        case ChainPart.ENGINE:
            return _is_engines(causes, number)
        case ChainPart.EXPRESSION:
            return _find_spark_frame(causes[number]).startswith("org.apache.spark.sql.catalyst.expressions.")
        case ChainPart.USER:
            return _is_users(causes, number)
        case ChainPart.INNERMOST:
            return number == len(causes) - 1
    return True


def _find_spark_frame(cause: ChainedException) -> str:
    """Where in Spark a Java exception comes from; empty if that is not known."""
    frames = cause.frames if isinstance(cause, Thrown) else ()
    return next((frame for frame in frames if frame.startswith("org.apache.spark.")), "")


def _is_engines(causes: Sequence[ChainedException], number: int) -> bool:
    if causes[number].language != "java":
        return False
    frame = _find_spark_frame(causes[number])
    if frame:
        return frame.startswith(_ENGINE) and not any(each in frame for each in _NOT_ENGINE)
    return all(take_simple_name(outer.class_name) in _CALLED_BY_SPARK for outer in causes[:number])


def _is_users(causes: Sequence[ChainedException], number: int) -> bool:
    cause, inner = causes[number], causes[number + 1 :]
    if any(each.condition or (each.class_name or "").startswith(_NOT_USERS) for each in inner):
        return False  # that is what failed; the user's code only met it
    if cause.language == "python":
        is_called = any(outer.language == "java" for outer in causes[:number])
        return is_called and not (cause.class_name or "").startswith(_NOT_USERS)
    return cause.condition in _USER_FUNCTIONS or "ForeachBatchSink" in _find_spark_frame(cause)


def _explain_unknown(causes: Sequence[ChainedException]) -> str:
    return "no rule knows any of these exceptions" if causes else "nothing is told of why"


def _choose_telling_line(message: str) -> str:
    reason = _REASON.search(message)
    if reason:
        return reason[1]
    return take_first_line(message)


def _find_checkpoint_file(causes: Sequence[ChainedException]) -> str | None:
    return next((found for cause in reversed(causes) if (found := find_checkpoint_file(cause.message))), None)


def find_checkpoint_file(text: str) -> str | None:
    """The first file of a checkpoint or a sink's log that a text names."""
    found = _CHECKPOINT_FILE.search(text)
    if not found:
        return None
    return found[0].rstrip(".")


def _find_offsets(causes: Sequence[ChainedException]) -> Iterator[OffsetsNamed]:
    for cause in causes:
        for pattern in _OFFSETS:
            for found in pattern.finditer(cause.message):
                told = found.groupdict()
                yield OffsetsNamed(
                    topic=told["topic"],
                    partition=int(told["partition"]),
                    start=int(told.get("start") or 0),
                    end=int(told["end"]) if told.get("end") else None,
                )
        for named in _PARTITION_SETS.finditer(cause.message):
            for each in named[1].split(","):
                topic, _, partition = each.strip().rpartition("-")
                if topic and partition.isdecimal() and len(partition) < 10:
                    yield OffsetsNamed(topic=topic, partition=int(partition))


def _find_user_code(cause: ChainedException) -> CodeLine | None:
    for file, line, function in reversed(_PYTHON_FRAME.findall(cause.traceback or "")):
        if not _LIBRARIES.search(file):
            return CodeLine(file=file, line=int(line), function=function)
    called = _CALLED_FROM.search(cause.message)
    if not called:
        return None
    return CodeLine(file=called[1], line=int(called[2]))
