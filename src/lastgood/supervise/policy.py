"""When a command that failed is started again: pure, no clock."""

from __future__ import annotations

from dataclasses import dataclass

ACCEPTABLE = ("duplicates", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the supervisor may do by itself."""

    max_attempts: int = 5
    """Restarts in a row that commit no new batch."""
    backoff_seconds: float = 1.0
    """Pause before the second restart without progress; it doubles from there. The first has none."""
    backoff_max_seconds: float = 60.0
    grace_seconds: float = 30.0
    """How long the command may take to end after it was told to."""
    accept: tuple[str, ...] = ()
    """Of `ACCEPTABLE`: what a repair may cost without a person being asked."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again."""

    attempt: int
    """1 for the first restart since the last progress."""
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave it to a person."""

    attempts: int


def after_failure(policy: Policy, attempts: int, *, progressed: bool) -> Restart | GiveUp:
    """Decide what follows a failure.

    Args:
        policy: What is allowed.
        attempts: Restarts in a row so far without a new committed batch.
        progressed: Whether the run that failed committed a new batch; it resets the count.
    """
    made = 0 if progressed else attempts
    if made >= policy.max_attempts:
        return GiveUp(made)
    doubled = policy.backoff_seconds * 2.0 ** min(made - 1, 60)
    return Restart(made + 1, 0.0 if made == 0 else min(doubled, policy.backoff_max_seconds))
