"""What a sink lacks already, or may lack: no verb calls such a query healthy, and no plan is called at least once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planning import delta, drafted, known, query

from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade, choose_grade
from lastgood.planning.goals.values import ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import SinkEvidence


def overwritten(last: int) -> SinkEvidence:
    """A table whose rows somebody has replaced by fewer."""
    found = delta(last, unclear="its rows were replaced by fewer in version 9")
    return replace(found, batches=tuple(replace(each, is_live=None) for each in found.batches))


def judged(observed: Observation) -> tuple[Grade, Guarantee, set[str]]:
    report = diagnose(observed, SPARK_4_2)
    warned = {each.condition.name for each in report.findings if each.severity is Severity.WARNING}
    return choose_grade(report), drafted(observed, ResumeGoal()).guarantee, warned


@pytest.mark.parametrize(("committed", "is_open"), [(4, False), (3, True), (0, True)])
def test_rows_that_may_be_gone_are_doubtful_and_no_plan_is_called_at_least_once(
    committed: int, is_open: bool, tmp_path: Path
) -> None:
    """Also of a batch that runs again and is dropped by the mark of the table."""
    query(tmp_path, committed, orphan=is_open)
    sink = overwritten(committed if is_open else committed - 1)
    grade, guarantee, warned = judged(known(tmp_path, sink))
    assert (grade, guarantee) == (Grade.DOUBTFUL, Guarantee.LOSSY)
    assert "SINK_ROLLED_BACK" in warned


def test_table_that_has_all_that_its_mark_says_is_healthy(tmp_path: Path) -> None:
    query(tmp_path, 4)
    grade, guarantee, warned = judged(known(tmp_path, delta(3)))
    assert (grade, guarantee, warned) == (Grade.HEALTHY, Guarantee.EXACTLY_ONCE, set())
