"""The main job killed at random instants, twenty times over: nothing lost, nothing doubled, nothing left behind."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from stories import play

LASTGOOD = Path(sys.executable).parent / "lastgood"
RANDOM = random.Random(int(os.environ.get("LASTGOOD_SEED", "1")))


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [RANDOM.randrange(2**32) for _ in range(20)])
def test_demo_is_exact_whenever_the_driver_is_killed(seed: int, tmp_path: Path) -> None:
    command = [LASTGOOD, "demo", "--scenes=a", "--kills=3", "--flights=40000", f"--seed={seed}"]
    shown = subprocess.run(
        [*command, f"--folder={tmp_path}", "--format=json"], capture_output=True, text=True, timeout=1190
    )
    *events, result = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (shown.returncode, shown.stderr) == (0, "")
    assert len([event for event in events if event["event"] == "killed"]) == 3
    assert [scene["guarantee"] for scene in result["scenes"]] == ["exactly once"] * 3
    assert (result["flights"], result["exact"], result["as_said"]) == (40_000, True, True)
    assert (result["audit"]["lost"]["total"], result["audit"]["duplicated"]["total"]) == (0, 0)


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_whole_story_loses_and_doubles_what_it_said(tmp_path: Path) -> None:
    scenes = play(tmp_path, "abcdef")
    assert [scene["reread"] > 0 for scene in scenes[:2]] == [True, True]
