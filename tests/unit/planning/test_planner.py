"""What holds for every goal."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from planning import changes, delta, known, mirror_of, query

from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import ReplanGoal, ResumeGoal
from lastgood.planning.planner import count_batches_wanted, draft
from lastgood.planning.price import Guarantee
from lastgood.query.prediction.spark_version import SPARK_4_2


def test_planner_sees_as_far_back_as_the_sinks_show(tmp_path: Path) -> None:
    query(tmp_path, 40)
    observed = known(tmp_path)
    assert count_batches_wanted(observed) == 4
    assert count_batches_wanted(dataclasses.replace(observed, sinks=(delta(9), delta(39)))) == 34


def test_only_certainty_needs_no_other_way(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = draft(known(tmp_path, mirror=mirror_of(tmp_path)), ResumeGoal(), SPARK_4_2)
    assert [(each.goal, each.guarantee) for each in found.alternatives] == [
        ("replan", Guarantee.AT_LEAST_ONCE),
        ("reposition", Guarantee.AT_LEAST_ONCE),
        ("fresh", Guarantee.AT_LEAST_ONCE),
    ]
    assert all(each.command and each.command.startswith("lastgood plan /chk --goal ") for each in found.alternatives)


def test_way_that_is_refused_as_well_says_why_and_has_no_command(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    with pytest.raises(RepairRefusedError) as refused:
        draft(known(tmp_path, delta(7)), ReplanGoal(), SPARK_4_2)
    (first, *_) = refused.value.alternatives
    assert (first.goal, first.guarantee, first.command) == ("resume", None, None)
    assert first.because


def test_what_is_refused_twice_for_the_same_reason_stands_once(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    found = draft(known(tmp_path), ResumeGoal(), SPARK_4_2).alternatives
    assert [each.guarantee for each in found].count(None) == 1


def test_same_observation_gives_the_same_draft(tmp_path: Path) -> None:
    query(tmp_path, 5)
    what = known(tmp_path, delta(2))
    assert draft(what, ResumeGoal(), SPARK_4_2) == draft(what, ResumeGoal(), SPARK_4_2)
    assert list(changes(draft(what, ResumeGoal(), SPARK_4_2))) == ["commits/3", "commits/4", "offsets/3", "offsets/4"]
