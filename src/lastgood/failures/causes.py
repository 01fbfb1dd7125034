"""Chains of exceptions out of text: Java, Python, and each inside the other, as deep as they are nested.

What a Python `foreachBatch` or worker raised reaches Java, and from there the log, as one message that holds a whole
traceback, which may hold a whole Java stack trace. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from lastgood.frozen import dataclass
from lastgood.records.record import ChainedException

TRACEBACK = "Traceback (most recent call last):"
PYTHON_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
"""Stand between two tracebacks, the first of which is the cause of the second."""
_MESSAGE_MAX = 65_536
_FRAMES_MAX = 60
_CAUSES_MAX = 100
_NESTED_MAX = 20

_JAVA = re.compile(r"((?:[a-z_][\w$]*\.)+[A-Z][\w$]*)(?:: (.*)|:?\s*$)")
_PYTHON = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*)|:?\s*$)")
_JAVA_STARTS = re.compile(r"(?:Caused by: |: |Exception in thread \"[^\"]*\" )(?=(?:[a-z_][\w$]*\.)+[A-Z])")
_JAVA_FRAME = re.compile(r"\s+at (?:[\w.@-]*/)?([\w.$<>/]+)\(")
_AT = "\tat "
_JAVA_MORE = re.compile(r"\s*\.\.\. \d+ (?:more|common frames omitted)")
_SUPPRESSED = "\tSuppressed: "
_JVM_STACK = "JVM stacktrace:"
_NESTED = re.compile(
    r"terminated with exception: (?=\S)"
    r"|USER_FUNCTION_ERROR\][^:]{0,300}? Reason: "
    r"|\(TID \d+\) \([^)]*\): (?=(?:[a-z_][\w$]*\.)+[A-Z])"
    r"|(?=Traceback \(most recent call last\):)"
)
"""Ends the words of an exception about another one; the rest of the line is that other one."""
_OUTER_GOES_ON = re.compile(
    r"=== Streaming Query ===|\tat py4j\.Protocol\.getReturnValue|\tat .*handlePythonException\("
)
"""After these, what stood inside a message is over."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]{2,}(?:\.[A-Z0-9_]+)*)\](?: |$)")
_SQLSTATE = re.compile(r"(?<!\s)(?:\s++SQLSTATE: \w{5}){1,8}+\s*+$")
"""Looked for once in each stretch of blanks, and never back in it: a row of the data may be nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrown(ChainedException):
    """An exception of a chain that was read from text."""

    frames: tuple[str, ...] = ()
    """Of a Java exception: class and method of where it was made and of what called that, at most 60."""

    @property
    def first_line(self) -> str:
        """Of the message, without the SQLSTATE."""
        return take_first_line(self.message)


def take_first_line(message: str) -> str:
    """The first line of a message, without the SQLSTATE at its end."""
    return _SQLSTATE.sub("", message.strip().split("\n", 1)[0])


def take_simple_name(class_name: str | None) -> str:
    """The name of a class without its package, module or outer class."""
    return re.split(r"[.$]", (class_name or "").rstrip("$"))[-1]


def read_causes(text: str) -> tuple[Thrown, ...]:
    """The exceptions that a text tells of, outermost first.

    Args:
        text: A log message with its stack trace, a Python traceback, or both in each other. Where it repeats an
            exception (Spark puts the message of the cause into that of the outer one), the last place counts.

    Returns:
        Nothing if it tells of none.
    """
    reader = _Reader()
    for line in text.split("\n"):
        reader.read(line.removesuffix("\r"))
    return _take_once_each(reader.chain())


@dataclass(slots=True)
class _Open:
    """An exception whose lines are still coming."""

    language: Literal["java", "python"]
    class_name: str | None = None
    message: list[str] = dataclasses.field(default_factory=list)
    traceback: list[str] = dataclasses.field(default_factory=list)
    frames: list[str] = dataclasses.field(default_factory=list)
    is_complete: bool = False
    """No message comes any more: the stack has begun."""

    def make_thrown(self) -> Thrown:
        message = "\n".join(self.message).strip()
        found = _CONDITION.match(message)
        if self.language == "python":
            message = _SQLSTATE.sub("", message)
        return Thrown(
            language=self.language,
            class_name=self.class_name,
            condition=found[1] if found else None,
            message=message[:_MESSAGE_MAX],
            traceback="\n".join(self.traceback)[:_MESSAGE_MAX] or None,
            frames=tuple(self.frames),
        )


class _Reader:
    """Reads line by line; what is open last is the innermost."""

    def __init__(self) -> None:
        self._chain: list[_Open] = []
        self._python_at = 0  # where the exceptions of the latest traceback begin
        self._inner: list[_Open] = []  # causes of the Python exception that comes next
        self._in_traceback = self._is_suppressed = self._is_after_stack_title = self._is_chained = False

    def chain(self) -> list[Thrown]:
        self._put_inner()
        return [each.make_thrown() for each in self._chain]

    def read(self, line: str) -> None:
        if self._is_suppressed and not line[:1].strip():
            return  # all of it is indented
        if line.startswith(_AT) and not self._in_traceback and not _OUTER_GOES_ON.match(line):
            self._read_frame(line)  # most lines are such
            return
        self._is_suppressed = line.startswith(_SUPPRESSED)
        if self._is_suppressed or not self._chain_goes_on(line):
            return
        if self._in_traceback:
            self._read_traceback(line)
        elif not self._read_frame(line) and not self._read_start(line):
            self._read_message(line)
        self._is_after_stack_title = line.strip() == _JVM_STACK or (self._is_after_stack_title and not line.strip())

    def _chain_goes_on(self, line: str) -> bool:
        """Whether the line is still to be read, after what it may say of the chain itself."""
        if line.strip() in PYTHON_CHAINED:
            self._inner = self._chain[self._python_at :] + self._inner
            del self._chain[self._python_at :]
            self._in_traceback, self._is_chained = False, True
            return False
        if _OUTER_GOES_ON.match(line):
            self._put_inner()
            if self._chain:
                self._chain[-1].is_complete = True
            self._in_traceback = False
        return True

    def _put_inner(self) -> None:
        self._chain += self._inner
        self._inner = []

    def _read_frame(self, line: str) -> bool:
        current = None
        if self._chain:
            current = self._chain[-1]
        if _JAVA_MORE.match(line):
            if current is not None:
                current.is_complete = True
            return True
        if current is not None and len(current.frames) >= _FRAMES_MAX and line.startswith(_AT):
            return True
        found = _JAVA_FRAME.match(line)
        if found is not None and current is not None and current.language == "java":
            current.is_complete = True
            current.frames.append(found[1])
        return found is not None

    def _read_start(self, line: str) -> bool:
        start = _JAVA_STARTS.match(line)
        if start is not None:
            self._open(line[start.end() :])
            return True
        if (not self._chain or self._is_after_stack_title) and _JAVA.match(line):
            self._open(line)
            return True
        if not self._chain or line.startswith(TRACEBACK):
            nested = _NESTED.search(line)
            if nested is not None:
                self._open(line[nested.end() :])
                return True
        return False

    def _open(self, rest: str, depth: int = 0) -> None:
        """Begin with the exception that `rest` tells of, and those that its own words tell of."""
        if len(self._chain) >= _CAUSES_MAX:
            del self._chain[1]
        if rest.startswith(TRACEBACK):
            if not self._is_chained:
                self._put_inner()
                self._python_at = len(self._chain)
            self._is_chained = False
            self._chain.append(_Open("python", traceback=[TRACEBACK]))
            self._in_traceback = True
            return
        found = _JAVA.match(rest)
        self._chain.append(_Open("java", found[1] if found else None))
        self._add_message((found[2] or "") if found else rest, depth)

    def _add_message(self, text: str, depth: int = 0) -> None:
        self._chain[-1].message.append(text)
        nested = _NESTED.search(text)
        if nested is not None and depth < _NESTED_MAX:
            self._open(text[nested.end() :], depth + 1)

    def _read_traceback(self, line: str) -> None:
        current = self._chain[-1]
        if line[:1].isspace() or not line:
            found = None
        else:
            found = _PYTHON.match(line)
        current.traceback.append(line)
        if found is not None:
            self._in_traceback = False
            current.class_name = found[1]
            self._add_message(found[2] or "")

    def _read_message(self, line: str) -> None:
        if not self._chain or self._chain[-1].is_complete:
            return
        nested = _NESTED.search(line)
        if nested is not None:
            self._add_message(line)
        else:
            self._chain[-1].message.append(line)


def _take_once_each(chain: Sequence[Thrown]) -> tuple[Thrown, ...]:
    """Without what is told again further in: the later place has the whole of it."""
    kept: list[Thrown] = []
    for number, each in enumerate(chain):
        if not any(_is_same(each, later) for later in chain[number + 1 :]):
            kept.append(each)
    return tuple(kept)


def _is_same(each: Thrown, later: Thrown) -> bool:
    if each.class_name not in (None, later.class_name):
        return False
    return each.first_line == later.first_line and (each.class_name is None or each.language == later.language)


def continue_chain(
    chain: Sequence[ChainedException], others: Iterable[Sequence[ChainedException]]
) -> tuple[ChainedException, ...]:
    """A chain, and where it breaks off, what another one tells of the same exception's causes.

    Spark's JSON layout logs an exception without its causes; the log line of the failed task has them.
    """
    if not chain:
        return ()
    last = chain[-1]
    for other in others:
        for number, each in enumerate(other[:-1]):
            if each.message and each.class_name == last.class_name and _normalise_words(each) == _normalise_words(last):
                return (*chain, *other[number + 1 :])
    return tuple(chain)


def _normalise_words(cause: ChainedException) -> str:
    return _SQLSTATE.sub("", cause.message.strip())
