"""What a repair left in the lake is finished and taken back by the commands that are printed on another machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from printed import Answer, Printed, run

from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder, KafkaInput

DEAD = "--driver-is-dead"
MARKED = 7
FORMS = ("json", "text")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    move_to("here", monkeypatch)


def move_to(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / f"state of {machine}"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches of a topic are committed and in a table, an eighth is planned."""
    query = CheckpointBuilder(tmp_path / "a lake/chk", KafkaInput("orders", 2, 5))
    query.run(MARKED)
    query.plan()
    for batch in range(MARKED):
        mark = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch, 1_790_000_000_000)])
        rows = pa.table({"offset": pa.array([batch], pa.int64())})
        write_deltalake(tmp_path / "a lake/orders", rows, mode="append", commit_properties=mark)
    return tmp_path / "a lake/chk"


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def interrupted(checkpoint: Path) -> Path:
    """A repair that commits to the table, killed on this machine once the checkpoint was sealed."""
    sink = checkpoint.with_name("orders")
    before = files(checkpoint)
    planned = run("plan", str(checkpoint), "--goal", "replan", "--sink", str(sink), "--format", "json", "-o", "p.json")
    assert run("apply", "p.json", DEAD).code == 0, planned.out
    plan: dict[str, Any] = json.loads(Path("p.json").read_text())
    assert plan["sinks"]
    for stage in ("applying", "applied", "closed"):
        (checkpoint.with_name("chk.lastgood") / "recoveries" / plan["recovery"] / f"{stage}.json").unlink()
    for path in files(checkpoint).keys() - before.keys():
        (checkpoint / path).unlink()
    for path, content in before.items():
        (checkpoint / path).write_bytes(content)
    for path in plan["seal"]:
        (checkpoint / path).write_bytes(b"")
    return checkpoint


def commands(answers: Iterator[Answer], verb: str) -> list[Printed]:
    found = {each.line: each for answer in answers for each in answer.printed() if each.verb == verb}
    return list(found.values())


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_a_repair_that_another_machine_began_is_ended_by_what_is_printed_here(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    move_to("elsewhere", monkeypatch)
    sink = ("--sink", str(interrupted.with_name("orders")))
    asked = [("status", str(interrupted)), ("diagnose", str(interrupted)), ("plan", str(interrupted))]
    printed = commands((run(*words, *sink, "--format", form) for words in asked for form in FORMS), verb)
    assert printed
    shutil.copytree("a lake", "kept")
    for number, each in enumerate(printed):
        move_to(f"machine {number}", monkeypatch)
        done = run(*each.words)
        assert done.code == 0, (each.line, done.out)
        shutil.rmtree("a lake")
        shutil.copytree("kept", "a lake")


def test_a_checkpoint_that_was_left_behind_is_put_back_by_what_is_printed(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--goal", "fresh", "--stable-lag", "2", "--via", "app-config", "--start-file", "start.json")
    sink = ("--sink", str(checkpoint.with_name("orders")))
    left = run("plan", str(checkpoint), *words, *sink, "--takes-any-number", "--accept", "duplicates", "-o", "p.json")
    assert left.code == 0, left.out
    assert run("apply", "p.json", DEAD).code == 0
    move_to("elsewhere", monkeypatch)
    asked = [("status", str(checkpoint)), ("diagnose", str(checkpoint))]
    printed = commands((run(*words, *sink, "--format", form) for words in asked for form in FORMS), "undo")
    assert printed
    for folder in ("a lake", "start.json"):
        (shutil.copytree if Path(folder).is_dir() else shutil.copy)(folder, f"kept {folder}")
    for number, each in enumerate(printed):
        move_to(f"machine {number}", monkeypatch)
        done = run(*each.words)
        assert done.code == 0, (each.line, done.out)
        assert (checkpoint / "offsets/7").exists()
        shutil.rmtree("a lake")
        shutil.copytree("kept a lake", "a lake")
        shutil.copy("kept start.json", "start.json")


def test_an_undo_of_what_this_machine_does_not_know_says_again_what_was_said(checkpoint: Path) -> None:
    said = ["--sink", str(checkpoint.with_name("orders")), "--start-file", "start.json", DEAD]
    refused = run("undo", "20261121-160058-7f3a", *said, "--format", "json")
    assert refused.said["error"]["condition"] == "RECOVERY_UNKNOWN"
    (again,) = refused.printed()
    assert set(again.words) > {"LOCATION", *said}
