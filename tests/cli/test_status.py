"""`lastgood status` as a user starts it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typed import call

from lastgood.lab.ports import find_free_port
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder, FileInput

LASTGOOD = Path(sys.executable).parent / "lastgood"
LAST = "Nothing has been changed.\n"
UNASKED = (
    "source 0: what Kafka still serves was not asked, nor whether its topics are those that were read, nor whether it"
    " is Event Hubs, which looks the same (--kafka)"
)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "TZ": "UTC"}
    return call("status", *arguments, env=env)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "chk"
    CheckpointBuilder(root / "orders").run(3)
    (tmp_path / "f000.json").write_text("{}")
    CheckpointBuilder(root / "clicks", FileInput(tmp_path.as_uri())).plan()
    return root


def test_one_checkpoint_is_one_screen(root: Path) -> None:
    done = run(root / "orders")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"{root}/orders  query {QUERY_ID}", "  healthy", "  last good    batch 2"]
    assert lines[3].startswith("  planned      batch 2, ")
    assert lines[3].endswith(" ago, at 2026-11-21 00:21:58")
    assert lines[4:] == [
        "  committed    batch 2",
        "  source 0     Kafka, orders: 2 partitions",
        "  data loss    not asked: --kafka SERVERS tells whether what is unread is still there, and for how long",
        f"  not known    {UNASKED}",
        "  not known    whether the sink holds what is committed, and no more: none was asked (--sink)",
        f"  next         lastgood inspect {root}/orders",
        LAST.strip(),
    ]


@pytest.mark.parametrize(
    ("start", "done"),
    [("", "they leave it to a person"), ('outage_start = "at_sink"', "they begin as outage_start says (at_sink)")],
)
def test_outage_that_recover_would_answer_is_told(root: Path, start: str, done: str) -> None:
    policy = f'[pipeline.orders.policy]\nafter_outage = "1h"\n{start}\n'
    (root / "lastgood.toml").write_text(
        f"[pipeline.orders]\ncommand = ['true']\ncheckpoint = '{root}/orders'\n{policy}"
    )
    told = call("status", "orders", cwd=root).stdout
    assert "  outage " not in told
    long_ago = time.time() - 3 * 3600 - 60
    os.utime(root / "orders/commits/2", (long_ago, long_ago))
    told = call("status", "orders", cwd=root).stdout
    line = f"no batch for 3 h 1 min, and after_outage is 1 h: if recover or run find it down, {done}"
    assert f"  outage       {line}\n" in told


def test_a_batch_in_flight_is_told_and_is_no_failure(root: Path) -> None:
    done = run(root / "clicks")
    assert done.returncode == 0
    assert "  in flight    batch 0: running now, or a restart runs it again as planned\n" in done.stdout
    assert "  last good    none\n" in done.stdout


def test_damage_is_exit_code_1_with_what_is_wrong(root: Path) -> None:
    (root / "orders/offsets/2").write_bytes(b"v1\n[/red]\n")
    done = run(root / "orders")
    assert (done.returncode, done.stderr) == (1, "")
    problem = "OFFSET_LOG_DAMAGED offsets/2: The query cannot start."
    assert f"  damaged\n  problem      {problem}\n" in done.stdout
    found = json.loads(run(root / "orders", "--format=json").stdout)
    assert (found["grade"], found["problems"]) == ("damaged", [problem])
    assert found["findings"][0]["evidence"]["found"] == "[/red]"


def test_a_folder_is_a_table_worst_first(root: Path) -> None:
    done = run(root)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines[:3]] == [["grade", "checkpoint"], ["in", "flight"], ["healthy", "orders"]]
    assert done.stdout.endswith("2 checkpoints: 1 in flight, 1 healthy\nlooked into 3 folders\n" + LAST)
    (root / "orders/metadata").unlink()
    damaged = run(root)
    assert damaged.returncode == 1
    assert damaged.stdout.splitlines()[1].split()[:2] == ["damaged", "orders"]
    shutil.rmtree(root / "orders")
    assert run(root).stdout.endswith("1 checkpoint: 1 in flight\nlooked into 2 folders\n" + LAST)


def test_the_json_of_a_folder_holds_each_checkpoint(root: Path) -> None:
    done = run(root, "--format", "json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    found = json.loads(done.stdout)
    assert found["root"] == str(root)
    assert [each["grade"] for each in found["checkpoints"]] == ["in_flight", "healthy"]
    assert found["checkpoints"][1] == json.loads(run(root / "orders", "--format", "json").stdout)


def test_a_query_is_found_by_its_name_below_a_session_wide_root(root: Path) -> None:
    assert run(root, "--query", "orders").stdout == run(root / "orders").stdout
    assert run(f"{root}/", "--query", "none").returncode == 20


def test_a_folder_without_checkpoints_says_so(tmp_path: Path) -> None:
    (tmp_path / "x" / "[/]").mkdir(parents=True)
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (0, f"no checkpoint below {tmp_path}\nlooked into 4 folders\n{LAST}")


@pytest.mark.parametrize("name", ["none", "empty"])
def test_no_checkpoint_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = run(tmp_path / name)
    assert (text.returncode, text.stdout) == (20, "")
    assert text.stderr.startswith("error [CHECKPOINT_MISSING] there is no checkpoint\n")
    refused = run(tmp_path / name, "--format", "json")
    assert (refused.returncode, refused.stderr, refused.stdout.count("\n")) == (20, "", 1)
    assert json.loads(refused.stdout)["error"]["subject"] == str(tmp_path / name)
    assert run("gs:/x").returncode == 13


# --- sinks and Kafka ----------------------------------------------------------------------------------------------


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """Kafka has lost five unread offsets of the query, and keeps the rest for a day after it was written."""
    now_ms = int(time.time() * 1000)
    parts = {"0": {"earliest": 20, "latest": 30}, "1": {"earliest": 0, "latest": 20}}
    settings = {"cleanup.policy": "delete", "retention.ms": "86400000", "retention.bytes": "1000000"}
    told = {
        "bootstrap": "b:9092",
        "captured_at_ms": now_ms,
        "topics": {"orders": {"partitions": parts, "config": settings}},
        "unread": {"orders": {"1": {"offset": 15, "timestamp_ms": now_ms - 36_000_000 + 60_000}}},
    }
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(told))
    return file


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Holds batches 0 to 4."""
    log = tmp_path / "table" / "_spark_metadata"
    log.mkdir(parents=True)
    for batch_id in range(5):
        (log / str(batch_id)).write_text("v1")
    return tmp_path / "table"


