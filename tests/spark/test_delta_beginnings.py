"""Where the first batch of a query begins that reads a Delta table: at each start anew, until a batch is done."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conformance.sparks import Sparks

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("delta_beginnings_app.py")
VERSION = "4.2.0"
"""The one that has Delta here."""


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        pytest.param({}, [0, 1, 2], id="all that there is", marks=pytest.mark.proof),
        pytest.param({"startingVersion": "latest"}, [], id="what comes"),
    ],
)
def test_first_batch_runs_again_without_what_it_had_read_where_it_began_at_the_latest(
    options: dict[str, str], ids: list[int], sparks: Sparks, tmp_path: Path
) -> None:
    """Both leave the same plan, so that what is said is the same: the assumption that it begins where it did."""
    command = {
        "source": str(tmp_path / "source"),
        "table": str(tmp_path / "table"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "options": options,
    }
    spark = sparks.of(VERSION)
    died = spark.call(SCRIPT, "die", **command)
    assert "assert" in str(died["error"]).lower(), died
    planned = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    assert (planned["index"], planned["isStartingVersion"]) == (-1, False)
    target = resolve_target(command["checkpoint"])
    evidence = EvidenceOptions(sinks=(command["table"],))
    plan = make_plan(target, PlanOptions("resume", evidence=evidence))
    unknowns = diagnose(target, DiagnoseOptions(evidence)).restart.unknowns
    assert [line for line in plan.rests_on if re.search("begins where its first batch did", line)]
    assert [line for line in unknowns if re.search("begins where its first batch did", line)]
    assert spark.call(SCRIPT, "start", **command)["ids"] == ids
