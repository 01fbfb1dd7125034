"""What `recover` writes down: an incident, where it has changed something or called a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lastgood.errors import LastgoodError
from lastgood.ids import make_id
from lastgood.incident.closing import close_incident, list_carried_out
from lastgood.incident.promise import Kept
from lastgood.journal.incident import OPEN, PERSON, Attempt, Incident, IncidentDamagedError, shorten_plan
from lastgood.journal.incidents import Incidents
from lastgood.observe.evidence import EvidenceOptions, make_asked_at_location
from lastgood.observe.open_query import read_clock_ms
from lastgood.recovery.whereabouts import note_whereabouts
from lastgood.settings.target import Target
from lastgood.signing import SignatureMissingError, SignatureWrongError
from lastgood.storage.reading import Location
from lastgood.storage.writing import open_writable

if TYPE_CHECKING:
    from lastgood.recovery.decision import Decision

Tell = Callable[[str], None]

_ATTEMPTS_MAX = 100
"""A scheduler that calls every minute is told apart from a hundred incidents."""
_NOTHING_ASKED = EvidenceOptions()


def note_recover(
    decision: Decision,
    target: Target,
    *,
    began_at_ms: int,
    tell: Tell = lambda _: None,
    evidence: EvidenceOptions = _NOTHING_ASKED,
) -> None:
    """Write down what a call of `recover` came to, if it changed something or calls a person.

    A call for the same reason as the last one is written down as one more attempt of the same incident. Before a plain
    start the last incident is closed, if it is open and its first new batch is there: who started the application in
    between has told nobody what it did. What cannot be written down stands in nobody's way: `tell` is told.

    Args:
        decision: What it came to.
        target: Which query.
        began_at_ms: When it was called, milliseconds since 1970.
        tell: Gets a line for a person.
        evidence: Where it looked beside the checkpoint.
    """
    try:
        location = target.location
        incidents = Incidents(open_writable(location), location, target.keys())
        if not _is_worth_noting(decision):
            _close_last(incidents, location, target, evidence, tell)
            return
        last = _find_last(incidents, tell)
        pipeline = target.pipeline
        incident = _make_incident(decision, location, began_at_ms, None if pipeline is None else pipeline.name)
        if last is not None and decision.recovery is None and _is_same(last, incident):
            attempts = (*last.attempts, *incident.attempts)
            incident = replace(last, attempts=(attempts[0], *attempts[1:][1 - _ATTEMPTS_MAX :]))
        incidents.write(incident)
        # A plan that was decided on looks where this machine looked, also one that was found in the lake.
        looked = () if decision.plan is None else decision.plan.evidence
        note_whereabouts(incident.id, str(location), looked or evidence.of(target).words())
    except LastgoodError as error:
        found = error.found or error.subject
        tell(f"the incident is not written down: {error.sentence}{f' ({found})' if found else ''}")


def make_attempt(decision: Decision, *, at_ms: int, seconds: float) -> Attempt:
    """What was decided, as one turn of an incident.

    Args:
        decision: What it came to.
        at_ms: When, milliseconds since 1970.
        seconds: Lastgood's own work.
    """
    plan, done = decision.plan, decision.recovery
    if decision.verdict.value == PERSON:
        did = "stop"
    elif done is None:
        did = "restart"
    else:
        did = "repair"
    if done is None:
        because = decision.because
    else:
        because = done.plan.summary or decision.because
    recovery = None if done is None else done.id
    kept = None
    if plan is not None:
        kept = shorten_plan(plan)
    proof = None if done is None else done.proof
    file = None
    if decision.file is not None:
        file = str(decision.file)
    return Attempt(
        at_ms=at_ms,
        did=did,
        because=because,
        seconds=round(seconds, 3),
        recovery=recovery,
        plan=kept,
        proof=proof,
        file=file,
    )


def _is_worth_noting(decision: Decision) -> bool:
    done = decision.recovery
    is_changed = done is not None and bool(done.plan.steps) and not done.already
    return is_changed or decision.verdict.value == PERSON


def _make_incident(decision: Decision, location: Location, began_at_ms: int, pipeline: str | None) -> Incident:
    plan = decision.plan
    steps = () if plan is None else plan.steps
    why = "; ".join(dict.fromkeys(step.why for step in steps)) or decision.because
    if decision.failed is not None and decision.verdict.value == PERSON:
        why = decision.because  # that it failed again and again is the cause, and the plan only what is left
    error = decision.error
    attempt = make_attempt(decision, at_ms=began_at_ms, seconds=max(0, read_clock_ms() - began_at_ms) / 1000)
    if plan is None:
        position: dict[str, Any] = {}
    else:
        position = {n: plan.position.get(n) for n in ("planned", "committed")}
    condition = None if error is None else error.condition
    outcome = PERSON if decision.recovery is None else OPEN
    return Incident(
        id=make_id(began_at_ms),
        checkpoint=str(location),
        pipeline=pipeline,
        failed_at_ms=began_at_ms,
        cause={"because": why, "condition": condition},
        position=position,
        attempts=(attempt,),
        outcome=outcome,
    )


def _is_same(last: Incident, new: Incident) -> bool:
    """Whether a person was called for this already, and nothing has happened since."""
    return (last.outcome, last.cause, last.position) == (PERSON, new.cause, new.position)


def _close_last(
    incidents: Incidents, location: Location, target: Target, evidence: EvidenceOptions, tell: Tell
) -> None:
    last = _find_last(incidents, tell)
    if last is None or last.outcome not in (OPEN, PERSON) or last.promise is not None:
        return
    storage = open_writable(location)
    done = list_carried_out(storage, location, last.recoveries, target.config)
    found = close_incident(last, done, storage, target=target, options=evidence)
    if found == last:
        return
    incidents.write(found)
    if found.promise is not None and found.promise_state == Kept.BROKEN:
        lines = "; ".join(found.promise["because"])
        tell(f"the promise of incident {found.id} was broken: {lines}")
        tell(f"see {make_asked_at_location(target, evidence).command('report', found.id)}")


def _find_last(incidents: Incidents, tell: Tell) -> Incident | None:
    try:
        return incidents.last()
    except IncidentDamagedError:  # it is told by `status` and `report`; a new one is written beside it
        return None
    except (SignatureMissingError, SignatureWrongError) as error:  # so that nobody else's words get our signature
        tell(f"the last incident is left as it is: {error.sentence} ({error.subject})")
        return None
