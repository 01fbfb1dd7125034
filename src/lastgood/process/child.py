"""The owner's side of `guard.py`: start a command that ends with its owner, and learn how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import IO, Self

import psutil

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.process import guard

_POLL_SECONDS = 0.02
_MARK = "LASTGOOD_GUARD"
"""Environment variable that every process below one guard carries, so that it can be found without it."""


class CommandNotFoundError(LastgoodError):
    """The command to start does not exist or is no program."""

    condition = "COMMAND_NOT_FOUND"
    exit_code = 72
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended."""

    exit_code: int | None
    """What it returned; None if a signal ended it."""
    signal: str | None
    """Name of the signal that ended it, such as `SIGKILL`."""
    at: float | None = field(default=None, compare=False)
    """When the command itself had ended, as a Unix time; None if nobody was left to see it."""

    @property
    def is_success(self) -> bool:
        """True for exit code 0."""
        return self.exit_code == 0

    def __str__(self) -> str:
        """As a person says it."""
        if self.signal:
            return f"killed by {self.signal}"
        return f"exit code {self.exit_code}"


def _describe_ending(returncode: int, told_at: object) -> CommandEnd:
    at = told_at if isinstance(told_at, float) else None
    if returncode >= 0:
        return CommandEnd(returncode, None, at)
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return CommandEnd(None, name, at)


class Child:
    """A running command; nothing it started outlives it, or us.

    Use as a context manager, or call `stop` in the end. Methods may be called from any thread.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        output: IO[bytes] | int | None = None,
        grace_seconds: float = 10.0,
        holds: Iterable[int] = (),
    ) -> None:
        """Start `command`.

        Args:
            command: Program and arguments; no shell.
            env: Its environment; ours if None.
            cwd: Its working directory; ours if None.
            output: Where its standard output and error go; to ours if None.
            grace_seconds: How long it may take to end after SIGTERM before it is killed.
            holds: Descriptors that stay open until the command and all it started have ended, also where we die first.

        Raises:
            CommandNotFoundError: no such program, or a file that cannot be executed.
        """
        self._grace_seconds = grace_seconds
        self._mark = uuid.uuid4().hex
        self._ending: CommandEnd | None = None
        self._lock = threading.Lock()
        control, self._control = socket.socketpair()
        self._report, report_write = os.pipe()
        script = str(Path(guard.__file__))
        try:
            inherited = os.environ if env is None else env
            errors = None if output is None else subprocess.STDOUT
            self._guard = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    script,
                    *map(str, (control.fileno(), report_write, grace_seconds)),
                    *command,
                ],
                env={**(inherited), _MARK: self._mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                pass_fds=(control.fileno(), report_write, *holds),
                start_new_session=True,  # Ctrl-C reaches us alone, and we decide what follows
            )
        except OSError as error:
            self._control.close()
            os.close(self._report)
            raise CommandNotFoundError(
                "the working directory of the command cannot be entered",
                subject=str(cwd),
                found=error.strerror,
                expected="an existing folder",
            ) from error
        finally:
            control.close()
            os.close(report_write)
        self._reports = self._read_reports()
        first = next(self._reports, {})
        if "pid" not in first:
            self._guard.wait()
            self._close()
            raise _make_not_started_error(command, str(first.get("error", "the guard died")))
        self.pid: int = int(str(first["pid"]))
        self.started_at: float = time.time()
        self._waiter = threading.Thread(target=self._await_report, name=f"child-{self.pid}", daemon=True)
        self._waiter.start()

    @property
    def ending(self) -> CommandEnd | None:
        """How it ended, or None while it runs."""
        return self._ending

    def wait(self, timeout: float | None = None) -> CommandEnd | None:
        """Wait for the end of the command and of all it started; None if it still runs after `timeout`."""
        self._waiter.join(timeout)
        return self._ending

    def send(self, signum: int) -> None:
        """Pass a signal on to the command and its process group; no error if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._guard.send_signal(signum)

    def hold(self, descriptor: int) -> None:
        """Keep a descriptor open as `holds`; no error if the command has ended."""
        with self._lock, contextlib.suppress(OSError):
            socket.send_fds(self._control, [guard.HOLD], [descriptor])

    def kill(self) -> CommandEnd:
        """End the command and all it started at once, with SIGKILL."""
        with self._lock, contextlib.suppress(OSError):
            self._control.send(guard.KILL_NOW)
        self.send(signal.SIGCONT)  # to the guard, should somebody have stopped it: we would wait for ever
        ending = self.wait()
        return ending or CommandEnd(None, "SIGKILL")

    def stop(self, signum: int = signal.SIGTERM) -> CommandEnd:
        """Ask it to end, wait for the grace period, then kill what is left."""
        if self._ending is None:
            self.send(signum)
        # Safe: it was asked to end, and had the time that its user has set for that.
        return self.wait(self._grace_seconds) or self.kill()

    def processes(self) -> list[psutil.Process]:
        """The command and every process it started that is still alive."""
        try:
            return psutil.Process(self._guard.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read_reports(self) -> _Reports:
        return _Reports(self._report)

    def _await_report(self) -> None:
        last = next(self._reports, {})
        self._guard.wait()
        if "returncode" in last:
            self._ending = _describe_ending(int(str(last["returncode"])), last.get("at"))
        else:  # the guard itself was killed: its child died with it, the rest is ours to end
            while self._kill_marked():  # again, since a process can fork between our look and our signal
                time.sleep(_POLL_SECONDS)
            self._ending = CommandEnd(None, "SIGKILL")
        self._close()

    def _kill_marked(self) -> bool:
        """Whether there was anybody left."""
        found = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_MARK) == self._mark and not _is_over(process):
                    found = True
                    # Safe: only what this command has started bears this mark, which was drawn at random; and psutil
                    # signals nobody who has got the id of another since.
                    process.kill()
        return found

    def _close(self) -> None:
        with self._lock:
            self._control.close()
            with contextlib.suppress(OSError):
                os.close(self._report)
            self._report = -1


def _is_over(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_ZOMBIE and not guard.has_threads_left(process.pid)


class _Reports:
    """Iterates over the JSON lines of a guard until it has none left."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, object]:
        while b"\n" not in self._buffer:
            piece = os.read(self._descriptor, 4096)
            if not piece:
                raise StopIteration
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        report: dict[str, object] = json.loads(line)
        return report


def _make_not_started_error(command: Sequence[str], code: str) -> CommandNotFoundError:
    found = {"ENOENT": "no such file", "EACCES": "not executable", "ENOEXEC": "no program"}.get(code, code)
    return CommandNotFoundError(
        "the command cannot be started",
        subject=command[0] if command else "(empty)",
        found=found,
        expected="a program on PATH or a path to one",
    )
