"""What this machine remembers of recoveries: at which checkpoint each was."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import platformdirs

from lastgood.storage import Location, LocationInvalidError, parse_location


def note_whereabouts(recovery: str, checkpoint: str) -> None:
    """Note down where a recovery, or an incident, was, so that its id alone finds it."""
    file = _file(recovery)
    with contextlib.suppress(OSError):  # a convenience: --checkpoint does without
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"checkpoint": checkpoint}), encoding="utf-8")


def whereabouts(recovery: str) -> Location | None:
    """Where a recovery, or an incident, was; None if this machine does not remember it."""
    try:
        return parse_location(json.loads(_file(recovery).read_text(encoding="utf-8"))["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, LocationInvalidError):
        return None


def _file(recovery: str) -> Path:
    return platformdirs.user_state_path("lastgood") / "recoveries" / f"{Path(recovery).name}.json"
