"""This process, as others can recognise it, and the sign that it lives."""

from __future__ import annotations

import json
import os
import platform
import socket
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "LASTGOOD_AGENT_DIR"
"""Environment variable: the folder on a local disk that gets heartbeats and records; without it there is no agent."""
FORMAT_VERSION = 1
BEAT_SECONDS = 2.0
_LOADED_MS = int(time.time() * 1000)
FILE, _FOLDER = 0o600, 0o700
"""Whoever runs the application reads what the agent writes, and nobody else: exceptions may quote the data."""


def make_private(folder: Path) -> None:
    """Have a folder there; each that is made for it is for its owner alone, whatever the umask."""
    try:
        folder.mkdir(mode=_FOLDER, exist_ok=True)
    except FileNotFoundError:
        make_private(folder.parent)
        folder.mkdir(mode=_FOLDER, exist_ok=True)


def find_process_start_ms() -> int:
    """When this process was started; together with its id it is the name of the process.

    On Linux the kernel's answer, the same for everybody who asks; elsewhere the time when the agent was loaded.
    """
    try:
        # The name in the second field may hold spaces and brackets: count from its end.
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        booted = next(line for line in Path("/proc/stat").read_bytes().splitlines() if line.startswith(b"btime "))
        return int(booted.split()[1]) * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return _LOADED_MS


def make_file_stem() -> str:
    """Begins the name of each file of this process: no other process of this machine has it."""
    return f"{find_process_start_ms():013d}-{os.getpid()}"


def report_trouble(error: BaseException) -> None:
    """Leave a note where the agent could not even begin."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        return
    try:
        file = Path(folder) / f"{os.getpid()}.trouble.txt"
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE), "a") as log:  # noqa: PTH123 - a descriptor
            log.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    except OSError:
        ...  # nobody is left to tell


class Heartbeat:
    """Writes a small file every two seconds, in place at once: who we are, that we live, and what runs here."""

    def __init__(
        self, folder: Path, facts: Callable[[], dict[str, Any]], *, beat_seconds: float = BEAT_SECONDS
    ) -> None:
        """Begin.

        Args:
            folder: Where the file is.
            facts: What changes: gives the fields beside those of the process.
            beat_seconds: Time between two.
        """
        self._file = folder / f"{make_file_stem()}.driver.json"
        self._facts = facts
        self._beat_seconds = beat_seconds
        self._process = {
            "format_version": FORMAT_VERSION,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "process_started_at_ms": find_process_start_ms(),
            "python": platform.python_version(),
        }
        self._ended = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lastgood-heartbeat", daemon=True)
        self._thread.start()

    def beat_now(self) -> None:
        """Write the file again without waiting for its time."""
        self._wake.set()

    def close(self, seconds: float) -> None:
        """Write a last time that the process ends; wait for that no longer than `seconds`."""
        self._ended.set()
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            ended = self._ended.is_set()
            now_ms = int(time.time() * 1000)
            self._write(
                {**self._process, "beat_at_ms": now_ms, "exited_at_ms": now_ms if ended else None, **self._facts()}
            )
            if ended:
                return
            self._wake.wait(self._beat_seconds)

    def _write(self, content: dict[str, Any]) -> None:
        draft = self._file.with_suffix(".tmp")
        try:
            make_private(self._file.parent)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE), "w") as stream:  # noqa: PTH123 - a descriptor
                stream.write(json.dumps(content))
            # Safe: it is the file of this process alone, and says what is so now.
            draft.replace(self._file)
        except OSError:
            ...  # a full disk: an old heartbeat says enough, and the next may pass
