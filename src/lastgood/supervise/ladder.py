"""What is tried for a query that keeps failing, and in which order: pure, no clock.

restart → restart with backoff → the same batch failed again and again: the cheapest plan whose price is accepted →
stop. Age alone never causes surgery.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lastgood.diagnosis.failure_class import FailureClass
from lastgood.supervise.failure import Cause
from lastgood.supervise.policy import Policy


class Rung(enum.Enum):
    """A way out, by the goal of its plan; in this order."""

    RESUME = "resume"
    """The last good batch: a plain restart wherever that is right."""
    REPLAN = "replan"
    """Without the batch that is planned and not committed, so that today's limits apply."""
    STABLE = "reposition"
    """The offsets of CURRENT - `stable_lag`, where no sink can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a command stands before it is started."""

    failures: int = 0
    """Runs in a row that failed without a new committed batch; 0 before the first start."""
    seconds: float = 0.0
    """Since the first of them ended."""
    cause: Cause | None = None
    """Why the last of them failed; None before the first start."""


_NOT_OF_THE_BATCH = (
    FailureClass.CONCURRENT_RUN,
    FailureClass.CODE_INCOMPATIBLE,
    FailureClass.STOPPED_ON_PURPOSE,
)


def is_stuck(policy: Policy, standing: Standing) -> bool:
    """Whether plain restarts have been tried for long enough."""
    cause = standing.cause
    if standing.failures == 0 or cause is None or cause.passes_by_itself or cause.cls in _NOT_OF_THE_BATCH:
        return False
    return standing.failures >= policy.same_batch or standing.seconds >= policy.restart_within_seconds


def rungs(policy: Policy, standing: Standing) -> tuple[Rung, ...]:
    """What may be tried now, in this order; a plan that changes nothing leaves it to the next.

    Other offsets of the same data do not help where user code fails on the data, and nothing in a checkpoint helps
    where the code does not go with it.
    """
    is_of_the_data = standing.cause is not None and standing.cause.cls is FailureClass.POISON_DATA
    if not is_stuck(policy, standing) or is_of_the_data:
        return (Rung.RESUME,)
    return (Rung.RESUME, Rung.REPLAN, Rung.STABLE)
