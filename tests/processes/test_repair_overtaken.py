"""A repair is stopped (SIGSTOP) in the middle of a change, another machine takes over and ends it, and it wakes up.

What it was about to do is done late. It leaves the checkpoint as the other one did, and says that it was overtaken.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from repair.stopped_apply import of_a_machine
from typed import call

from lastgood.journal.lease import LeaseLostError
from lastgood.journal.room import RecoveryUnknownError, find_open_recovery
from lastgood.observe.positions import StartChoice
from lastgood.operations.backup import create
from lastgood.planning.plan import Plan
from lastgood.planning.price import Waiver
from lastgood.planning.steps import FileStep
from lastgood.recovery import applying as apply
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.config import Config
from lastgood.settings.keys import Keys
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage, open_writable
from lastgood.testing.checkpoints import CheckpointBuilder

LEASE_SECONDS = 1.0
SEED = os.environ.get("LASTGOOD_SEED", "1")
SCRIPT = Path(__file__).parents[1] / "repair" / "stopped_apply.py"
BYTES_MAX = 1_000_000
GOALS = {
    "replan": PlanOptions("replan", accept=tuple(Waiver)),
    "reposition": PlanOptions("reposition", StartChoice(stable_lag=3), accept=tuple(Waiver)),
    "resume": PlanOptions(accept=tuple(Waiver)),
}
STORAGES = [
    ("local", 4, False),
    pytest.param("local", 40, False, marks=pytest.mark.proof),
    pytest.param("local", 40, True, marks=pytest.mark.proof),
    pytest.param("s3", 15, False, marks=pytest.mark.proof),
]
"""How many instants are tried there, and whether what is written is signed."""


@dataclass(frozen=True)
class Place:
    """A damaged checkpoint."""

    storage: WritableStorage
    location: Location

    def files(self) -> dict[str, bytes | None]:
        paths = [entry.name for entry in self.storage.walk(self.location) or ()]
        return {path: self.storage.read(self.location / path, limit=BYTES_MAX) for path in paths}

    def newest(self, log: str) -> int:
        names = self.storage.names(self.location / log) or ()
        return max((int(name) for name in names if name.isdecimal()), default=-1)


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where checkpoints are made."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in of_a_machine(tmp_path / "lock", LEASE_SECONDS).items():
        monkeypatch.setattr(apply, name, value)
    if request.param == "local":
        return str(tmp_path)
    for name, value in request.getfixturevalue("s3").environment.items():
        monkeypatch.setenv(name, value)
    return "s3a://lake"


def damaged(root: str, goal: str, folder: Path) -> Place:
    """A checkpoint with its mirror, on which the goal has something to do."""
    query = CheckpointBuilder(folder / "built")
    query.run(9)
    query.plan()
    location = parse_location(f"{root}/{uuid.uuid4().hex}/chk")
    place = Place(open_writable(location), location)
    for file in (folder / "built").rglob("*"):
        if file.is_file():
            place.storage.write(location / str(file.relative_to(folder / "built")), file.read_bytes())
    if goal == "resume":
        create(resolve_target(str(location)))
        for path in ("offsets/9", "offsets/8", "commits/8"):
            place.storage.write(location / path, b"")
    return place


def after(plan: Plan, before: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """The files once a plan is carried out."""
    changed = {step.path: step.after if isinstance(step, FileStep) else None for step in plan.steps}
    return {path: content for path, content in {**before, **changed}.items() if content is not None}


@pytest.mark.parametrize(("root", "count", "is_signed"), STORAGES, indirect=["root"])
def test_who_was_stopped_in_a_change_and_overtaken_changes_nothing_that_stays(
    root: str, count: int, is_signed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_signed:
        assert call("key", "create", tmp_path / "keys").returncode == 0
        monkeypatch.setenv("LASTGOOD_KEY_FILE", str(tmp_path / "keys"))
    chance = random.Random(f"{SEED}/{root.partition(':')[0]}/{count}")
    for turn in range(count):
        folder = tmp_path / str(turn)
        folder.mkdir()
        goal, is_finished = chance.choice(list(GOALS)), chance.random() < 0.5
        place = damaged(root, goal, folder)
        before = place.files()
        plan = make_plan(resolve_target(str(place.location)), GOALS[goal])
        (folder / "plan.json").write_bytes(plan.to_bytes(Keys(Config())()))
        with stopped(folder, chance.randrange(1, 40)) as process:
            told = (turn, goal, is_finished, process is None)
            if process is None:  # it has fewer changes
                assert place.files() == after(plan, before), told
                continue
            left = overtaken(plan, folder / "plan.json", before, is_finished=is_finished)
            assert place.files() == left, told
            process.send_signal(signal.SIGCONT)
            code, said = process.wait(), (folder / "said").read_text()
        assert code == LeaseLostError.exit_code, (told, said)
        assert place.files() == left, (told, said)
        assert place.newest("commits") <= place.newest("offsets"), told
        assert find_open_recovery(place.storage, place.location) is None, told


@contextlib.contextmanager
def stopped(folder: Path, number: int) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process that carries the plan out and has stopped at that change; None if it has ended without one."""
    command = [sys.executable, str(SCRIPT), str(folder / "plan.json"), str(number), str(folder / "lock")]
    output = (folder / "said").open("w+")
    with output, subprocess.Popen([*command, str(LEASE_SECONDS)], stdout=output, stderr=output) as process:
        try:
            found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert found is not None
            has_stopped = found.si_code == os.CLD_STOPPED
            if not has_stopped:
                assert process.wait() == 0, (folder / "said").read_text()
            yield process if has_stopped else None
        finally:
            process.kill()


def overtaken(plan: Plan, file: Path, before: dict[str, bytes | None], *, is_finished: bool) -> dict[str, bytes | None]:
    """Finish it, or take it back; the files as they are to be from then on."""
    if not is_finished:
        with contextlib.suppress(RecoveryUnknownError):  # not begun yet
            apply.undo(plan.recovery, target=resolve_target(plan.checkpoint), driver_is_dead=True)
            return before
    apply.apply_plan(str(file), driver_is_dead=True)
    return after(plan, before)
