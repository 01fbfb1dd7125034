"""A standalone cluster of Spark on the loopback interface, for tests."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from lastgood.lab.ports import LOOPBACK, find_free_ports, is_accepting
from lastgood.lab.spark import SMALL_CONF, SparkEnvironment, submit_env
from lastgood.process.child import Child
from lastgood.process.java import Java

DEADLINE_SECONDS = 180


def await_(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.2)


class Cluster:
    """A standalone master and its workers."""

    def __init__(
        self, folder: Path, spark: SparkEnvironment, java: Java, *, workers: int = 1, cores: int = 2, memory: str = "2g"
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._count, self._size = workers, ["--cores", str(cores), "--memory", memory]
        self.spark = spark
        self.port, self.page = find_free_ports(2)
        self.master = f"spark://{LOOPBACK}:{self.port}"
        small = {"SPARK_DAEMON_MEMORY": "160m", "SPARK_DAEMON_JAVA_OPTS": SMALL_CONF["spark.driver.extraJavaOptions"]}
        self.env = {**submit_env(spark, java, os.environ), **small}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._running.close()
            raise
        return self

    def _start(self) -> None:
        place = ["--host", LOOPBACK, "--port", str(self.port)]
        self.start("master.Master", *place, "--webui-port", str(self.page))
        await_(lambda: is_accepting(self.port) and self.answers())
        self.workers = [self._start_worker() for _ in range(self._count)]
        await_(lambda: self.state()["aliveworkers"] == self._count)

    def _start_worker(self) -> Child:
        words = ["--host", LOOPBACK, "--webui-port", "0", *self._size, "--work-dir", str(self.folder / "work")]
        return self.start("worker.Worker", *words, self.master)

    def restart_worker(self, at: int) -> None:
        """Kill a worker, with its executors, and start another in its place."""
        self.workers[at].kill()
        self.workers[at] = self._start_worker()

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.page}"

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/json/", timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def answers(self) -> bool:
        """Whether the page of the master is there: its port accepts connections a little earlier."""
        try:
            return bool(self.state())
        except OSError:
            return False

    def start(self, name: str, *arguments: str) -> Child:
        log = self._running.enter_context((self.folder / f"{name}.log").open("ab"))
        command = [str(self.spark.home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        return self._running.enter_context(Child(command, env=self.env, output=log))
