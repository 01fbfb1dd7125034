"""Killed, a query under `lastgood run` has its whole history, on every Spark; `make proof` kills thirty times."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from kills import KilledRun

from lastgood.lab.spark import SparkEnvironment, find_default_spark
from lastgood.process.java import Java

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("LASTGOOD_SEED", "1"))

VERSIONS = (find_default_spark().version, "3.5.9", "4.0.5", "4.3.0")
"""On these, agent and recorder tell the same: see `test_agent.py`."""


@pytest.mark.proof
@pytest.mark.parametrize("version", VERSIONS)
def test_history_holds_every_planned_batch_of_a_query_that_was_killed(
    version: str, spark_of: Callable[[str], SparkEnvironment], java: Java, tmp_path: Path
) -> None:
    run = KilledRun(tmp_path, java, spark_of(version))
    run.run(Random(SEED), kills=1)
    assert run.check_history() > 1
