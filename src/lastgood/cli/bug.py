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
from lastgood.errors import LastgoodError
from lastgood.redaction import redacted

DEBUG = "LASTGOOD_DEBUG"
"""Environment variable that has the traceback shown as well."""


def bug_error(bug: BaseException, verb: str) -> LastgoodError:
    """The answer to what nobody expected: what it was, where its traceback is kept, and what is to be done."""
    told = "".join(traceback.format_exception(bug))
    if os.environ.get(DEBUG):
        sys.stderr.write(told)
    kept = _kept(redacted(told), verb)
    what = str(bug).splitlines()[:1]
    return LastgoodError(
        "this is a bug of lastgood",
        subject=None if kept is None else str(kept),
        found=redacted(f"{type(bug).__name__}{f': {what[0]}' if what else ''}"),
        effect="what it was about to do may be done in part: the same command again, or status, tells",
        next=f"report it with the text below, by {DEBUG}=1" if kept is None else f"report it, with {kept}",
    )


def _kept(told: str, verb: str) -> Path | None:
    """Where the traceback is saved, for this user's eyes only; None if this machine has no room for it."""
    folder = platformdirs.user_state_path("lastgood") / "bugs"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    file = folder / f"{stamp}-{os.getpid()}.txt"
    head = f"lastgood {__version__}, Python {platform.python_version()}, {platform.platform()}: {verb}\n\n"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", errors="replace") as stream:
            stream.write(head + told)
    except OSError:  # the answer says then how the traceback is to be had
        return None
    return file
