"""From where the sources are read again to make a state anew: as late as nothing of an open window lies before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.ladder.outage import format_duration
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.positions import StartChoice, choose_offsets
from lastgood.observe.recalled import Ledgers, choose_known_ledger
from lastgood.observe.remembered import recall_query
from lastgood.planning.goals.values import RecomputeGoal

if TYPE_CHECKING:
    from lastgood.ledger.facts import BatchFacts

_BATCHES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """`recompute`: what a person says of the windows of a query."""

    appends: bool = False
    """That it is one windowed aggregation with a watermark, in output mode append, where nothing tells."""
    length_ms: int | None = None
    """How long its longest window is at most; None: all is read again."""
    clock_skew_ms: int | None = None
    """How much later than Kafka has a record its event may be; None: nothing is said of it."""
    max_replay: int | None = None
    """How many offsets and files may be read again at most; None: however many."""
    output_mode: str | None = None
    """That it is one aggregation in output mode `complete` or `update`, where nothing tells."""
    event_time: str | None = None
    """SQL over a record of Kafka that gives the time of its event; None: nothing is said of it."""

    @property
    def is_said(self) -> bool:
        """Whether anything is."""
        return self != WindowChoice()

    def words(self) -> tuple[str, ...]:
        """The same as words of a command line."""
        words = ["--appends-windows"] if self.appends else []
        if self.length_ms is not None:
            words += ["--window", f"{self.length_ms}ms"]
        if self.clock_skew_ms is not None:
            words += ["--max-clock-skew", f"{self.clock_skew_ms}ms"]
        if self.event_time is not None:
            words += ["--event-time", self.event_time]
        if self.output_mode is not None:
            words += ["--output-mode", self.output_mode]
        if self.max_replay is not None:
            words += ["--max-replay", f"{self.max_replay}"]
        return tuple(words)


def choose_rereading(
    choice: WindowChoice,
    found: OpenQuery,
    environment: Mapping[str, str] = os.environ,
    *,
    scan: Callable[[str, int], Mapping[str, str]],
) -> RecomputeGoal:
    """The goal, with where each source is read again from.

    A row can only count for an open window if its event is younger than the watermark less the length of a window.
    What a ledger has of each batch tells exactly after which one that begins; else the events themselves, if somebody
    says how their times are told; else Kafka's index of times, by the word of a person that no event is much younger
    than its record.

    Args:
        choice: What a person says.
        found: The query and what stands around it.
        environment: May name the ledger.
        scan: Reads the times of events, told by SQL, and gives from where on each source has one of a time or later.

    Raises:
        UsageError: a length is said, and nothing tells when the events were (subclasses).
    """
    if choice.length_ms is None:
        _require_no_times(choice)
        return RecomputeGoal(appends_windows=choice.appends)
    checkpoint = found.seen.checkpoint
    plan = checkpoint.offsets.entries.get(-1 if checkpoint.last_committed is None else checkpoint.last_committed)
    if not isinstance(plan, OffsetEntry):
        return RecomputeGoal(appends_windows=choice.appends)  # the planner says that it cannot be read
    open_since_ms = plan.batch_watermark_ms - choice.length_ms
    said = f"your word that no window is longer than {format_duration(choice.length_ms / 1000)}"
    recorded = _find_recorded(found, environment, plan, open_since_ms)
    if recorded is not None:
        batch_id, starts = recorded
        chosen = f"batch {batch_id} ended, up to which no recorded event was of {_name_time(open_since_ms)} or later"
        return RecomputeGoal(starts, chosen, (said,), choice.appends)
    if choice.event_time is not None:
        starts = scan(choice.event_time, open_since_ms)
        chosen = f"Kafka has the first events of {_name_time(open_since_ms)} or later, as a Spark job has read them all"
        word = f"your word that the time of an event is {choice.event_time}, in the time zone of this machine"
        return RecomputeGoal(starts, chosen, (said, word), choice.appends)
    if choice.clock_skew_ms is None:
        raise UsageError(
            "nobody has written down when the events of each batch were",
            subject="--window",
            expected="a ledger that a recorder has told of every batch, --event-time SQL or --max-clock-skew DURATION",
        )
    at_ms = open_since_ms - choice.clock_skew_ms
    _require_no_later_events(found, choice.clock_skew_ms)
    if at_ms <= 0:
        return RecomputeGoal(appends_windows=choice.appends)
    offsets, _ = choose_offsets(StartChoice(at_time_ms=at_ms), found)
    skew = (
        f"your word that Kafka has no record {format_duration(choice.clock_skew_ms / 1000)} before its event, or more"
    )
    return RecomputeGoal(
        {source_id: KafkaOffset(topics).to_text() for source_id, topics in offsets.items()},
        f"Kafka has the first records of {_name_time(at_ms)} or later",
        (said, skew),
        choice.appends,
    )


def _require_no_times(choice: WindowChoice) -> None:
    """See that nothing is said of the times of events where nothing is said of windows."""
    for option, value in (("--max-clock-skew", choice.clock_skew_ms), ("--event-time", choice.event_time)):
        if value is not None:
            raise UsageError("how far back windows reach is not said", subject=option, expected="--window")


def _name_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _require_no_later_events(found: OpenQuery, clock_skew_ms: int) -> None:
    """See that no watermark speaks against it: it is never later than an event that was read.

    Raises:
        UsageError: one does.
    """
    for batch_id, plan in sorted(found.seen.checkpoint.offsets.entries.items()):
        if not isinstance(plan, OffsetEntry) or plan.metadata is None:
            continue
        ahead_ms = plan.metadata.batch_watermark_ms - plan.metadata.batch_timestamp_ms
        if ahead_ms > clock_skew_ms:
            raise UsageError(
                "events of this query were later than that",
                subject="--max-clock-skew",
                found=f"a watermark of {format_duration(ahead_ms / 1000)} after the time of batch {batch_id}",
                expected="what every event keeps to",
            )


def _find_recorded(
    found: OpenQuery, environment: Mapping[str, str], plan: OffsetEntry, open_since_ms: int
) -> tuple[int, Mapping[str, str]] | None:
    """The last batch up to which no event was so late, and where it ended; None if that is not known of any.

    Of several sources Spark tells the times of one alone.
    """
    place = choose_known_ledger(found, environment)
    if place is None or found.query_id is None or len(plan.sources) != 1:
        return None
    last = None
    with Ledgers() as ledgers:
        known = recall_query(ledgers.get(place), found.location, found.query_id)
        if known is None:
            return None
        ids = known.ledger.batch_ids(known.query)
        for at in range(0, len(ids), _BATCHES_AT_ONCE):
            some = known.ledger.batches(known.query, ids[at : at + _BATCHES_AT_ONCE])
            for expected, batch_id in enumerate(ids[at : at + _BATCHES_AT_ONCE], start=at):
                facts = some.get(batch_id)
                if facts is None or batch_id != expected or not _is_before(facts, open_since_ms):
                    return last
                last = (batch_id, facts.ends)
    return last


def _is_before(facts: BatchFacts, open_since_ms: int) -> bool:
    """Whether every event of a batch that is done is known to be older; Spark tells them to the millisecond below."""
    progress = facts.progress
    if progress is None or not facts.is_progress_of_plan or not facts.ends:
        return False
    if progress.event_time_max_ms is None:
        return progress.num_input_rows == 0
    return progress.event_time_max_ms < open_since_ms
