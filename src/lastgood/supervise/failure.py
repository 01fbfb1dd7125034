"""The last error in what a driver printed: the innermost cause, in one line."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_CAUSED_BY = re.compile(r"^\s*Caused by: (.+)$")
_PYTHON_LAST_LINE = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b)(?::\s*(?P<text>.*))?$"
)
_LOG_ERROR = re.compile(r"\b(?:ERROR|FATAL)\b\s+(.+)$")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]{3,}\] ")
_WRAPPERS = ("[STREAM_FAILED]", "[FOREACH_BATCH_USER_FUNCTION_ERROR]", "[TASK_WRITE_FAILED]")
_LONGEST = 500


def last_error(text: str) -> str | None:
    """Find the error that ended a driver in the end of its output.

    The innermost Java cause counts before the Python exception around it, a Python exception before a
    line that was only logged; wrappers that say nothing (`STREAM_FAILED`, …) count least.

    Args:
        text: The last part of standard output and error.

    Returns:
        One line without its stack, at most 500 characters; None if nothing looks like an error.
    """
    lines = text.splitlines()
    start = max((i for i, line in enumerate(lines) if line.strip() == _TRACEBACK), default=None)
    last = lines[start:] if start is not None else lines
    for found in (_causes(last), _conditions(last), _python(last), _logged(lines)):
        if found:
            return found[-1].strip()[:_LONGEST]
    return None


def _causes(lines: list[str]) -> list[str]:
    return [match.group(1) for line in lines if (match := _CAUSED_BY.match(line))]


def _conditions(lines: list[str]) -> list[str]:
    """From the last condition of a line that is no wrapper to the line's end."""
    found = [line[match.start() :] for line in lines for match in _CONDITION.finditer(line)]
    return [text for text in found if not text.startswith(_WRAPPERS)]


def _python(lines: list[str]) -> list[str]:
    return [line for line in lines if _PYTHON_LAST_LINE.match(line)]


def _logged(lines: list[str]) -> list[str]:
    return [match.group(1) for line in lines if (match := _LOG_ERROR.search(line))]
