"""`lastgood run` that is restarted itself, or takes turns with `lastgood recover`: one and the same ladder.

The application is a script that does what Spark does to its logs, as far as a test needs it: so there is no Java.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import forked
import pytest
from supervising import make_open_batch

LASTGOOD = Path(sys.executable).parent / "lastgood"
FAILS = "raise SystemExit(1)"
COMMITS = """
    import pathlib, shutil, sys, time
    checkpoint = pathlib.Path(sys.argv[1])
    shutil.copyfile(checkpoint / "commits/0", checkpoint / "commits/7")
    time.sleep(1)
    raise SystemExit(1)
"""
"""Commits batch 7, lives long enough for that to be seen, and fails."""
HANGS = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).with_name('up').touch(); time.sleep(60)"

POISONED = """
    import json, pathlib, sys
    checkpoint = pathlib.Path(sys.argv[1])
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    newest = lambda folder: max(int(each.name) for each in folder.iterdir() if each.name.isdecimal())
    end = lambda batch: json.loads((offsets / str(batch)).read_text().splitlines()[-1])["orders"]["0"]
    while True:
        batch = newest(commits) + 1
        if newest(offsets) < batch:
            stood, before = end(batch - 1), (offsets / str(batch - 1)).read_text()
            (offsets / str(batch)).write_text(before.replace(f":{stood}", f":{stood + 5}"))
        if end(batch) > 37 >= end(batch - 1):
            raise SystemExit(1)
        (commits / str(batch)).write_bytes((commits / str(batch - 1)).read_bytes())
"""
"""Goes on as Spark does, five offsets a batch, and fails for ever at the offset 37."""

TELLS = """
    import json, os, pathlib, socket, sys
    told = {"pid": os.getpid(), "host": socket.gethostname(), "process_started_at_ms": os.getpid(), "python": "3.11"}
    told |= {"beat_at_ms": 1, "exited_at_ms": None, "recorded": 0, "dropped": 0, "trouble": None, "is_classic": True}
    query = {"query_id": "0", "run_id": "0", "query_name": None, "checkpoint": sys.argv[1]}
    file = pathlib.Path(os.environ["LASTGOOD_AGENT_DIR"], f"{os.getpid():013d}-{os.getpid()}.driver.json")
    draft = file.with_name("draft")
    draft.write_text(json.dumps({**told, "queries": [query]}))
    draft.replace(file)
    raise SystemExit(1)
"""
"""Lets it be known as the agent does which checkpoint its query has, and fails."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches are committed, and the sink has them; an eighth is planned."""
    return make_open_batch(tmp_path)


