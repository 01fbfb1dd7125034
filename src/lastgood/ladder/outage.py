"""Whether a query was down for so long that the policy wants more than a plain start: pure, no clock."""

from __future__ import annotations

from lastgood.frozen import dataclass
from lastgood.settings.policy import Policy

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """When a query last gave a sign of life, milliseconds since 1970; None: never, or nobody knows."""

    committed_ms: int | None
    """Its newest commit."""
    repaired_ms: int | None = None
    """The end of its newest repair, or of the taking back of one."""
    running_ms: int | None = None
    """When the command was last seen running, whatever it got done."""


def measure_outage(policy: Policy, signs: Signs, now_ms: int) -> float | None:
    """How long a query was down, if that is longer than `after_outage`.

    A repair after the newest commit was made by somebody who knew of the outage, or for it: it is not answered twice.
    Where no commit tells a time, nobody knows how long it was, and nothing is done about it.

    Args:
        policy: From when on it matters; None there: never.
        signs: Of its life.
        now_ms: The time.
    """
    committed_ms = signs.committed_ms
    if policy.after_outage_seconds is None or committed_ms is None:
        return None
    if signs.repaired_ms is not None and signs.repaired_ms >= committed_ms:
        return None
    seconds = (now_ms - max(committed_ms, signs.running_ms or 0)) / 1000
    return seconds if seconds > policy.after_outage_seconds else None


def format_duration(seconds: float) -> str:
    """A time span in at most two units: `3 h 20 min`."""
    left = int(seconds)
    counts = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        counts.append((count, unit))
    first = next((place for place, (count, _) in enumerate(counts) if count), len(counts) - 1)
    shown = [f"{count} {unit}" for count, unit in counts[first : first + 2] if count]
    return " ".join(shown) or "0 s"
