"""Of which plan the batches are that a sink holds: the one in the logs, or an older one of the same number. Pure.

A sink that goes by numbers drops a batch that it has. Where somebody dropped a plan by hand after the sink had got its
batch, and the next driver planned the number anew, the sink holds other rows under it than the plan in the logs names:
run again, the new plan is dropped without a word.

Spark notes down when it plans a batch (`batchTimestampMs`), and the sink when it got it. A batch is planned before it
is written, so a sink's commit that is older than the plan is of another plan.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import SourceOffset
from lastgood.frozen import dataclass
from lastgood.sinks.evidence import SinkEvidence, is_query_id
from lastgood.sources.kafka.retention import MAX_CLOCK_SKEW_MS

_STORAGE_CLOCK_MS = 2000
"""How far the clock of a storage, which may know whole seconds only, is taken to be behind that of the driver."""

_KEPT_CLOCK_MS = 5000
"""No clock that is kept is wrong by as much: what is dated further ahead than this is of a clock that is not."""


class Origin(enum.Enum):
    """Of which plan a batch is that a sink holds."""

    THIS_PLAN = "this_plan"
    """The sink got it after the plan in the logs was made."""
    OLDER_PLAN = "older_plan"
    """The sink had it before: its rows are of an older plan of that number, or the plan in the logs names none."""
    PERHAPS_OLDER = "perhaps_older"
    """So it looks, and clocks that differ may be the reason."""
    UNTOLD = "untold"
    """Nobody tells when the sink got it, or when it was planned."""

    @property
    def is_doubtful(self) -> bool:
        """Whether anything speaks for an older plan."""
        return self in (Origin.OLDER_PLAN, Origin.PERHAPS_OLDER)


@dataclass(frozen=True, slots=True)
class Held:
    """A batch that a sink holds and that the logs plan."""

    origin: Origin
    because: str
    """One line for a person."""


def find_held_batches(checkpoint: Checkpoint, sink: SinkEvidence) -> dict[int, Held]:
    """Every batch whose plan was read and that the sink holds, by its number.

    Args:
        checkpoint: With its newest plans read.
        sink: What the sink says.
    """
    planned = {
        number: time_ms for number in checkpoint.offsets.entries if (time_ms := _find_planned_ms(checkpoint, number))
    }
    found = find_origins(sink, planned)
    orphan = checkpoint.orphan
    if orphan is not None and orphan in planned and orphan not in found and sink.may_skip(orphan):
        later = _judge_by_later(sink, planned[orphan], orphan)
        found |= {} if later is None else {orphan: later}
    committed_ms = _find_committed_ms(sink)
    for number in [each for each in found if each != orphan and found[each].origin is Origin.THIS_PLAN]:
        because = _explain_clock_set_back(sink, committed_ms.get(number), planned, number)
        found |= {} if because is None else {number: Held(Origin.PERHAPS_OLDER, because)}
    if orphan is not None and orphan in found and found[orphan].origin is Origin.THIS_PLAN:
        against = _explain_clocks_against(sink, planned, orphan)
        found |= {} if against is None else {orphan: Held(Origin.PERHAPS_OLDER, against)}
    for number in [each for each in found if found[each].origin is Origin.THIS_PLAN]:
        ahead = _explain_dated_ahead(sink, committed_ms.get(number), planned[number], number)
        found |= {} if ahead is None else {number: Held(Origin.PERHAPS_OLDER, ahead)}
    found |= {number: held for number in found if (held := _find_used_up(checkpoint, sink, number))}
    if not checkpoint.is_stateful:  # with state, a batch without input may have rows
        found |= {number: held for number in found if (held := _find_of_nothing(checkpoint, sink, number))}
    by_names = _judge_by_names(checkpoint, sink)
    found |= {number: held for number, held in by_names.items() if number not in found}
    return found


def find_held_batch(checkpoint: Checkpoint, sink: SinkEvidence, number: int, planned_ms: int | None) -> Held | None:
    """The same of one batch, whose plan may be known only elsewhere: then nothing but times can tell.

    Args:
        checkpoint: With the plan of the batch read, and the one before it, where it has them.
        sink: What the sink says.
        number: Of the batch.
        planned_ms: When it was planned, as whoever has its plan knows; None if nobody does.
    """
    if _find_offset_entry(checkpoint, number) is not None:
        return find_held_batches(checkpoint, sink).get(number)
    return find_origins(sink, {} if planned_ms is None else {number: planned_ms}).get(number)


def list_possible_names(checkpoint: Checkpoint, sink: SinkEvidence) -> dict[str, int]:
    """Names under which the query may write, with their marks; none where that is settled.

    These are names of applications, and of what looks like a query but stands where the batch does that runs again.
    """
    if sink.skips_known or sink.last_batch is not None:
        return {}
    return list_names_of_applications(checkpoint, sink)


def list_names_of_applications(checkpoint: Checkpoint, sink: SinkEvidence) -> dict[str, int]:
    """Those names, be it settled or not whether the query has one of them."""
    queries = set(filter(is_query_id, sink.others))
    elsewhere = {name for name in queries if sink.others[name] != checkpoint.orphan}
    return {name: sink.others[name] for name in sink.others.keys() - elsewhere}


def find_planned_anew(checkpoint: Checkpoint, sink: SinkEvidence) -> Held | None:
    """What the sink holds under the number of the orphan, where that is not known to be what the orphan plans.

    Of a sink that takes a batch by what is in it, and not by its number, it has to be known that it is another one; of
    one that goes by the number, that it is the same.
    """
    orphan = checkpoint.orphan
    held = None
    if orphan is not None:
        held = find_held_batches(checkpoint, sink).get(orphan)
    if held is None or orphan is None:
        return None
    is_open = held.origin is Origin.UNTOLD and sink.would_skip(orphan) is not False
    return held if held.origin.is_doubtful or is_open else None


def is_in_sinks(checkpoint: Checkpoint, sinks: Sequence[SinkEvidence]) -> bool:
    """Whether every sink shows the orphan itself as its newest batch, so that what it reads is not lost."""
    orphan = checkpoint.orphan
    proven = (sink.known and sink.presumed_app_id is None for sink in sinks)
    holds = (sink.last_batch == orphan for sink in sinks)
    is_own = (find_planned_anew(checkpoint, sink) is None for sink in sinks)
    return orphan is not None and bool(sinks) and all(proven) and all(holds) and all(is_own)


def find_origins(sink: SinkEvidence, planned_ms: Mapping[int, int]) -> dict[int, Held]:
    """The same, by nothing but times.

    Args:
        sink: What the sink says.
        planned_ms: `batchTimestampMs` of each batch that is planned.
    """
    committed_ms = _find_committed_ms(sink)
    slack_ms = 0 if sink.times_by_driver else _STORAGE_CLOCK_MS
    age_ms = {
        number: planned - slack_ms - committed
        for number, planned in planned_ms.items()
        if (committed := committed_ms.get(number)) is not None
    }
    # Where others are in their order by the same clock, one that is not did not get there by that clock.
    is_clock_proven = sink.times_by_driver and any(ms <= 0 for ms in age_ms.values())
    found: dict[int, Held] = {}
    for number in _list_held_numbers(sink, planned_ms):
        if number not in age_ms:
            found[number] = Held(Origin.UNTOLD, f"when it got batch {number} is not known")
        elif age_ms[number] <= 0:
            found[number] = Held(Origin.THIS_PLAN, f"it got batch {number} after that was planned")
        else:
            is_sure = is_clock_proven or age_ms[number] > MAX_CLOCK_SKEW_MS
            seconds = age_ms[number] / 1000
            because = f"it had batch {number} already {seconds:,.1f} seconds before that was planned"
            because += "" if is_sure else ", unless clocks differ by so much"
            found[number] = Held(Origin.OLDER_PLAN if is_sure else Origin.PERHAPS_OLDER, because)
    return found


def _judge_by_names(checkpoint: Checkpoint, sink: SinkEvidence) -> dict[int, Held]:
    """The batch where the query stands, by names under which it may write: where that may be of an older plan.

    Where nothing speaks for that it is left out: that the sink has the batch itself such a mark alone does not tell.
    """
    found: dict[int, Held] = {}
    committed = -1 if checkpoint.last_committed is None else checkpoint.last_committed
    for name, last in list_possible_names(checkpoint, sink).items():
        if last < committed:
            continue  # it stands where the query does not
        at_ms = sink.others_at_ms.get(name)
        as_named = replace(sink, known=True, last_batch=last, skips_up_to=last, marked_at_ms=at_ms, others={})
        for number, held in find_held_batches(checkpoint, as_named).items():
            if number == checkpoint.orphan:
                speaks = held.origin is not Origin.THIS_PLAN
            elif number == checkpoint.last_committed:
                speaks = held.origin.is_doubtful
            else:
                speaks = False
            if speaks:
                because = f"if the query writes there as {name} (--txn-app-id), {held.because}"
                found[number] = Held(Origin.PERHAPS_OLDER, because)
    return found


def _judge_by_later(sink: SinkEvidence, planned_ms: int, orphan: int) -> Held | None:
    """The orphan by the batches that came after one of its number, where its own version is no longer in the log."""
    slack_ms = 0 if sink.times_by_driver else _STORAGE_CLOCK_MS
    came = {number: at_ms for number, at_ms in _find_committed_ms(sink).items() if number > orphan}
    first = min(came, key=lambda number: came[number], default=None)
    if first is None:
        age_ms = 0
    else:
        age_ms = planned_ms - slack_ms - came[first]
    if age_ms <= 0:
        return None
    is_sure = age_ms > MAX_CLOCK_SKEW_MS
    because = f"it had batch {first} already {age_ms / 1000:,.1f} seconds before batch {orphan} was planned"
    because += "" if is_sure else ", unless clocks differ by so much"
    return Held(Origin.OLDER_PLAN if is_sure else Origin.PERHAPS_OLDER, because)


def _explain_clocks_against(sink: SinkEvidence, planned_ms: Mapping[int, int], orphan: int) -> str | None:
    """Why times prove nothing of the orphan, in one line: what is known to be earlier has a later time; else None.

    The sink has got the batch before, and that was planned, before the orphan is planned.
    """
    before, at_ms = orphan - 1, planned_ms[orphan]
    committed_ms = _find_committed_ms(sink).get(before)
    slack_ms = 0 if sink.times_by_driver else _STORAGE_CLOCK_MS
    if before in planned_ms and planned_ms[before] > at_ms:
        ahead_ms, what = planned_ms[before] - at_ms, f"batch {before} was planned"
    elif committed_ms is not None and committed_ms - slack_ms > at_ms:
        ahead_ms, what = committed_ms - at_ms, f"it got batch {before}"
    else:
        return None
    return f"by its time {what} {ahead_ms / 1000:,.1f} seconds after batch {orphan} was planned: clocks differ"


def _explain_dated_ahead(sink: SinkEvidence, committed_ms: int | None, planned_ms: int, number: int) -> str | None:
    """Why times prove nothing of a batch: it was planned before now, and the sink got it after now; None if not so.

    The driver that got it there had a clock that was ahead. Where the next one has a clock that is right, what it plans
    under the same number looks older than what the sink has had before. What is planned after now as well may be of one
    clock.
    """
    now_ms = sink.asked_at_ms
    if committed_ms is None or now_ms is None or not sink.times_by_driver:
        return None
    ahead_ms = committed_ms - now_ms
    if planned_ms > now_ms or ahead_ms <= _KEPT_CLOCK_MS:
        return None
    return f"by its time it got batch {number} {ahead_ms / 1000:,.1f} seconds after now, and it was planned before now"


def _explain_clock_set_back(
    sink: SinkEvidence, committed_ms: int | None, planned_ms: Mapping[int, int], number: int
) -> str | None:
    """Why a batch that is done may be of an older plan, though by its time it is not; None if nothing speaks for it.

    A driver whose clock was ahead got it into the sink, and one whose clock is right has planned the number anew.
    """
    if committed_ms is None or not sink.times_by_driver:
        return None
    at_ms = planned_ms[number]
    before_ms, next_ms = planned_ms.get(number - 1), planned_ms.get(number + 1)
    if before_ms is not None and at_ms < before_ms <= committed_ms:
        return f"the clock was set back before batch {number} was planned, and it got that by the clock from before"
    # What is later by more than clocks differ is the time of something else, such as of a copy of the sink.
    if next_ms is not None and at_ms < next_ms < committed_ms <= next_ms + MAX_CLOCK_SKEW_MS:
        return f"it got batch {number} after batch {number + 1} was planned, by times that cannot be of one clock"
    return None


def _list_held_numbers(sink: SinkEvidence, planned_ms: Mapping[int, int]) -> set[int]:
    """The batches that it shows: those that it tells one by one, and the one at which its mark stands."""
    live = {batch.batch_id for batch in sink.batches if batch.is_live is not False}
    if sink.last_batch is None:
        newest = set()
    else:
        newest = {sink.last_batch}
    return {*live, *newest}.intersection(planned_ms)


def _find_committed_ms(sink: SinkEvidence) -> dict[int, int]:
    """When the sink got the rows that it shows of each batch."""
    newest: dict[int, int] = {}
    if sink.last_batch is not None and sink.marked_at_ms is not None:
        newest[sink.last_batch] = sink.marked_at_ms
    told: dict[int, int] = {}
    for batch in sink.batches:
        if batch.is_live is not False and batch.committed_at_ms is not None:
            told[batch.batch_id] = max(batch.committed_at_ms, told.get(batch.batch_id, 0))
    return {**newest, **told}


def _find_of_nothing(checkpoint: Checkpoint, sink: SinkEvidence, number: int) -> Held | None:
    """What it holds of a batch that reads nothing, if these are rows: they are of another plan, whatever clocks say."""
    if not is_reading_nothing(checkpoint, number):
        return None
    counts = [batch.row_count for batch in sink.batches if batch.batch_id == number and batch.is_live is not False]
    rows = sum(count for count in counts if count is not None)
    if rows:
        return Held(Origin.OLDER_PLAN, f"it has {rows:,} rows of batch {number}, whose plan reads nothing")
    if None in counts:
        because = f"whether it has rows of batch {number}, whose plan reads nothing, is not known"
        return Held(Origin.PERHAPS_OLDER, because)
    return None


def _find_used_up(checkpoint: Checkpoint, sink: SinkEvidence, number: int) -> Held | None:
    """What it holds under a number that a recovery has used up, where the plan reads something: no row of that.

    The plan is an old one then, which somebody has put back by hand, without the mark.
    """
    live = [batch for batch in sink.batches if batch.batch_id == number and batch.is_live is not False]
    # What neither Spark's own sink nor a function has written is a mark that lastgood has made.
    is_used_up = sink.traits.can_be_marked and all(each.is_streaming is None and each.row_count == 0 for each in live)
    if not live or not is_used_up or is_reading_nothing(checkpoint, number):
        return None
    return Held(Origin.OLDER_PLAN, f"a recovery has used up the number of batch {number}, without a row of it")


def is_reading_nothing(checkpoint: Checkpoint, number: int) -> bool:
    """Whether a plan surely reads nothing: it ends where the one before it does, or where its sources begin."""
    plan, before = _find_offset_entry(checkpoint, number), _find_offset_entry(checkpoint, number - 1)
    if plan is None or not plan.sources:
        return False
    if number > 0:
        return before is not None and _find_ends(before) == _find_ends(plan)
    begun = {log.name: log.initial.offset for log in checkpoint.sources if log.initial is not None}
    return _find_ends(plan) == begun


def _find_ends(plan: OffsetEntry) -> dict[str, SourceOffset]:
    return {line.source_id: line.offset for line in plan.sources}


def _find_planned_ms(checkpoint: Checkpoint, number: int) -> int | None:
    plan = _find_offset_entry(checkpoint, number)
    return plan.metadata.batch_timestamp_ms if plan is not None and plan.metadata is not None else None


def _find_offset_entry(checkpoint: Checkpoint, number: int) -> OffsetEntry | None:
    entry = checkpoint.offsets.entries.get(number)
    return entry if isinstance(entry, OffsetEntry) else None
