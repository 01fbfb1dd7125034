"""Hundreds of damaged checkpoints on five versions of Spark: what lastgood predicts is what Spark does.

Each cell is one kind of query on one version. The rate of predictions that came true is shown in the end.
"""

from __future__ import annotations

import itertools
import os

import pytest
from conformance.fixed import fixed_cases, known_limits
from conformance.flavours import FLAVOURS
from conformance.judging import compare, prediction
from conformance.trials import VERSIONS, Tally, flavours_of, random_cases, require_agreement
from plugin_laboratory import OpenLaboratory

pytestmark = pytest.mark.proof

SEED = os.environ.get("LASTGOOD_SEED", "1")
CASES = 6
"""Of each cell; there are some eighty."""
UPGRADES = [
    ("3.5.9", "4.0.5"),
    ("3.5.9", "4.3.0"),
    ("4.0.5", "4.1.4"),
    ("4.1.4", "4.2.0"),
    ("4.2.0", "4.3.0"),
    ("4.3.0", "3.5.9"),
]
"""The version that ran a query, and the one that is to go on with it."""
MOVED = ("files", "file-sink", "agg-hdfs", "agg-rocksdb-changelog", "window-append")
MOVED_CASES = 4
CELLS = [(version, each.name) for version in VERSIONS for each in flavours_of(version)]


@pytest.fixture(scope="module")
def tally(pytestconfig: pytest.Config) -> Tally:
    shown = Tally()
    pytestconfig.pluginmanager.register(shown)
    return shown


@pytest.mark.parametrize(("version", "name"), CELLS)
def test_spark_does_what_was_predicted(version: str, name: str, open_laboratory: OpenLaboratory, tally: Tally) -> None:
    laboratory = open_laboratory(version, name)
    cases = random_cases(laboratory, FLAVOURS[name], CASES, SEED)
    require_agreement(laboratory, cases, tally, wrong_at_most=1)


@pytest.mark.parametrize(("made_by", "version"), UPGRADES)
def test_another_spark_does_what_was_predicted(
    made_by: str, version: str, open_laboratory: OpenLaboratory, tally: Tally
) -> None:
    laboratory = open_laboratory(version)
    cases = [random_cases(laboratory, FLAVOURS[name], MOVED_CASES, SEED, made_by=made_by) for name in MOVED]
    require_agreement(laboratory, list(itertools.chain(*cases)), tally, wrong_at_most=1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_once_predicted_wrong_is_right(version: str, open_laboratory: OpenLaboratory, tally: Tally) -> None:
    cases = fixed_cases(version)
    require_agreement(open_laboratory(version, *{case.flavour for case in cases}), cases, tally)


@pytest.mark.parametrize("version", ["4.0.5", "4.3.0"])
def test_what_cannot_be_predicted_is_still_so(version: str, open_laboratory: OpenLaboratory) -> None:
    """Cases of docs/why/prediction.md; one that comes out right belongs among the others."""
    laboratory = open_laboratory(version)
    for case in known_limits(version):
        with laboratory.damaged(case) as folder:
            restart = prediction(case, folder)
            assert compare(laboratory.restart(case, folder), restart) != [], case
