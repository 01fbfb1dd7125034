"""The checkpoint of a load and another Spark: what it does is what `diagnose` says; one that can goes on with it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conformance.sparks import LIBRARIES, Sparks
from spark.test_load_equality import APP
from typed import call

pytestmark = [pytest.mark.spark, pytest.mark.proof]
NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
SESSION_APP = Path(__file__).with_name("load_session_app.py")


@pytest.mark.parametrize(
    ("version", "knows"),
    [("3.5.9", False), ("4.0.5", False), ("4.1.4", False), ("4.2.0", True), ("4.3.0", True)],
)
def test_older_spark_has_no_such_source(sparks: Sparks, tmp_path: Path, version: str, *, knows: bool) -> None:
    file, checkpoint = tmp_path / "in.csv", tmp_path / "chk"
    file.write_text("1\n2\n")
    more = {"schema": "id INT", "checkpoint": str(checkpoint)}
    sparks.of("4.2.0").call(SESSION_APP, "load", file=str(file), to=f"file:{tmp_path / 'table'}", more=more)
    told = json.loads(call("diagnose", str(checkpoint), "--spark", version, "--format", "json").stdout)
    found = sparks.of(version).call(APP, "start", libraries=LIBRARIES)
    assert found["registered"] is knows
    if knows:
        assert (told["restart"]["error"], found["error"]) == (None, None)
        return
    assert told["restart"]["error"] == NOT_FOUND
    assert NOT_FOUND in found["error"]
    refused = json.loads(call("plan", str(checkpoint), "--spark", version, "--format", "json").stdout)["error"]
    assert refused["next"].startswith("lastgood diagnose"), refused


def test_delta_is_refused_where_nothing_was_shown_of_it(sparks: Sparks, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("1\n2\n")
    told = {"file": str(file), "to": f"delta:{tmp_path / 'table'}", "more": {"schema": "id INT"}}
    error = sparks.of("4.3.0").call(SESSION_APP, "load", libraries=LIBRARIES, **told)["error"]
    assert (error["condition"], error["found"], error["expected"]) == ("USAGE", "Spark 4.3.0", "Spark 4.2")
    assert sorted(each.name for each in tmp_path.iterdir() if "table" in each.name) == []


@pytest.mark.parametrize("versions", [("4.2.0", "4.3.0"), ("4.3.0", "4.2.0")])
def test_one_spark_goes_on_where_the_other_has_ended(sparks: Sparks, tmp_path: Path, versions: tuple[str, str]) -> None:
    file, table, count = tmp_path / "in.csv", tmp_path / "table", 1000
    more = {"schema": "id INT", "checkpoint": str(tmp_path / "chk"), "chunk_size": 1000}
    told = {"file": str(file), "to": f"file:{table}", "libraries": LIBRARIES}
    for number, version in enumerate(versions):
        with file.open("a") as lines:
            lines.writelines(f"{each}\n" for each in range(number * count, (number + 1) * count))
        found = sparks.of(version).call(SESSION_APP, "load", more={**more, "follow_growth": number > 0}, **told)
        assert (found.get("error"), found["rows"]) == (None, (number + 1) * count)
    again = sparks.of(versions[0]).call(SESSION_APP, "load", more={**more, "follow_growth": True}, **told)
    assert (again["rows"], again["seen"]) == (2 * count, [])
    assert sorted(pq.read_table(table)["id"].to_pylist()) == list(range(2 * count))
