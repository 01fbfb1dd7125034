"""Healthy checkpoints are damaged, lastgood says what Spark will do, and the oldest and the default Spark do it.

A case that fails prints a line for `fixed/`, where the proof keeps it; `LASTGOOD_SEED` chooses others.
"""

from __future__ import annotations

import os

import pytest
from conformance.trials import Tally, random_cases, require_agreement, some_flavours
from plugin_laboratory import OpenLaboratory

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("LASTGOOD_SEED", "1"))
RANDOM_CASES = {"4.2.0": 3}
"""All others are left to the proof."""


@pytest.fixture(scope="module")
def tally(pytestconfig: pytest.Config) -> Tally:
    shown = Tally()
    pytestconfig.pluginmanager.register(shown)
    return shown


@pytest.mark.parametrize("version", RANDOM_CASES)
def test_spark_does_what_was_predicted(version: str, open_laboratory: OpenLaboratory, tally: Tally) -> None:
    first, second = some_flavours(version, 2, SEED)
    laboratory = open_laboratory(version, first.name, second.name)
    half = RANDOM_CASES[version] // 2
    cases = random_cases(laboratory, first, half, str(SEED))
    cases += random_cases(laboratory, second, RANDOM_CASES[version] - half, str(SEED))
    require_agreement(laboratory, cases, tally)
