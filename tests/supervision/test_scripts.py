"""Random scripts of failures: whatever happens, what is lost and what comes twice is what was said."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from supervision.course import Course
from supervision.verifying import require_verified

from lastgood.demo.stage import open_stage

STEPS = 4
SEED = os.environ.get("LASTGOOD_SEED", "1")


def seeds(count: int) -> list[int]:
    chance = random.Random(f"proof {SEED}")
    return [chance.randrange(2**32) for _ in range(count)]


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", seeds(30))
def test_every_record_is_accounted_for_whatever_happens(tmp_path: Path, seed: int) -> None:
    with open_stage(tmp_path) as stage:
        course = Course(stage, seed)
        course.play(STEPS)
        course.require_as_said()
        require_verified(course)


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", seeds(10))
def test_so_is_every_one_where_a_standby_waits(tmp_path: Path, seed: int) -> None:
    with open_stage(tmp_path) as stage:
        course = Course(stage, seed, standby=True)
        course.play(STEPS)
        print(course.told, dict(course.count_ways()))
        course.require_as_said()
        require_verified(course)
