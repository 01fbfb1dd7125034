"""What is said of a query while a repair of it is half done."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning import delta, known, query

from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.query.observation import Seal
from lastgood.query.prediction.spark_version import SPARK_4_2

RECOVERY = "20261126-083042-6ba5"


@pytest.mark.parametrize("shown", [2, 3])
def test_sink_is_not_held_against_the_logs_of_a_repair_that_is_half_done(shown: int, tmp_path: Path) -> None:
    """An empty commit of the seal is none, and what was set aside so far is not lost."""
    query(tmp_path, 3, orphan=True)
    seal = ("offsets/4", "commits/3")
    for path in seal:
        (tmp_path / path).touch()
    report = diagnose(known(tmp_path, delta(shown), seal=Seal(RECOVERY, "applying", seal)), SPARK_4_2)
    errors = [each.condition.name for each in report.findings if each.severity is Severity.ERROR]
    assert errors == ["SEALED_BY_LASTGOOD"]
    assert any(f"recovery {RECOVERY} is half done" in line for line in report.restart.unknowns)
