"""What a killed lastgood had begun to write is swept by the next repair; what others have begun is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import forked
import pytest

from lastgood.checkpoint.layout import LogFile, LogName, TemporaryFile, classify
from lastgood.recovery.sweeping import KEPT_MS, sweep_drafts
from lastgood.storage.drafts import is_draft, make_draft_name
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
DEAD = "--driver-is-dead"
OLD = time.time() - 2 * KEPT_MS / 1000


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(4)
    query.plan()
    return tmp_path / "chk"


def _put(file: Path, *, is_old: bool = True) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"half")
    if is_old:
        os.utime(file, (OLD, OLD))
    return file


def test_draft_is_a_temporary_file_to_spark_and_to_us() -> None:
    assert classify(f"offsets/{make_draft_name('5')}") == TemporaryFile(LogFile("offsets", LogName(5, False, True)))
    assert classify(f"offsets/.5.{uuid.uuid4()}.tmp") == TemporaryFile(LogFile("offsets", LogName(5, False, True)))
    assert len(make_draft_name("x" * 255)) <= 255
    for name in (f".5.{uuid.uuid4()}.tmp", f"{uuid.uuid4()}.tmp", ".lastgood-draft.5.tmp", f"a{make_draft_name('5')}"):
        assert not is_draft(name)


def test_repair_sweeps_what_is_left_of_ours_and_nothing_else(checkpoint: Path) -> None:
    beside = checkpoint.with_name("chk.lastgood")
    left = [
        _put(folder / make_draft_name("7"))
        for folder in (beside, beside / "recoveries" / "x", checkpoint, checkpoint / "offsets", checkpoint / "commits")
    ]
    kept = [
        _put(checkpoint / "offsets" / f".5.{uuid.uuid4()}.tmp"),
        _put(checkpoint / "commits" / f".5.{uuid.uuid4()}.TID77.tmp"),
        _put(checkpoint / "offsets" / make_draft_name("9"), is_old=False),
        _put(beside / f".mine.{uuid.uuid4()}.tmp"),
        _put(beside / ".lastgood-draft.notes"),
    ]
    plan = ("plan", checkpoint, "--goal", "replan", "--accept", "duplicates", "-o", "plan.json")
    for words in (plan, ("apply", "plan.json", DEAD)):
        done = forked.run(*words)
        assert done.returncode == 0, done
    assert [each for each in left if each.exists()] == []
    assert [each for each in kept if not each.exists()] == []


def test_kill_in_the_middle_of_a_write_leaves_what_can_be_swept(checkpoint: Path) -> None:
    code = """
import os, signal, sys
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
place = parse_location(sys.argv[1])
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
open_writable(place).write(place / "offsets" / "5", b"half")
"""
    done = subprocess.run([sys.executable, "-c", code, checkpoint], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = (each for each in (checkpoint / "offsets").iterdir() if is_draft(each.name))
    location = parse_location(str(checkpoint))
    storage = open_writable(location)
    now_ms = time.time_ns() // 1_000_000
    assert sweep_drafts(storage, location, now_ms=now_ms) == []
    assert sweep_drafts(storage, location, now_ms=now_ms + KEPT_MS + 60_000) == [str(left)]
    assert not left.exists()


def test_folder_or_link_of_such_a_name_harms_nothing(checkpoint: Path, tmp_path: Path) -> None:
    victim = _put(tmp_path / "victim")
    link = checkpoint / "offsets" / make_draft_name("1")
    link.symlink_to(victim)
    (checkpoint / "offsets" / make_draft_name("2")).mkdir()
    location = parse_location(str(checkpoint))
    sweep_drafts(open_writable(location), location, now_ms=time.time_ns() // 1_000_000)
    assert victim.read_bytes() == b"half"
