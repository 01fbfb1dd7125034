"""`lastgood run` on a checkpoint that a plain restart cannot mend: repaired, or left to a person, before each start.

The application is a script that does what Spark does to its logs, as far as a test needs it: so there is no Java.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from supervising import make_open_batch
from typed import call

from lastgood.journal.incident import Incident
from lastgood.journal.incidents import Incidents
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.operations.backup import create
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable

LASTGOOD = Path(sys.executable).parent / "lastgood"
COMMIT = """
    import pathlib, shutil, sys, time
    checkpoint = pathlib.Path(sys.argv[1])
    newest = max(int(each.name) for each in (checkpoint / "offsets").iterdir() if each.name.isdigit())
    shutil.copyfile(checkpoint / "commits/0", checkpoint / "commits" / str(newest))
    time.sleep(1)
"""
"""Commits the newest plan, and lives long enough for that to be seen."""
UNTOLD = 'driver_check = ["true"]'
"""No sink is named, so that nobody can tell whether the planned batch was written."""
SINK = 'sink = "file:sink"'
DEAD = f'{SINK}\ndriver_check = ["true"]'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches are committed, and `SINK` has them; an eighth is planned."""
    return make_open_batch(tmp_path)


def run(folder: Path, code: str, config: str = "", policy: str = "", *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and events of `lastgood run` with this application; the last one may be an error."""
    (folder / "app.py").write_text(textwrap.dedent(code))
    (folder / "lastgood.toml").write_text(
        f'[pipeline.app]\ncommand = ["env", "{sys.executable}", "{folder}/app.py", "{folder}/chk"]\n'
        f'checkpoint = "{folder}/chk"\n{config}\n'
        f'[pipeline.app.policy]\nbackoff = "10ms"\ngrace = "500ms"\n{policy}\n'
    )
    done = lastgood(folder, "run", "app", "--format", "json", *words)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def lastgood(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    return call(*words, env=env, cwd=folder)


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events if event.get("event", "repairing") != "repairing"]


def only(events: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [event for event in events if event.get("event") == name]
    return found


def incident(checkpoint: Path) -> Incident:
    location = parse_location(str(checkpoint))
    found = Incidents(open_writable(location), location).last()
    assert found is not None
    return found


def truncate(checkpoint: Path, path: str) -> bytes:
    before = (checkpoint / path).read_bytes()
    (checkpoint / path).write_bytes(before[:10])
    return before


def test_plain_restart_is_diagnosed_and_started_at_once(tmp_path: Path, checkpoint: Path) -> None:
    code, events = run(tmp_path, COMMIT)
    assert (code, names(events)) == (0, ["diagnosed", "started", "committed", "ended"])
    assert (checkpoint / "commits/7").exists()
    assert not (tmp_path / "chk.lastgood/incidents").exists()


def test_damaged_plan_is_put_back_from_the_mirror_before_the_start(tmp_path: Path, checkpoint: Path) -> None:
    create(resolve_target(str(checkpoint)))
    before = truncate(checkpoint, "offsets/7")
    code, events = run(tmp_path, COMMIT, DEAD)
    assert (code, names(events)[:3]) == (0, ["repaired", "started", "committed"])
    assert only(events, "promised")["batch"] == 7
    assert (checkpoint / "offsets/7").read_bytes() == before
    repaired, told = only(events, "repaired"), incident(checkpoint)
    assert repaired["guarantee"] == "exactly_once"
    assert [(each.did, each.recovery) for each in told.attempts] == [("repair", repaired["recovery"])]
    assert (told.outcome, told.first_batch, told.rerun, told.cause) == ("recovered", 7, True, None)


def test_nothing_is_repaired_while_a_driver_may_be_alive(tmp_path: Path, checkpoint: Path) -> None:
    create(resolve_target(str(checkpoint)))
    truncate(checkpoint, "offsets/7")
    code, events = run(tmp_path, COMMIT, SINK)
    assert (code, names(events)) == (3, ["called"])
    called, error = only(events, "called"), events[-1]["error"]
    assert error["condition"] == "PERSON_NEEDED"
    assert called["next"] == error["next"] == f"lastgood recover {checkpoint} --driver-is-dead --sink file:sink"
    assert Path(called["file"]).exists()
    assert incident(checkpoint).outcome == "person"


def test_command_that_the_person_is_told_to_type_makes_it_start(tmp_path: Path, checkpoint: Path) -> None:
    create(resolve_target(str(checkpoint)))
    truncate(checkpoint, "offsets/7")
    _, events = run(tmp_path, COMMIT, SINK)
    done = lastgood(tmp_path, *only(events, "called")["next"].split()[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    code, events = run(tmp_path, COMMIT)
    assert (code, names(events)) == (0, ["diagnosed", "started", "committed", "ended"])


def test_restart_only_looks_at_nothing(tmp_path: Path, checkpoint: Path) -> None:
    truncate(checkpoint, "offsets/7")
    code, events = run(tmp_path, "print('done')", "", "", "--restart-only")
    assert (code, names(events)) == (0, ["started", "ended"])


STUCK = """
    import pathlib, sys
    checkpoint = pathlib.Path(sys.argv[1])
    if (checkpoint / "offsets/7").read_bytes() == (checkpoint.parent / "too-large").read_bytes():
        raise SystemExit(1)
"""


def test_batch_that_fails_again_and_again_is_planned_anew_if_that_is_accepted(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "too-large").write_bytes((checkpoint / "offsets/7").read_bytes())
    (tmp_path / "app.py").write_text("")
    code, events = run(
        tmp_path, STUCK.replace("if (", "if (checkpoint / 'offsets/7').exists() and ("), UNTOLD,
        'same_batch = 2\naccept = ["duplicates"]',
    )  # fmt: skip
    assert code == 0
    told = [each for each in names(events) if each not in ("ended", "started")]
    assert told == ["diagnosed", "restarting", "diagnosed", "restarting", "repaired"]
    assert only(events, "repaired")["goal"] == "replan"


def test_what_nobody_accepted_is_offered_when_all_else_was_tried(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "too-large").write_bytes((checkpoint / "offsets/7").read_bytes())
    code, events = run(tmp_path, STUCK, UNTOLD, "same_batch = 2\nmax_attempts = 2")
    assert (code, names(events)[-2:]) == (3, ["gave_up", "called"])
    called = only(events, "called")
    assert called["next"] == f"lastgood recover {checkpoint} --goal replan --accept duplicates"
    told = incident(checkpoint)
    assert (told.outcome, [each.did for each in told.attempts]) == ("person", ["restart", "restart", "stop"])
    assert told.attempts[-1].file == called["file"]


def test_lost_checkpoint_comes_back_from_the_mirror(tmp_path: Path, checkpoint: Path) -> None:
    create(resolve_target(str(checkpoint)))
    before = {path.relative_to(checkpoint): path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    checkpoint.rename(tmp_path / "gone")
    code, events = run(tmp_path, COMMIT, DEAD)
    assert (code, names(events)[0]) == (0, "repaired")
    assert {path: (checkpoint / path).read_bytes() for path in before} == before


def test_first_start_is_a_start(tmp_path: Path) -> None:
    code, events = run(tmp_path, "print('done')")
    assert (code, names(events)) == (0, ["noticed", "diagnosed", "started", "ended"])
    noticed = only(events, "noticed")
    assert noticed["condition"] == "FIRST_START_UNPROVEN"
    assert "no sink was named" in noticed["sentence"]
    assert noticed["sentence"].endswith("Name what can tell (sink in lastgood.toml), or say --first-start.")
    assert names(run(tmp_path, "print('done')", 'sink = "delta:sink"')[1]) == ["diagnosed", "started", "ended"]
    code, events = run(tmp_path, "print('done')", "", "", "--first-start")
    assert (code, names(events)) == (0, ["diagnosed", "started", "ended"])
    assert only(events, "diagnosed")["because"].startswith("a first start")


NEEDS_FILE = """
    import json, os, pathlib, sys
    checkpoint = pathlib.Path(sys.argv[1])
    (checkpoint.parent / "told").write_text(os.environ["LASTGOOD_STARTING_OFFSETS"])
    if not pathlib.Path(os.environ["LASTGOOD_STARTING_OFFSETS"]).exists():
        raise SystemExit(1)
    if (checkpoint.parent / "fails").exists():
        (checkpoint.parent / "fails").unlink()
        raise SystemExit(1)
"""
"""Fails until a file of its configuration says where it begins, and once more if it is told to."""
VIA = 'same_batch = 2\naccept = ["duplicates"]\nvia = "app-config"\nstart_file = "start.json"'


@pytest.mark.parametrize("fails_again", [False, True])
def test_checkpoint_is_left_behind_and_the_application_told_where_to_start(
    tmp_path: Path, checkpoint: Path, *, fails_again: bool
) -> None:
    create(resolve_target(str(checkpoint)))
    if fails_again:
        (tmp_path / "fails").write_text("")
    code, events = run(tmp_path, NEEDS_FILE, UNTOLD, f"{VIA}\ntakes_any_number = true")
    assert code == 0
    told = [event["goal"] for event in events if event.get("event") == "repaired"]
    assert told == ["replan", "fresh"]
    assert json.loads((tmp_path / "start.json").read_text()) == {"orders": {"0": 25, "1": 25}}
    assert (tmp_path / "told").read_text() == str(tmp_path / "start.json")
    assert not [each for each in checkpoint.rglob("*") if each.is_file()]
    if fails_again:
        last = [event for event in events if event.get("event") == "diagnosed"][-1]
        assert "left the checkpoint behind on purpose" in last["because"]


def test_application_that_fails_before_a_batch_is_given_up_and_no_other_place_looked_for(
    tmp_path: Path, checkpoint: Path
) -> None:
    policy = f"{VIA}\ntakes_any_number = true"
    assert run(tmp_path, NEEDS_FILE, UNTOLD, policy)[0] == 0
    assert not [each for each in checkpoint.rglob("*") if each.is_file()]
    code, events = run(tmp_path, "raise SystemExit(1)", UNTOLD, f"{policy}\nmax_attempts = 3")
    assert (code, names(events)[-1]) == (71, "gave_up")
    assert "repaired" not in names(events)


def test_why_a_checkpoint_cannot_be_left_behind_is_told_to_a_person(tmp_path: Path, checkpoint: Path) -> None:
    assert checkpoint.exists()
    code, events = run(tmp_path, NEEDS_FILE, DEAD, f"{VIA}\nmax_attempts = 3")
    assert (code, names(events)[-1]) == (3, "called")
    assert "goes by numbers" in only(events, "called")["because"]
    assert not (tmp_path / "start.json").exists()


def test_file_that_was_changed_since_is_told_to_a_person(tmp_path: Path, checkpoint: Path) -> None:
    code, _ = run(tmp_path, NEEDS_FILE, UNTOLD, f"{VIA}\ntakes_any_number = true")
    assert code == 0
    (tmp_path / "start.json").write_text("latest")
    code, events = run(tmp_path, NEEDS_FILE, UNTOLD, f"{VIA}\ntakes_any_number = true")
    assert (code, names(events)) == (3, ["called"])
    called = only(events, "called")
    assert "the file does not say any more" in called["because"]
    done = lastgood(tmp_path, *shlex.split(called["next"])[1:], "-o", "plan.json")
    assert done.returncode == 0, done.stderr
    assert str(checkpoint) in called["next"]


@pytest.mark.parametrize("is_seal", [False, True])
def test_what_the_mirror_saw_while_a_checkpoint_was_left_behind_is_no_query_begun_since(
    tmp_path: Path, checkpoint: Path, *, is_seal: bool
) -> None:
    half = tmp_path / "half"
    shutil.copytree(checkpoint, half)
    (half / "metadata").unlink()
    assert run(tmp_path, NEEDS_FILE, UNTOLD, f"{VIA}\ntakes_any_number = true")[0] == 0
    newest = max((tmp_path / "chk.lastgood/recoveries").iterdir())
    stages = [json.loads((newest / f"{each}.json").read_text())["at_ms"] for each in ("begun", "applied", "closed")]
    assert stages == sorted(stages)
    seen_ms = (newest / "applying.json").stat().st_mtime_ns // 1_000_000
    if is_seal:  # it goes last, when all else has been settled
        for each in [*half.glob("offsets/*"), *half.glob("commits/*")]:
            each.write_bytes(b"")
        seen_ms = stages[-1]
    look_as_the_mirror(half, of=checkpoint, at_ms=seen_ms)
    (tmp_path / "start.json").write_text("latest")
    code, events = run(tmp_path, NEEDS_FILE, UNTOLD, f"{VIA}\ntakes_any_number = true")
    assert (code, names(events)) == (3, ["called"])


def look_as_the_mirror(folder: Path, *, of: Path, at_ms: int) -> None:
    """Copy these logs into the mirror of a checkpoint, as who looked at it at this time, milliseconds since 1970."""
    for each in folder.rglob("*"):
        os.utime(each)  # a run that was slow has mirrored the same files itself
    seen, location = parse_location(str(folder)), parse_location(str(of))
    storage = open_writable(location)
    writer = MirrorWriter(
        seen, storage=storage, folder=locate_mirror(location), target=storage, writer="beef", now_ms=lambda: at_ms
    )
    assert writer.look() > 0
