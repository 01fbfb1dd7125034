"""A source that looks like Kafka is taken for it: a plan says so, unless a broker was named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from foreign import KINESIS, Lines
from planning import broker, query

from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.backup import create
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target


def taken(checkpoint: Path, kafka: Path | None = None) -> list[str]:
    """What the plan to go on says of it."""
    evidence = EvidenceOptions(kafka=None if kafka is None else str(kafka))
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions(evidence=evidence))
    return [line for line in plan.rests_on if "Azure Event Hubs" in line]


@pytest.mark.parametrize("orphan", [False, True])
def test_that_it_is_kafka_is_an_assumption_where_no_broker_was_named(tmp_path: Path, orphan: bool) -> None:
    query(tmp_path / "chk", 3, orphan=orphan)
    (line,) = taken(tmp_path / "chk")
    assert line.startswith("the assumption that source 0 is Kafka, and its topics those that were read: ")
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(broker((0, 90), (0, 90)).to_json()))
    assert taken(tmp_path / "chk", facts) == []


@pytest.mark.parametrize("fails", [True, False])
def test_that_what_is_gone_ends_the_query_is_an_assumption_as_well(tmp_path: Path, *, fails: bool) -> None:
    query(tmp_path / "chk", 3)
    plan = make_plan(resolve_target(str(tmp_path / "chk")), PlanOptions(fail_on_data_loss=fails))
    assert any("the assumption that failOnDataLoss is true" in line for line in plan.rests_on) == fails


def test_so_it_is_where_a_mirror_alone_tells_of_it(tmp_path: Path) -> None:
    query(tmp_path / "chk", 3)
    create(resolve_target(str(tmp_path / "chk")))
    shutil.rmtree(tmp_path / "chk")
    assert len(taken(tmp_path / "chk")) == 1


def test_what_does_not_look_so_is_not_taken_for_it(tmp_path: Path) -> None:
    query(tmp_path / "chk", 3, source=Lines(KINESIS))
    assert taken(tmp_path / "chk") == []
