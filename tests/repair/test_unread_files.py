"""A driver dies after its file source has noted a file down, and before it is planned: then the file is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conformance.sparks import RunningSpark
from repair.seeded import SCRIPT

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.planning.price import Guarantee
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target

EXACT, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.LOSSY


def put(folder: Path, number: int) -> Path:
    """A file of one record."""
    file = folder / "input" / f"{number}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"partition": 0, "offset": number}))
    return file


def start(spark: RunningSpark, folder: Path) -> list[int]:
    """Start the application as it is: what its sink shows then."""
    told = {"checkpoint": str(folder / "checkpoint"), "table": str(folder / "table"), "where": "true"}
    answer = spark.call(SCRIPT, "start", input=str(folder / "input"), sink="parquet", **told)
    assert answer["error"] is None
    return sorted(offset for _, offset in spark.call(SCRIPT, "rows", **told)["rows"])


def never_planned(folder: Path, batch_id: int) -> None:
    """A batch is in no log but that of its source."""
    for log in ("checkpoint/offsets", "checkpoint/commits", "table/_spark_metadata"):
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (folder / log / name).unlink(missing_ok=True)


@pytest.mark.spark
@pytest.mark.parametrize(
    "batches", [pytest.param(4, id="resumes"), pytest.param(1, id="starts", marks=pytest.mark.proof)]
)
def test_file_that_is_gone_is_told_as_a_loss(spark: RunningSpark, tmp_path: Path, batches: int) -> None:
    last = batches - 1
    for number in range(batches):
        file = put(tmp_path, number)
        assert start(spark, tmp_path) == list(range(number + 1))
    never_planned(tmp_path, last)
    asked = EvidenceOptions(sinks=(str(tmp_path / "table"),))
    checkpoint = str(tmp_path / "checkpoint")
    assert make_plan(resolve_target(checkpoint), PlanOptions(evidence=asked)).guarantee is EXACT
    file.unlink()
    plan = make_plan(resolve_target(checkpoint), PlanOptions(evidence=asked))
    assert (plan.guarantee, plan.steps) == (LOSSY, ())
    assert file.name in " ".join(plan.rests_on)
    found = {each.condition.name for each in diagnose(resolve_target(checkpoint), DiagnoseOptions(asked)).findings}
    assert "SOURCE_FILES_GONE" in found
    put(tmp_path, 9)
    assert start(spark, tmp_path) == [*range(last), 9]
