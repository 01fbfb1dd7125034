"""An application under `lastgood run` whose queries copy lines of files to files: what they show, and what was told."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from lastgood.errors import LastgoodError
from lastgood.lab.spark import SparkEnvironment, find_default_spark, make_quick_conf, make_small_conf, submit_command
from lastgood.operations.run import prepare, supervise
from lastgood.process.java import find_java
from lastgood.settings.config import ConfiguredQuery, Pipeline
from lastgood.settings.policy import Policy
from lastgood.supervise.events import Ended, Event, Started
from lastgood.supervise.loop import Supervisor

APP = Path(__file__).with_name("run_app.py")
DEADLINE_SECONDS = 180
_Event = TypeVar("_Event", bound=Event)


@dataclass
class Lines:
    """One query; lines are put before it by hand."""

    folder: Path
    count: int = 0

    def __post_init__(self) -> None:
        self.input.mkdir(parents=True)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def input(self) -> Path:
        return self.folder / "in"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "chk"

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def source(self) -> str:
        """What the application is told to read."""
        return str(self.input)

    @property
    def configured(self) -> ConfiguredQuery:
        return ConfiguredQuery(name=self.name, checkpoint=str(self.checkpoint), sink=f"file:{self.output}")

    def put(self, files: int = 4) -> None:
        """Some new files of ten lines each."""
        for _ in range(files):
            draft = self.folder / "draft"
            draft.write_text("".join(f"{number}\n" for number in range(self.count, self.count + 10)))
            draft.rename(self.input / f"{self.count:06d}.txt")
            self.count += 10

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
        return Counter(str(number) for number in range(self.count))

    @property
    def newest_plan(self) -> Path:
        plans = (each for each in (self.checkpoint / "offsets").iterdir() if each.name.isdecimal())
        return max(plans, key=lambda each: int(each.name))

    def files(self) -> dict[str, bytes]:
        """Checkpoint and output as they are."""
        found = (path for top in (self.checkpoint, self.output) for path in top.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


class Running:
    """The supervised application."""

    def __init__(
        self,
        folder: Path,
        *names: str,
        policy: Policy | None = None,
        standby: bool = False,
        class_archive: bool = False,
        restart_in_session: bool = False,
        app: Path = APP,
        spark: SparkEnvironment | None = None,
        more: Sequence[str] = (),
        lines: type[Lines] = Lines,
        jars: Sequence[Path] = (),
    ) -> None:
        """Two ways to call it: with Spark's own `spark-submit`, or with a Python that is named.

        With `class_archive` its settings stand on the command line, since files beside the jars allow none.
        """
        self.queries = tuple(lines(folder / name) for name in names)
        self.events: list[Event] = []
        self.failed: LastgoodError | None = None
        self.at_rest: list[dict[str, dict[str, bytes]]] = []
        """The files of each query, whenever the driver has ended, and when it is started again."""
        self._supervisor: Supervisor | None = None
        environment = spark or find_default_spark()
        arguments = [
            *more,
            *(str(each) for query in self.queries for each in (query.source, query.checkpoint, query.output)),
        ]
        conf = folder / "conf"
        conf.mkdir()
        settings = make_small_conf() if class_archive else make_quick_conf(environment, find_java(os.environ), jars)
        if not class_archive:
            (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        words = submit_command(app, arguments, environment=environment, conf=settings if class_archive else {})
        said = words[1 : words.index(str(app))]
        command = words if spark is None else [str(spark.python), str(app), *arguments]
        pipeline = Pipeline(
            name=folder.name,
            command=tuple(command),
            queries=tuple(query.configured for query in self.queries),
            env={
                "PYSPARK_PYTHON": str(environment.python),
                "SPARK_HOME": str(environment.home),
                "SPARK_CONF_DIR": str(conf),
                "PYSPARK_SUBMIT_ARGS": shlex.join([*said, "pyspark-shell"]),
            },
            policy=policy or Policy(),
            standby=standby,
            class_archive=class_archive,
            restart_in_session=restart_in_session,
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
            supervise(self._prepared, tell=self._take_event, on_supervisor=self._take)
        except LastgoodError as error:
            self.failed = error

    def _take(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def _take_event(self, event: Event) -> None:
        if isinstance(event, Ended | Started):
            self.at_rest.append({query.name: query.files() for query in self.queries})
        self.events.append(event)

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
        self.wait("all lines", lambda: all(len(query.shown()) >= query.count for query in self.queries))

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def kill(self) -> int:
        """Kill the driver; return how many events there were before."""
        assert self._supervisor is not None
        child = self._supervisor.child
        assert child is not None
        seen = len(self.events)
        os.kill(child.pid, signal.SIGKILL)
        return seen
