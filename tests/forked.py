"""`lastgood` in a process of its own, which need not start Python and import anything: it is forked from one that has.

Its environment, folder, descriptors, signals and limits are its own. What a test of the interpreter's start, of the
console script or of a shell's redirections needs is `bin/lastgood` itself.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

import lastgood
from lastgood.cli.start import start

TIMEOUT_SECONDS = 300
_APART = ("lastgood.demo", "lastgood.lab", "lastgood.spark", "lastgood.testing")
"""What no verb but one imports, if any."""
_MODULES = [each.name for each in pkgutil.walk_packages(lastgood.__path__, "lastgood.", lambda _: None)]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([name for name in _MODULES if not name.startswith(_APART)])


@dataclass(frozen=True)
class Limits:
    """What the process may take."""

    memory_bytes: int
    """Of address space."""
    processor_seconds: int


@dataclass(frozen=True)
class Ended:
    """How it ended."""

    returncode: int
    """As of a `subprocess`: -9 where SIGKILL has ended it."""
    stdout: str
    stderr: str
    resident_kib: int
    """The most of real memory that it had; 0: it was killed."""


class Running:
    """One that was begun."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], process: BaseProcess) -> None:
        self._folder = folder
        self._process = process

    def end(self) -> Ended:
        """Await its end."""
        with self._folder as name:
            self._process.join(TIMEOUT_SECONDS)
            if self._process.exitcode is None:
                self._process.kill()
                raise subprocess.TimeoutExpired(self._process.name, TIMEOUT_SECONDS)
            folder = Path(name)
            used = folder / "resident"
            resident_kib = int(used.read_text()) if used.exists() else 0
            told, complained = (folder / "out").read_text(), (folder / "err").read_text()
            return Ended(self._process.exitcode, told, complained, resident_kib)


def begin(
    *words: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str = "",
    limits: Limits | None = None,
) -> Running:
    """Begin one command of lastgood.

    Args:
        words: As they are typed behind `lastgood`.
        env: All that it knows of the environment; None: that of the tests.
        cwd: Where it is typed; None: where the tests are.
        text: What it reads from standard input.
        limits: None: none.
    """
    folder = tempfile.TemporaryDirectory()
    (Path(folder.name) / "in").write_text(text)
    typed = [*map(str, words)]
    told = (Path(folder.name), typed, dict(os.environ if env is None else env), cwd or Path.cwd(), limits)
    process = _CONTEXT.Process(target=_act, args=told, name=shlex.join(["lastgood", *typed]))
    process.start()
    return Running(folder, process)


def run(
    *words: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str = "",
    limits: Limits | None = None,
) -> Ended:
    """One command of lastgood, from begin to end."""
    return begin(*words, env=env, cwd=cwd, text=text, limits=limits).end()


def processor_seconds() -> float:
    """What all of them have taken so far."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]  # it tells nobody else its process
    if server._forkserver_pid is None:
        return 0.0
    return sum(psutil.Process(server._forkserver_pid).cpu_times()[:4])


def _act(folder: Path, words: list[str], env: dict[str, str], cwd: Path, limits: Limits | None) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    sys.stdin = (folder / "in").open()
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)
    if limits is not None:
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (limits.processor_seconds, limits.processor_seconds + 5))
    sys.argv = ["lastgood", *words]
    try:
        start()
    finally:
        (folder / "resident").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
