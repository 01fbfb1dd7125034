"""What a person types, answered in the process of the tests: a process for each costs a second of the processor.

Tests whose subject is the process itself (its streams, signals, memory, imports) start one.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lastgood.cli.main import main


def call(
    *words: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One command of lastgood.

    Args:
        words: As they are typed behind `lastgood`.
        env: All that it knows of the environment; None: that of the tests.
        cwd: Where it is typed; None: where the tests are.
    """
    typed = [*map(str, words)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(sys, "stdin", io.StringIO())
        if env is not None:
            stack.enter_context(_only(env))
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        try:
            main(typed)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(typed, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _only(env: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def restore_ctrl_c() -> None:
    """For `preexec_fn`: a shell without job control makes what it starts in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
