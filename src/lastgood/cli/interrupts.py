"""Ctrl-C ends a verb with its exit code and without a traceback, at whatever instant it comes.

The first one raises `KeyboardInterrupt`, so that drafts are removed and a lease is released. Whoever presses it again
waits no longer for that. To end at once is always safe: a repair may be killed anywhere, and is finished or taken back.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

INTERRUPTED = 128 + signal.SIGINT

_code: int | None = None
"""What the next Ctrl-C ends the process with, at once; None: it raises."""


def watch_for_interrupts() -> None:
    """From now on end as this module says; where the shell has us ignore Ctrl-C, as in the background, it stays so."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _raise_interrupt)
    sys.unraisablehook = _tell_unraisable
    # Of all that is called at the end this was registered first, so it comes last: Python's own end takes a moment, in
    # which it would give the signal its meaning back, and the exit code would no longer be that of the work.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def stop_at_once_on_interrupt(code: int) -> None:
    """From now on Ctrl-C waits for nothing: all is done but to say so."""
    global _code  # noqa: PLW0603 - a process has one handler of a signal
    _code = code


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed: an error that comes after it may be what Python or a library has made of it."""
    return _code is not None


def _raise_interrupt(_signum: int, _frame: FrameType | None) -> None:
    if _code is not None:
        os._exit(_code)
    stop_at_once_on_interrupt(INTERRUPTED)
    raise KeyboardInterrupt


def _tell_unraisable(told: UnraisableHookArgs) -> None:
    if told.exc_type is not None and issubclass(told.exc_type, KeyboardInterrupt):
        # It came while Python was cleaning up after an object, where it would be printed and forgotten.
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(told)
