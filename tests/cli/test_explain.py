"""`lastgood explain` as a user starts it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked
import pytest

from lastgood.diagnosis.catalogue import list_names

LASTGOOD = Path(sys.executable).parent / "lastgood"


def run(*arguments: str, **environment: str) -> forked.Ended:
    return forked.run(*arguments, env={"PATH": os.environ["PATH"], **environment})


def test_a_finding_is_a_story_that_fits_a_screen() -> None:
    done = run("explain", "unbounded-state")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["UNBOUNDED_STATE  info", "The state has no watermark that would ever let a key go."]
    assert max(map(len, lines)) <= 100
    assert "withWatermark" in done.stdout
    assert "exit code" not in done.stdout


def test_what_is_an_error_as_well_tells_its_exit_code() -> None:
    done = run("explain", "SOURCE_RANGE_EXPIRED")
    assert done.stdout.startswith("SOURCE_RANGE_EXPIRED  error\n")
    assert "As an error  exit code 63\n" in done.stdout
    assert "Try again    never" in done.stdout
    assert run("explain", "CHECKPOINT_MISSING").stdout.startswith("CHECKPOINT_MISSING  error\nThere is no checkpoint")


def test_without_a_name_all_are_listed_by_theme() -> None:
    done = run("explain")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(list_names())
    assert "\nAdvice\n" in done.stdout


def test_json_is_one_object() -> None:
    assert json.loads(run("explain", "ORPHAN_BATCH", "--format", "json").stdout)["condition"] == "ORPHAN_BATCH"
    listed = json.loads(run("explain", "--format", "json").stdout)["conditions"]
    assert sorted(each["condition"] for each in listed) == sorted(list_names())


def test_an_unknown_name_is_a_usage_error_with_near_ones() -> None:
    done = run("explain", "ORPHAN_BATCHES")
    assert done.returncode == 2
    assert done.stderr.startswith("error [USAGE] there is no such condition\n")
    assert "  next      lastgood explain ORPHAN_BATCH\n" in done.stderr
    told = json.loads(run("explain", "x", "--format", "json").stdout)
    assert told["error"]["condition"] == "USAGE"


@pytest.mark.parametrize("word", ["ORPHAN_B", "orphan-b"])
def test_a_shell_completes_names(word: str) -> None:
    done = run(_LASTGOOD_COMPLETE="bash_complete", COMP_WORDS=f"lastgood explain {word}", COMP_CWORD="2")
    assert done.stdout == "plain,ORPHAN_BATCH\n"