def lastgood(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code, and what was printed."""
    done = forked.run(*words, "--format", "json", env=_environment(folder), cwd=folder)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def pipeline(folder: Path, code: str, policy: str = "", sink: str = "", *, is_named: bool = True) -> None:
    named = f'checkpoint = "{folder}/chk"' if is_named else ""
    (folder / "app.py").write_text(textwrap.dedent(code))
    (folder / "lastgood.toml").write_text(
        f'[pipeline.app]\ncommand = ["env", "{sys.executable}", "{folder}/app.py", "{folder}/chk"]\n'
        f'{named}\ndriver_check = ["true"]\n{sink}\n'
        f'[pipeline.app.policy]\nbackoff = "10ms"\ngrace = "500ms"\n{policy}\n'
    )


def starts(told: list[dict[str, Any]]) -> int:
    return [event.get("event") for event in told].count("started")


def killed_run(folder: Path, signum: int) -> None:
    """`lastgood run` is ended with this signal while the application runs."""
    process = subprocess.Popen(
        [str(LASTGOOD), "run", "app"],
        env=_environment(folder),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (folder / "up").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (folder / "up").unlink()
    process.send_signal(signum)
    process.wait(timeout=30)


def failures(folder: Path) -> int:
    file = folder / "chk.lastgood/attempts.json"
    return int(json.loads(file.read_bytes())["failures"]) if file.exists() else 0


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}


@pytest.mark.usefixtures("checkpoint")
def test_run_that_gave_up_stays_so_until_a_person_has_looked(tmp_path: Path) -> None:
    pipeline(tmp_path, FAILS, "max_attempts = 2\nsame_batch = 9")
    code, told = lastgood(tmp_path, "run", "app")
    assert (code, starts(told)) == (71, 3)
    for _ in range(2):  # as systemd would
        code, told = lastgood(tmp_path, "run", "app")
        assert (code, starts(told)) == (71, 0)
        error = told[-1]["error"]
        assert error["condition"] == "ATTEMPTS_EXHAUSTED"
        assert "batch 7 failed 3 times in a row" in error["sentence"]
        assert error["next"] == "lastgood run app --go-on"
    assert lastgood(tmp_path, "recover", "app")[0] == 3
    code, told = lastgood(tmp_path, *shlex.split(error["next"])[1:])
    assert (code, starts(told)) == (71, 3)


def test_run_that_gave_up_before_a_batch_was_planned_gives_the_application_one_start(
    tmp_path: Path, checkpoint: Path
) -> None:
    (checkpoint / "commits/7").write_bytes((checkpoint / "commits/6").read_bytes())
    pipeline(tmp_path, FAILS, "max_attempts = 2\nsame_batch = 9")
    assert [(code, starts(told)) for code, told in [lastgood(tmp_path, "run", "app")]] == [(71, 3)]
    assert [(code, starts(told)) for code, told in [lastgood(tmp_path, "run", "app")]] == [(71, 1)]
    code, (told,) = lastgood(tmp_path, "recover", "app")
    assert (code, told["because"]) == (3, "the query failed 4 times in a row before it had planned a batch")
    (tmp_path / "app.py").write_text("print('mended')")
    code, events = lastgood(tmp_path, "run", "app")
    assert (code, starts(events), failures(tmp_path)) == (0, 1, 0)


@pytest.mark.usefixtures("checkpoint")
def test_numbers_that_repairs_use_up_and_batches_that_come_again_are_no_progress(tmp_path: Path) -> None:
    pipeline(tmp_path, POISONED, 'same_batch = 2\naccept = ["duplicates"]')
    code, told = lastgood(tmp_path, "run", "app")
    goals = [event["goal"] for event in told if event.get("event") == "repaired"]
    assert (code, goals) == (71, ["replan", "reposition", "replan"])


@pytest.mark.usefixtures("checkpoint")
def test_run_and_recover_climb_the_same_ladder_in_turn(tmp_path: Path) -> None:
    pipeline(tmp_path, HANGS, "same_batch = 2", 'sink = "file:sink"')
    assert lastgood(tmp_path, "recover", "app")[0] == 0
    killed_run(tmp_path, signal.SIGKILL)  # the first failure was seen at its start
    assert failures(tmp_path) == 1
    code, (told,) = lastgood(tmp_path, "recover", "app")
    assert (code, told["goal"], failures(tmp_path)) == (0, "replan", 2)


@pytest.mark.usefixtures("checkpoint")
def test_batch_that_recover_saw_fail_is_planned_anew_at_the_first_start_of_run(tmp_path: Path) -> None:
    pipeline(tmp_path, "print('done')", "same_batch = 2", 'sink = "file:sink"')
    for _ in range(2):
        assert lastgood(tmp_path, "recover", "app")[0] == 0
    code, told = lastgood(tmp_path, "run", "app")
    assert (code, [event["goal"] for event in told if event["event"] == "repaired"]) == (0, ["replan"])


@pytest.mark.usefixtures("checkpoint")
def test_run_that_is_stopped_has_not_failed(tmp_path: Path) -> None:
    pipeline(tmp_path, HANGS, "max_attempts = 1")
    for _ in range(4):
        killed_run(tmp_path, signal.SIGTERM)
    assert failures(tmp_path) == 0


def test_committed_batch_begins_the_count_anew(tmp_path: Path, checkpoint: Path) -> None:
    pipeline(tmp_path, FAILS, "max_attempts = 1\nsame_batch = 9")
    assert lastgood(tmp_path, "run", "app")[0] == 71
    (checkpoint / "commits/7").write_bytes((checkpoint / "commits/6").read_bytes())
    code, told = lastgood(tmp_path, "run", "app")
    assert (code, starts(told)) == (71, 2)


@pytest.mark.usefixtures("checkpoint")
def test_failure_after_a_new_batch_is_the_first_one(tmp_path: Path) -> None:
    pipeline(tmp_path, FAILS, "max_attempts = 3\nsame_batch = 9")
    for _ in range(2):
        lastgood(tmp_path, "recover", "app")
    (tmp_path / "app.py").write_text(textwrap.dedent(COMMITS))
    code, told = lastgood(tmp_path, "run", "app")
    first = next(event for event in told if event["event"] == "restarting")
    assert (code, first["attempt"]) == (71, 1)


@pytest.mark.usefixtures("checkpoint")
def test_checkpoint_that_only_the_application_names_climbs_the_same_ladder(tmp_path: Path) -> None:
    pipeline(tmp_path, TELLS, "max_attempts = 3\nsame_batch = 9", is_named=False)
    assert lastgood(tmp_path, "recover", "chk", "--driver-is-dead")[0] == 0
    assert lastgood(tmp_path, "recover", "chk", "--driver-is-dead")[0] == 0  # and has failed once since
    code, told = lastgood(tmp_path, "run", "app")
    assert (code, starts(told), failures(tmp_path)) == (71, 2, 4)
    code, told = lastgood(tmp_path, "run", "app")  # which checkpoint it has is known once it was started
    assert (code, starts(told), failures(tmp_path)) == (71, 1, 5)
    (decided,) = lastgood(tmp_path, "recover", "chk", "--driver-is-dead")[1]
    assert decided["failed"]["times"] == 5
