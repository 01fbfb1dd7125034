"""An application whose checkpoint is lost, or whose topic is another one, on a real broker and a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.sparks import RunningSpark, Sparks
from repair.seeded import Application, MakeApplication

from lastgood.lab.kafka import KafkaBroker

VERSION = "4.2.0"


@pytest.fixture
def spark(sparks: Sparks) -> RunningSpark:
    return sparks.of(VERSION)


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
