"""A reader that leaves, a closed descriptor, a full disk: what is done is done, and the exit code says so."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest
from reading import read_files

from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
DEAD = "--driver-is-dead"
LEFT = 128 + signal.SIGPIPE
HANGS_SECONDS = 120
IN_TEST = [">&-", "> /dev/full 2> /dev/full", "2>&1 | true"]
"""Each of the three things that can become of both streams once; the proof takes the others as well."""
WAYS = [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "> /dev/full", "> /dev/full 2> /dev/full", "| true", "2>&1 | true"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches are committed, an eighth is planned."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    return tmp_path / "chk"


def shell(line: str) -> tuple[int, str]:
    """The exit code of the first command of a pipe, and what was said on standard error."""
    script = f"{line}\nexit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr


def answer(*words: object) -> dict[str, object]:
    told: dict[str, object] = json.loads(forked.run(*words, "--format", "json").stdout)
    return told


def replan(checkpoint: Path) -> None:
    assert "error" not in answer("plan", checkpoint, "--goal", "replan", "--accept", "duplicates", "-o", "plan.json")


@pytest.mark.parametrize(
    ("way", "output_format"),
    [
        *((way, "text") for way in IN_TEST),
        ("| true", "json"),
        *(pytest.param(way, "text", marks=pytest.mark.proof) for way in WAYS if way not in IN_TEST),
        pytest.param("> /dev/full", "json", marks=pytest.mark.proof),
    ],
)
def test_repair_is_finished_and_taken_back_without_a_reader(checkpoint: Path, way: str, output_format: str) -> None:
    before = read_files(checkpoint)
    replan(checkpoint)
    assert shell(f"{LASTGOOD} apply plan.json {DEAD} --format {output_format} {way}")[0] == 0
    assert answer("apply", "plan.json", DEAD)["state"] == "already applied"
    assert read_files(checkpoint) != before
    assert shell(f"{LASTGOOD} undo last --checkpoint {checkpoint} {DEAD} --format {output_format} {way}")[0] == 0
    assert read_files(checkpoint) == before


@pytest.mark.parametrize(
    "way", ["", "2>&1 | true", *(pytest.param(way, marks=pytest.mark.proof) for way in (">&-", "> /dev/full"))]
)
def test_exit_code_is_that_of_the_work(checkpoint: Path, way: str) -> None:
    replan(checkpoint)
    Path("plan.json").write_text(Path("plan.json").read_text().replace("replan", "resume"))
    assert shell(f"{LASTGOOD} apply plan.json {DEAD} {way}")[0] == 50
    assert shell(f"{LASTGOOD} recover {checkpoint} {DEAD} {way}")[0] == 0
    assert shell(f"{LASTGOOD} backup create {checkpoint} {way}")[0] == 0
    assert shell(f"{LASTGOOD} backup make {checkpoint} {way}")[0] == 2  # there is no such verb
    assert shell(f"{LASTGOOD} plan {checkpoint} -o saved.json {way}")[0] == 0
    assert Path("saved.json").exists()


@pytest.mark.parametrize(
    "lines", [lines if lines in (1, 4, 8) else pytest.param(lines, marks=pytest.mark.proof) for lines in range(1, 9)]
)
def test_reader_that_leaves_after_any_line_does_not_stop_a_repair(checkpoint: Path, lines: int) -> None:
    """A pipe whose reader closes it at once after so many lines, so that the next write meets nobody."""
    replan(checkpoint)
    read, write = os.pipe()
    with subprocess.Popen([LASTGOOD, "apply", "plan.json", DEAD], stdout=write, stderr=subprocess.PIPE) as work:
        os.close(write)
        with os.fdopen(read, "rb", buffering=0) as reader:
            for _ in range(lines):
                reader.readline()
        assert work.stderr is not None
        told = work.stderr.read()
    assert (work.returncode, told) == (0, b"")
    assert answer("apply", "plan.json", DEAD)["state"] == "already applied"


@pytest.mark.parametrize("verb", ["status", "diagnose", "inspect --all", "offsets --bare"])
def test_reading_verb_stops_where_nobody_reads(checkpoint: Path, verb: str) -> None:
    verb, *options = verb.split()
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([LASTGOOD, verb, checkpoint, *options], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (LEFT, b"")


def test_closed_output_is_not_taken_by_a_file(checkpoint: Path) -> None:
    """A library, or a command that is started, prints into descriptor 1: that must be no file of ours."""
    code = "import os; from lastgood.cli.streams import guard_streams; guard_streams(); os.write(1, b'x');"
    code += "assert os.open('f', os.O_CREAT | os.O_WRONLY) > 2; assert os.get_inheritable(1)"
    assert shell(f'{sys.executable} -c "{code}" <&- >&-') == (0, "")
    code, told = shell(f"{LASTGOOD} status {checkpoint} >&-")
    assert (code, told) == (0, "")


def test_supervised_command_outlives_the_reader_of_its_events(tmp_path: Path) -> None:
    done = "sh -c 'echo out; sleep 0.2; exit 0'"
    for way in ("| true", ">&-", "2>&1 | true", "> /dev/full", ">&- 2>&-"):
        assert shell(f"{LASTGOOD} run --no-agent --show-output -- {done} {way}")[0] == 0


@pytest.fixture
def stuck() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that is full, and that nobody reads."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write, b"." * 4096):
            pass
    os.set_blocking(write, True)
    yield read, write
    for each in (read, write):
        with contextlib.suppress(OSError):
            os.close(each)


def drained(read: int) -> bytes:
    """What comes out of a pipe until everyone has closed it."""
    with os.fdopen(read, "rb") as reader:
        return reader.read()


@pytest.mark.parametrize("way", ["read", "left"])
def test_reader_that_stays_and_reads_nothing_does_not_stop_a_repair(
    checkpoint: Path, stuck: tuple[int, int], way: str
) -> None:
    replan(checkpoint)
    read, write = stuck
    with subprocess.Popen([LASTGOOD, "apply", "plan.json", DEAD], stdout=write, stderr=write) as work:
        os.close(write)
        deadline = time.monotonic() + HANGS_SECONDS
        while not any(checkpoint.parent.glob("chk.lastgood/recoveries/*/closed.json")):
            assert time.monotonic() < deadline, "the repair waits for its reader"
            time.sleep(0.01)
        if way == "left":
            os.close(read)
        else:  # who comes back has missed nothing
            assert b"lastgood undo" in drained(read)
    assert work.returncode == 0
    assert answer("apply", "plan.json", DEAD)["state"] == "already applied"


def test_supervised_command_waits_for_no_reader(tmp_path: Path, stuck: tuple[int, int]) -> None:
    read, write = stuck
    command = "i=0; while [ $i -lt 20000 ]; do echo a line of the application; i=$((i+1)); done; touch done"
    words = [LASTGOOD, "run", "--no-agent", "--show-output", "--", "sh", "-c", command]
    with subprocess.Popen(words, stdout=write, stderr=write) as work:
        os.close(write)
        deadline = time.monotonic() + HANGS_SECONDS
        while not (tmp_path / "done").exists():
            assert time.monotonic() < deadline, "the application waits for somebody who reads"
            time.sleep(0.01)
        os.close(read)
    assert work.returncode == 0


def test_what_nobody_takes_is_bounded_and_a_gap_ends_a_line(
    stuck: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lastgood.cli import streams

    monkeypatch.setattr(streams, "UNSENT_BYTES_MAX", 20)
    monkeypatch.setattr(streams, "PATIENCE_SECONDS", 0.01)
    read, write = stuck
    stream = streams.Stream(write)
    for piece in (b"first\n", b"half", b"x" * 20, b"last\n"):
        assert stream.write(piece) == len(piece)
    stream.finish(0.01)  # nobody reads: it does not wait
    reader = threading.Thread(target=lambda: taken.append(drained(read)))
    taken: list[bytes] = []
    reader.start()
    stream.finish()
    os.close(write)
    reader.join()
    assert taken[0].lstrip(b".") == b"first\nhalf\nlast\n"


def test_line_that_a_full_disk_cut_takes_no_other_line(tmp_path: Path) -> None:
    from lastgood.cli.streams import Stream

    file = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
    stream = Stream(file)
    full = os.open("/dev/full", os.O_WRONLY)
    stream.write(b'{"half')
    stream.finish()
    kept = os.dup(file)
    os.dup2(full, file)
    stream.write(b'": 1}\n')
    stream.finish()
    os.dup2(kept, file)
    stream.write(b'{"next": 2}\n')
    stream.finish()
    assert (tmp_path / "log").read_bytes() == b'{"half\n{"next": 2}\n'
