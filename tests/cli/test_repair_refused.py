"""What a repair is refused for, as it is typed: a clear error, and nothing half done."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typed import call

from lastgood.journal.lease import LeasePace, take_lease
from lastgood.recovery import applying
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = [sys.executable, "-c", "from lastgood.cli.main import main; main()"]
DEAD = "--driver-is-dead"
SOMEBODY = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Starts a command that has to heed permissions: root need not."""
SMALL = 192 * 1024
PAGE = 4096
PACE = LeasePace(0.3, beat_seconds=0.1, look_seconds=0.05)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches are committed, an eighth is planned."""
    return built(tmp_path / "chk")


def built(folder: Path) -> Path:
    query = CheckpointBuilder(folder)
    query.run(7)
    query.plan()
    return folder


def run(*words: object, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    if not prefix:
        return call(*words, "--format", "json")
    command = [*prefix, *LASTGOOD, *map(str, words), "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def answer(*words: object, code: int = 0, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    done = run(*words, prefix=prefix)
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def refused(*words: object, code: int, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    error: dict[str, Any] = answer(*words, code=code, prefix=prefix)["error"]
    assert error["sentence"]
    return error


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def replan(checkpoint: Path, name: str = "plan.json") -> Path:
    answer("plan", checkpoint, "--goal", "replan", "--accept", "duplicates", "-o", name)
    return Path(name)


def forged(plan: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The plan with a change and a checksum that fits, as somebody may write one by hand."""
    told = json.loads(plan.read_text())
    del told["checksum"]
    change(told)
    checksum = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    plan.write_text(json.dumps({**told, "checksum": checksum}))
    return plan


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["steps"][0].update(path="../stolen"),
        lambda told: told["steps"][0].update(path="/etc/stolen"),
        lambda told: told["steps"][0].update(path="offsets/../../stolen"),
        lambda told: told["steps"][0].update(path="state/0/../../../stolen/1.delta"),
        lambda told: told["seal"].append("../stolen"),
        lambda told: told["guards"].update({"/etc/passwd": None}),
        lambda told: told["listings"].update({"..": "0" * 64}),
        lambda told: told.update(recovery="../../stolen"),
    ],
)
def test_plan_that_reaches_out_of_its_checkpoint_is_refused_though_its_checksum_fits(
    checkpoint: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    plan = forged(replan(checkpoint), change)
    before = files(tmp_path)
    assert refused("apply", plan, DEAD, code=50)["condition"] == "PLAN_INVALID"
    assert files(tmp_path) == before


def test_plan_of_a_later_version_is_refused_and_names_it(checkpoint: Path) -> None:
    before, plan = files(checkpoint), replan(checkpoint)
    error = refused("apply", forged(plan, lambda told: told.update(format=2, made_by="9.0")), DEAD, code=50)
    assert (error["found"], error["expected"]) == ("format 2, made by lastgood 9.0", "format 1")
    assert files(checkpoint) == before


def test_plan_for_another_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    plan, other = replan(checkpoint), built(tmp_path / "other")
    (other / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')
    before = files(other)
    shutil.rmtree(checkpoint)
    other.rename(checkpoint)
    assert refused("apply", plan, DEAD, code=52)["condition"] == "PLAN_STALE"
    checkpoint.rename(other)
    forged(plan, lambda told: told.update(checkpoint=str(other)))
    assert refused("apply", plan, DEAD, code=52)["condition"] == "PLAN_STALE"
    assert files(other) == before


def test_second_of_two_plans_for_one_checkpoint_is_refused(checkpoint: Path) -> None:
    first, second = replan(checkpoint, "first.json"), replan(checkpoint, "second.json")
    answer("apply", first, DEAD)
    after = files(checkpoint)
    assert refused("apply", second, DEAD, code=52)["condition"] == "PLAN_STALE"
    assert files(checkpoint) == after


def test_undo_without_its_backup_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    recovery = answer("apply", replan(checkpoint), DEAD)["recovery"]
    after, room = files(checkpoint), tmp_path / f"chk.lastgood/recoveries/{recovery}"
    shutil.rmtree(room / "before")
    error = refused("undo", recovery, DEAD, code=55)
    assert (error["sentence"], error["found"]) == ("the backup is gone or was changed", "no such file")
    (room / "plan.json").write_text("{}")
    assert refused("undo", recovery, DEAD, code=50)["condition"] == "PLAN_INVALID"
    (room / "plan.json").unlink()
    assert refused("undo", recovery, DEAD, code=56)["condition"] == "RECOVERY_UNKNOWN"
    assert files(checkpoint) == after


def test_last_recovery_is_the_one_that_was_done_last_also_after_a_clock_went_back(checkpoint: Path) -> None:
    plan = forged(replan(checkpoint), lambda told: told.update(recovery="20991231-235959-ffff"))
    answer("apply", plan, DEAD)
    answer("undo", "20991231-235959-ffff", DEAD)
    second = answer("apply", replan(checkpoint), DEAD)["recovery"]
    assert answer("undo", "last", "--checkpoint", checkpoint, DEAD)["recovery"] == second


def test_driver_that_was_started_before_the_seal_stood_is_told_and_nothing_is_changed(
    checkpoint: Path, tmp_path: Path
) -> None:
    before, plan = files(checkpoint), replan(checkpoint)
    started = tmp_path / "started"
    script = f"from pathlib import Path; p = Path({str(started)!r}); raise SystemExit(p.exists() or p.touch())"
    check = json.dumps([sys.executable, "-c", script])
    config = f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "chk"\ndriver_check = {check}\n'
    (tmp_path / "lastgood.toml").write_text(config)
    error = refused("apply", plan, code=52)
    assert error["sentence"] == "a driver was started before the checkpoint was sealed"
    assert files(checkpoint) == before
    assert answer("apply", plan, DEAD)["state"] == "applied"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        gc.collect()  # of a verb that was broken off in this process, its error may still hold the folders open
        subprocess.run(["umount", str(folder)], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@needs_root
def test_full_disk_is_named_and_the_repair_goes_on_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full anew at a later change each time, until there is room for all."""
    # Where there was no room to give the lease up, its holder, which is this process, seems to be alive for a minute.
    monkeypatch.setattr(applying, "take_lease", functools.partial(take_lease, pace=PACE))
    with small_disk(tmp_path / "disk"):
        checkpoint = built(tmp_path / "disk/chk")
        before, plan, filling = files(checkpoint), replan(checkpoint), tmp_path / "disk/filling"
        room, seen = shutil.disk_usage(filling.parent).free // PAGE, []
        for free in range(room + 1):
            filling.write_bytes(bytes((room - free) * PAGE))
            done = run("apply", plan, DEAD)
            if done.returncode == 0:
                break
            assert (done.returncode, json.loads(done.stdout)["error"]["condition"]) == (11, "NO_SPACE"), done.stderr
            seen.append(files(checkpoint))
        after = files(checkpoint)
        assert len(seen) > 1
        assert all(each in (before, after) or each["offsets/8"] == b"" for each in seen)
        filling.unlink()
        assert answer("apply", plan, DEAD)["state"] == "already applied"
        answer("undo", "last", "--checkpoint", checkpoint, DEAD)
        assert files(checkpoint) == before


@pytest.mark.parametrize("closed", ["chk/offsets", "chk/commits", "."])
def test_who_may_not_write_is_told_so_and_the_repair_goes_on_once_it_may(
    checkpoint: Path, tmp_path: Path, closed: str
) -> None:
    before, plan = files(checkpoint), replan(checkpoint)
    (tmp_path / closed).chmod(0o555)
    error = refused("apply", plan, DEAD, code=12, prefix=SOMEBODY)
    (tmp_path / closed).chmod(0o755)
    assert error["condition"] == "STORAGE_DENIED"
    assert files(checkpoint) == before or (checkpoint / "offsets/8").read_bytes() == b""
    assert answer("apply", plan, DEAD, prefix=SOMEBODY)["state"] == "applied"
    answer("undo", "last", "--checkpoint", checkpoint, DEAD, prefix=SOMEBODY)
    assert files(checkpoint) == before
