"""`kill -9` of a real repair at 200 random instants: it is finished or taken back whole, and no driver could start."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from planning import windowed
from typed import call

from lastgood.observe.positions import StartChoice
from lastgood.observe.rereading import WindowChoice
from lastgood.operations.backup import create
from lastgood.planning.price import Waiver
from lastgood.recovery.applying import apply_plan, undo
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.config import Config
from lastgood.settings.keys import Keys
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput

pytestmark = pytest.mark.proof

KILLS = 20
CHANGES_MAX = 40
RANDOM = random.Random(int(os.environ.get("LASTGOOD_SEED", "1")))
SCRIPT = Path(__file__).parents[1] / "repair" / "killed_apply.py"
GOALS = {
    "replan": PlanOptions("replan", accept=tuple(Waiver)),
    "reposition": PlanOptions("reposition", StartChoice(stable_lag=3), accept=tuple(Waiver)),
    "resume": PlanOptions(accept=tuple(Waiver)),
    "recompute": PlanOptions("recompute", accept=tuple(Waiver), windows=WindowChoice(appends=True)),
}


def instants(seed: int) -> Iterator[tuple[str, int, str]]:
    """Goal, change at which it is killed, and what comes after."""
    chosen = random.Random(seed)
    for _ in range(KILLS):
        ending = chosen.choice(["apply", "undo", "undo twice"])
        yield chosen.choice(list(GOALS)), chosen.randrange(1, CHANGES_MAX), ending


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def can_start(checkpoint: Path) -> bool:
    """Whether a driver could: not while the newest plan is empty."""
    plans = [int(each.name) for each in (checkpoint / "offsets").iterdir() if each.name.isdecimal()]
    return bool(plans) and (checkpoint / f"offsets/{max(plans)}").stat().st_size > 0


def damaged(folder: Path, goal: str) -> Path:
    """A checkpoint with its mirror, on which the goal has something to do."""
    if goal == "recompute":
        windowed(folder / "chk", 9, source=FileInput())
        return folder / "chk"
    query = CheckpointBuilder(folder / "chk")
    query.run(9)
    query.plan()
    if goal == "resume":
        create(resolve_target(str(folder / "chk")))
        for path in ("offsets/9", "offsets/8", "commits/8"):
            (folder / "chk" / path).write_bytes(b"")
    return folder / "chk"


def killed(subject: Path, when: int, verb: str) -> bool:
    """Run it until it dies at that change; False if it had fewer."""
    command = [sys.executable, str(SCRIPT), str(subject), str(when), verb]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


@pytest.mark.parametrize("is_signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize("seed", [RANDOM.randrange(2**32) for _ in range(200 // KILLS)])
def test_repair_that_was_killed_is_finished_or_taken_back_whole(
    seed: int, is_signed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is signed, by a machine that has the key, and remembers nothing of what was begun."""
    if is_signed:
        assert call("key", "create", tmp_path / "keys").returncode == 0
        monkeypatch.setenv("LASTGOOD_KEY_FILE", str(tmp_path / "keys"))
    for number, (goal, when, ending) in enumerate(instants(seed)):
        folder = tmp_path / str(number)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        checkpoint = damaged(folder, goal)
        plan = make_plan(resolve_target(str(checkpoint)), GOALS[goal])
        assert plan.steps
        (folder / "plan.json").write_bytes(plan.to_bytes(Keys(Config())()))
        assert ("signature" in json.loads((folder / "plan.json").read_bytes())) is is_signed
        before = files(checkpoint)
        whole = {**before, **{step.path: getattr(step, "after", None) for step in plan.steps}}
        whole = {path: content for path, content in whole.items() if content is not None}
        told = (goal, when, ending)

        is_killed = killed(folder / "plan.json", when, "apply")
        assert not can_start(checkpoint) or files(checkpoint) in (before, whole), told
        if is_signed:
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another/state"))
        if ending == "apply":
            apply_plan(str(folder / "plan.json"), driver_is_dead=True)
            assert files(checkpoint) == whole, told
        elif not (folder / "chk.lastgood/recoveries").exists():
            assert is_killed  # before anything was begun
            assert files(checkpoint) == before, told
        else:
            if ending == "undo twice":
                killed(checkpoint, max(1, when // 2), "undo")
                assert not can_start(checkpoint) or files(checkpoint) in (before, whole), told
            undo("last", target=resolve_target(str(checkpoint)), driver_is_dead=True)
            assert files(checkpoint) == before, told
        shutil.rmtree(folder)
