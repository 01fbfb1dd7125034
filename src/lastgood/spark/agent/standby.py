"""A driver that waits, warm, before its first query: the second process of an application whose first one runs.

lastgood opens the gate when the first is surely dead. Until then no query of this process starts; whatever goes wrong
here ends the process, since a query that started all the same would be the second driver of its checkpoint.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from .driver import FILE, find_process_start_ms, make_private, report_trouble
from .read_files import ReadFiles, find_files_of_java

VARIABLE = "LASTGOOD_STANDBY"
"""Environment variable: the folder of this standby, through which it tells that it waits, and is let go."""
READY, OPEN = "ready.json", "open"
"""What it tells of itself, and the file whose presence is the open gate."""
FORMAT_VERSION = 1
_LOOK_SECONDS = 0.01
_EXIT_CODE = 70
_read_files = ReadFiles()


def begin() -> None:
    """Note down from now on what this process reads."""
    sys.addaudithook(_read_files)


def leave(error: BaseException) -> NoReturn:
    """End this process at once: no query starts here, whatever the application does about exceptions."""
    report_trouble(error)
    os._exit(_EXIT_CODE)


class Gate:
    """Stands before each start of a query in this process."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of this standby."""
        self._folder = folder
        self._lock = threading.Lock()
        self._is_open = False

    def __call__(self, session: Any, writer: Any) -> None:
        """Wait until the gate is open; returns at once when it has been opened.

        Args:
            session: In which a query is to start.
            writer: Its DataStreamWriter.
        """
        with self._lock:
            if not self._is_open:
                try:
                    self._wait(session, writer)
                except BaseException as error:  # noqa: BLE001 - also Ctrl-C, which an application may catch
                    leave(error)
                self._is_open = True

    def _wait(self, session: Any, writer: Any) -> None:
        if self._has_been_opened():  # while the application was coming here
            return
        from .sessions import is_connect  # noqa: PLC0415 - what only those need who wait
        from .warming import Warming  # noqa: PLC0415

        if is_connect(session):
            self._tell(refused="a client of Spark Connect has no driver of its own to keep warm")
            leave(RuntimeError("a client of Spark Connect cannot stand by"))
        context = session.sparkContext
        for path in find_files_of_java(session._jvm, os.environ.get("SPARK_HOME")):  # noqa: SLF001
            _read_files.add(path)
        told = {
            "master": context.master,
            "cores": context.defaultParallelism,
            "application_id": context.applicationId,
            "files": [(path, *identity) for path, identity in _read_files.list_kept()],
        }
        self._tell(**told)
        warming = Warming(session, writer, lambda warmed: self._tell(**told, warmed=warmed))
        while not self._has_been_opened():
            time.sleep(_LOOK_SECONDS)
        warming.stop()

    def _has_been_opened(self) -> bool:
        if not (self._folder / OPEN).exists():
            return False
        _read_files.close()
        os.environ.pop(VARIABLE, None)  # what this process starts from now on is of a driver like any other
        return True

    def _tell(self, **facts: Any) -> None:
        told = {
            "format_version": FORMAT_VERSION,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "process_started_at_ms": find_process_start_ms(),
            "told_at_ms": int(time.time() * 1000),
            **facts,
        }
        make_private(self._folder)
        draft = self._folder / f"{READY}.tmp"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE), "w") as stream:  # noqa: PTH123 - a descriptor
            stream.write(json.dumps(told))
        # Safe: the folder is of this standby alone, and what is told now holds instead of what was told before.
        draft.replace(self._folder / READY)
