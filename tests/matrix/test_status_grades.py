"""Whatever Kafka and the sink say, `status` calls a query by the findings of `diagnose`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from status_facts import file_sink, kafka

from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.operations.status import list_statuses_below, status
from lastgood.query.kafka import Losing
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("shown", [None, 2, 3, 4, 6])
@pytest.mark.parametrize("is_orphan", [False, True])
@pytest.mark.parametrize("is_pattern", [False, True])
@pytest.mark.parametrize("served", ["all", "expired", "shorter", "partition gone", "topic gone", "not named"])
def test_whatever_kafka_and_the_sink_say_the_grade_is_that_of_the_findings(
    served: str, is_pattern: bool, is_orphan: bool, shown: int | None, checkpoint: Path
) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(3)
    if is_orphan:
        query.plan()
    first = (18, 40) if served == "expired" else (0, 12) if served == "shorter" else (0, 40)
    told = json.loads(Path(kafka(checkpoint.parent, {"0": first, "1": (0, 40)})).read_text())
    if served == "partition gone":
        del told["topics"]["orders"]["partitions"]["1"]
    elif served == "topic gone":
        told["topics"]["orders"] = {"exists": False}
    elif served == "not named":
        del told["topics"]["orders"]
    facts = checkpoint.parent / "facts.json"
    facts.write_text(json.dumps(told))
    sinks = () if shown is None else (file_sink(checkpoint.parent / "table", shown),)
    asked = EvidenceOptions(sinks=sinks, kafka=str(facts), subscribe_pattern="ord.*" if is_pattern else None)
    alone, (below,) = (
        status(resolve_target(str(checkpoint)), options=asked),
        list_statuses_below(resolve_target(str(checkpoint.parent)), options=asked),
    )
    report = diagnose(resolve_target(str(checkpoint)), DiagnoseOptions(asked))
    findings = [each for each in report.findings if each.severity > Severity.INFO]
    assert [each.to_json() for each in alone.findings] == [each.to_json() for each in findings]
    assert (alone.grade >= Grade.UNREADABLE) == (report.worst is Severity.ERROR)
    assert alone.exposure is not None
    if alone.exposure.losing is Losing.YES:
        assert alone.grade is Grade.LOSING
    if alone.grade < Grade.UNREADABLE:
        assert report.restart.stop is None
    if not sinks:  # of many, a sink that goes by its folder has no say
        assert [each.condition for each in below.findings] == [each.condition for each in findings]
