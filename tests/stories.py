"""The demo as a user starts it, scene by scene, held against what it says itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

LASTGOOD = Path(sys.executable).parent / "lastgood"
GUARANTEES = {
    "a": ["exactly once"],
    "b": ["exactly once"],
    "c": ["exactly once", "exactly once"],
    "d": ["at least once"],
    "e": ["lossy"],
}


def play(folder: Path, scenes: str, *, flights: int = 40_000) -> list[dict[str, Any]]:
    """Play some scenes; what is lost and doubled has to be what each of them said, and nothing may stay behind."""
    command = [LASTGOOD, "demo", f"--flights={flights}", "--seed=7", f"--scenes={','.join(scenes)}"]
    shown = subprocess.run(
        [*command, f"--folder={folder}", "--format=json"], capture_output=True, text=True, timeout=1190
    )
    *events, result = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert (result["flights"], result["as_said"]) == (flights, True)
    told: list[dict[str, Any]] = [event for event in events if event["event"] == "scene"]
    assert told == result["scenes"]
    expected = [(letter, guarantee) for letter in scenes for guarantee in GUARANTEES[letter]]
    assert [(scene["letter"], scene["guarantee"]) for scene in told] == expected
    assert [bool(scene["lost"]) for scene in told] == [scene["letter"] == "e" for scene in told]
    assert [bool(scene["doubled"]) for scene in told] == [scene["letter"] == "d" for scene in told]
    assert result["counted"] == result["said"]
    # An agent whose JVM was killed may say so; nothing else has a reason to complain.
    assert {event["condition"] for event in events if event["event"] == "noticed"} <= {"AGENT_TROUBLE"}
    assert {event["state"] for event in events if event["event"] == "promised"} == {"kept"}
    assert [process for process in psutil.process_iter() if _works_in(process, folder)] == []
    return told


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in process.cmdline())
    except psutil.Error:
        return False
