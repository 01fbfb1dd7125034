"""Who works on a checkpoint, for whoever only looks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood.journal.holding import CheckpointHolder, HoldReason, LockHolder, find_holder, locate_lock_file
from lastgood.journal.lease import Holder, LeaseRecord
from lastgood.recovery.hold import hold_checkpoint
from lastgood.storage.reading import Location, open_storage, parse_location


@pytest.fixture
def checkpoint(tmp_path: Path) -> Location:
    return parse_location(str(tmp_path / "chk"))


def find(checkpoint: Location) -> CheckpointHolder | None:
    return find_holder(open_storage(checkpoint), checkpoint)


def write_lock(checkpoint: Location, **changed: Any) -> None:
    file = locate_lock_file(checkpoint)
    file.parent.mkdir(exist_ok=True)
    own = Holder.make_own()
    since = datetime.now(UTC).isoformat()
    told = LockHolder(own.pid, own.host, since, HoldReason.RUN, own.machine, own.started).to_json()
    file.write_text(json.dumps(told | changed))


def write_lease(checkpoint: Location, beat: datetime, *, pid: int = 1, released: bool = False) -> None:
    holder = Holder("elsewhere", "another machine", pid, 7, "root")
    when = beat.isoformat(timespec="milliseconds")
    file = Path(f"{checkpoint.path}.lastgood/leases/3.json")
    file.parent.mkdir(parents=True)
    file.write_bytes(LeaseRecord("r", holder, taken_at=when, beat_at=when, released=released).to_bytes())


@pytest.mark.parametrize("work", HoldReason)
def test_who_holds_it_is_found_as_long_as_it_does(checkpoint: Location, work: HoldReason) -> None:
    assert find(checkpoint) is None
    with hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint), work):
        found = find(checkpoint)
        assert found is not None
        assert (found.work, found.pid, found.host) == (work, os.getpid(), socket.gethostname())
        assert abs(found.since_ms / 1000 - time.time()) < 60
    assert find(checkpoint) is None


def test_who_looks_keeps_nobody_out(checkpoint: Location) -> None:
    with hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint)):
        find(checkpoint)
    code = "import sys; from pathlib import Path; from lastgood.recovery.hold import hold_checkpoint as h\n"
    code += "with h('c', Path(sys.argv[1])): pass"
    for _ in range(3):
        find(checkpoint)
        subprocess.run([sys.executable, "-c", code, locate_lock_file(checkpoint)], check=True)


def test_who_has_left_with_an_error_holds_nothing(checkpoint: Location) -> None:
    """It lives on, as the process of a notebook does."""
    with pytest.raises(KeyboardInterrupt), hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint)):
        raise KeyboardInterrupt
    assert find(checkpoint) is None


def test_a_fork_that_leaves_holds_nothing_and_its_parent_goes_on(checkpoint: Location) -> None:
    code = """
import os, sys
from pathlib import Path
from lastgood.recovery.hold import hold_checkpoint
with hold_checkpoint("c", Path(sys.argv[1])):
    if not os.fork():
        sys.exit()
    os.wait()
    print(Path(sys.argv[1]).read_text())
"""
    done = subprocess.run([sys.executable, "-c", code, locate_lock_file(checkpoint)], capture_output=True, check=True)
    assert json.loads(done.stdout)["work"] == "run"


def test_one_that_was_killed_holds_nothing(checkpoint: Location) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    while Path(f"/proc/{dead.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    write_lock(checkpoint, pid=dead.pid)
    assert find(checkpoint) is None
    dead.wait()
    assert find(checkpoint) is None


def test_another_process_of_the_same_number_is_not_it(checkpoint: Location) -> None:
    write_lock(checkpoint)
    assert find(checkpoint) is not None
    write_lock(checkpoint, started=7)
    assert find(checkpoint) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"machine": None},
        {"machine": "x"},
        {"pid": -1},
        {"pid": "1"},
        {"since": "now"},
        {"since": "2026-01-01T00:00"},
        {"work": "x"},
        {"started": []},
        {"host": 7},
    ],
)
def test_what_is_no_process_of_this_machine_is_not_told(checkpoint: Location, wrong: dict[str, Any]) -> None:
    write_lock(checkpoint, **wrong)
    assert find(checkpoint) is None


@pytest.mark.parametrize("name", ["run.lock", ""])
def test_no_link_beside_the_checkpoint_is_followed(checkpoint: Location, tmp_path: Path, name: str) -> None:
    write_lock(checkpoint)
    place = Path(f"{checkpoint.path}.lastgood") / name
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    assert find(checkpoint) is None


def test_one_of_another_machine_is_found_by_its_lease(checkpoint: Location) -> None:
    write_lease(checkpoint, datetime.now(UTC))
    found = find(checkpoint)
    assert found is not None
    assert (found.work, found.host, found.seen_ms == found.since_ms) == (None, "elsewhere", True)


@pytest.mark.parametrize(("silent_seconds", "released"), [(0, True), (120, False), (-120, False)])
def test_a_lease_that_is_nobodys_is_not_told(checkpoint: Location, silent_seconds: int, released: bool) -> None:
    write_lease(checkpoint, datetime.now(UTC) - timedelta(seconds=silent_seconds), released=released)
    assert find(checkpoint) is None
