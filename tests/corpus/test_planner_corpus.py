"""What holds for every goal on every real checkpoint."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from planning import carried_out, delta, fence, files, known, silent
from shared_corpus import CORPUS, list_or_skip

from lastgood.checkpoint.contents import Checkpoint
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import FreshGoal, ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.log_edits import apply_edits
from lastgood.planning.planner import draft
from lastgood.planning.steps import FileStep, MoveStep, sort_steps
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SparkVersion, parse_spark_version
from lastgood.sinks.evidence import SinkEvidence
from lastgood.steps.kinds import parse_step

GOALS: tuple[Goal, ...] = (ResumeGoal(), ReplanGoal(), RepositionGoal({}, "it stands"), FreshGoal())


def cases() -> list[str]:
    return sorted(str(path.relative_to(CORPUS)) for path in CORPUS.glob("**/checkpoint") if path.is_dir())


@pytest.mark.parametrize("name", list_or_skip(cases()))
def test_every_draft_is_safe_and_leaves_a_query_that_runs(tmp_path: Path, name: str) -> None:
    """Each goal, with sinks in each possible place: refused, or carried out it runs and needs nothing more."""
    spark = parse_spark_version(f"{name[:3]}.0")
    what = of_corpus(tmp_path / "0", name)
    for number, sinks in enumerate(places(what.checkpoint), 1):
        for goal in GOALS:
            found = refused_or_drafted(with_sinks(what, sinks), goal, spark)
            if found is None:
                continue
            assert found.rests_on
            assert all(parse_step(step.to_json()) == step for step in steps(found))
            assert_never_ahead(what.checkpoint, found)
            folder = tmp_path / f"{number}-{goal.name}"
            shutil.copytree(tmp_path / "0", folder, symlinks=True)
            after = carried_out(folder, found)
            restart = predict(Observation(after, sinks=sinks), spark)
            assert restart.stop is None, (goal, found, restart)
            if isinstance(goal, ResumeGoal):
                again = draft(known(folder, *sinks, state_files=state_files(folder)), ResumeGoal(), spark)
                assert again.is_plain, (found, again)


def of_corpus(folder: Path, name: str) -> Observation:
    shutil.copytree(CORPUS / name, folder, symlinks=True)
    return known(folder, state_files=state_files(folder))


def state_files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.glob("state/**/*") if path.is_file()}


def places(checkpoint: Checkpoint) -> list[tuple[SinkEvidence, ...]]:
    """Every way in which sinks may stand to the logs."""
    newest = max(checkpoint.last_planned or 0, checkpoint.last_committed or 0)
    shown = [n for n in range(newest - 2, newest + 2) if n >= 0]
    return [(), (silent(),), *((delta(n),) for n in shown), *((files(n), fence(n)) for n in shown[-2:])]


def with_sinks(what: Observation, sinks: tuple[SinkEvidence, ...]) -> Observation:
    return dataclasses.replace(what, sinks=sinks)


def refused_or_drafted(what: Observation, goal: Goal, spark: SparkVersion) -> Draft | None:
    try:
        return draft(what, goal, spark)
    except RepairRefusedError as error:
        refused = error
    assert refused.sentence
    assert refused.subject
    assert json.dumps([each.to_json() for each in refused.alternatives])
    return None


def steps(found: Draft) -> list[FileStep | MoveStep]:
    return [*(FileStep(edit.path, None, edit.after, edit.why) for edit in found.edits), *found.moves]


def assert_never_ahead(checkpoint: Checkpoint, found: Draft) -> None:
    """After each step of a plan no batch is committed that is not planned, unless it was so before."""
    if (checkpoint.last_committed or 0) > (checkpoint.last_planned or 0):
        return
    by_path = {edit.path: edit for edit in found.edits}
    done = []
    for step in sort_steps(list(steps(found))):
        if isinstance(step, FileStep):
            done.append(by_path[step.path])
            now = apply_edits(checkpoint, done)
            assert now.last_committed is None or now.last_committed <= (now.last_planned or 0), step
