"""What a person gets to see of a bug of ours: one clear answer, and a file to send in."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from pathlib import Path

import platformdirs

from lastgood import __version__
from lastgood.cli.output import DEBUG
from lastgood.errors import LastgoodError, command_line
from lastgood.redaction import as_told, first_words
from lastgood.storage.rights import make_private, private
from lastgood.visible import visible_lines


def show_traceback(error: BaseException) -> None:
    """Where an error comes from, and what led to it, on standard error; without secrets and rows of the data."""
    sys.stderr.write(_told(error))


def bug_error(bug: BaseException, verb: str) -> LastgoodError:
    """The answer to what nobody expected: what it was, where its traceback is kept, and what is to be done."""
    kept = _kept(_told(bug), verb)
    kind, words = type(bug).__name__, first_words(bug)
    if words:
        found = f"{kind}: {words}"
    else:
        found = kind
    if kept is None:
        again = f"report it with what is shown by {command_line(DEBUG, verb)}"
    else:
        again = f"report it, with {kept}"
    return LastgoodError(
        "this is a bug of lastgood",
        subject=None if kept is None else str(kept),
        found=found,
        effect="what it was about to do may be done in part: the same command again, or status, tells",
        next=again,
    )


def _told(error: BaseException) -> str:
    return visible_lines(as_told("".join(traceback.format_exception(error))))


def _kept(told: str, verb: str) -> Path | None:
    """Where the traceback is saved, for this user's eyes only; None if this machine has no room for it."""
    folder = platformdirs.user_state_path("lastgood") / "bugs"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    file = folder / f"{stamp}-{os.getpid()}.txt"
    head = f"lastgood {__version__}, Python {platform.python_version()}, {platform.platform()}: {verb}\n\n"
    try:
        make_private(folder)
        descriptor = private(str(file), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w", errors="replace") as stream:
            stream.write(head + told)
    except OSError:  # the answer says then how the traceback is to be had
        return None
    return file
