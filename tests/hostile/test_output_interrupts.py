"""Ctrl-C at any instant: no traceback, an exit code that says so, and a repair that is ended afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.attacker import call

from lastgood.errors import NoSpaceError
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
READY = """
import sys
from lastgood.cli import interrupts
interrupts.watch_for_interrupts()
print("ready", file=sys.stderr, flush=True)
from lastgood.cli.start import start
start()
"""
"""As the command begins, but that it says from when on it listens: before, Python itself starts."""
DEAD = "--driver-is-dead"
INTERRUPTED = 128 + signal.SIGINT
ROUNDS = 6
HANGS_SECONDS = 120
RANDOM = random.Random(int(os.environ.get("LASTGOOD_SEED", "1")))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches are committed, an eighth is planned, and there is a plan to plan that one anew."""
    query = CheckpointBuilder(tmp_path / "lake/chk")
    query.run(7)
    query.plan()
    made = call("plan", tmp_path / "lake/chk", "--goal", "replan", "--accept", "duplicates", "-o", "plan.json")
    assert made.code == 0
    return tmp_path / "lake/chk"


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def can_start(now: dict[str, bytes]) -> bool:
    """Whether a driver could: not while the newest plan is empty."""
    plans = [int(path.removeprefix("offsets/")) for path in now if path.startswith("offsets/")]
    return not plans or now[f"offsets/{max(plans)}"] != b""


