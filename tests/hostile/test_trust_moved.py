"""A checkpoint that gets another name in the middle of a repair: told, left alone, and ended under the old one."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from hostile.test_keys_cli import (
    DEAD,
    KILLED,
    Machine,
    checkpoint,
    files,
    foreign,
    keyless,
    keys,
    logs,
    ours,
    planned,
    recovery,
)

__all__ = ["checkpoint", "foreign", "keyless", "keys", "ours"]


@pytest.fixture(params=["signed", "unsigned"])
def machine(request: pytest.FixtureRequest, ours: Machine, keyless: Machine) -> Machine:
    return ours if request.param == "signed" else keyless


def moved(machine: Machine, checkpoint: Path) -> Path:
    """Kill a repair, and have the folder of the lake somewhere else; where the checkpoint is then."""
    done = machine.run(KILLED, planned(machine, checkpoint), "begin", command=[sys.executable])
    assert done.returncode == -signal.SIGKILL, done.stderr
    lake = checkpoint.parent
    lake.rename(lake.with_name("mounted"))
    return lake.with_name("mounted") / checkpoint.name


def test_a_repair_of_a_checkpoint_that_was_moved_is_told_and_left_alone(machine: Machine, checkpoint: Path) -> None:
    here = moved(machine, checkpoint)
    before = logs(here)
    is_signed = machine.home.name == "ours"
    condition, code = ("SIGNATURE_WRONG", 81) if is_signed else ("PLAN_NOT_OF_THIS_PLACE", 23)
    for words in (("apply", recovery(here) / "plan.json"), ("undo", "last", "--checkpoint", here)):
        error = machine.refused(*words, DEAD, code=code)
        assert error["condition"] == condition
        assert str(checkpoint) in error["found"]
        assert str(here) in error["expected"]
        assert "named then" in error["expected"] if is_signed else "put a link there" in error["next"]
        assert str(checkpoint) not in (error["next"] or "")  # only the lake names it
    told = machine.answer("recover", here, DEAD, code=3)
    assert told["error"]["condition"] == condition
    assert is_signed or told["next"] == told["error"]["next"]
    assert is_signed or machine.run("recover", here, DEAD).stdout.count("put a link there") == 1
    for verb in ("status", "diagnose"):
        shown = machine.answer(verb, here, code=1)
        (found,) = [each for each in shown["findings"] if each["condition"] == "SEALED_BY_LASTGOOD"]
        assert found["evidence"]["refused"] == f"{told['error']['sentence']} ({told['error']['found']})"
        assert found["next"] == told["error"]["next"]
    assert logs(here) == before


@pytest.mark.parametrize("verb", ["recover", "apply", "undo"])
def test_under_its_old_name_it_is_finished_or_taken_back(machine: Machine, checkpoint: Path, verb: str) -> None:
    before = {Path(file).relative_to(checkpoint): content for file, content in files(checkpoint).items()}
    here = moved(machine, checkpoint)
    checkpoint.parent.symlink_to(here.parent)
    words = {
        "recover": ("recover", checkpoint),
        "apply": ("apply", recovery(checkpoint) / "plan.json"),
        "undo": ("undo", "last", "--checkpoint", checkpoint),
    }[verb]
    machine.answer(*words, DEAD)
    after = {Path(file).relative_to(here): content for file, content in files(here).items()}
    assert (after == before) == (verb == "undo")
    assert b"" not in after.values()
    checkpoint.parent.unlink()
    if machine.home.name == "ours":  # what was signed for the old name is signed for the new one once a person says so
        machine.run("key", "sign", here, "--yes")
    assert machine.answer("recover", here, DEAD)["decision"] == "start"
