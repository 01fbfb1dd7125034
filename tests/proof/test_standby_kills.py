"""Never two drivers on one checkpoint: whoever is killed or stopped, whenever, each line is there once."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from standing_by import StandbyRun

from lastgood.lab.spark import find_default_spark
from lastgood.process.java import Java

AT_ONCE = 5
KILLS = int(os.environ.get("LASTGOOD_KILLS", "30"))
RANDOM = Random(int(os.environ.get("LASTGOOD_SEED", "1")))


@pytest.mark.spark
@pytest.mark.proof
@pytest.mark.parametrize("seed", [RANDOM.randrange(2**32) for _ in range(-(-KILLS // AT_ONCE))])
def test_each_line_is_there_once_whoever_is_killed_whenever(seed: int, java: Java, tmp_path: Path) -> None:
    chance = Random(seed)
    with StandbyRun(tmp_path, java, find_default_spark()) as run:
        run.kill_beside_standby()
        for _ in range(min(KILLS, AT_ONCE) - 1):
            run.kill(chance)
        run.await_lines()
    ways = [each["way"] for each in run.events("started")]
    print(f"killed {dict(run.counts)}, started {ways.count('standby')} times from a standby, {ways.count('cold')} anew")
    assert ways[:2] == ["cold", "standby"]
    assert run.lines.shown() == run.lines.exactly
    assert not (tmp_path / "two").exists(), (tmp_path / "two").read_text()
