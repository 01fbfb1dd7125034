"""What is tried for a query that keeps failing, and in which order: pure, no clock.

restart → restart with backoff → the same batch failed again and again: the cheapest plan whose price is accepted →
stop. Age alone never causes surgery.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from lastgood.failures.ending import Cause
from lastgood.failures.failure_class import FailureClass
from lastgood.frozen import dataclass
from lastgood.settings.policy import RECOMPUTE, Count, GiveUp, Policy, StartAgain, decide_after_failure


class Rung(enum.Enum):
    """A way out, by the goal of its plan; in this order."""

    RESUME = "resume"
    """The last good batch: a plain restart wherever that is right."""
    RECOMPUTE = "recompute"
    """With a state that is made anew, where the code keeps another one than the checkpoint holds."""
    REPLAN = "replan"
    """Without the batch that is planned and not committed, so that today's limits apply."""
    STABLE = "reposition"
    """The offsets of CURRENT - `stable_lag`, where no sink can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStanding:
    """How a command stands before it is started."""

    failures: int = 0
    """Runs that failed since the query last committed a new batch; 0 before the first start."""
    seconds: float = 0.0
    """Since the first of them ended that does not pass by itself."""
    cause: Cause | None = None
    """Why the last of them failed; None before the first start."""

    def of(self, checkpoint: str) -> CommandStanding:
        """How one query stands; one that runs beside the one that failed has not failed itself."""
        is_own = self.cause is None or self.cause.checkpoint in (None, checkpoint)
        if is_own:
            return self
        return CommandStanding()


class Standings:
    """How often each query has failed since it last made progress; belongs to one thread.

    Those that run beside one that fails make progress all the time, which is none of its own. A failure that nobody
    knows the query of is one of all together.
    """

    def __init__(self, policy: Policy) -> None:
        """Begin with none."""
        self._policy = policy
        self._counts: dict[str | None, Count] = {}
        self._since: dict[str | None, float] = {}

    def recall(self, remembered: Mapping[str, CommandStanding], now: float) -> None:
        """Go on from what has failed before; what nobody knew the query of was a failure of all.

        Args:
            remembered: How each query stood.
            now: Seconds.
        """
        least = min(remembered.values(), key=lambda each: each.failures, default=CommandStanding())
        stood: list[tuple[str | None, CommandStanding]] = [*remembered.items(), (None, least)]
        for each, standing in stood:
            if standing.failures > 0 and each not in self._counts:
                self._counts[each] = Count(standing.failures, standing.failures)
                self._since[each] = now - standing.seconds

    def decide_after_failure(self, cause: Cause, moved: Collection[str], now: float) -> StartAgain | GiveUp:
        """Decide what follows a run that has failed.

        Args:
            cause: Why.
            moved: The checkpoints that have a new committed batch since the run began.
            now: Seconds.
        """
        for each in (*moved, *((None,) if moved else ())):
            self._counts.pop(each, None)
            self._since.pop(each, None)
        count = self._counts.get(cause.checkpoint, Count())
        decision = decide_after_failure(self._policy, count, passes_by_itself=cause.passes_by_itself)
        if isinstance(decision, StartAgain):
            self._counts[cause.checkpoint] = decision.count
        else:  # the failure that was one too many is one all the same
            self._counts[cause.checkpoint] = Count(count.attempts + 1, count.restarts)
        if not cause.passes_by_itself:
            self._since.setdefault(cause.checkpoint, now)
        return decision

    def standing(self, cause: Cause, now: float) -> CommandStanding:
        """How things stand after a run that has failed."""
        failures = self._counts[cause.checkpoint].attempts
        return CommandStanding(failures=failures, seconds=now - self._since.get(cause.checkpoint, now), cause=cause)


_NOT_OF_THE_BATCH = (
    FailureClass.CONCURRENT_RUN,
    FailureClass.CODE_INCOMPATIBLE,
    FailureClass.STOPPED_ON_PURPOSE,
)


def is_stuck(policy: Policy, standing: CommandStanding) -> bool:
    """Whether plain restarts have been tried for long enough."""
    cause = standing.cause
    if standing.failures == 0 or cause is None or cause.passes_by_itself or cause.cls in _NOT_OF_THE_BATCH:
        return False
    return standing.failures >= policy.same_batch or standing.seconds >= policy.restart_within_seconds


def choose_rungs(policy: Policy, standing: CommandStanding) -> tuple[Rung, ...]:
    """What may be tried now, in this order; a plan that changes nothing leaves it to the next.

    Other offsets of the same data do not help where user code fails on the data, and nothing in a checkpoint helps
    where the code does not go with it, but a state that is made anew if the policy says so.
    """
    cause = standing.cause
    if cause is not None and cause.is_of_other_state and policy.on_code_change == RECOMPUTE:
        return (Rung.RESUME, Rung.RECOMPUTE)
    is_of_the_data = cause is not None and cause.cls is FailureClass.POISON_DATA
    if not is_stuck(policy, standing) or is_of_the_data:
        return (Rung.RESUME,)
    return (Rung.RESUME, Rung.REPLAN, Rung.STABLE)
