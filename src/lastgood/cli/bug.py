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
from lastgood.cli.main import DEBUG
from lastgood.errors import LastgoodError, format_command_line
from lastgood.redaction import redact_error, redact_told
from lastgood.storage.rights import make_private, open_privately
from lastgood.visible import make_lines_visible


def show_traceback(error: BaseException) -> None:
    """Where an error comes from, and what led to it, on standard error; without secrets and rows of the data."""
    sys.stderr.write(_format_traceback(error))


def make_bug_error(bug: BaseException, verb: str) -> LastgoodError:
    """The answer to what nobody expected: what it was, where its traceback is kept, and what is to be done."""
    kept = _keep_traceback(_format_traceback(bug), verb)
    kind, words = type(bug).__name__, redact_error(bug)
    if words:
        found = f"{kind}: {words}"
    else:
        found = kind
    if kept is None:
        again = f"report it with what is shown by {format_command_line(DEBUG, verb)}"
    else:
        again = f"report it, with {kept}"
    return LastgoodError(
        "this is a bug of lastgood",
        subject=None if kept is None else str(kept),
        found=found,
        effect="what it was about to do may be done in part: the same command again, or status, tells",
        next=again,
    )


def _format_traceback(error: BaseException) -> str:
    return make_lines_visible(redact_told("".join(traceback.format_exception(error))))


def _keep_traceback(told: str, verb: str) -> Path | None:
    """Where the traceback is saved, for this user's eyes only; None if this machine has no room for it."""
    folder = platformdirs.user_state_path("lastgood") / "bugs"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    file = folder / f"{stamp}-{os.getpid()}.txt"
    head = f"lastgood {__version__}, Python {platform.python_version()}, {platform.platform()}: {verb}\n\n"
    try:
        make_private(folder)
        descriptor = open_privately(str(file), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w", errors="replace") as stream:
            stream.write(head + told)
    except OSError:  # the answer says then how the traceback is to be had
        return None
    return file
