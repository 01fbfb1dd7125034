"""The checkpoint of a load, and a Spark that has no such sources: what it does is what `diagnose` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conformance.sparks import Sparks
from spark.test_load_equality import APP
from typed import call

pytestmark = [pytest.mark.spark, pytest.mark.proof]
NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
SESSION_APP = Path(__file__).with_name("load_session_app.py")


@pytest.mark.parametrize(("version", "knows"), [("3.5.9", False), ("4.0.5", False), ("4.1.4", False), ("4.2.0", True)])
def test_older_spark_has_no_such_source(sparks: Sparks, tmp_path: Path, version: str, *, knows: bool) -> None:
    file, checkpoint = tmp_path / "in.csv", tmp_path / "chk"
    file.write_text("1\n2\n")
    more = {"schema": "id INT", "checkpoint": str(checkpoint)}
    sparks.of("4.2.0").call(SESSION_APP, "load", file=str(file), to=f"file:{tmp_path / 'table'}", more=more)
    told = json.loads(call("diagnose", str(checkpoint), "--spark", version, "--format", "json").stdout)
    found = sparks.of(version).call(APP, "start")
    assert found["registered"] is knows
    if knows:
        assert (told["restart"]["error"], found["error"]) == (None, None)
        return
    assert told["restart"]["error"] == NOT_FOUND
    assert NOT_FOUND in found["error"]
    refused = json.loads(call("plan", str(checkpoint), "--spark", version, "--format", "json").stdout)["error"]
    assert refused["next"].startswith("lastgood diagnose"), refused
