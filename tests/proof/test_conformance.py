"""Hundreds of damaged checkpoints on five versions of Spark: what lastgood predicts is what Spark does.

Each cell is one kind of query on one version. The rate of predictions that came true is shown in the end.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.cases import Laboratory
from conformance.fixed import fixed_cases, known_limits
from conformance.flavours import FLAVOURS
from conformance.judging import compare, prediction
from conformance.sparks import RunningSpark, Sparks
from conformance.trials import VERSIONS, Tally, flavours_of, random_cases, require_agreement

from lastgood.lab.spark import SparkEnvironment
from lastgood.process.java import Java

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
CELLS = [(version, each.name) for version in VERSIONS for each in flavours_of(version) if not each.is_endless]
"""Without asynchronous progress: once its holes are damaged too, no file tells it from a query that lost its logs."""


@pytest.fixture(scope="module")
def tally(pytestconfig: pytest.Config) -> Tally:
    shown = Tally()
    pytestconfig.pluginmanager.register(shown)
    return shown


@pytest.fixture(scope="module")
def sparks(
    request: pytest.FixtureRequest,
    java: Java,
    spark_of: Callable[[str], SparkEnvironment],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sparks]:
    def start(version: str) -> RunningSpark:
        environment = spark_of(version)
        jars = request.getfixturevalue("spark_jars") if environment.jar_set is not None else ()
        return RunningSpark(environment, java=java, jars=jars, folder=tmp_path_factory.mktemp("spark"))

    running = Sparks(start)
    yield running
    running.close()


@pytest.mark.parametrize(("version", "name"), CELLS)
def test_spark_does_what_was_predicted(
    version: str, name: str, sparks: Sparks, tally: Tally, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    flavour = FLAVOURS[name]
    broker = request.getfixturevalue("broker") if flavour.kind == "kafka" else None
    laboratory = Laboratory(version, sparks, healthy=tmp_path / "healthy", scratch=tmp_path, broker=broker)
    cases = random_cases(laboratory, flavour, CASES, SEED)
    require_agreement(laboratory, cases, tally, wrong_at_most=1)


@pytest.mark.parametrize(("made_by", "version"), UPGRADES)
def test_another_spark_does_what_was_predicted(
    made_by: str, version: str, sparks: Sparks, tally: Tally, tmp_path: Path
) -> None:
    laboratory = Laboratory(version, sparks, healthy=tmp_path / "healthy", scratch=tmp_path)
    cases = [random_cases(laboratory, FLAVOURS[name], MOVED_CASES, SEED, made_by=made_by) for name in MOVED]
    require_agreement(laboratory, list(itertools.chain(*cases)), tally, wrong_at_most=1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_once_predicted_wrong_is_right(
    version: str, sparks: Sparks, tally: Tally, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cases = fixed_cases(version)
    needs_broker = any(FLAVOURS[case.flavour].kind == "kafka" for case in cases)
    broker = request.getfixturevalue("broker") if needs_broker else None
    laboratory = Laboratory(version, sparks, healthy=tmp_path / "healthy", scratch=tmp_path, broker=broker)
    require_agreement(laboratory, cases, tally)


@pytest.mark.parametrize("version", ["4.0.5", "4.2.0", "4.3.0"])
def test_what_cannot_be_predicted_is_still_so(version: str, sparks: Sparks, tmp_path: Path) -> None:
    """Cases of docs/why/prediction.md; one that comes out right belongs among the others."""
    laboratory = Laboratory(version, sparks, healthy=tmp_path / "healthy", scratch=tmp_path)
    for case in known_limits(version):
        with laboratory.damaged(case) as folder:
            restart = prediction(case, folder)
            assert compare(laboratory.restart(case, folder), restart) != [], case
