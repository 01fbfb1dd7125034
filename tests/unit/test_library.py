"""The verbs as functions of the package."""

from __future__ import annotations

import subprocess
import sys
import typing
from pathlib import Path

import pytest
from reading import read_files

import lastgood
from lastgood import library
from lastgood.observe.positions import StartChoice
from lastgood.planning.goals.kind import Begins
from lastgood.planning.goals.kinds import GOAL_KINDS
from lastgood.testing.checkpoints import CheckpointBuilder


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Seven batches are committed, an eighth is planned."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    return str(tmp_path / "chk")


def test_a_query_is_diagnosed(checkpoint: str) -> None:
    report = lastgood.diagnose(checkpoint, spark="4.2", sink=())
    assert (report.restart.batch, report.to_json()["last_committed"]) == (7, 6)


def test_a_plan_is_carried_out_and_taken_back(checkpoint: str) -> None:
    before = read_files(checkpoint)
    plan = lastgood.plan(checkpoint, goal=lastgood.Reposition(stable_lag=3), accept=["duplicates"])
    assert (plan.goal, plan.needs) == ("reposition", ())
    recovery = lastgood.apply(plan, driver_is_dead=True)
    assert read_files(checkpoint) != before
    assert lastgood.undo(recovery.id, driver_is_dead=True).undone
    assert read_files(checkpoint) == before


def test_each_goal_of_the_table_has_a_class_of_its_own() -> None:
    classes = {each.name: each for each in typing.get_args(library.Goal)}
    assert list(classes) == list(GOAL_KINDS)
    begun = (Begins.WHERE_CHOSEN, Begins.ANEW)
    chosen = {name for name, kind in GOAL_KINDS.items() if kind.begins in begun}
    assert {name for name, each in classes.items() if issubclass(each, StartChoice)} == chosen
    assert {each.__name__ for each in classes.values()} <= set(library.__all__)


def test_what_is_said_of_windows_is_asked_for(checkpoint: str) -> None:
    with pytest.raises(lastgood.LastgoodError) as refused:
        lastgood.plan(checkpoint, goal=lastgood.Recompute(max_clock_skew_ms=0))
    assert refused.value.subject == "--max-clock-skew"
    with pytest.raises(lastgood.LastgoodError) as refused:
        lastgood.recover(checkpoint, goal=lastgood.Recompute(max_clock_skew_ms=0), observe=True)
    assert refused.value.subject == "--max-clock-skew"


def test_what_was_not_accepted_is_refused_by_name(checkpoint: str) -> None:
    plan = lastgood.plan(checkpoint, goal=lastgood.Replan())
    with pytest.raises(lastgood.LastgoodError) as refused:
        lastgood.apply(plan, driver_is_dead=True)
    assert (refused.value.condition, refused.value.subject) == ("WAIVER_NEEDED", plan.recovery)


def test_a_name_that_is_none_is_not_passed_over(checkpoint: str) -> None:
    with pytest.raises(TypeError, match="'sinks'"):
        lastgood.diagnose(checkpoint, sinks=["/lake/out"])  # type: ignore[arg-type]


def test_a_query_is_made_ready_to_start(checkpoint: str) -> None:
    decision = lastgood.recover(checkpoint)
    assert (decision.verdict.value, decision.recovery) == ("start", None)


def test_every_name_is_there_and_no_other() -> None:
    assert all(getattr(lastgood, name) for name in lastgood.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        lastgood.nonsense  # noqa: B018 - that it is asked for is the test


def test_to_import_the_package_imports_none_of_what_the_verbs_need() -> None:
    script = "import sys, lastgood; print([m for m in sys.modules if m.startswith('lastgood.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
