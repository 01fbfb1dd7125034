"""A folder `state` that is gone, and only a watermark is left to tell: Spark fails, or the query never kept any."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conformance.sparks import Sparks
from repair.windows import HDFS, Windows, make_events, write_file

import lastgood
from lastgood.planning.price import Guarantee

NO_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Else a batch that only moves the watermark tells."""


@pytest.mark.proof
@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0"])
@pytest.mark.parametrize("code", ["old", "rows"])
def test_start_fails_or_there_was_no_state(
    sparks: Sparks, tmp_path: Path, version: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "lastgood"))
    conf = {"spark.sql.shuffle.partitions": "2", **HDFS, **NO_DATA}
    query = Windows(sparks.of(version), tmp_path, "parquet", conf)
    events = make_events(1, 4, are_late=False)
    for number in range(3):
        write_file(tmp_path / "input", number, events[number])
    assert query.start(code) is None
    shutil.rmtree(query.checkpoint / "state", ignore_errors=True)
    found = lastgood.diagnose(str(query.checkpoint), sink=query.table, spark=version.rpartition(".")[0])
    assert any("whether the query keeps state" in each for each in found.restart.unknowns)
    plan = lastgood.plan(str(query.checkpoint), goal=lastgood.Resume(), sink=query.table)
    assert (plan.guarantee, plan.steps) == (Guarantee.AT_LEAST_ONCE, ())
    before = len(list((tmp_path / "table/_spark_metadata").glob("[0-9]*")))
    write_file(tmp_path / "input", 3, events[3])
    ended = query.start(code)
    after = len(list((tmp_path / "table/_spark_metadata").glob("[0-9]*")))
    assert (ended is not None, after > before) == ((True, False) if code == "old" else (False, True)), ended
