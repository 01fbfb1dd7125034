"""An application under `lastgood run --standby`, whose processes are killed and stopped at random instants."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Self

import psutil
from spark.supervised import Lines

from lastgood.lab.spark import SparkEnvironment, make_quick_conf, submit_command, submit_env
from lastgood.process import guard
from lastgood.process.java import Java

APP = Path(__file__).parent / "spark" / "standby_app.py"
LASTGOOD = Path(sys.executable).parent / "lastgood"
DEADLINE_SECONDS = 300
PAUSE_SECONDS = 12.0
"""About as long as a driver takes until another one is begun beside it."""
AWAITED = 0.7
"""How often one that waits is awaited before somebody is killed: else hardly one would ever be let go."""
STOPPED_SECONDS = 3.0
WHO = (
    "driver",
    "driver",
    "java",
    "standby",
    "guard",
    "guard of standby",
    "supervisor",
    "both",
    "stopped driver",
    "stopped standby",
    "late supervisor",
)


class StandbyRun:
    """The run, one after the other where its supervisor was killed, and what it has copied."""

    def __init__(self, folder: Path, java: Java, spark: SparkEnvironment) -> None:
        self.folder = folder
        self.lines = Lines(folder / "lines")
        self.counts: Counter[str] = Counter()
        conf = {**make_quick_conf(spark, java), "spark.driver.memory": "600m"}
        places = [self.lines.input, self.lines.checkpoint, self.lines.output, folder]
        command = submit_command(APP, [str(each) for each in places], environment=spark, conf=conf)
        (folder / "lastgood.toml").write_text(f"""
