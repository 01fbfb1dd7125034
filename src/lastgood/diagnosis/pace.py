"""How fast a query works, from what a recorder saw of its batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lastgood.frozen import dataclass
from lastgood.query.advice_facts import RecordedBatch

BATCHES_MIN = 5
"""Fewer recorded batches tell nothing."""
_INTERVALS_MS = tuple(
    1000 * seconds for seconds in (86400, 43200, 21600, 7200, 3600, 1800, 900, 600, 300, 120, 60, 30, 20, 15, 10, 5, 2)
)
_LATE_MS = 250
"""A trigger fires so soon after its time."""
_SHARE = 0.8
_NO_INTERVAL_MS = 60_000
_SAME = 1.05


@dataclass(frozen=True, slots=True)
class Pace:
    """The work of the recorded batches that read something."""

    rate_per_second: float
    """Kafka offsets, the median over the batches."""
    duration_ms: int
    """Of a batch, the median."""
    longest: RecordedBatch
    interval_ms: int | None
    """Of its processing-time trigger; None if it has none, or none that is known."""
    limit: int | None
    """The number of offsets at which batches stop although there are more: its `maxOffsetsPerTrigger`."""
    behind: tuple[int, int] | None
    """How many offsets the first and the newest of the batches left unread."""

    @property
    def fitting_limit(self) -> int:
        """What the query does in 80 % of its trigger interval, or of a minute; two digits."""
        exact = int(self.rate_per_second * _SHARE * (self.interval_ms or _NO_INTERVAL_MS) / 1000)
        unit: int = 10 ** max(0, len(str(exact)) - 2)
        return max(1, exact // unit * unit)

    def seconds_for(self, offsets: int) -> int:
        """How long so many offsets take."""
        return round(offsets / self.rate_per_second)


def format_time(seconds: int) -> str:
    """A length of time for a person: `3.0 days`, `90 s`."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds} s"


def find_median(values: Iterable[float]) -> float:
    """The middle one, of an even number the higher of the two; 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0
    return ordered[len(ordered) // 2]


def measure_pace(batches: Sequence[RecordedBatch]) -> Pace | None:
    """The pace of a query that reads Kafka; None if too few of its batches were recorded."""
    worked = [batch for batch in batches if batch.offsets and batch.duration_ms]
    if len(worked) < BATCHES_MIN:
        return None
    left = [batch.behind for batch in worked if batch.behind is not None]
    rates = [(batch.offsets or 0) * 1000 / (batch.duration_ms or 1) for batch in worked]
    durations_ms = [batch.duration_ms or 0 for batch in worked]
    behind = None
    if len(left) >= BATCHES_MIN:
        behind = (left[0], left[-1])
    return Pace(
        rate_per_second=find_median(rates),
        duration_ms=round(find_median(durations_ms)),
        longest=max(worked, key=lambda batch: batch.duration_ms or 0),
        interval_ms=_find_interval(worked),
        limit=_find_limit(worked),
        behind=behind,
    )


def _find_interval(batches: Sequence[RecordedBatch]) -> int | None:
    """Spark fires a processing-time trigger at whole multiples of its interval."""
    times = [batch.trigger_at_ms for batch in batches if batch.trigger_at_ms is not None]
    for interval in _INTERVALS_MS:
        fired = {time // interval for time in times if time % interval < _LATE_MS}
        if len(fired) >= max(BATCHES_MIN, _SHARE * len(times)):
            return interval
    return None


def _find_limit(batches: Sequence[RecordedBatch]) -> int | None:
    counts = [batch.offsets or 0 for batch in batches if batch.behind]
    is_limited = len(counts) >= 3 and max(counts) <= _SAME * min(counts)
    if not is_limited:
        return None
    return max(counts)
