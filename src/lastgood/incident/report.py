"""All that is known of an incident, as a value: what happened, in which order, what was done, what was lost. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lastgood.frozen import dataclass
from lastgood.incident.closing import CarriedOut
from lastgood.incident.lost_ranges import LostRange
from lastgood.journal.incident import Incident
from lastgood.journal.room import RecoveryStage
from lastgood.signing import SignatureStanding
from lastgood.values import JsonValue, make_form

_WORDS = {
    RecoveryStage.BEGUN: "the checkpoint was sealed",
    RecoveryStage.APPLYING: "what is touched was backed up",
    RecoveryStage.APPLIED: "all steps were done and verified",
    RecoveryStage.CLOSED: "the checkpoint was opened again: a driver may start",
    RecoveryStage.UNDOING: "to be taken back: the checkpoint was sealed",
    RecoveryStage.TAKING_BACK: "the steps were being taken back",
    RecoveryStage.UNDONE: "every byte was as before",
    RecoveryStage.TAKEN_BACK: "taken back: the checkpoint was opened again",
}
_BEGINNING = {RecoveryStage.CLOSED: RecoveryStage.BEGUN, RecoveryStage.TAKEN_BACK: RecoveryStage.UNDOING}
_DID = {
    "restart": "started again",
    "repair": "repaired",
    "wait": "waited",
    "stop": "left to a person",
}


@dataclass(frozen=True, slots=True)
class TimelineTurn:
    """One line of the timeline."""

    at_ms: int
    what: str
    seconds: float | None = None
    """How long it took, where that is known."""


@dataclass(frozen=True, slots=True)
class IncidentReport(JsonValue):
    """All that is known of an incident."""

    json = make_form(
        "*incident outcome by_hand=is_by_hand signature back_after_seconds=incident.back_after_seconds "
        "parts=incident.parts "
        "timeline=_timeline plan=incident.plan recoveries lost"
    )
    """What `report --format json` prints."""

    incident: Incident
    """With its first new batch and the promise, also where only this look at it has found them."""
    recoveries: tuple[CarriedOut, ...] = ()
    """The plans of it that were begun."""
    lost: tuple[LostRange, ...] = ()
    is_by_hand: bool = False
    """Whether there is no incident: somebody applied a plan."""
    signature: SignatureStanding | None = None
    """What the keys of this machine say of the file of the incident; None without a key, or without an incident."""

    @property
    def outcome(self) -> str:
        """As of the incident; `undone`, `interrupted`, if that became of its last recovery."""
        state = None
        if self.recoveries:
            state = self.recoveries[-1].state
        return state if state in ("undone", "interrupted") else self.incident.outcome

    @property
    def timeline(self) -> tuple[TimelineTurn, ...]:
        """What happened, in order of time."""
        return tuple(sorted(self._turns(), key=lambda turn: turn.at_ms))

    def _turns(self) -> Iterator[TimelineTurn]:
        incident = self.incident
        if not self.is_by_hand:
            yield TimelineTurn(incident.failed_at_ms, incident.cause_line or "it failed")
        for attempt in incident.attempts:
            if self.is_by_hand:
                what = "a plan was made"
            else:
                what = _DID[attempt.did]
            yield TimelineTurn(
                attempt.at_ms, f"{what}: {attempt.because}", None if self.is_by_hand else attempt.seconds
            )
        for done in self.recoveries:
            at = dict(done.stages)
            for stage, at_ms in done.stages:
                began_ms = None
                if stage in _BEGINNING:
                    began_ms = at.get(_BEGINNING[stage])
                if at_ms is not None:
                    yield TimelineTurn(at_ms, _WORDS[stage], None if began_ms is None else (at_ms - began_ms) / 1000)
        if incident.first_batch_at_ms is not None:
            again = ", which ran again," if incident.rerun else ""
            yield TimelineTurn(incident.first_batch_at_ms, f"batch {incident.first_batch}{again} was committed")

    @property
    def _timeline(self) -> list[dict[str, Any]]:
        began_ms = self.incident.failed_at_ms
        return [
            {
                "at_ms": turn.at_ms,
                "after_seconds": (turn.at_ms - began_ms) / 1000,
                "what": turn.what,
                "seconds": turn.seconds,
            }
            for turn in self.timeline
        ]
