"""Real Sparks of every version, and laboratories where checkpoints are made, damaged and started; see `conformance`.

A worker has one Spark for all tests that need no process of their own: each query gets a session of its own in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conformance.cases import Laboratory
from conformance.flavours import FLAVOURS
from conformance.sparks import RunningSpark, Sparks

from lastgood.lab.spark import SparkEnvironment
from lastgood.process.java import Java

OpenLaboratory = Callable[..., Laboratory]
"""By the version of Spark and the names of the kinds of queries."""


@pytest.fixture(scope="session")
def start_spark(
    request: pytest.FixtureRequest,
    java: Java,
    spark_of: Callable[[str], SparkEnvironment],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], RunningSpark]:
    """Starts a Spark of a version, which its taker closes."""

    def start(version: str) -> RunningSpark:
        environment = spark_of(version)
        jars = request.getfixturevalue("spark_jars") if environment.jar_set is not None else ()
        return RunningSpark(environment, java=java, jars=jars, folder=tmp_path_factory.mktemp("spark"))

    return start


@pytest.fixture(scope="session")
def sparks(start_spark: Callable[[str], RunningSpark]) -> Iterator[Sparks]:
    """Real Sparks, each started when it is first asked for."""
    running = Sparks(start_spark)
    yield running
    running.close()


@pytest.fixture(scope="session")
def open_laboratory(
    request: pytest.FixtureRequest, sparks: Sparks, tmp_path_factory: pytest.TempPathFactory
) -> OpenLaboratory:
    """Opens a laboratory; each healthy checkpoint is made once for all tests of a worker."""
    folder = tmp_path_factory.mktemp("laboratory")

    def open_for(version: str, *flavours: str) -> Laboratory:
        needs_broker = any(FLAVOURS[name].kind == "kafka" for name in flavours)
        broker = request.getfixturevalue("broker") if needs_broker else None
        scratch = tmp_path_factory.mktemp(f"cases-{version}")
        return Laboratory(version, sparks, healthy=folder, scratch=scratch, broker=broker)

    return open_for
