from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.errors import StorageError
from lastgood.recovery.hold import CheckpointHeldError, hold_checkpoint


def test_second_holder_is_told_who_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "c.lastgood" / "run.lock"
    with (
        hold_checkpoint("/c", lock),
        pytest.raises(CheckpointHeldError) as raised,
        hold_checkpoint("/c", lock),
    ):
        pass
    assert f"process {os.getpid()} on " in (raised.value.found or "")
    assert raised.value.next == f"ps -fp {os.getpid()}"


def test_it_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_checkpoint("/c", tmp_path / "run.lock"):
            pass


def test_a_holder_that_is_killed_lets_go(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from lastgood.recovery.hold import hold_checkpoint
with hold_checkpoint("/c", Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
    lock = tmp_path / "run.lock"
    holder = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder, holder.stdout as out:
        assert out.readline() == b"held\n"
        with pytest.raises(CheckpointHeldError), hold_checkpoint("/c", lock):
            pass
        holder.kill()
    with hold_checkpoint("/c", lock):
        pass


def test_holder_without_a_name_is_still_a_holder(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with hold_checkpoint("/c", lock):
        lock.write_bytes(b"")
        with pytest.raises(CheckpointHeldError) as raised, hold_checkpoint("/c", lock):
            pass
    assert raised.value.found == "a process that has not written its name"


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as raised, hold_checkpoint("/c", tmp_path / "file" / "run.lock"):
        pass
    assert raised.value.subject == str(tmp_path / "file" / "run.lock")
