"""A supervised command, and all that is told of it."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import psutil

from lastgood.errors import StorageError
from lastgood.failures.ending import Cause
from lastgood.journal.incident import ComingBack
from lastgood.ladder.rungs import CommandStanding
from lastgood.observe.progress import LogProgress
from lastgood.process.driver import Launch
from lastgood.records.record import RecordedFailure
from lastgood.settings.policy import Policy
from lastgood.spark.agent import SITE_FOLDER
from lastgood.supervise import events
from lastgood.supervise.care import PersonNeededError, Wait
from lastgood.supervise.class_archives import ArchivePlace
from lastgood.supervise.loop import Supervisor, Watch
from lastgood.supervise.standby import StandbyPlace, Standbys
from lastgood.testing.checkpoints import CheckpointBuilder

FAST = Policy(max_attempts=3, backoff_seconds=0.01, grace_seconds=0.5)
DEADLINE_SECONDS = 20


class Counter:
    """A checkpoint whose progress is the number of lines in two files."""

    poll_seconds = 0.01

    def __init__(self, folder: Path) -> None:
        self.planned = folder / "planned"
        self.committed = folder / "committed"

    def look(self) -> LogProgress:
        return LogProgress(_newest(self.planned), _newest(self.committed))


def _newest(file: Path) -> int | None:
    count = len(file.read_text()) if file.exists() else 0
    return count - 1 if count else None


class Unreadable:
    poll_seconds = 0.01

    def look(self) -> LogProgress:
        raise StorageError("the checkpoint cannot be listed", found="permission denied")


class Listener:
    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def only(self, name: str) -> events.Event:
        (found,) = [event for event in self.events if event.name == name]
        return found


class Inside:
    """An agent that sees the query of a Counter from its first batch on, and knows why the command ended."""

    def __init__(self, folder: Path, error: str | None = None, of: str | None = None) -> None:
        self.counter = Counter(folder)
        self.error = error
        self.of = of
        self.runs = 0
        self.unheld: str | None = None
        self.is_silent = False
        self.untold = [events.Noticed(at=0.0, condition="AGENT_TROUBLE", sentence="disk full")]

    def begin(self) -> None:
        self.runs += 1

    def watches(self) -> dict[str, Watch]:
        return {"seen": self.counter} if self.counter.planned.exists() else {}

    def notices(self) -> list[events.Noticed]:
        untold, self.untold = self.untold, []
        return untold

    def failure(self) -> tuple[str | None, RecordedFailure] | None:
        return None if self.error is None else (self.of, RecordedFailure(message=self.error))

    def has_started(self) -> bool:
        return self.error is None and not self.is_silent

    def judge_standby(
        self, checkpoints: Collection[str], processes: Sequence[psutil.Process]
    ) -> tuple[bool, str | None]:
        return self.counter.planned.exists(), self.unheld

    def dead_query(self) -> tuple[str, RecordedFailure] | None:
        return None


class Caring:
    """Answers what it was told to, one turn at a time; then: start."""

    def __init__(self, *answers: Wait | PersonNeededError | None, resort: PersonNeededError | None = None) -> None:
        self.answers = list(answers)
        self.resort = resort
        self.standings: list[CommandStanding] = []
        self.causes: list[Cause] = []
        self.first: list[tuple[str, int, bool]] = []
        self.backs: list[ComingBack] = []
        self.astray: Cause | None = None
        self.before: dict[str, CommandStanding] = {}
        self.ends: list[CommandStanding | None] = []
        self.empty: set[int] = set()
        """Batches that read nothing."""

    def before_start(self, standing: CommandStanding) -> Wait | None:
        self.standings.append(standing)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, PersonNeededError):
            raise answer
        return answer

    def recall_standings(self) -> dict[str, CommandStanding]:
        remembered, self.before = self.before, {}
        return remembered

    def note_end(self, standing: CommandStanding | None, *, is_done: bool = False) -> None:
        self.ends.append(standing)

    def has_read(self, checkpoint: str, since: int | None, committed: int) -> bool:
        return committed not in self.empty

    def note_failure(self, ended: events.Ended, cause: Cause) -> None:
        assert ended.failure == cause.cls.value
        self.causes.append(cause)

    def note_first_batch(self, checkpoint: str, batch: int, *, rerun: bool, back: ComingBack) -> None:
        self.first.append((checkpoint, batch, rerun))
        self.backs.append(back)

    def is_ahead(self, checkpoint: str) -> bool:
        return False

    def find_strayed(self, checkpoint: str) -> Cause | None:
        return self.astray

    def find_last_resort(self) -> PersonNeededError | None:
        return self.resort


def supervisor(
    folder: Path,
    code: str,
    told: Listener,
    policy: Policy = FAST,
    agent: Inside | None = None,
    care: Caring | None = None,
    *,
    holds: Sequence[int] = (),
    standbys: StandbyPlace | None = None,
    archives: ArchivePlace | None = None,
    **watches: Watch,
) -> Supervisor:
    command = (sys.executable, "-c", textwrap.dedent(code), str(folder))
    launch = Launch(command, dict(os.environ), None, None)
    log = folder / "app.log"
    return Supervisor(
        launch,
        policy=policy,
        watches=watches,
        log=log,
        tell=told,
        agent=agent,
        care=care,
        holds=holds,
        standbys=standbys,
        archives=archives,
    )


def make_standbys(folder: Path, code: str, told: Listener) -> Standbys:
    """Standbys of the command of `supervisor`."""
    command = (sys.executable, "-c", textwrap.dedent(code), str(folder))
    launch = Launch(command, {**os.environ, "PYTHONPATH": str(SITE_FOLDER)}, None, None)
    return Standbys(launch, folder=folder / "agent", log=folder / "app.log", tell=told, holds=(), grace_seconds=0.5)


def in_background(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def await_file(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


def make_open_batch(folder: Path) -> Path:
    """The checkpoint of a query of which seven batches are committed and in its file sink, and an eighth is planned."""
    query = CheckpointBuilder(folder / "chk")
    query.run(7)
    query.plan()
    log = folder / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(7):
        (log / str(number)).write_bytes(b"v1")
    return folder / "chk"
