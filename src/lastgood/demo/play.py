"""`demo`: the whole story on real input, scene after scene, and every record counted at the end."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from lastgood.demo.application import DemoFailedError
from lastgood.demo.checkpoint_scenes import play_deleted
from lastgood.demo.driver_scenes import make_small_driver, play_killed, play_standby, play_too_large
from lastgood.demo.events import Scene
from lastgood.demo.offset_scenes import play_outage, play_stable_offsets
from lastgood.demo.script import Script
from lastgood.demo.stage import DemoStage, open_stage, set_up
from lastgood.demo.tally import DemoTally, count
from lastgood.errors import LastgoodError, UsageError
from lastgood.frozen import dataclass
from lastgood.sources.kafka.ranges import Ranges, unite
from lastgood.supervise.events import Event
from lastgood.values import JsonValue, make_form

_PLAYS: Mapping[str, Callable[[DemoStage, Script], Iterator[Scene]]] = {
    "a": play_killed,
    "b": play_too_large,
    "c": play_deleted,
    "d": play_stable_offsets,
    "e": play_outage,
    "f": play_standby,
}


@dataclass(frozen=True, slots=True)
class Demo(JsonValue):
    """What the demo showed."""

    json = make_form("*tally flights=tally.sent seconds=_seconds scenes folder kafka=bootstrap", texts="folder")
    """The object that `--format json` ends with."""

    scenes: tuple[Scene, ...]
    tally: DemoTally
    seconds: float
    """From the start of its broker to the audit; what is downloaded or made once comes before that."""
    folder: Path
    bootstrap: str

    @property
    def is_as_said(self) -> bool:
        """Whether every flight is in the table once, but for exactly what was said beforehand."""
        return self.tally.is_as_said

    @property
    def _seconds(self) -> float:
        return round(self.seconds, 1)


def demo(
    script: Script,
    *,
    tell: Callable[[Event], None],
    folder: Path | None = None,
    keep: Callable[[Demo], None] | None = None,
) -> Demo:
    """Stream flights through Kafka and Spark into a Delta table, break it in every scene of the script, count.

    Args:
        script: What is to happen.
        tell: Gets each event of the supervisor, `Step` and `Killed`, and a `Scene` at the end of each.
        folder: Work folder, empty or not there yet; by default a temporary one that is removed at the end.
        keep: Called with the result while broker and application still run.

    Raises:
        JavaMissingError, JarsUnavailableError, ExtraMissingError: what the demo needs is not there.
        UsageError: the work folder holds something.
        DemoFailedError: something took too long, ended that should not, or did not end that should.
    """
    if folder is not None and folder.exists():
        _require_empty(folder)
    parts = set_up(tell)
    began = time.monotonic()
    if "b" in script.scenes:
        conf = make_small_driver(script)
    else:
        conf = {}
    with _open_work_folder(folder) as work, open_stage(work, tell=tell, conf=conf, parts=parts) as stage:
        scenes: list[Scene] = []
        for letter in script.scenes:
            for scene in _PLAYS[letter](stage, script):
                scenes.append(scene)
                tell(scene)
        if keep is None:
            stage.application.stop()
        stage.application.tell("all flights are committed; counting them")
        tally = count(
            stage,
            lost=_unite_all(each.lost for each in scenes),
            doubled=_unite_all(each.doubled for each in scenes),
            progress=stage.application.tell,
        )
        shown = Demo(tuple(scenes), tally, time.monotonic() - began, work, stage.broker.bootstrap)
        if keep is not None:
            keep(shown)
    return shown


def _unite_all(ranges: Iterable[Ranges]) -> Ranges:
    nothing: Ranges = {}
    return functools.reduce(unite, ranges, nothing)


@contextlib.contextmanager
def _open_work_folder(given: Path | None) -> Iterator[Path]:
    """The folder that was given, else one that is removed at the end, unless its logs tell what failed."""
    work = (given or Path(tempfile.mkdtemp(prefix="lastgood-demo-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    except LastgoodError as error:
        with contextlib.suppress(OSError):  # what has begun leaves logs that tell why it failed
            work.rmdir()
        if isinstance(error, DemoFailedError):
            error.subject = error.subject or str(work)
        raise
    except KeyboardInterrupt:
        if given is None:
            shutil.rmtree(work)  # safe: we have made it, under a name that nobody had
        raise
    if given is None:
        shutil.rmtree(work)  # safe, as above


def _require_empty(work: Path) -> None:
    """See that nobody else's files lie in a work folder: a scene of the demo deletes the checkpoint there."""
    there = next(work.iterdir(), None)
    if there is not None:
        raise UsageError(
            "the work folder of a demo is not empty",
            subject=str(work),
            found=there.name,
            expected="a new folder: the demo writes a checkpoint there, and deletes it",
        )
