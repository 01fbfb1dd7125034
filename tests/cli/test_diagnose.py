"""`lastgood diagnose` as a user starts it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import forked
import pytest

from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
LAST = "Nothing has been changed.\n"


def run(*arguments: str | Path, text: str = "") -> forked.Ended:
    return forked.run("diagnose", *arguments, env={"PATH": os.environ["PATH"], "TZ": "UTC"}, text=text)


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    query = CheckpointBuilder(tmp_path / "orders")
    query.run(5)
    return query


def test_healthy_query_is_said_to_go_on(query: CheckpointBuilder) -> None:
    done = run(query.folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "Last good batch 4"
    assert "Spark 3.5 to 4.3 goes on with batch 5  (batch 4 is committed)" in lines
    asked = run(query.folder, "--spark", "4.2")
    assert "Spark 4.2 goes on with batch 5  (batch 4 is committed)" in asked.stdout.splitlines()
    assert done.stdout.endswith(LAST)


def test_errors_are_exit_code_1_and_name_effect_and_next_command(query: CheckpointBuilder) -> None:
    (query.folder / "offsets/4").unlink()
    done = run(query.folder)
    assert (done.returncode, done.stderr) == (1, "")
    assert "sends batch 3 through the sink again, and fails" in done.stdout
    assert "Multiple streaming jobs detected for 3" in done.stdout
    assert "COMMITS_AHEAD  commits/4" in done.stdout
    assert f"next  lastgood plan {query.folder}" in done.stdout


def test_what_would_say_nothing_is_a_dash(query: CheckpointBuilder) -> None:
    (query.folder / "offsets/4").write_bytes(b"")
    lines = [line.strip() for line in run(query.folder).stdout.splitlines()]
    assert lines[lines.index("damage  empty") :][:3] == ["damage  empty", "found  -", "line  -"]


def test_json_is_one_object_with_the_documented_fields(query: CheckpointBuilder) -> None:
    query.plan()
    found = json.loads(run(query.folder, "--format", "json").stdout)
    assert (found["query_id"], found["log_versions"]) == (QUERY_ID, {"offsets": 1, "commits": 1})
    assert (found["last_planned"], found["last_committed"], found["last_good"]) == (5, 4, 4)
    assert found["stateful"] is False
    restart = found["restart"]
    assert (restart["spark"], restart["outcome"], restart["batch"], restart["error"]) == ("4.3", "reruns", 5, None)
    assert (restart["leaves_orphan"], restart["sink_called"]) == (False, "no")
    assert found["findings"][0]["condition"] == "ORPHAN_BATCH"
    assert set(found["findings"][0]) == {"condition", "severity", "subject", "evidence", "effect", "next"}


@pytest.mark.parametrize(("threshold", "code"), [("info", 1), ("warning", 1), ("error", 0), ("never", 0)])
def test_fail_on_says_from_which_severity_on_it_exits_with_1(
    query: CheckpointBuilder, threshold: str, code: int
) -> None:
    query.plan()
    assert run(query.folder, "--fail-on", threshold).returncode == code


def test_prediction_is_for_the_spark_that_is_named(query: CheckpointBuilder) -> None:
    (query.folder / "metadata").unlink()
    assert json.loads(run(query.folder, "--format=json", "--spark", "4.0.5").stdout)["restart"]["outcome"] == "resumes"
    found = json.loads(run(query.folder, "--format=json", "--spark", "4.2").stdout)["restart"]
    assert (found["outcome"], found["error"]) == ("fails", "STREAMING_CHECKPOINT_MISSING_METADATA_FILE")


def test_unknown_spark_is_refused_with_those_that_are_known(query: CheckpointBuilder) -> None:
    done = run(query.folder, "--spark", "2.4")
    assert done.returncode == 2
    assert "SPARK_VERSION_UNKNOWN" in done.stderr
    assert "one of 3.5, 4.0, 4.1, 4.2, 4.3" in done.stderr


def test_broker_facts_tell_what_the_checkpoint_cannot(query: CheckpointBuilder, tmp_path: Path) -> None:
    partitions = {"0": {"earliest": 30, "latest": 40}, "1": {"earliest": 0, "latest": 40}}
    facts = tmp_path / "kafka.json"
    facts.write_text(json.dumps({"topics": {"orders": {"partitions": partitions}}}))
    told = json.loads(run(query.folder, "--format=json", "--kafka", facts).stdout)["restart"]
    assert (told["outcome"], told["batch"], told["leaves_orphan"], told["sink_called"]) == ("fails", 5, True, "maybe")
    assert told["error"] == "Could not read records in offset ["
    lenient = run(query.folder, "--format=json", "--kafka", facts, "--fail-on-data-loss", "false")
    assert json.loads(lenient.stdout)["restart"]["outcome"] == "resumes"


def test_missing_checkpoint_is_an_error_with_its_place(tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere")
    assert done.returncode == 20
    assert "CHECKPOINT_MISSING" in done.stderr


def test_bundle_is_diagnosed_elsewhere_as_the_checkpoint_was(query: CheckpointBuilder, tmp_path: Path) -> None:
    query.plan()
    bundle = tmp_path / "orders.bundle"
    here = json.loads(run(query.folder, "--format=json", "--save", bundle).stdout)
    assert here.pop("bundle")["path"] == str(bundle)
    shutil.rmtree(query.folder)
    there = json.loads(run(bundle, "--format=json").stdout)
    assert there == here
    assert "Nothing has been changed." in run(bundle).stdout


def test_log_tells_why_the_query_died(query: CheckpointBuilder, tmp_path: Path) -> None:
    query.plan()
    log = tmp_path / "driver.log"
    log.write_text(
        f"26/11/21 03:12:00 ERROR MicroBatchExecution: Query "
        f"[id = {QUERY_ID}, runId = {QUERY_ID}] terminated with error\n"
        "org.apache.spark.SparkException: Job aborted due to stage failure\n"
        "Caused by: java.lang.OutOfMemoryError: Java heap space\n"
    )
    found = json.loads(run(query.folder, "--format=json", "--log", log).stdout)
    assert found["findings"][0]["condition"] == "FAILURE_RESOURCES"
    assert found["failures"][0]["class"] == "resources"
    from_stdin = run(query.folder, "--log", "-", text=log.read_text())
    assert "FAILURE_RESOURCES" in from_stdin.stdout


def test_log_that_is_not_there_is_an_error_with_its_name(query: CheckpointBuilder, tmp_path: Path) -> None:
    done = run(query.folder, "--log", tmp_path / "no.log")
    assert done.returncode == 2
    assert "no.log" in done.stderr
