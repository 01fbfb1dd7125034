"""The ladder, rung by rung: what `run` and `recover` do about a query that has failed, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.ladder.rungs import Rung
from lastgood.observe.positions import StartChoice
from lastgood.observe.rereading import WindowChoice
from lastgood.recovery.decision import Decision, Verdict
from lastgood.settings.policy import Policy
from lastgood.sources.kafka.start_files import StartFile

FRESH = "fresh"
ASKED_FOR = (FRESH, Rung.RECOMPUTE.value)
"""Goals that the policy names: why one of them cannot be gone is what a person has to hear."""


@dataclass(frozen=True, slots=True)
class Climbed:
    """Where the climb has ended."""

    rung: Rung
    decision: Decision
    """Of this rung: something is changed, nothing need be, or nobody can go on."""
    waiting: Decision | None = None
    """The first plan on the way that nobody has accepted."""


def climb(
    way: Iterable[Rung],
    tried: Collection[Rung],
    decide: Callable[[Rung], Decision | None],
    first: Decision,
    *,
    via: StartFile | None = None,
) -> Climbed:
    """Go up until something is changed; where nothing is, the query is started as it stands.

    Args:
        way: What may be tried; the last good batch first.
        tried: What has been carried out since the query made progress, and is not done a second time.
        decide: What a rung comes to, carried out if that is allowed; None if it cannot be gone here.
        first: What the last good batch comes to: without it no other rung is looked at.
        via: The file by which the application is told where to start; None: the checkpoint says it.
    """
    if first.verdict is not Verdict.START or first.changes or not _has_batch(first):
        return Climbed(Rung.RESUME, first)
    waiting: Decision | None = None
    for rung in way:
        # A sink that tells how far it has come is not helped by going further back in the checkpoint.
        is_pointless = rung is Rung.STABLE and via is None and _is_told_by_sink(first)
        if rung is Rung.RESUME or rung in tried or is_pointless:
            continue
        decision = decide(rung)
        if decision is None:
            continue
        if decision.verdict is Verdict.LATER or decision.changes:
            return Climbed(rung, decision, waiting)
        if decision.verdict is Verdict.PERSON:
            waiting = waiting or decision
    return Climbed(Rung.RESUME, first, waiting)


def choose_goal(rung: Rung, stable_lag: int, via: StartFile | None, first: Decision) -> tuple[str, StartChoice]:
    """By which goal, and from where, a rung beyond the last good batch is gone.

    Args:
        rung: The way out.
        stable_lag: How many batches before the newest plan.
        via: The file by which the application is told; None: the checkpoint says it.
        first: What the last good batch comes to: where every sink says how far it has come, nothing need be read again.
    """
    if rung is not Rung.STABLE:
        return rung.value, StartChoice()
    if via is None:
        return rung.value, StartChoice(stable_lag=stable_lag)
    sinks = first.plan.sinks if first.plan is not None else ()
    is_told = bool(sinks) and all(sink.known for sink in sinks)
    return FRESH, StartChoice(at_sink=True) if is_told else StartChoice(stable_lag=stable_lag)


def choose_windows(goal: str, policy: Policy) -> WindowChoice:
    """What is said of the windows of a query whose state is made anew."""
    if goal == Rung.RECOMPUTE.value:
        return WindowChoice(max_replay=policy.max_replay)
    return WindowChoice()


def decide_if_possible(decide: Callable[[], Decision | None], *, is_asked_for: bool = False) -> Decision | None:
    """What a way out beyond the last good batch comes to; None where nothing can be promised of it.

    Args:
        decide: Comes to it; to None where it would help nobody.
        is_asked_for: Whether the policy names it: then why it cannot be gone is what a person has to hear.
    """
    try:
        decision = decide()
    except LastgoodError as error:
        if error.retry is Retry.LATER:
            return Decision(Verdict.LATER, error.sentence, error=error)
        if not is_asked_for:
            return None
        return Decision(Verdict.PERSON, error.sentence, error=error)
    if decision is None:
        return None
    is_no_way = decision.verdict is Verdict.PERSON and decision.plan is None
    if is_no_way and not is_asked_for:
        return None
    return decision


def _has_batch(decision: Decision) -> bool:
    """Whether there is a batch to drop or to go back from: not at a first start, nor once all was left behind."""
    position = {} if decision.plan is None else decision.plan.position
    return position.get("planned") is not None or position.get("committed") is not None


def _is_told_by_sink(decision: Decision) -> bool:
    return decision.plan is not None and any(sink.known for sink in decision.plan.sinks)
