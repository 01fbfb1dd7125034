"""`run`: supervise a command."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

import platformdirs

from lastgood.process.driver import Launch, prepare_launch
from lastgood.storage import Location, parse_location
from lastgood.supervise.config import Pipeline
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.hold import hold_checkpoint, lock_file_name
from lastgood.supervise.loop import Supervisor
from lastgood.supervise.progress import LogWatch

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline whose command, Python, Java and locations were found to be usable."""

    pipeline: Pipeline
    launch: Launch
    watches: Mapping[Location, LogWatch]
    """How to look at each checkpoint."""
    log: Path

    def to_json(self) -> dict[str, Any]:
        """What `run --check` shows."""
        return {
            "pipeline": self.pipeline.name,
            "command": list(self.launch.command),
            "python": self.launch.python and str(self.launch.python),
            "java": self.launch.java and f"Java {self.launch.java.version} ({self.launch.java.home})",
            "checkpoints": [str(each) for each in self.watches],
            "log": str(self.log),
        }


def prepare(pipeline: Pipeline, environment: Mapping[str, str] | None = None) -> Prepared:
    """Check all that can be checked before a start; changes nothing.

    Raises:
        CommandNotFoundError, PythonUnusableError, JavaMissingError: see `prepare_launch`.
        LocationInvalidError: a checkpoint location that cannot be understood.
        ExtraMissingError: the library for its storage is not installed.
    """
    env = {**(os.environ if environment is None else environment), **pipeline.env}
    checkpoints = [parse_location(query.checkpoint) for query in pipeline.queries]
    name = re.sub(r"[^\w.-]+", "_", pipeline.name)
    log = platformdirs.user_log_path("lastgood") / f"{name}.log"
    return Prepared(
        pipeline, prepare_launch(pipeline.command, env), {each: LogWatch(each) for each in checkpoints}, log
    )


def supervise(
    prepared: Prepared,
    *,
    tell: Callable[[Event], None],
    show: IO[bytes] | None = None,
    on_supervisor: Callable[[Supervisor], None] | None = None,
) -> int:
    """Keep a pipeline running until it succeeds, is given up, or a signal stops us.

    Args:
        prepared: What `prepare` returned.
        tell: Gets each event as it happens.
        show: Where the command's output is copied.
        on_supervisor: Gets the supervisor before it starts, for a caller that wants to stop it.

    Returns:
        0 when the command ended with exit code 0, else 128 + the signal that stopped us.

    Raises:
        CheckpointHeldError: another run holds one of the checkpoints.
        AttemptsExhaustedError: the command failed too often in a row without progress.
    """
    with contextlib.ExitStack() as held:
        for location in prepared.watches:
            held.enter_context(hold_checkpoint(str(location), _lock_file(location)))
        if not prepared.watches:
            tell(_no_checkpoint())
        supervisor = Supervisor(
            prepared.launch,
            policy=prepared.pipeline.policy,
            watches={str(location): watch for location, watch in prepared.watches.items()},
            log=prepared.log,
            tell=tell,
            cwd=prepared.pipeline.cwd,
            show=show,
        )
        if on_supervisor is not None:
            on_supervisor(supervisor)
        with _signals_to(supervisor):
            return supervisor.run()


def _lock_file(location: Location) -> Path:
    """Beside a local checkpoint, where every user of this machine finds it; else in this user's state."""
    if location.scheme == "file":
        return Path(location.sibling(".lastgood").path) / "run.lock"
    return platformdirs.user_state_path("lastgood") / "holds" / lock_file_name(location.identity)


def _no_checkpoint() -> Noticed:
    return Noticed(
        at=time.time(),
        condition="NO_CHECKPOINT_NAMED",
        sentence="no checkpoint was named: progress cannot be seen, so every restart counts as an attempt",
    )


@contextlib.contextmanager
def _signals_to(supervisor: Supervisor) -> Iterator[None]:
    """Pass Ctrl-C, SIGTERM and SIGHUP on to the command; only a main thread can."""

    def stop(signum: int, _frame: FrameType | None) -> None:
        supervisor.stop(signum)

    try:
        before = {signum: signal.signal(signum, stop) for signum in _STOP_SIGNALS}
    except ValueError:  # not the main thread: whoever called us handles signals
        before = {}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
