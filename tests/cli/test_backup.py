"""`lastgood backup` as a user starts it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from typed import call

from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "TZ": "UTC"}
    return call("backup", *arguments, env=env)


def as_json(*arguments: str | Path) -> Any:
    done = run(*arguments, "--format", "json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    return json.loads(done.stdout)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    CheckpointBuilder(folder).run(3)
    return folder


def test_a_backup_is_made_listed_kept_and_restored(checkpoint: Path) -> None:
    made = run("create", checkpoint)
    assert (made.returncode, made.stderr) == (0, "")
    told = re.fullmatch(
        r"backed up (\S+): 8 files, [\d,]+ bytes, up to batch 2\n"
        rf"Restore it with: (lastgood backup restore {re.escape(str(checkpoint))} --from \1)\n",
        made.stdout,
    )
    assert told is not None, made.stdout
    listed = run("list", checkpoint)
    assert listed.stdout.splitlines()[1].split()[0] == told[1]
    assert listed.stdout.endswith("Nothing has been changed.\n")
    assert run("keep", checkpoint, told[1]).stdout == f"{told[1]} is kept\n"
    assert "kept" in run("list", checkpoint).stdout
    shutil.rmtree(checkpoint)
    restored = run(*told[2].split()[2:])
    assert (restored.returncode, restored.stderr) == (0, "")
    assert restored.stdout == (
        f"restored 8 files from {told[1]}: batch 2 planned, batch 2 committed\n"
        f"Look at it with: lastgood inspect {checkpoint}\n"
    )


def test_the_json_names_every_field(checkpoint: Path) -> None:
    made = as_json("create", checkpoint)
    assert {name: made[name] for name in made if name not in ("id", "at_ms", "size", "sha256")} == {
        "query_id": QUERY_ID,
        "last_planned": 2,
        "last_committed": 2,
        "files": 8,
        "kept": False,
        "removed": [],
    }
    del made["removed"]
    assert as_json("list", checkpoint) == {"backups": [made]}
    assert as_json("keep", checkpoint, "last") == {**made, "kept": True}
    assert as_json("keep", checkpoint, "last", "--off") == made
    shutil.rmtree(checkpoint)
    assert as_json("restore", checkpoint) == {
        "checkpoint": str(checkpoint),
        "from": "mirror",
        "files": 8,
        "last_planned": 2,
        "last_committed": 2,
        "absent": [],
        "state_batch": None,
    }


def test_old_backups_go_where_a_time_is_given(checkpoint: Path) -> None:
    first, second = as_json("create", checkpoint), as_json("create", checkpoint)
    assert run("keep", checkpoint, second["id"]).returncode == 0
    third = as_json("create", checkpoint, "--retain", "0s")
    assert third["removed"] == [first["id"]]
    assert [each["id"] for each in as_json("list", checkpoint)["backups"]] == [second["id"], third["id"]]
    assert f"removed {third['id']}\n" in run("create", checkpoint, "--retain", "0s").stdout


def test_no_backup_is_told(checkpoint: Path) -> None:
    assert run("list", checkpoint).stdout == "no backup\nNothing has been changed.\n"
    assert as_json("list", checkpoint) == {"backups": []}


def test_what_a_restart_still_misses_is_exit_code_1(checkpoint: Path) -> None:
    assert run("create", checkpoint).returncode == 0
    shutil.rmtree(checkpoint)
    (checkpoint / "state/0/0").mkdir(parents=True)
    done = run("restore", checkpoint)
    assert done.returncode == 1
    assert "missing  state/0/0/" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "condition"),
    [
        (("create", "{none}"), 20, "CHECKPOINT_MISSING"),
        (("restore", "{none}"), 41, "BACKUP_MISSING"),
        (("restore", "{none}", "--from", "last"), 41, "BACKUP_MISSING"),
        (("keep", "{there}", "20200101-000000-0000"), 41, "BACKUP_MISSING"),
        (("restore", "{there}"), 42, "CHECKPOINT_NOT_EMPTY"),
        (("create", "{there}", "--retain", "soon"), 2, "USAGE"),
        (("create",), 2, "USAGE"),
        (("list", "s3://"), 13, "LOCATION_INVALID"),
        (("create", "{blocked}"), 10, "STORAGE_UNAVAILABLE"),
    ],
)
def test_a_refusal_is_one_answer_with_its_exit_code(
    arguments: tuple[str, ...], code: int, condition: str, checkpoint: Path, tmp_path: Path
) -> None:
    CheckpointBuilder(tmp_path / "blocked").run(1)
    (tmp_path / "blocked.lastgood").write_bytes(b"a file in the way of the work folder")
    places = {"none": tmp_path / "none", "there": checkpoint, "blocked": tmp_path / "blocked"}
    command = [word.format(**places) for word in arguments]
    text = run(*command)
    assert (text.returncode, text.stdout) == (code, "")
    assert text.stderr.startswith(f"error [{condition}] ")
    refused = run(*command, "--format", "json")
    assert (refused.returncode, refused.stderr, refused.stdout.count("\n")) == (code, "", 1)
    assert json.loads(refused.stdout)["error"]["condition"] == condition


def test_backup_fills_the_ledger_and_offsets_asks_it(checkpoint: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    made = run("create", checkpoint, "--ledger", ledger)
    assert (made.returncode, made.stderr) == (0, "")
    shutil.rmtree(checkpoint)
    shutil.rmtree(tmp_path / "checkpoint.lastgood")
    shown = forked.run("offsets", checkpoint, "--ledger", ledger, "--bare", env={"PATH": os.environ["PATH"]})
    assert (shown.stdout, shown.stderr) == ('{"orders": {"0": 15, "1": 15}}\n', "")


def test_ledger_that_refuses_is_told_and_the_backup_stands(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    refused = run("create", checkpoint, "--ledger", tmp_path / "ledger.db")
    assert (refused.returncode, refused.stdout) == (43, "")
    (made,) = as_json("list", checkpoint)["backups"]
    assert "error [LEDGER_UNAVAILABLE] the ledger cannot be reached" in refused.stderr
    assert f"effect    the ledger was not filled; backup {made['id']} is made" in refused.stderr


def test_ledger_that_cannot_be_meant_stops_a_backup_before_it_begins(checkpoint: Path) -> None:
    refused = run("create", checkpoint, "--ledger", "mysql://me:geh3im@db/x")
    assert refused.returncode == 2
    assert "geh3im" not in refused.stderr
    assert not (checkpoint.parent / "checkpoint.lastgood").exists()
