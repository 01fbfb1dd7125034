"""The tests' side of `driver.py`: a real Spark of a version that starts queries for us, one after the other."""

from __future__ import annotations

import contextlib
import json
import socket
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lastgood
from lastgood.lab.spark import SparkEnvironment, submit
from lastgood.process.child import Child
from lastgood.process.java import Java

LIBRARIES = [sysconfig.get_path("purelib"), str(Path(lastgood.__file__).parents[1])]
"""Lastgood and what it needs, for a script that is called in a Spark whose own Python has none."""
_DRIVER = Path(__file__).with_name("driver.py")
_START_SECONDS = 300.0
_ANSWER_SECONDS = 300.0
_CONF = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.sql.ui.retainedExecutions": "60",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "50",
    "spark.sql.session.timeZone": "UTC",
    "spark.task.maxFailures": "1",
    "spark.log.level": "ERROR",
}


class DriverDiedError(Exception):
    """The JVM or its Python ended, or no longer answers."""


class RunningSpark:
    """A Spark that keeps its session between queries; ends with us at the latest."""

    def __init__(
        self,
        environment: SparkEnvironment,
        *,
        java: Java,
        jars: tuple[Path, ...],
        folder: Path,
        script: Path = _DRIVER,
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.version = environment.version
        self.log = folder / f"spark-{environment.version}.log"
        with socket.create_server(("127.0.0.1", 0)) as server, self.log.open("ab") as output:
            self._child = submit(
                script,
                [str(server.getsockname()[1])],
                environment=environment,
                java=java,
                jars=jars,
                conf={**_CONF, "spark.sql.warehouse.dir": str(folder / "warehouse"), **(conf or {})},
                env=env,
                cwd=folder,
                output=output,
            )
            try:
                self._connection = _accepted(server, self._child)
            except BaseException:
                self._child.kill()
                raise
        self._connection.settimeout(_ANSWER_SECONDS)
        self._lines = self._connection.makefile("rw")
        self._read()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """What it answers to one command.

        Raises:
            DriverDiedError: nothing, because it has ended or hangs.
        """
        try:
            self._lines.write(json.dumps(command) + "\n")
            self._lines.flush()
        except OSError as error:
            raise DriverDiedError(str(error)) from error
        return self._read()

    def call(self, script: Path, name: str, **told: Any) -> dict[str, Any]:
        """What a function of a script, which is loaded there, answers in a session of its own.

        Args:
            script: A Python file; its function takes the session and `told`, and gives what can be told in JSON.
            name: Of the function.
            told: What it is to do; with `libraries` the Python there and its workers have those folders as well.

        Raises:
            DriverDiedError: as `ask`.
        """
        return self.ask({"do": "call", "script": str(script), "call": name, **told})

    @property
    def has_ended(self) -> bool:
        """Whether nothing answers any more."""
        return self._child.ending is not None

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._child.kill()
        self.close()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):  # what was not sent to one that has died
            self._lines.close()
        self._connection.close()
        if self._child.wait(20) is None:
            self._child.kill()

    def _read(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except BaseException as error:  # its late answer would be taken for one to the next command
            self.kill()
            if isinstance(error, OSError):
                raise DriverDiedError(str(error)) from error
            raise
        if not line:
            raise DriverDiedError(f"no answer; look into {self.log}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Sparks:
    """One Spark at a time: that of the version that was asked for last.

    The JVM of a Spark 4.0 reads only the snapshots of state in the checkpoint format of the first store that it meets.
    """

    def __init__(self, start: Callable[[str], RunningSpark]) -> None:
        self._start = start
        self._running: RunningSpark | None = None
        self._state_format = ""

    def of(self, version: str, state_format: str = "1") -> RunningSpark:
        """A Spark of this version, for state in this checkpoint format; one that is another ends."""
        is_other_format = version.startswith("4.0.") and self._state_format != state_format
        running = self._running
        if running is not None and running.version == version and not is_other_format and not running.has_ended:
            return running
        self.close()
        self._running = self._start(version)
        self._state_format = state_format
        return self._running

    def close(self) -> None:
        """End the one that runs; the next is a new one."""
        if self._running is not None:
            self._running.close()
            self._running = None


def _accepted(server: socket.socket, child: Child) -> socket.socket:
    server.settimeout(0.2)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            return server.accept()[0]
        except TimeoutError:
            if child.ending is not None:
                break
    raise DriverDiedError(f"Spark did not start: {child.ending or 'no answer in time'}")
