"""Advice about the size of the batches that a query reads from Kafka. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lastgood.checkpoint.lines import Json
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.diagnosis import advice_conditions as told
from lastgood.diagnosis.findings import Finding
from lastgood.diagnosis.pace import Pace, format_time, measure_pace
from lastgood.query.observation import Observation
from lastgood.sources.kafka.facts import resolve_offsets
from lastgood.sources.kafka.ranges import Offsets, count_offsets, find_planned_ranges

_LONG_SECONDS = 600
_LONG_RATIO = 10


def advise_on_batches(observed: Observation) -> Iterator[Finding]:
    """Whether batches are too large or too small, by the rate that was recorded."""
    pace = measure_pace(observed.advice.batches)
    if pace is None:
        return
    option = f'.option("maxOffsetsPerTrigger", "{pace.fitting_limit}")'
    evidence: dict[str, Json] = {
        "offsets_per_second": round(pace.rate_per_second, 1),
        "duration_median_ms": pace.duration_ms,
        "trigger_interval_ms": pace.interval_ms,
        "suggested": pace.fitting_limit,
    }
    yield from _advise_on_large_batches(observed, pace, evidence, option)
    is_idle = pace.interval_ms is not None and 2 * pace.duration_ms < pace.interval_ms
    if pace.limit and pace.behind and is_idle and 0 < pace.behind[0] <= pace.behind[1]:
        yield Finding(
            told.SMALL_BATCHES,
            "maxOffsetsPerTrigger",
            f"Each batch stops at {pace.limit:,} offsets while {pace.behind[1]:,} wait, and more than half of the time"
            " nothing runs.",
            {**evidence, "limit": pace.limit, "behind_first": pace.behind[0], "behind_last": pace.behind[1]},
            option,
        )


def _advise_on_large_batches(
    observed: Observation, pace: Pace, evidence: Mapping[str, Json], option: str
) -> Iterator[Finding]:
    rate = f"at the recorded {pace.rate_per_second:,.0f} offsets a second"
    unread = _count_unread_offsets(observed)
    longest = (pace.longest.duration_ms or 0) // 1000
    if pace.limit is None and pace.seconds_for(unread) >= _LONG_SECONDS:
        takes = format_time(pace.seconds_for(unread))
        yield Finding(
            told.LARGE_BATCHES,
            "maxOffsetsPerTrigger",
            f"{unread:,} offsets are unread: {rate} the next batch takes {takes}, unless"
            " the source has a limit that was never reached.",
            {**evidence, "offsets": unread, "seconds": pace.seconds_for(unread)},
            option,
        )
    elif longest >= _LONG_SECONDS and longest * 1000 >= _LONG_RATIO * pace.duration_ms:
        batch = pace.longest
        yield Finding(
            told.LARGE_BATCHES,
            f"offsets/{batch.batch_id}",
            f"Batch {batch.batch_id} read {batch.offsets:,} offsets and took {format_time(longest)}; the median is"
            f" {pace.duration_ms / 1000:.1f} s.",
            {**evidence, "offsets": batch.offsets, "seconds": longest},
            option,
        )


def _get_topics(entry: object) -> Mapping[str, Offsets]:
    return entry.topics if isinstance(entry, OffsetEntry) else {}


def _count_unread_offsets(observed: Observation) -> int:
    checkpoint, kafka = observed.checkpoint, observed.kafka
    if kafka is None or checkpoint.last_committed is None:
        return 0
    starts = _get_topics(checkpoint.offsets.entries.get(checkpoint.last_committed))
    return sum(
        count_offsets(find_planned_ranges(resolve_offsets(start, kafka), kafka.latest)) for start in starts.values()
    )