[pipeline.lines]
command = {json.dumps(command)}
standby = true
policy = {{ max_attempts = 1000, same_batch = 100000, restart_within = "1000d", backoff = "10ms", grace = "2s" }}
[pipeline.lines.query.copied]
checkpoint = "{self.lines.checkpoint}"
sink = "file:{self.lines.output}"
[pipeline.lines.query.seen]
checkpoint = "{self.lines.checkpoint}-witness"
""")
        self._env = {**submit_env(spark, java, os.environ), "XDG_STATE_HOME": str(folder / "state")}
        self._events = folder / "events"
        self._run: subprocess.Popen[bytes] | None = None
        self._is_done = threading.Event()
        self._feeder = threading.Thread(target=self._feed)

    def __enter__(self) -> Self:
        self._start()
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self._feeder.join()
        if self._run is not None and self._run.poll() is None:
            self._run.send_signal(signal.SIGCONT)
            self._run.send_signal(signal.SIGTERM)
            self._run.wait(DEADLINE_SECONDS)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Those of one kind, of all runs."""
        told = [json.loads(line) for line in self._events.read_text().splitlines() if line.startswith("{")]
        return [each for each in told if each["event"] == name]

    def kill_beside_standby(self) -> None:
        """Kill the driver while another one waits, and wait until one has taken its place."""
        self._await_standby()
        seen = len(self.events("started"))
        self.counts["driver"] += 1
        _send(self._find_driver(), signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.events("started")) == seen:
            assert time.monotonic() < deadline, self._events.read_text()
            time.sleep(0.1)

    def kill(self, chance: Random) -> None:
        """Kill or stop somebody: at any instant of the next seconds, or of those after another has come to wait."""
        if chance.random() < AWAITED:
            self._await_standby()
            time.sleep(chance.uniform(0, STOPPED_SECONDS))
        else:
            time.sleep(chance.uniform(0, PAUSE_SECONDS))
        who = chance.choice(WHO)
        self.counts[who] += 1
        assert self._run is not None
        driver, standby = self._find_driver(), self._find_standby()
        match who:
            case "driver" | "java" | "standby" | "guard" | "guard of standby":
                find = {"guard": _find_guard, "java": _find_java}.get(who.partition(" ")[0], _find_itself)
                _send(find(standby if who.endswith("standby") else driver))
            case "both":
                for each in chance.sample([driver, standby], 2):
                    _send(each)
            case "supervisor":
                self._run.kill()
            case "stopped driver" | "stopped standby":
                self._stop_a_while(driver if who == "stopped driver" else standby, chance)
            case _:
                with _stopped(psutil.Process(self._run.pid)):
                    time.sleep(chance.uniform(0, STOPPED_SECONDS))
                    _send(driver, signal.SIGKILL)
                    time.sleep(chance.uniform(0, STOPPED_SECONDS))
        if who == "supervisor":
            self._run.wait()
            self._start()
        assert self._run.poll() is None, self._events.read_text()

    def await_lines(self) -> None:
        """Wait until every line was copied."""
        self._is_done.set()
        self._feeder.join()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.lines.shown()) < self.lines.count:
            assert time.monotonic() < deadline, self._events.read_text()
            time.sleep(0.1)

    def _await_standby(self) -> None:
        """Wait until one waits beside the driver of now."""
        assert self._run is not None
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not any(each["at"] > self.events("started")[-1]["at"] for each in self.events("standing_by")):
            assert self._run.poll() is None, self._events.read_text()
            assert time.monotonic() < deadline, self._events.read_text()
            time.sleep(0.1)

    def _stop_a_while(self, process: psutil.Process | None, chance: Random) -> None:
        """Its processes stand still, another is killed meanwhile, and they wake."""
        found = [] if process is None else [process, *process.children(recursive=True)]
        with contextlib.ExitStack() as stack:
            for each in found:
                stack.enter_context(_stopped(each))
            time.sleep(chance.uniform(0, STOPPED_SECONDS))
            if process is not None and chance.random() < 0.5:
                _send(self._find_driver(), signal.SIGKILL)
                time.sleep(chance.uniform(0, STOPPED_SECONDS))

    def _start(self) -> None:
        """Start it; the one before may hold its locks until all that it had started have ended."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            with self._events.open("ab") as events:
                command = [LASTGOOD, "run", f"--config={self.folder}/lastgood.toml", "--format=json", "--first-start"]
                seen = len(self.events("started"))
                self._run = subprocess.Popen(
                    command, env=self._env, cwd=self.folder, stdout=events, stderr=subprocess.STDOUT
                )
            while self._run.poll() is None:
                if len(self.events("started")) > seen:
                    return
                time.sleep(0.05)
            assert self._run.returncode == 73, self._events.read_text()
            assert time.monotonic() < deadline, self._events.read_text()
            time.sleep(0.1)

    def _find_driver(self) -> psutil.Process | None:
        return _find(self.events("started")[-1]["pid"])

    def _find_standby(self) -> psutil.Process | None:
        """The command that waits, also before it has said so: the other one that our supervisor guards."""
        assert self._run is not None
        driver = self.events("started")[-1]["pid"]
        with contextlib.suppress(psutil.Error):
            guards = psutil.Process(self._run.pid).children()
            commands = [each for guard in guards for each in guard.children() if each.pid != driver]
            return commands[-1] if commands else None
        return None

    def _feed(self) -> None:
        while not self._is_done.wait(0.5):
            self.lines.put(1)


def _find(pid: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid)
    return None


def _find_java(driver: psutil.Process | None) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        found = [] if driver is None else [driver, *driver.children(recursive=True)]
        return next((each for each in found if each.name() == "java"), driver)
    return driver


def _find_guard(command: psutil.Process | None) -> psutil.Process | None:
    """The process between the supervisor and a command; None: one of both has ended."""
    with contextlib.suppress(psutil.Error):
        parent = None if command is None else command.parent()
        if parent is not None and guard.__file__ in parent.cmdline():
            return parent
    return None


def _find_itself(command: psutil.Process | None) -> psutil.Process | None:
    return command


def _send(process: psutil.Process | None, signum: int = signal.SIGKILL) -> None:
    if process is not None:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signum)


@contextlib.contextmanager
def _stopped(process: psutil.Process) -> Iterator[None]:
    _send(process, signal.SIGSTOP)
    try:
        yield
    finally:
        _send(process, signal.SIGCONT)
