"""Logs that are older than what a recorder saw of their query, as every verb is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typed import call

from lastgood.records.record import Progress
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder

CONDITION = "LOGS_OLDER_THAN_RECORDS"


def put_older_copy(folder: Path, *, at: int, committed: int, recorded_at_ms: int = STARTED_MS) -> Path:
    """A checkpoint whose folder was replaced by a copy from after batch `at`; the recorder saw `committed`."""
    checkpoint, copy = folder / "orders", folder / "copy"
    query = CheckpointBuilder(checkpoint)
    query.run(at + 1)
    shutil.copytree(checkpoint, copy)
    query.run(committed - at)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    records = folder / "orders.lastgood/records"
    records.mkdir(parents=True)
    told = [
        Progress(batch_id=n, recorded_at_ms=recorded_at_ms + n, query_id=QUERY_ID, run_id="r")
        for n in range(committed + 1)
    ]
    lines = "".join(json.dumps(each.to_json()) + "\n" for each in told)
    (records / "1795220516284-77.000001.jsonl").write_text(lines)
    return checkpoint


def answers(*words: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(call(*words, "--format", "json").stdout)
    return found


def test_older_copy_is_told_by_every_verb_and_promises_nothing_to_a_sink_that_nobody_named(tmp_path: Path) -> None:
    """A Delta table drops what comes under the numbers that it has, also records that no batch has read."""
    checkpoint = put_older_copy(tmp_path, at=3, committed=6)
    plan = answers("plan", checkpoint, "--output", tmp_path / "plan.json")
    assert plan["guarantee"] == "lossy"
    assert any(str(line).startswith(CONDITION) for line in plan["rests_on"])  # type: ignore[attr-defined]
    assert CONDITION in call("diagnose", checkpoint).stdout
    status = call("status", checkpoint)
    assert (status.returncode, CONDITION in status.stdout) == (1, True)
    assert call("recover", checkpoint, "--output", tmp_path / "plan.json").returncode == 3


@pytest.mark.parametrize("committed", [3, 2])
def test_logs_that_have_all_that_was_recorded_are_no_older_copy(committed: int, tmp_path: Path) -> None:
    checkpoint = put_older_copy(tmp_path, at=3, committed=3)
    records = tmp_path / "orders.lastgood/records/1795220516284-77.000001.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[: committed + 1]))
    assert CONDITION not in call("diagnose", checkpoint).stdout


def test_query_that_goes_on_while_it_is_looked_at_has_no_older_logs(tmp_path: Path) -> None:
    later_ms = 4_000_000_000_000
    checkpoint = put_older_copy(tmp_path, at=3, committed=4, recorded_at_ms=later_ms)
    assert CONDITION not in call("status", checkpoint).stdout


def test_logs_that_a_recovery_has_changed_since_are_no_older_copy(tmp_path: Path) -> None:
    checkpoint = put_older_copy(tmp_path, at=3, committed=6)
    (tmp_path / "orders.lastgood/recoveries/20261122-160058-7f3a").mkdir(parents=True)
    assert CONDITION not in call("status", checkpoint).stdout


def test_sink_that_tells_how_far_it_is_speaks_for_itself(tmp_path: Path) -> None:
    checkpoint = put_older_copy(tmp_path, at=3, committed=6)
    sink = tmp_path / "out/_spark_metadata"
    sink.mkdir(parents=True)
    for n in range(4):
        (sink / str(n)).write_text("v1\n")
    told = call("diagnose", checkpoint, "--sink", f"file:{tmp_path}/out").stdout
    assert CONDITION not in told
