"""What tests of the examples for schedulers share: where these are, a query with its checkpoint, and an application."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from lastgood.journal.holding import locate_lock_file
from lastgood.operations.backup import create
from lastgood.recovery.hold import hold_checkpoint
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

ROOT = Path(__file__).parents[1]
SCHEDULERS = ROOT / "examples/schedulers"
DRIVER_CHECKS = ROOT / "examples/driver_checks"
LASTGOOD = Path(sys.executable).parent / "lastgood"
DEADLINE_SECONDS = 300
BATCHES = 7
DEAD, ALIVE, UNKNOWN = 0, 1, 2
"""What a driver check exits with."""
APPLICATION = """#!/bin/sh
# In the place of spark-submit: runs until it is told how to end.
echo "$@"
echo $$ >>{folder}/started
while [ ! -s {folder}/end ]; do /bin/sleep 0.05; done
exit "$(cat {folder}/end)"
"""
SLEEP = """#!/bin/sh
# In the place of sleep: says that somebody waits, and wakes them soon.
echo "$1" >>{folder}/waited
exec /bin/sleep 0.1
"""
_ROW = re.compile(r"\| (\d+) \|.*\| (\w*) \|")


def trying_again() -> dict[int, str]:
    """Exit code → whether the same command may work in a while, as the documentation has it of the error classes."""
    page = (ROOT / "docs/reference/exit-codes.md").read_text()
    return {int(match[1]): match[2] for line in page.splitlines() if (match := _ROW.fullmatch(line))}


def later() -> set[int]:
    """The exit codes that time mends."""
    return {code for code, again in trying_again().items() if again == "later"}


def await_(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def driver_check(name: str) -> ModuleType:
    """A script of `examples/driver_checks` as a module."""
    spec = importlib.util.spec_from_file_location(name, DRIVER_CHECKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def run_driver_check(script: str, *words: str) -> tuple[int, str]:
    """Exit code, and what it says."""
    done = subprocess.run([sys.executable, DRIVER_CHECKS / script, *words], capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout


class Machine:
    """A folder with a query's checkpoint and configuration, and on its PATH lastgood and an application."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "chk"
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        (self.bin / "lastgood").symlink_to(LASTGOOD)
        self.program("spark-submit", APPLICATION)
        self.program("sleep", SLEEP)
        CheckpointBuilder(self.checkpoint).run(BATCHES)
        log = folder / "sink/_spark_metadata"
        log.mkdir(parents=True)
        for number in range(BATCHES):
            (log / str(number)).write_bytes(b"v1")
        self.configure("true")

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "XDG_STATE_HOME": str(self.folder / "state")}

    @property
    def started(self) -> list[int]:
        """The processes of the application, one for each start."""
        told = self.folder / "started"
        return [int(line) for line in told.read_text().split()] if told.exists() else []

    @property
    def waited(self) -> list[str]:
        """How long somebody wanted to wait, each time."""
        told = self.folder / "waited"
        return told.read_text().split() if told.exists() else []

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text.format(folder=self.folder))
        (self.bin / name).chmod(0o755)

    def configure(self, driver_check: str) -> None:
        (self.folder / "lastgood.toml").write_text(
            f'[pipeline.orders]\ncommand = ["spark-submit", "orders.py"]\ncheckpoint = "{self.checkpoint}"\n'
            f'sink = "file:{self.folder / "sink"}"\ndriver_check = ["{driver_check}"]\n'
        )

    def end(self, code: int) -> None:
        """Let the application end, now or as soon as it is started."""
        (self.folder / "end").write_text(f"{code}\n")

    def damage(self) -> None:
        """Cut the newest plan off; the mirror and the sink have its batch, so that a repair costs nothing."""
        create(resolve_target(str(self.checkpoint)))
        (self.checkpoint / f"offsets/{BATCHES - 1}").write_bytes(b"v1\n{")

    def need_a_person(self) -> None:
        """A repair is needed, and nothing proves that the driver is dead."""
        self.damage()
        self.configure("false")

    @contextlib.contextmanager
    def somebody_at_work(self) -> Iterator[None]:
        """A repair is needed, and another process has the checkpoint."""
        self.damage()
        with hold_checkpoint(str(self.checkpoint), locate_lock_file(parse_location(str(self.checkpoint)))):
            yield
