"""`lastgood inspect --all`: the same words as the short listing, whatever the number of batches."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked
import pytest

from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"


def run(*arguments: str | Path) -> forked.Ended:
    return forked.run("inspect", *arguments, env={"PATH": os.environ["PATH"], "TZ": "UTC"})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    query = CheckpointBuilder(tmp_path / "checkpoint")
    query.run(150)
    query.plan()
    (tmp_path / "checkpoint/offsets/140").write_bytes(b"v1\n{")
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("form", ["text", "json"])
def test_all_is_what_a_limit_beyond_all_shows(form: str, checkpoint: Path) -> None:
    everything = run(checkpoint, "--all", "--format", form)
    limited = run(checkpoint, "--limit", "1000", "--format", form)
    assert (everything.returncode, everything.stderr) == (limited.returncode, limited.stderr) == (0, "")
    if form == "text":
        lines = [[line.rstrip() for line in done.stdout.splitlines()] for done in (everything, limited)]
        assert lines[0] == lines[1]
        assert lines[0][2].startswith("damaged  offsets/140: truncated")
    else:
        assert json.loads(everything.stdout) == json.loads(limited.stdout)


def test_an_error_leaves_no_half_of_an_answer(checkpoint: Path) -> None:
    (checkpoint / "offsets/70").unlink()
    (checkpoint / "offsets/70").symlink_to("70")  # cannot be read, whoever asks
    done = run(checkpoint, "--all", "--format", "json")
    if done.returncode:
        assert set(json.loads(done.stdout)) == {"error"}
    else:
        assert len(json.loads(done.stdout)["batches"]) == 151


def test_names_that_no_text_can_hold_are_shown_all_the_same(checkpoint: Path) -> None:
    entry = checkpoint / "offsets/120"
    entry.write_bytes(entry.read_bytes().replace(b'"orders"', b'"\\ud800"'))
    done = run(checkpoint, "--all", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    batch = next(row for row in json.loads(done.stdout)["batches"] if row["batch"] == 120)
    assert batch["sources"][0]["added"] == {"\ud800": {"0": 605, "1": 605}}
    assert run(checkpoint, "--batch", "120").returncode == 0
