"""A server of the lab: one process with ports of its own on loopback, that ends with its owner."""

from __future__ import annotations

import abc
import contextlib
import os
import re
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import IO, ClassVar, Self

import psutil

from lastgood.errors import LastgoodError, StorageError
from lastgood.lab.ports import find_free_ports, is_free
from lastgood.lab.spark import find_default_spark
from lastgood.process.child import Child
from lastgood.process.java import Java

_POLL_SECONDS = 0.03
_PORT_ATTEMPTS = 5

_LOG4J = """\
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c %m%n
"""

_EXCEPTION = re.compile(r"(?:[\w.$]+\.)?[\w$]*(?:Exception|Error|Throwable)\b")


class Server(abc.ABC):
    """A server with its data in a folder; started, stopped, killed and restarted at will.

    What it has on disk survives `stop` and `kill`. The ports that clients know stay the same as long as this object
    lives. Use it as a context manager, or call `stop` in the end; should we be killed, it ends too.
    """

    noun: ClassVar[str]
    """What it is, for messages: `broker`."""
    not_started: ClassVar[type[LastgoodError]]
    """What `start` raises where it does not come up."""
    log_name: ClassVar[str]
    grace_seconds: ClassVar[float]
    """How long it may take to end in order."""

    def __init__(
        self, folder: Path, *, ports: Sequence[int | None], beside: Collection[int] = (), start_seconds: float
    ) -> None:
        """Describe a server; nothing is started.

        Args:
            folder: For its data and log; created, or used again with what it holds.
            ports: Where it is to listen, first where clients do; a free one for each None.
            beside: Ports that are spoken for, and not to be drawn.
            start_seconds: How long it may take to be ready.
        """
        self.folder = folder.absolute()
        self._lasting = tuple(ports)
        self._beside = frozenset(beside)
        self._start_seconds = start_seconds
        self._child: Child | None = None
        self._log_start = 0

    @property
    def log(self) -> Path:
        """What the server said, over all its starts."""
        return self.folder / f"{self.log_name}.log"

    @property
    def is_running(self) -> bool:
        """True from a start to the end of the process, however it ends."""
        return self._child is not None and self._child.ending is None

    @property
    def pid(self) -> int | None:
        """Process id of the server, or None if it does not run."""
        if self._child is not None and self._child.ending is None:
            return self._child.pid
        return None

    @property
    def port(self) -> int:
        """Where it listens for clients; the same after a restart.

        Raises:
            RuntimeError: it has not been started, and no port was asked for.
        """
        return self._port(0)

    def _port(self, number: int) -> int:
        """One of the ports that last, in the order of `ports`."""
        port = self._lasting[number]
        if port is None:
            message = f"a {self.noun} has no port before its first start"
            raise RuntimeError(message)
        return port

    def start(self) -> None:
        """Start the server and wait until it answers; nothing happens if it runs.

        Raises:
            LastgoodError: the class `not_started`: it ended, or did not answer in time.
            CommandNotFoundError: there is no such program.
            StorageError: its folder cannot be written.
        """
        if self.is_running:
            return
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            ports = self._draw()
            try:
                self._child = self._launch(ports)
            except self.not_started:
                # Somebody took a port between our look and the server's: try others, unless it must be this one.
                taken = {port for port in ports if not is_free(port)}
                if not taken or not taken.isdisjoint(self._lasting) or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                self._lasting = self._lasting_of(ports)
                return

    def stop(self) -> None:
        """End it in order, as an administrator would."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """End it with SIGKILL, as the kernel would."""
        if self._child is not None:
            # Safe: a service of the lab, on data of its own, and to be killed is what it is for.
            self._child.kill()
            self._child = None

    def restart(self) -> None:
        """Start it again on the same data and the same port, whether it runs, was stopped or was killed.

        Raises:
            LastgoodError: the class `not_started`: for example because its port was taken meanwhile.
        """
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abc.abstractmethod
    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        """Start the process; `output` is its log."""

    @abc.abstractmethod
    def _is_ready(self, child: Child, ports: tuple[int, ...]) -> bool:
        """Whether this very process serves clients.

        That something answers there is not enough: it may be whoever took the port before the server could, while
        the server is about to die of that.
        """

    def _lasting_of(self, ports: tuple[int, ...]) -> tuple[int | None, ...]:
        """Which ports a restart must have again, out of those that it has: all of them."""
        return ports

    def _draw(self) -> tuple[int, ...]:
        kept = {port for port in self._lasting if port is not None}
        drawn = iter(find_free_ports(self._lasting.count(None), beside=kept | self._beside))
        ports = []
        for port in self._lasting:
            if port is None:
                ports.append(next(drawn))
            else:
                ports.append(port)
        return tuple(ports)

    def _launch(self, ports: tuple[int, ...]) -> Child:
        """Start the process and wait until it answers."""
        deadline = time.monotonic() + self._start_seconds
        try:
            self._make_folder()
        except OSError as error:
            raise StorageError(
                f"the folder of the {self.noun} cannot be written",
                subject=str(self.folder),
                found=error.strerror,
                expected="a folder that can be written",
            ) from error
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            child = self._spawn(ports, output)
        try:
            self._await_ready(child, ports, deadline)
        except BaseException:
            # Safe: a service of the lab that did not come up; its data is its own.
            child.kill()
            raise
        return child

    def _await_ready(self, child: Child, ports: tuple[int, ...], deadline: float) -> None:
        while not self._is_ready(child, ports):
            ending = child.wait(_POLL_SECONDS)
            if ending is not None:
                raise self._failure(f"it ended with {ending}")
            if time.monotonic() > deadline:
                raise self._failure(f"no answer within {self._start_seconds:g} s")

    def _make_folder(self) -> None:
        """Make the folder, and in it what the process needs."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def _failure(self, found: str) -> LastgoodError:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            cause = find_last_cause(log.read().decode(errors="replace"))
        return self.not_started(
            f"the {self.noun} of the lab does not come up",
            subject=str(self.log),
            found=f"{found}: {cause}" if cause else found,
            expected=f"a {self.noun} that answers",
            next=f"tail {self.log}",
        )


