"""Offsets of the sources of others: none is damaged, and what nobody can tell of them is said.

Where they come from is told in `offsets/README.md`, what has to be said of each in `offsets/of_others.json`.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from foreign import Lines

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.reader import ALL_BATCHES, read_checkpoint
from lastgood.checkpoint.source_offsets import SourceOffset, parse_source_offset
from lastgood.checkpoint.source_order import Steps
from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade
from lastgood.operations.status import status
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.source_replay import list_unasked_sources
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.sources.unasked import describe_source
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "offsets" / "of_others.json").read_text())
ONWARD = [case for case in CASES if "back" not in case["steps"]]


def name(case: dict[str, Any]) -> str:
    return str(case["name"])


def offset(text: str) -> SourceOffset:
    found = parse_source_offset(text)
    assert not isinstance(found, Damage)
    return found


def observed(folder: Path, case: dict[str, Any]) -> Observation:
    """A query of one source; its newest batch is not committed."""
    lines = case["lines"]
    builder = CheckpointBuilder(folder, Lines(lines))
    for number, line in enumerate(lines):
        builder.plan()
        plan = folder / f"offsets/{number}"
        plan.write_text("\n".join([*plan.read_text().split("\n")[:2], line]))
        if number < len(lines) - 1:
            builder.commit()
    if case["begins"] is not None:
        (folder / "sources/0").mkdir(parents=True, exist_ok=True)
        (folder / "sources/0/0").write_text(case["begins"])
    location = parse_location(str(folder))
    return Observation(read_checkpoint(LocalStorage(), location, batches=ALL_BATCHES), location="/chk")


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_line_goes_on_from_the_one_before_or_nobody_can_tell(case: dict[str, Any]) -> None:
    ends, steps = [offset(line) for line in case["lines"]], Steps()
    found = [steps.step("0", before, after).value for before, after in pairwise(ends)]
    assert found == case["steps"]


@pytest.mark.parametrize("case", ONWARD, ids=name)
def test_none_is_damaged_and_what_cannot_be_asked_is_said(case: dict[str, Any], tmp_path: Path) -> None:
    seen = observed(tmp_path, case)
    assert seen.checkpoint.damage == {}
    (log,) = seen.checkpoint.sources or (None,)
    initial = log.initial.offset if log is not None and log.initial is not None else None
    assert (initial is not None) == (case["begins"] is not None)
    assert describe_source(offset(case["lines"][-1]), initial) == case["told"]
    report = diagnose(seen, SPARK_4_2)
    assert report.restart.outcome is Outcome.RERUNS
    (orphan,) = (each for each in report.findings if each.severity > Severity.INFO)
    assert orphan.condition.name == "ORPHAN_BATCH"
    unasked = list_unasked_sources(seen)
    assert bool(unasked) is not case["asked"]
    assert ("nothing is lost by that if no sink " in orphan.effect) is case["asked"]
    assert (" is gone. " in orphan.effect) is any(each.is_lost_with_driver for each in unasked)
    assert {each.unknown for each in unasked} <= set(report.restart.unknowns)


@pytest.mark.parametrize("case", [case for case in CASES if name(case) in {"a socket", "kinesis of aws"}], ids=name)
def test_no_query_is_called_sound_whose_restart_is_lossy(case: dict[str, Any], tmp_path: Path) -> None:
    """A socket has lost what its driver held, whether a batch was planned of it or not."""
    observed(tmp_path, case)
    target = resolve_target(str(tmp_path))
    for _ in ("planned", "committed"):
        word, grade = make_plan(target, PlanOptions()).guarantee, status(target).grade
        assert (grade >= Grade.DOUBTFUL) == (word is Guarantee.LOSSY)
        (tmp_path / f"commits/{len(case['lines']) - 1}").write_bytes((tmp_path / "commits/0").read_bytes())
