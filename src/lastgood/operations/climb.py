"""The ladder, rung by rung: what `run` and `recover` do about a query that has failed, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from lastgood.errors import LastgoodError, Retry
from lastgood.operations.decision import Decision, Verdict
from lastgood.supervise.ladder import Rung


@dataclass(frozen=True, slots=True)
class Climbed:
    """Where the climb has ended."""

    rung: Rung
    decision: Decision
    """Of this rung: something is changed, nothing need be, or nobody can go on."""
    waiting: Decision | None = None
    """The first plan on the way that nobody has accepted."""


def climb(
    way: Iterable[Rung], tried: Collection[Rung], decide: Callable[[Rung], Decision | None], first: Decision
) -> Climbed:
    """Go up until something is changed; where nothing is, the query is started as it stands.

    Args:
        way: What may be tried; the last good batch first.
        tried: What has been carried out since the query made progress, and is not done a second time.
        decide: What a rung comes to, carried out if that is allowed; None if it cannot be gone here.
        first: What the last good batch comes to: without it no other rung is looked at.
    """
    if first.verdict is not Verdict.START or first.changes:
        return Climbed(Rung.RESUME, first)
    waiting: Decision | None = None
    for rung in way:
        # A sink that tells how far it has come is not helped by going further back.
        if rung is Rung.RESUME or rung in tried or (rung is Rung.STABLE and _is_told_by_sink(first)):
            continue
        decision = decide(rung)
        if decision is None:
            continue
        if decision.verdict is Verdict.LATER or decision.changes:
            return Climbed(rung, decision, waiting)
        if decision.verdict is Verdict.PERSON:
            waiting = waiting or decision
    return Climbed(Rung.RESUME, first, waiting)


def if_it_can_be_gone(decide: Callable[[], Decision]) -> Decision | None:
    """What a way out beyond the last good batch comes to; None where nothing can be promised of it."""
    try:
        decision = decide()
    except LastgoodError as error:
        return Decision(Verdict.LATER, error.sentence, error=error) if error.retry is Retry.LATER else None
    is_no_way = decision.verdict is Verdict.PERSON and decision.plan is None
    return None if is_no_way else decision


def _is_told_by_sink(decision: Decision) -> bool:
    return decision.plan is not None and any(sink.known for sink in decision.plan.sinks)
