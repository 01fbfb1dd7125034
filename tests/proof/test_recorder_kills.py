"""Thirty drivers killed at random instants: history, in mirror and ledger, holds every batch that was ever planned."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from kills import KilledRun

from lastgood.lab.spark import find_default_spark
from lastgood.process.java import Java

KILLS = 3
RANDOM = Random(int(os.environ.get("LASTGOOD_SEED", "1")))


@pytest.mark.spark
@pytest.mark.proof
@pytest.mark.parametrize("seed", [RANDOM.randrange(2**32) for _ in range(30 // KILLS)])
def test_history_holds_every_planned_batch_whenever_the_driver_is_killed(seed: int, java: Java, tmp_path: Path) -> None:
    run = KilledRun(tmp_path, java, find_default_spark())
    run.run(Random(seed), KILLS)
    assert run.check_history() > KILLS
