"""What a job tells us line by line, in a file of its own: what it prints, its JVM and its workers print in between.

That goes into a log, in the user's folder for logs.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import platformdirs

from lastgood.errors import NoSpaceError, StorageError
from lastgood.process.child import Child, CommandEnd

_POLL_SECONDS = 0.1


def place_log(name: str) -> Path:
    """Where the log of a job is, which is there from now on.

    Raises:
        NoSpaceError: the disk is full.
        StorageError: it cannot be written there.
    """
    log = platformdirs.user_log_path("lastgood") / name
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("ab").close()
    except OSError as error:
        kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        raise kind(
            "the log of Spark cannot be written",
            subject=str(log),
            found=error.strerror,
            expected="a folder in which we may write",
            effect="Spark was not started",
            next="the same command, with XDG_STATE_HOME as another folder",
        ) from error
    return log


def follow(child: Child, told: Path, tell: Callable[[str], None]) -> CommandEnd:
    """Pass on each line that a job appends to a file, until it ends.

    Args:
        child: The job.
        told: The file, which is there.
        tell: Gets each line, without its end; a line that was not written whole is none.

    Returns:
        How the job ended.
    """
    with told.open(encoding="utf-8") as lines:
        rest = ""
        while True:
            ending = child.wait(_POLL_SECONDS)
            *whole, rest = (rest + lines.read()).split("\n")
            for line in whole:
                tell(line)
            if ending is not None:
                return ending


def find_last_line(log: Path) -> str:
    """The last line of a log that is no part of a stack trace; empty without one."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        last = ""
        for line in lines:
            if line.strip() and not line[0].isspace():
                last = line.strip()
    return last