def interrupted(words: list[object], seconds: float | None, again: float | None = None) -> tuple[int, str, float]:
    """A verb that is interrupted so long after its begin, and once more; its code, what it said, how long it took."""
    command = [sys.executable, "-c", READY, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as work:
        assert work.stdout is not None
        assert work.stdout.readline() == "ready\n"
        began = time.monotonic()
        for wait in (seconds, again):
            if wait is not None:
                time.sleep(wait)
                with contextlib.suppress(ProcessLookupError):
                    work.send_signal(signal.SIGINT)
        said, _ = work.communicate(timeout=HANGS_SECONDS)
    return work.returncode, said, time.monotonic() - began


def test_ctrl_c_while_a_class_is_made_at_the_begin_is_no_bug() -> None:
    code = """
import os, signal, sys
class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "lastgood.cli.main":
            type("Made", (), {"field": Field()})
sys.meta_path.insert(0, Finder)
from lastgood.cli.start import start
start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


@pytest.mark.parametrize("verb", ["apply", "undo", "restore"])
@pytest.mark.parametrize(
    "seed", [number if number == 0 else pytest.param(number, marks=pytest.mark.proof) for number in range(12)]
)
def test_ctrl_c_at_a_random_instant_leaves_what_can_be_ended(
    verb: str, seed: int, checkpoint: Path, tmp_path: Path
) -> None:
    chosen = random.Random(f"{RANDOM.random()} {seed}")
    words: list[object] = {
        "apply": ["apply", "plan.json", DEAD],
        "undo": ["undo", "last", "--checkpoint", checkpoint, DEAD],
        "restore": ["backup", "restore", checkpoint, "--from", "last"],
    }[verb]
    if verb == "undo":
        assert call("apply", "plan.json", DEAD).code == 0
    if verb == "restore":
        assert call("backup", "create", checkpoint).code == 0
        shutil.rmtree(checkpoint / "offsets")
        shutil.rmtree(checkpoint / "commits")
    shutil.copytree(tmp_path / "lake", tmp_path / "before")
    before = files(checkpoint)
    code, said, seconds = interrupted(words, None)
    assert code == 0, said
    after = files(checkpoint)
    for number in range(ROUNDS):
        shutil.rmtree(tmp_path / "lake")
        shutil.copytree(tmp_path / "before", tmp_path / "lake")
        again = chosen.choice([None, 0.0, 0.01])
        code, said, _ = interrupted(words, chosen.uniform(0, seconds), again)
        told = (verb, seed, number, code, said)
        assert code in (0, INTERRUPTED), told
        assert "Traceback" not in said, told
        assert "Exception ignored" not in said, told
        now = files(checkpoint)
        assert now == after if code != INTERRUPTED else now in (before, after) or not can_start(now), told
        if verb == "apply" and chosen.random() < 0.5 and any(checkpoint.parent.glob("*/recoveries/*/begun.json")):
            assert call("undo", "last", "--checkpoint", checkpoint, DEAD).code == 0, told
            assert files(checkpoint) == before, told
        else:
            ended = call(*words)
            is_there = verb == "restore" and "CHECKPOINT_NOT_EMPTY" in ended.err and files(checkpoint) == after
            assert ended.code == 0 or is_there, (told, ended)
            assert files(checkpoint) == after, told


def broken_off(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    """Somebody interrupts, or a disk is full, right before the file of that name is written."""

    def write(storage: LocalWriter, file: object, content: bytes) -> None:
        if str(file).endswith(name):
            raise error
        real(storage, file, content)  # type: ignore[arg-type]

    real = LocalWriter.write
    monkeypatch.setattr(LocalWriter, "write", write)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), NoSpaceError("the file cannot be written")], ids=["key", "disk"]
)
def test_who_breaks_off_is_told_how_the_repair_is_ended(
    error: BaseException, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(checkpoint)
    broken_off(monkeypatch, "applied.json", error)
    told = call("apply", "plan.json", DEAD)
    assert told.code == (INTERRUPTED if isinstance(error, KeyboardInterrupt) else NoSpaceError.exit_code)
    assert "is half done, and the checkpoint may be sealed" in told.out
    (go_on,) = (line.partition("go on with: lastgood ")[2] for line in told.out.splitlines() if "go on with: " in line)
    (back,) = (line.partition("with: lastgood ")[2] for line in told.out.splitlines() if "take it back with: " in line)
    monkeypatch.undo()
    assert call(*go_on.split()).code == 0
    assert call(*back.split()).code == 0
    assert files(checkpoint) == before


def test_who_breaks_off_before_anything_is_begun_is_told_nothing(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(checkpoint)
    broken_off(monkeypatch, "begun.json", KeyboardInterrupt())
    told = call("apply", "plan.json", DEAD)
    assert told.code == INTERRUPTED
    assert "half done" not in told.out
    assert files(checkpoint) == before


@pytest.fixture
def full() -> Iterator[tuple[int, int]]:
    """A pipe that nobody reads, and into which nothing more goes."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    yield read, write
    os.close(read)


def test_ctrl_c_after_the_work_waits_for_no_reader_and_keeps_its_exit_code(
    checkpoint: Path, full: tuple[int, int]
) -> None:
    _, write = full
    with subprocess.Popen([LASTGOOD, "apply", "plan.json", DEAD], stdout=write, stderr=write) as work:
        os.close(write)
        deadline = time.monotonic() + HANGS_SECONDS
        while not any(b'"released": true' in each.read_bytes() for each in checkpoint.parent.glob("*/leases/*.json")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(3)  # its last lines are written, which nobody takes
        assert work.poll() is None
        work.send_signal(signal.SIGINT)
        work.wait(HANGS_SECONDS)
    assert work.returncode == 0


def test_ctrl_c_in_a_destructor_is_not_forgotten() -> None:
    code = """
import os, signal
from lastgood.cli.interrupts import watch_for_interrupts
watch_for_interrupts()
class Opened:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))
Opened()
print("it went on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_ctrl_c_that_python_makes_another_error_of_is_no_bug() -> None:
    """What is raised while a class is made is raised as RuntimeError by Python before 3.12."""
    code = """
import importlib, os, signal, sys
from lastgood.cli import interrupts
from lastgood.cli.start import start
interrupts.watch_for_interrupts()
def import_module(name):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))
    except KeyboardInterrupt as pressed:
        raise RuntimeError("Error calling __set_name__") from pressed
importlib.import_module = import_module
sys.argv = ["lastgood", "status", "chk"]
start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_ctrl_c_that_the_shell_has_us_ignore_stays_ignored() -> None:
    code = "import signal; from lastgood.cli.interrupts import watch_for_interrupts; watch_for_interrupts();"
    code += "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    words = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", code]
    assert subprocess.run(words, check=False).returncode == 0
