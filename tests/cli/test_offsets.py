"""`lastgood offsets` as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typed import call

from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput

LASTGOOD = Path(sys.executable).parent / "lastgood"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "TZ": "UTC"}
    return call("offsets", *arguments, env=env)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    query = CheckpointBuilder(folder)
    query.run(10)
    query.plan()
    return folder


def test_where_a_query_stood_is_shown_as_spark_takes_it(checkpoint: Path) -> None:
    done = run(checkpoint)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "after batch 9 (committed, planned at 2026-11-21 00:22:05); CURRENT is 10\n"
        "source 0  startingOffsets:\n"
        '{"orders": {"0": 50, "1": 50}}\n'
        "Nothing has been changed.\n"
    )
    assert "(planned, not committed," in run(checkpoint, "--batch", "10").stdout


@pytest.mark.parametrize(
    ("arguments", "offset"),
    [
        (("--batch", "0"), 5),
        (("--stable-lag", "3"), 40),
        (("--stable-lag", "0"), 55),
        (("--time", "2026-11-21T00:22:00"), 20),
        (("--source", "0"), 50),
    ],
)
def test_bare_offsets_are_nothing_but_the_option(arguments: tuple[str, ...], offset: int, checkpoint: Path) -> None:
    done = run(checkpoint, *arguments, "--bare")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"orders": {"0": offset, "1": offset}}
    assert done.stdout.count("\n") == 1


def test_the_json_is_the_librarys(checkpoint: Path) -> None:
    from lastgood.observe.offsets import find_offsets_after

    done = run(checkpoint, "--stable-lag", "2", "--format", "json")
    assert json.loads(done.stdout) == find_offsets_after(resolve_target(str(checkpoint)), stable_lag=2).to_json()


@pytest.mark.parametrize(
    ("arguments", "code", "condition"),
    [
        (("--batch", "11"), 21, "BATCH_UNKNOWN"),
        (("--stable-lag", "11"), 21, "BATCH_UNKNOWN"),
        (("--time", str(STARTED_MS - 1)), 21, "BATCH_UNKNOWN"),
        (("--batch", "1", "--stable-lag", "1"), 2, "USAGE"),
        (("--source", "7"), 2, "USAGE"),
        (("--source", "7", "--bare"), 2, "USAGE"),
        (("--stable-lag", "-1"), 2, "USAGE"),
    ],
)
def test_a_refusal_is_one_answer_with_its_exit_code(
    arguments: tuple[str, ...], code: int, condition: str, checkpoint: Path
) -> None:
    refused = run(checkpoint, *arguments)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert refused.stderr.startswith(f"error [{condition}] ")
    as_json = run(checkpoint, *arguments, "--format", "json")
    assert (as_json.returncode, as_json.stderr, as_json.stdout.count("\n")) == (code, "", 1)
    assert json.loads(as_json.stdout)["error"]["condition"] == condition


def test_several_sources_have_to_be_told_apart(checkpoint: Path) -> None:
    for batch_id in (9, 10):
        file = checkpoint / f"offsets/{batch_id}"
        lines = file.read_text().splitlines()
        file.write_text("\n".join([*lines, '{"late":{"0":1}}']))
    assert run(checkpoint).stdout.count("startingOffsets") == 2
    assert run(checkpoint, "--bare", "--source", "1").stdout == '{"late": {"0": 1}}\n'
    refused = run(checkpoint, "--bare")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"next      lastgood offsets {checkpoint} --batch 9 --source 0" in refused.stderr


def test_a_query_without_kafka_is_told(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path, FileInput()).run(1)
    assert run(tmp_path).returncode == 64


def test_what_a_start_from_there_would_meet_is_told(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "table" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "table" / "_spark_metadata" / "4").write_text("v1")
    facts = tmp_path / "facts.json"
    parts = {"0": {"earliest": 20, "latest": 60}, "1": {"earliest": 0, "latest": 60}, "2": {"earliest": 0, "latest": 1}}
    facts.write_text(json.dumps({"bootstrap": "b:9092", "topics": {"orders": {"partitions": parts}}}))
    asked = ("--kafka", facts, "--sink", tmp_path / "table")
    early = run(checkpoint, "--batch", "2", *asked)
    assert early.stdout.splitlines()[2:] == [
        '{"orders": {"0": 15, "1": 15, "2": -2}}',
        "orders/0: offsets 15 to 19 are gone, Kafka begins at 20",
        f"{tmp_path}/table shows batch 4: what came after batch 2 would be written again",
        "Nothing has been changed.",
    ]
    late = run(checkpoint, "--bare", *asked)
    assert late.stdout == '{"orders": {"0": 50, "1": 50, "2": -2}}\n'
    assert late.stderr == f"{tmp_path}/table shows batch 4: what came after it, up to batch 9, is left out\n"


def test_offsets_above_where_the_query_went_back_to_come_with_a_warning(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan(-10)
    query.commit()
    query.run(1)
    done = run(tmp_path / "chk", "--batch", "6")
    assert '{"orders": {"0": 35, "1": 35}}' in done.stdout
    for partition in (0, 1):
        assert f"orders/{partition}: the query went back to 25 since" in done.stdout
    bare = run(tmp_path / "chk", "--batch", "6", "--bare")
    assert json.loads(bare.stdout) == {"orders": {"0": 35, "1": 35}}
    assert "went back to 25" in bare.stderr
    told = json.loads(run(tmp_path / "chk", "--batch", "6", "--format", "json").stdout)
    assert told["went_back"] == {"orders": {"0": 25, "1": 25}}
    assert "went_back" not in json.loads(run(tmp_path / "chk", "--batch", "4", "--format", "json").stdout)
