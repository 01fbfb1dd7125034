"""What a job tells us among all else that it prints: lines that begin with a mark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import IO


def follow(lines: Iterable[str], log: IO[str], mark: str, tell: Callable[[str], None]) -> str:
    """Pass on what is told, keep the rest.

    Args:
        lines: What a process prints.
        log: Where the rest goes.
        mark: Begins each line that is told.
        tell: Gets it, without the mark.

    Returns:
        The last line of the rest that is no part of a stack trace; empty without one.
    """
    last = ""
    for line in lines:
        if line.startswith(mark):
            tell(line.removeprefix(mark))
            continue
        log.write(line)
        if line.strip() and not line[0].isspace():
            last = line.strip()
    return last
