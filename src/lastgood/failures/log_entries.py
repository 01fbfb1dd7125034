"""A driver's log, entry by entry: Spark's layouts, Python's, and what both print without any. Pure.

However large the log is, one entry at a time is held, and of a huge one its beginning and its end.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import IO, Any

from lastgood.failures.causes import PYTHON_CHAINED, TRACEBACK, take_simple_name
from lastgood.frozen import dataclass
from lastgood.records.record import Record, parse_record

_LINE_MAX = 1024 * 1024
_HEAD_MAX = 256 * 1024
_TAIL_MAX = 256 * 1024

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)"
_HEADERS = (
    # 26/11/21 12:39:26 INFO SparkContext: …  (Spark's own layout; some loggers put words before the colon)
    re.compile(rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d {_LEVEL} +(?P<logger>[\w.$]+):? ?(?P<text>.*)"),
    # 2026-11-21 12:39:26,123 [main] ERROR org.x.Y [thread]: …  (log4j and Python as people set them up)
    re.compile(
        r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ :-]+(?:\[[^\]]*\] *)?"
        rf"\[?{_LEVEL}\]? *(?:\[[^\]]*\] *)?[: -]*(?:(?P<logger>[\w.$]+)(?: *\[[^\]]*\])?(?: -|:) )?(?P<text>.*)"
    ),
    # ERROR:root:…  (Python's default)
    re.compile(rf"{_LEVEL}:(?P<logger>[\w.]+):(?P<text>.*)"),
)
_CONTAINER = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")
_STARTS_HEADER = frozenset("0123456789[TDIWEFC")
_EXCEPTION = re.compile(r"(?:[\w$]+\.)+\w*(?:Exception|Error|Interrupt)\b(?:: |$)")
_THREAD_DIED = 'Exception in thread "'
_JVM_DIED = "java.lang.OutOfMemoryError"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """What was printed at once: a log message with all that belongs to it, a traceback, a record of the agent."""

    first_line: int
    """In the log, from 1."""
    last_line: int
    level: str = ""
    """`INFO`, `WARN`, `ERROR`, …; empty for what no logger printed."""
    logger: str = ""
    """Its simple name."""
    text: str = ""
    context: Mapping[str, str] = field(default_factory=dict)
    """What Spark's JSON layout tells beside the text."""
    record: Record | None = None


def read_entries(stream: IO[bytes]) -> Iterator[LogEntry]:
    """The entries of a log, in their order.

    Args:
        stream: The log, as it is: any line ends, colours, bytes that are no UTF-8.
    """
    open_entry: _Open | None = None
    before = ""
    for number, line in enumerate(_read_lines(stream), 1):
        begun = _begin(line, number, open_entry, before)
        before = line if line.strip() else before
        if begun is None:
            if open_entry is not None:
                open_entry.add(line, number)
            continue
        if open_entry is not None:
            yield open_entry.entry()
        if isinstance(begun, LogEntry):
            yield begun
            open_entry = None
        else:
            open_entry = begun
    if open_entry is not None:
        yield open_entry.entry()


class _Open:
    """An entry whose lines are still coming."""

    def __init__(self, line: int, text: str, level: str = "", logger: str = "") -> None:
        self.level = level
        self.lines = 1
        self._first = self._last = line
        self._logger = logger
        self._head = [text]
        self._head_size = len(text)
        self._tail: collections.deque[str] = collections.deque()
        self._tail_size = 0

    def add(self, text: str, line: int) -> None:
        self._last = line
        self.lines += 1
        if self._head_size < _HEAD_MAX:
            self._head.append(text)
            self._head_size += len(text) + 1
            return
        self._tail.append(text)
        self._tail_size += len(text) + 1
        while self._tail_size > _TAIL_MAX:
            self._tail_size -= len(self._tail.popleft()) + 1

    def entry(self) -> LogEntry:
        return LogEntry(
            first_line=self._first,
            last_line=self._last,
            level=self.level,
            logger=self._logger,
            text="\n".join((*self._head, *self._tail)),
        )


def _read_lines(stream: IO[bytes]) -> Iterator[str]:
    while raw := stream.readline(_LINE_MAX):
        rest = raw
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(_LINE_MAX)  # of a line that nobody could read either
        line = _unwrap_printed(raw).rstrip("\r\n")
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        container = None
        if line[:2] == "20":
            container = _CONTAINER.match(line)
        if container:
            yield line[container.end() :]
        else:
            yield line


def _unwrap_printed(raw: bytes) -> str:
    """The line as it was printed, where Docker has kept it in JSON, too."""
    line = raw.decode("utf-8", "replace")
    if line.startswith('{"log":'):
        try:
            return str(json.loads(line)["log"])
        except (ValueError, RecursionError):
            return line
    return line


def _begin(line: str, number: int, current: _Open | None, before: str) -> _Open | LogEntry | None:
    """What begins with this line; None if it goes on with what is open."""
    if line[:1] == "{":
        return _parse_json_entry(line, number)
    if line[:1] in _STARTS_HEADER:
        for pattern in _HEADERS:
            found = pattern.match(line)
            if found:
                level = found["level"].replace("WARNING", "WARN").replace("CRITICAL", "FATAL")
                return _Open(number, found["text"], level, take_simple_name(found["logger"]))
    if line.startswith(TRACEBACK):
        is_inside = current is not None and (
            before.strip() in PYTHON_CHAINED
            or before.endswith("stack trace below.")
            or (current.lines == 1 and current.level in ("ERROR", "FATAL", "WARN"))
        )
        if is_inside:
            return None
        return _Open(number, line)
    is_quiet = current is None or current.level in ("", "TRACE", "DEBUG", "INFO")
    is_bare = (
        line.startswith(_THREAD_DIED)
        or (current is None and _EXCEPTION.match(line))
        or (is_quiet and line.startswith(_JVM_DIED))
    )
    if not is_bare:
        return None
    return _Open(number, line)


def _parse_json_entry(line: str, number: int) -> LogEntry | None:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    if "kind" in told:
        return LogEntry(first_line=number, last_line=number, record=parse_record(told))
    message = told.get("msg", told.get("message"))
    if not isinstance(message, str) or "level" not in told:
        return None
    context = told.get("context")
    return LogEntry(
        first_line=number,
        last_line=number,
        level=str(told["level"]),
        logger=take_simple_name(str(told.get("logger", told.get("logger_name", "")))),
        text="\n".join((message, *_format_json_exception(told))),
        context={key: str(value) for key, value in context.items()} if isinstance(context, dict) else {},
    )


def _format_json_exception(told: Mapping[str, Any]) -> Iterator[str]:
    """The exception of a JSON entry as Java would print it."""
    if isinstance(told.get("stack_trace"), str):
        yield told["stack_trace"]
    exception = told.get("exception")
    if not isinstance(exception, dict) or "class" not in exception:
        return
    message = exception.get("msg")
    if message:
        yield f"{exception['class']}: {message}"
    else:
        yield str(exception["class"])
    stack = exception.get("stacktrace")
    if isinstance(stack, str):
        yield stack.partition("\n")[2]
        return
    for frame in stack if isinstance(stack, list) else ():
        if isinstance(frame, dict):
            yield f"\tat {frame.get('class')}.{frame.get('method')}({frame.get('file')}:{frame.get('line')})"
