"""`lastgood status` as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder, FileInput

LASTGOOD = Path(sys.executable).parent / "lastgood"
LAST = "Nothing has been changed.\n"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "TZ": "UTC"}
    command = [str(LASTGOOD), "status", *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "chk"
    CheckpointBuilder(root / "orders").run(3)
    CheckpointBuilder(root / "clicks", FileInput()).plan()
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
        f"  next         lastgood inspect {root}/orders",
        LAST.strip(),
    ]


def test_a_batch_in_flight_is_told_and_is_no_failure(root: Path) -> None:
    done = run(root / "clicks")
    assert done.returncode == 0
    assert "  in flight    batch 0: running now, or a restart runs it again as planned\n" in done.stdout
    assert "  last good    batch none yet\n" in done.stdout


def test_damage_is_exit_code_1_with_what_is_wrong(root: Path) -> None:
    (root / "orders/offsets/2").write_bytes(b"v1\n[/red]\n")
    done = run(root / "orders")
    assert (done.returncode, done.stderr) == (1, "")
    assert "  damaged\n  problem      offsets/2: not json in line 2: [/red]\n" in done.stdout
    found = json.loads(run(root / "orders", "--format=json").stdout)
    assert (found["grade"], found["problems"]) == ("damaged", ["offsets/2: not json in line 2: [/red]"])


def test_a_folder_is_a_table_worst_first(root: Path) -> None:
    done = run(root)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines[:3]] == [["grade", "checkpoint"], ["in", "flight"], ["healthy", "orders"]]
    assert done.stdout.endswith("2 checkpoints: 1 in flight, 1 healthy\n" + LAST)
    (root / "orders/metadata").unlink()
    damaged = run(root)
    assert damaged.returncode == 1
    assert damaged.stdout.splitlines()[1].split()[:2] == ["damaged", "orders"]


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
    assert (done.returncode, done.stdout) == (0, f"no checkpoint below {tmp_path}\n{LAST}")


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
