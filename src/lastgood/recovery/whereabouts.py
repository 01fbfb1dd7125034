"""What this machine remembers of recoveries: where each was, which plan it was, and what was named for it here.

It lies in this user's state folder, where nobody who may only write to the lake can reach it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import platformdirs

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.observe.evidence import EvidenceOptions, parse_options
from lastgood.planning.plan import Plan
from lastgood.planning.steps import list_files_outside
from lastgood.storage.reading import Location, LocationInvalidError, parse_location
from lastgood.storage.rights import make_private, open_privately


@dataclass(frozen=True, slots=True)
class Note:
    """What this machine remembers of a plan, as that is to the last byte."""

    is_own: bool
    """Whether it was made here, or given by hand, so that every word of it counts; and not found in the lake."""
    is_begun: bool
    """Whether it was carried out, or begun, from here."""
    evidence: EvidenceOptions
    """Where was looked then, as it was named here."""
    start_file: str | None
    """The file outside of the checkpoint that it was let write."""


def note_whereabouts(recovery: str, checkpoint: str, evidence: tuple[str, ...] = ()) -> None:
    """Note down where a recovery, or an incident, was, so that its id alone finds it; and where else was looked."""
    _note(recovery, {"checkpoint": checkpoint, "evidence": list(evidence)})


def note_made(plan: Plan) -> None:
    """Note down that a plan was made here: who carries it out from its file need not be asked whether he means it."""
    _note(plan.recovery, {"checkpoint": plan.checkpoint, "plan": _compute_digest(plan), "own": True, "begun": False})


def note_begun(plan: Plan, evidence: tuple[str, ...], *, is_own: bool) -> None:
    """Note down that a plan is carried out, or taken back, from here, with all that was named for it here.

    Args:
        plan: As its file has it.
        evidence: Where is looked, as words of a command line.
        is_own: As `Note.is_own`.
    """
    told = {
        "checkpoint": plan.checkpoint,
        "plan": _compute_digest(plan),
        "own": is_own,
        "begun": True,
        "evidence": list(evidence),
        "start_file": next(iter(list_files_outside(plan.steps)), None),
    }
    _note(plan.recovery, told)


def recall_whereabouts(recovery: str) -> Location | None:
    """Where a recovery, or an incident, was; None if this machine does not remember it."""
    try:
        return parse_location(_recall(recovery)["checkpoint"])
    except (KeyError, TypeError, AttributeError, LocationInvalidError):
        return None


def recall_evidence(recovery: str) -> EvidenceOptions:
    """Where else was looked from here for a recovery or an incident; nothing if this machine does not remember it."""
    words = _recall(recovery).get("evidence")
    if not isinstance(words, list):
        words = []
    try:
        return parse_options([str(word) for word in words])
    except UsageError:
        return EvidenceOptions()


def recall_plan(plan: Plan) -> Note | None:
    """What this machine remembers of a plan; None if it never had this very plan in hand."""
    told = _recall(plan.recovery)
    if told.get("plan") != _compute_digest(plan):
        return None
    file = told.get("start_file")
    start_file = file if isinstance(file, str) else None
    return Note(told.get("own") is True, told.get("begun") is True, recall_evidence(plan.recovery), start_file)


def _compute_digest(plan: Plan) -> str:
    return hashlib.sha256(plan.to_bytes()).hexdigest()


def _note(recovery: str, told: dict[str, Any]) -> None:
    file = _locate_file(recovery)
    with contextlib.suppress(OSError):  # who has no such folder says --checkpoint, and names the rest again
        make_private(file.parent)
        with open(file, "w", encoding="utf-8", opener=open_privately) as stream:
            json.dump(told, stream)


def _recall(recovery: str) -> dict[str, Any]:
    """All that is remembered; empty if nothing is, or if it cannot be read."""
    try:
        told = read_json(_locate_file(recovery).read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _locate_file(recovery: str) -> Path:
    return platformdirs.user_state_path("lastgood") / "recoveries" / f"{Path(recovery).name}.json"