class JavaServer(Server):
    """A server that runs on a small JVM, on its own jars and on some of PySpark's."""

    shared: ClassVar[tuple[str, ...]]
    """How the names of the jars begin that it shares with PySpark."""

    def __init__(
        self,
        folder: Path,
        *,
        java: Java,
        jars: Sequence[Path],
        ports: Sequence[int | None],
        beside: Collection[int] = (),
        start_seconds: float,
    ) -> None:
        """Describe a server; see `Server`. `jars` are those that it does not share with PySpark."""
        super().__init__(folder, ports=ports, beside=beside, start_seconds=start_seconds)
        self._java = java
        self._jars = tuple(jars)

    def _make_folder(self) -> None:
        super()._make_folder()
        (self.folder / "log4j2.properties").write_text(_LOG4J)

    def _java_command(self, *command: str) -> list[str]:
        """The command that runs a class with its arguments; warnings and errors go to standard output."""
        spark_jars = find_default_spark().home / "jars"
        shared, missing = find_shared_jars((jar.name for jar in spark_jars.glob("*.jar")), self.shared)
        if missing:
            raise self.not_started(
                f"the {self.noun} runs on jars of PySpark 4, and not all are there",
                subject=str(spark_jars),
                found=f"no {missing[0]}*.jar",
                expected="the pyspark of the extra 'demo'",
                next="pip install 'lastgood[demo]'",
            )
        classpath = os.pathsep.join(map(str, (*self._jars, *(spark_jars / name for name in shared))))
        return [
            *(str(self._java.program), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            *("-cp", classpath, *command),
        ]


def find_shared_jars(names: Iterable[str], starts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Out of the names of PySpark's jars, those that start so; and the starts that none of them has."""
    available = sorted(names)
    found = {start: [name for name in available if name.startswith(start)] for start in starts}
    return (
        [name for matches in found.values() for name in matches],
        [start for start, matches in found.items() if not matches],
    )


def is_listening(child: Child, port: int) -> bool:
    """Whether a process of `child` is the one that listens on this port."""
    for process in child.processes():
        with contextlib.suppress(psutil.Error):
            for socket in process.net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN and socket.laddr.port == port:
                    return True
    return False


def find_last_cause(log: str) -> str | None:
    """The line of a log that says most about an end, for a person to read; None for an empty log."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("\tat ")]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    for candidates in (causes, exceptions, lines):
        if candidates:
            return candidates[-1].removeprefix("Caused by: ")
    return None
