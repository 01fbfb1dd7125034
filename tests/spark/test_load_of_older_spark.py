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


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.1.4", "4.3.0"])
def test_older_spark_has_no_such_source(sparks: Sparks, tmp_path: Path, version: str) -> None:
    file, checkpoint = tmp_path / "in.csv", tmp_path / "chk"
    file.write_text("1\n2\n")
    more = {"schema": "id INT", "checkpoint": str(checkpoint)}
    sparks.of("4.2.0").call(SESSION_APP, "load", file=str(file), to=f"file:{tmp_path / 'table'}", more=more)
    told = json.loads(call("diagnose", str(checkpoint), "--spark", version, "--format", "json").stdout)
    predicted = told["restart"]["error"]
    if version == "4.3.0":
        assert predicted is None
    else:
        assert predicted == NOT_FOUND
        assert NOT_FOUND in sparks.of(version).call(APP, "start")["error"]
