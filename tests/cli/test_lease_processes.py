"""The lease between real processes: many at once, one that is killed, and one that was stopped and comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENT = {"lease_seconds": 3600.0, "beat_seconds": 0.05, "look_seconds": 0.05}
"""Nobody is taken for dead because of silence."""
HASTY = {**PATIENT, "lease_seconds": 1.0}

HOLDER = """
import json, sys, time
from lastgood.errors import LastgoodError
from lastgood.journal.lease import Holder, LeasePace, take_lease
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable

def say(**told):
    print(json.dumps(told), flush=True)

work, recovery, pace = json.loads(sys.argv[1])
work = parse_location(work)
say(ready=True)
sys.stdin.readline()
try:
    lease = take_lease(
        open_writable(work), work, recovery, holder=Holder.make_own(),
        clock=time.monotonic, wait=time.sleep, now_ms=lambda: time.time_ns() // 1_000_000, pace=LeasePace(**pace),
    )
except LastgoodError as error:
    say(**error.to_json())
    sys.exit(error.exit_code)
with lease:
    say(number=lease.number)
    for order in sys.stdin:
        try:
            lease.check()
            say(ours=True)
        except LastgoodError as error:
            say(**error.to_json())
            sys.exit(error.exit_code)
"""

Start = Callable[..., "Process"]


class Process:
    """A process that wants the lease."""

    def __init__(self, work: Path, recovery: str, pace: dict[str, float]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, json.dumps([str(work), recovery, pace])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self.heard() == {"ready": True}

    def order(self) -> None:
        """Take it; once it is taken: look whether it is still ours."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        assert isinstance(told, dict)
        return told

    def end(self) -> int:
        """Let it release what it has and end."""
        self._process.communicate()
        return self._process.returncode

    def send(self, signum: int) -> None:
        self._process.send_signal(signum)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def start(recovery: str, pace: dict[str, float] = PATIENT) -> Process:
        started.append(Process(tmp_path / "chk.lastgood", recovery, pace))
        return started[-1]

    yield start
    for process in started:
        process.send(signal.SIGKILL)
        process.end()


def test_of_eight_processes_one_wins_and_seven_are_told_who_holds_it(start: Start, tmp_path: Path) -> None:
    processes = [start(f"recovery-{number}") for number in range(8)]
    for process in processes:
        process.order()
    told = [process.heard() for process in processes]
    (winner,) = (number for number, each in enumerate(told) if "number" in each)
    assert told[winner] == {"number": 1}
    for number, each in enumerate(told):
        if number != winner:
            assert each["condition"] == "LEASE_HELD"
            assert each["found"].startswith(f"recovery-{winner}: process {processes[winner].pid} of ")
            assert f"ps -fp {processes[winner].pid}" in each["next"]
    codes = [process.end() for process in processes]
    assert codes == [0 if number == winner else 53 for number in range(8)]
    assert [path.name for path in (tmp_path / "chk.lastgood/leases").iterdir()] == ["1.json"]


def test_who_was_killed_is_followed_without_waiting(start: Start) -> None:
    killed, following = start("killed"), start("following")
    killed.order()
    assert killed.heard() == {"number": 1}
    killed.send(signal.SIGKILL)
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has asked how it ended
    following.order()
    assert following.heard() == {"number": 2}
    assert following.end() == 0


def test_who_was_stopped_and_comes_back_is_told_that_another_one_has_taken_over(start: Start) -> None:
    stopped, following = start("stopped"), start("following", HASTY)
    stopped.order()
    assert stopped.heard() == {"number": 1}
    stopped.send(signal.SIGSTOP)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    following.order()
    assert following.heard() == {"number": 2}
    stopped.send(signal.SIGCONT)
    stopped.order()
    told = stopped.heard()
    assert told["condition"] == "LEASE_LOST"
    assert f"lease 2, following: process {following.pid} of " in told["found"]
    assert stopped.end() == 58
    following.order()
    assert following.heard() == {"ours": True}
    assert following.end() == 0


def test_who_follows_one_that_has_released_does_not_wait(start: Start) -> None:
    for number in (1, 2, 3):
        process = start("one after the other")
        process.order()
        assert process.heard() == {"number": number}
        process.order()
        assert process.heard() == {"ours": True}
        assert process.end() == 0
