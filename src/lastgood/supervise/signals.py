"""Signals that stop a run, passed on to its command."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from lastgood.supervise.loop import Supervisor

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def pass_signals_to(supervisor: Supervisor) -> Iterator[None]:
    """Pass Ctrl-C, SIGTERM and SIGHUP on to the command; only a main thread can. `nohup` keeps its word."""

    def stop(signum: int, _frame: FrameType | None) -> None:
        supervisor.stop(signum)

    try:
        heard = [signum for signum in _STOP_SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]
        before = {signum: signal.signal(signum, stop) for signum in heard}
    except ValueError:  # not the main thread: whoever called us handles signals
        before = {}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
