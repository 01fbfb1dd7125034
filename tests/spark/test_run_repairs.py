"""`lastgood run` with a real driver: killed, its checkpoint damaged, truncated and deleted; every line comes once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

import pytest

from lastgood.errors import LastgoodError
from lastgood.lab.spark import default_spark, small_conf, submit_command
from lastgood.operations.run import prepare, supervise
from lastgood.process.java import Java
from lastgood.recovery.incidents import Incidents
from lastgood.storage import parse_location
from lastgood.supervise.config import Pipeline, Query
from lastgood.supervise.events import Committed, Event, Promised, Recovered, Repaired
from lastgood.supervise.loop import Supervisor
from lastgood.writing import open_writable

pytestmark = pytest.mark.spark

APP = Path(__file__).with_name("run_app.py")
DEADLINE_SECONDS = 180
_Event = TypeVar("_Event", bound=Event)


class Running:
    """The supervised application; lines are put before it by hand."""

    def __init__(self, folder: Path) -> None:
        self.input, self.checkpoint, self.output = folder / "in", folder / "chk", folder / "out"
        self.input.mkdir()
        self.lines = 0
        self.events: list[Event] = []
        self.failed: LastgoodError | None = None
        self._supervisor: Supervisor | None = None
        spark = default_spark()
        arguments = [str(each) for each in (self.input, self.checkpoint, self.output)]
        conf = folder / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in small_conf().items()))
        command = submit_command(APP, arguments, environment=spark, conf={})
        pipeline = Pipeline(
            name=folder.name,
            command=tuple(command),
            queries=(Query(name="lines", checkpoint=arguments[1], sink=f"file:{self.output}"),),
            env={"PYSPARK_PYTHON": str(spark.python), "SPARK_HOME": str(spark.home), "SPARK_CONF_DIR": str(conf)},
        )
        self._prepared = replace(prepare(pipeline), log=folder / "app.log")
        self._thread = threading.Thread(target=self._supervise)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._supervisor is not None:
            self._supervisor.stop(signal.SIGTERM)
        self._thread.join()

    def _supervise(self) -> None:
        try:
            supervise(self._prepared, tell=self.events.append, on_supervisor=self._take)
        except LastgoodError as error:
            self.failed = error

    def _take(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def put(self, files: int = 4) -> None:
        """Some new files of ten lines each, and wait until they have been read."""
        for _ in range(files):
            draft = self.input.parent / "draft"
            draft.write_text("".join(f"{number}\n" for number in range(self.lines, self.lines + 10)))
            draft.rename(self.input / f"{self.lines:06d}.txt")
            self.lines += 10

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_so():
            assert self.failed is None, self.failed
            assert time.monotonic() < deadline, f"waited for {what}; {[each.to_json() for each in self.events]}"
            time.sleep(0.05)

    def await_event(self, kind: type[_Event], seen: int = 0) -> _Event:
        self.wait(kind.name, lambda: any(isinstance(each, kind) for each in self.events[seen:]))
        return next(each for each in self.events[seen:] if isinstance(each, kind))

    def await_lines(self) -> None:
        self.wait("all lines", lambda: len(self.shown()) >= self.lines)

    def kill(self) -> int:
        """Kill the driver; return how many events there were before."""
        assert self._supervisor is not None
        child = self._supervisor.child
        assert child is not None
        seen = len(self.events)
        os.kill(child.pid, signal.SIGKILL)
        return seen

    def shown(self) -> Counter[str]:
        """The lines that a reader of the output sees, each with how often."""
        files: dict[str, bool] = {}
        log = self.output / "_spark_metadata"
        for entry in sorted(log.iterdir(), key=lambda each: int(each.name.split(".")[0] or -1)) if log.exists() else ():
            if not entry.name.startswith("."):
                for line in entry.read_text().splitlines()[1:]:
                    told = json.loads(line)
                    files[told["path"]] = told["action"] == "add"
        kept = [Path(path.removeprefix("file:").replace("///", "/")) for path, is_there in files.items() if is_there]
        return Counter(line for path in kept for line in path.read_text().splitlines())

    @property
    def exactly(self) -> Counter[str]:
        return Counter(str(number) for number in range(self.lines))


@pytest.fixture(scope="module")
def running(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    assert java is not None
    with Running(tmp_path_factory.mktemp("supervised")) as running:
        running.put()
        running.await_event(Committed)
        running.await_lines()
        yield running


def newest(log: Path) -> Path:
    return max((each for each in log.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))


def test_truncated_plan_comes_back_from_the_mirror_since_our_own_driver_is_dead(running: Running) -> None:
    time.sleep(1.5)  # the mirror looks twice a second
    plan = newest(running.checkpoint / "offsets")
    plan.write_bytes(plan.read_bytes()[:20])
    seen = running.kill()
    repaired = running.await_event(Repaired, seen)
    assert repaired.guarantee == "exactly_once"
    running.put()
    promised = running.await_event(Promised, seen)
    assert (promised.state, promised.because) == ("kept", promised.because)
    running.await_lines()
    assert running.shown() == running.exactly
    location = parse_location(str(running.checkpoint))
    told = Incidents(open_writable(location), location).last()
    assert told is not None
    assert told.outcome == "recovered"
    assert "was started here and has ended" in str(told.attempts[-1].proof)


def test_deleted_checkpoint_comes_back_from_the_mirror(running: Running) -> None:
    time.sleep(1.5)
    shutil.rmtree(running.checkpoint)
    seen = running.kill()
    assert running.await_event(Repaired, seen).guarantee == "exactly_once"
    running.put()
    running.await_event(Recovered, seen)
    running.await_lines()
    assert running.shown() == running.exactly


def test_plain_restart_changes_nothing(running: Running) -> None:
    seen = running.kill()
    running.put()
    running.await_event(Recovered, seen)
    running.await_lines()
    assert running.shown() == running.exactly
    assert not any(isinstance(each, Repaired) for each in running.events[seen:])
