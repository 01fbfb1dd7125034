"""A driver that waits, warm, before its first query: the second process of an application whose first one runs.

lastgood opens the gate when the first is surely dead. Until then no query of this process starts; whatever goes wrong
here ends the process, since a query that started all the same would be the second driver of its checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from .driver import FILE, FOLDER_VARIABLE, report_trouble
from .read_files import ReadFiles, find_files_of_java, identify_file

PREFIX = "standby-"
"""Begins the name of the folder of a standby, which lies in that of the agent. The variable that names the agent's
folder names this one instead, so that no process has an agent and not its gate."""
READY_SUFFIX, OPEN = ".ready.json", "open"
"""Of what a process tells of itself, behind its id; and the file whose presence is the open gate."""
QUERY_NAME = "lastgood-standby"
"""Of what runs to warm Java, and is none of the application's."""
_LOOK_SECONDS = 0.01
_QUERIES_SECONDS = 1.0
"""How often it is looked whether a query runs in Java after all."""
_APART_SECONDS = 10.0
"""Executors that are no threads of the driver notice its death by themselves, and may end a task meanwhile: nothing is
begun beside that, as little as by a new driver, which takes as long."""
_EXIT_CODE = 70
_read_files = ReadFiles()


def find_standby_folder() -> Path | None:
    """The folder of this standby; None where this process need not wait."""
    folder = Path(os.environ.get(FOLDER_VARIABLE, ""))
    return folder if folder.name.startswith(PREFIX) else None


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
        self._is_apart = False
        """Whether executors are processes of their own."""

    def __call__(self, session: Any, writer: Any, path: str | None) -> None:
        """Wait until the gate is open; returns at once when it has been opened.

        Args:
            session: In which a query is to start.
            writer: Its DataStreamWriter.
            path: What it writes to, if that is a path.
        """
        with self._lock:
            if not self._is_open:
                try:
                    self._wait(session, writer, path)
                    self._pass()
                except BaseException as error:  # noqa: BLE001 - also Ctrl-C, which an application may catch
                    leave(error)
                self._is_open = True

    def _wait(self, session: Any, writer: Any, path: str | None) -> None:
        from .sessions import is_connect  # noqa: PLC0415 - what only those need who wait
        from .warming import Warming  # noqa: PLC0415

        if is_connect(session):
            self._refuse("a client of Spark Connect has no driver of its own to keep warm")
        context = session.sparkContext
        self._is_apart = not context.master.startswith("local") or context.master.startswith("local-")
        _note_files_of_java(session)
        if self._has_been_opened():  # while the application was coming here
            return
        told = {
            "master": context.master,
            "cores": context.defaultParallelism,
            "files": [(path, *identity) for path, identity in _read_files.list_kept()],
        }
        self._tell(**told)
        warming = Warming(session, writer, path, self._folder, lambda warmed: self._tell(**told, warmed=warmed))
        next_look = 0.0
        while not self._has_been_opened():
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _QUERIES_SECONDS
                if list_own(session):
                    self._refuse("a query of it was started in another way than by Python's DataStreamWriter")
            time.sleep(_LOOK_SECONDS)
        warming.stop()

    def _has_been_opened(self) -> bool:
        return (self._folder / OPEN).exists()

    def _pass(self) -> None:
        """See that it is still made of what is so, and be a driver like any other from now on."""
        if self._is_apart:
            opened_at = (self._folder / OPEN).stat().st_mtime
            time.sleep(max(0.0, opened_at + _APART_SECONDS - time.time()))
        changed = _read_files.find_changed()
        if changed is not None:
            raise RuntimeError(f"{changed} has changed since it was read")
        _read_files.close()
        os.environ[FOLDER_VARIABLE] = str(self._folder.parent)

    def _refuse(self, because: str) -> NoReturn:
        self._tell(refused=because)
        leave(RuntimeError(because))

    def _tell(self, **facts: Any) -> None:
        draft = self._folder / f"{os.getpid()}.draft"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE), "w") as stream:  # noqa: PTH123 - a descriptor
            stream.write(json.dumps({"pid": os.getpid(), **facts}))
        # Safe: it is what this process tells of itself, and what is told now holds instead of what was told before.
        draft.replace(self._folder / f"{os.getpid()}{READY_SUFFIX}")


def _note_files_of_java(session: Any) -> None:
    """Note down what Java has read before anybody could look: none of it may be another one since it began.

    Raises:
        RuntimeError: one is, and nobody knows which of both Java has read.
    """
    java = session._jvm.java.lang  # noqa: SLF001 - Python's session does not tell of its process
    began_ns = int(java.management.ManagementFactory.getRuntimeMXBean().getStartTime()) * 1_000_000
    fetched = os.path.join(str(java.System.getProperty("java.io.tmpdir")), "spark-")  # noqa: PTH118 - a prefix
    for path in find_files_of_java(session):
        _read_files.add(path)
        identity = identify_file(path)
        if identity is not None and identity[-1] > began_ns and not path.startswith(fetched):
            raise RuntimeError(f"{path} has changed since Java began")


def list_own(session: Any) -> list[Any]:
    """All queries of the application that run in the Java of a classic session, whichever session they are of."""
    running = session._jsparkSession.sharedState().activeStreamingQueries().values()  # noqa: SLF001
    return list(filter(_is_own, running))


def _is_own(query: Any) -> bool:
    return bool(query.name() != QUERY_NAME)