def test_sinks_and_kafka_stand_on_the_same_screen(root: Path, facts: Path, sink: Path) -> None:
    done = run(root / "orders", "--kafka", facts, "--sink", sink)
    assert (done.returncode, done.stderr) == (1, "")
    expired = "[15, 20) of orders-0 can no longer be read: batch 3 fails in its tasks, at every start."
    drops = "Batches 3 to 4 will be committed and dropped by the sink, whatever new rows they bring."
    lines = [line for line in done.stdout.splitlines() if not line.startswith("  planned")]
    assert lines[1:] == [
        "  losing",
        f"  problem      SOURCE_RANGE_EXPIRED orders-0: {expired}",
        f"  problem      SINK_WOULD_SKIP {sink}: {drops}",
        "  last good    batch 2",
        "  committed    batch 2",
        "  source 0     Kafka, orders: 2 partitions",
        "  data loss    yes: 5 unread offsets are gone, deleted since 2026-11-21 00:21:58 at the earliest",
        "  lag          15 unread offsets that Kafka still has",
        "  headroom     14.0 h until Kafka deletes what is unread, orders/1 first; sooner by retention.bytes",
        f"  sink         file {sink}: ahead, see the problem above",
        "  not known    whether orders is the topic that was read: it was not asked by time",
        f"  next         lastgood diagnose {root}/orders --sink {sink} --kafka {facts}",
        LAST.strip(),
    ]


def test_a_folder_has_columns_for_what_was_asked(root: Path, facts: Path, sink: Path) -> None:
    done = run(root, "--kafka", facts, "--sink", sink)
    assert done.returncode == 1
    head, losing, in_flight = done.stdout.splitlines()[:3]
    assert head.split("last plan")[1].split() == ["data", "loss", "lag", "headroom", "sink"]
    assert losing.split()[-6:] == ["5", "offsets", "15", "14.0", "h", "-"]
    assert in_flight.split()[-4:] == ["-", "-", "-", "-"]


def test_who_cannot_be_reached_is_unknown_and_no_failure(root: Path) -> None:
    nobody = f"127.0.0.1:{find_free_port()}"
    done = run(root / "orders", "--kafka", nobody)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"  data loss    unknown, because {nobody}" in done.stdout
    below = run(root, "--kafka", nobody)
    assert below.returncode == 0
    assert below.stdout.count(f"unknown, because {nobody}") == 1


def test_lost_logs_are_told_with_the_command_that_brings_them_back(root: Path) -> None:
    from lastgood.mirror.mirror import MirrorWriter, locate_mirror
    from lastgood.storage.reading import LocalStorage, parse_location
    from lastgood.storage.writing import LocalWriter

    location, storage = parse_location(str(root / "orders")), LocalStorage()
    folder = locate_mirror(location)
    MirrorWriter(location, storage=storage, folder=folder, target=LocalWriter(), writer="w", now_ms=lambda: 5).look()
    shutil.rmtree(root / "orders")
    one = run(root / "orders")
    assert one.returncode == 1
    assert one.stdout.startswith(f"{root}/orders  query {QUERY_ID}\n  damaged\n")
    assert f"  next         lastgood backup restore {root}/orders\n" in one.stdout
    below = run(root)
    assert below.returncode == 1
    assert "orders: CHECKPOINT_LOST offsets, commits: A start begins at batch 0; " in below.stdout


def test_a_file_of_facts_that_is_not_there_is_a_usage_error(root: Path, tmp_path: Path) -> None:
    refused = run(root / "orders", "--kafka", tmp_path / "none.json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error [USAGE] there is no such file of facts about Kafka\n")
