"""The whole demo as a user starts it, once; `tests/proof` kills its driver twenty times over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

LASTGOOD = Path(sys.executable).parent / "lastgood"


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.timeout(1200)
def test_demo_loses_and_doubles_what_it_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [LASTGOOD, "demo", "--flights=40000", "--seed=7", f"--folder={tmp_path}", "--format=json"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=1190)
    *events, result = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert (result["flights"], result["as_said"], result["exact"]) == (40_000, True, False)
    scenes = [event for event in events if event["event"] == "scene"]
    assert scenes == result["scenes"]
    assert [(scene["letter"], scene["guarantee"]) for scene in scenes] == [
        ("a", "exactly once"),
        ("b", "exactly once"),
        ("c", "exactly once"),
        ("c", "exactly once"),
        ("d", "at least once"),
        ("e", "lossy"),
    ]
    assert [bool(scene["lost"]) for scene in scenes] == [False, False, False, False, False, True]
    assert [bool(scene["doubled"]) for scene in scenes] == [False, False, False, False, True, False]
    assert [scene["reread"] > 0 for scene in scenes[:2]] == [True, True]
    assert result["counted"] == result["said"] == {"lost": scenes[5]["lost"], "doubled": scenes[4]["doubled"]}
    # An agent whose JVM was killed may say so; nothing else has a reason to complain.
    assert {event["condition"] for event in events if event["event"] == "noticed"} <= {"AGENT_TROUBLE"}
    assert [event["state"] for event in events if event["event"] == "promised"] != []
    assert {event["state"] for event in events if event["event"] == "promised"} == {"kept"}
    assert [process for process in psutil.process_iter() if _works_in(process, tmp_path)] == []


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in process.cmdline())
    except psutil.Error:
        return False
