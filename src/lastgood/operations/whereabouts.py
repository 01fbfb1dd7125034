"""What this machine remembers of recoveries: at which checkpoint each was, and which file it was let write."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import platformdirs

from lastgood.storage import Location, LocationInvalidError, parse_location


def note_whereabouts(recovery: str, checkpoint: str, start_file: str | None = None) -> None:
    """Note down where a recovery, or an incident, was, so that its id alone finds it; and which file it may write."""
    file = _file(recovery)
    with contextlib.suppress(OSError):  # a convenience: --checkpoint does without
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"checkpoint": checkpoint, "start_file": start_file}), encoding="utf-8")


def whereabouts(recovery: str) -> Location | None:
    """Where a recovery, or an incident, was; None if this machine does not remember it."""
    return _noted(recovery, "checkpoint")


def noted_start_file(recovery: str) -> Location | None:
    """The file outside of the checkpoint that somebody on this machine let a recovery write; None if nobody did."""
    return _noted(recovery, "start_file")


def _noted(recovery: str, name: str) -> Location | None:
    try:
        return parse_location(json.loads(_file(recovery).read_text(encoding="utf-8"))[name])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, LocationInvalidError):
        return None


def _file(recovery: str) -> Path:
    return platformdirs.user_state_path("lastgood") / "recoveries" / f"{Path(recovery).name}.json"
