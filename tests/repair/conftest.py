"""An application whose checkpoint is lost, or whose topic is another one, on a real broker and a real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.sparks import RunningSpark
from repair.seeded import Application, MakeApplication

from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import SparkEnvironment
from lastgood.process.java import Java

VERSION = "4.2.0"


@pytest.fixture(scope="module")
def spark(
    java: Java,
    spark_of: Callable[[str], SparkEnvironment],
    spark_jars: tuple[Path, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningSpark]:
    script = Path(__file__).with_name("seeded_driver.py")
    folder = tmp_path_factory.mktemp("spark")
    running = RunningSpark(spark_of(VERSION), java=java, jars=spark_jars, folder=folder, script=script)
    yield running
    running.close()


@pytest.fixture
def application(
    spark: RunningSpark, broker: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeApplication:
    """An application that has read and written all that there was; more has come since."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(**options: str) -> Application:
        found = Application(spark, broker, topic, tmp_path, **options)
        found.begin()
        return found

    return make
