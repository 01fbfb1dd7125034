"""What sources that cannot be asked bring once more after a batch has failed, with a real Spark, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lastgood.lab.spark import find_default_spark, submit
from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.diagnose import diagnose
from lastgood.planning.price import Guarantee
from lastgood.process.java import Java
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target

pytestmark = [pytest.mark.spark, pytest.mark.proof]

APP = Path(__file__).with_name("unasked_app.py")


@pytest.fixture(scope="module")
def ran(java: Java, spark_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unasked")
    log = folder / "driver.log"
    with log.open("wb") as output:
        child = submit(APP, [str(folder)], environment=find_default_spark(), java=java, jars=spark_jars, output=output)
        with child:
            ending = child.wait()
    assert (folder / "rate-micro-batch.json").exists(), f"{ending}: {log.read_text()[-4000:]}"
    return folder


def brought(ran: Path, name: str) -> list[dict[str, Any]]:
    starts: list[dict[str, Any]] = json.loads((ran / f"{name}.json").read_text())
    return starts


def test_socket_brings_nothing_again_and_the_batch_is_committed(ran: Path) -> None:
    first, second = brought(ran, "socket")
    assert (len(first["1"]) + len(first["2"]), second["2"]) == (5, [])
    assert (ran / "socket/commits/2").exists()
    for vouched in (False, True):
        plan = make_plan(
            resolve_target(str(ran / "socket-left")), PlanOptions(evidence=EvidenceOptions(source_replays=vouched))
        )
        assert plan.guarantee is Guarantee.LOSSY
        assert "cannot serve again" in plan.rests_on[-1]
    found = {each.condition.name for each in diagnose(resolve_target(str(ran / "socket"))).findings}
    assert "SOURCE_OFFSET_WENT_BACK" in found


def test_rate_brings_the_same_again_and_that_is_called_an_assumption(ran: Path) -> None:
    first, second = brought(ran, "rate")
    assert first["1"]
    assert first["1"] == second["1"]
    plan = make_plan(resolve_target(str(ran / "rate-left")))
    assert plan.guarantee is Guarantee.AT_LEAST_ONCE
    assert "source 0 (rate)" in plan.rests_on[-1]


def test_source_with_the_offsets_of_rate_micro_batch_that_brings_nothing_again_is_not_taken_for_it(ran: Path) -> None:
    first, second = brought(ran, "queue")
    assert (len(first["1"]), second["1"]) == (10, [])
    assert (ran / "queue/commits/1").exists()
    plan = make_plan(resolve_target(str(ran / "queue-left")))
    assert plan.guarantee is Guarantee.AT_LEAST_ONCE
    (assumed,) = [line for line in plan.rests_on if "and not by their numbers" in line]
    assert "serves again all that is not committed" in assumed
    restart = diagnose(resolve_target(str(ran / "queue-left"))).restart
    assert any("and not by their numbers" in line for line in restart.unknowns)


def test_rate_micro_batch_brings_the_same_again_and_that_it_is_one_is_named(ran: Path) -> None:
    first, second = brought(ran, "rate-micro-batch")
    assert len(first["1"]) == 10
    assert first["1"] == second["1"]
    plan = make_plan(resolve_target(str(ran / "rate-micro-batch-left")))
    assert plan.guarantee is Guarantee.AT_LEAST_ONCE
    assert any("rate-micro-batch, as it looks" in line for line in plan.rests_on)
