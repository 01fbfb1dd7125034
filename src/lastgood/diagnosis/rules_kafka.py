"""Findings about Kafka sources: what the plans alone tell, and what the broker says to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, get_topics
from lastgood.diagnosis import kafka_conditions as conditions
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.kafka_reading import (
    KafkaReading,
    describe_ranges,
    list_readings,
    make_status_command,
    name_partitions,
    select_positions,
    select_within,
    to_json,
    turn_ranges,
)
from lastgood.diagnosis.rules_kafka_broker import find_broker
from lastgood.diagnosis.source_conditions import ORPHAN_UNREPLAYABLE, SOURCE_UNKNOWN
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart
from lastgood.query.prediction.skipping import is_skipped
from lastgood.query.spans import Span, list_spans
from lastgood.query.unresolved_ends import list_unresolved_ends
from lastgood.sources.kafka.ranges import (
    Offsets,
    Ranges,
    count_offsets,
    find_planned_ranges,
    find_went_back,
    ranges_to_json,
    select_below,
    select_from_on,
    select_only_in,
    unite,
)

CONDITIONS: tuple[Condition, ...] = conditions.CONDITIONS

_LARGE_FACTOR = 10


def find_kafka(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """Findings about every Kafka source of the query.

    Args:
        observed: What was found, and what the broker said if it was asked.
        restart: What Spark will do.
    """
    sources = list(list_readings(observed, restart))
    if sources and observed.kafka is not None and observed.kafka.unknown is not None:
        effect = "Nobody knows whether Kafka still has what is to be read, or for how long."
        found = {"bootstrap": observed.kafka.bootstrap, "because": observed.kafka.unknown}
        yield Finding(SOURCE_UNKNOWN, observed.kafka.bootstrap or "kafka", effect, found, make_status_command(observed))
    for source in sources:
        yield from _check_initial(source)
        yield from _check_negative(source)
        yield from _check_orphan(source)
        yield from _check_subscriptions(source)
        if source.is_asked:
            yield from find_broker(source)


def _check_initial(source: KafkaReading) -> Iterator[Finding]:
    """The first batch is not committed, and where it begins is lost."""
    stand = source.stand
    sources = source.observed.checkpoint.sources
    log = next((log for log in sources if log.name == stand.source_id), None)
    if stand.batch_id or not stand.is_rerun or (log and log.initial):
        return
    entry = None
    if log:
        entry = log.entries.get(0)
    if isinstance(entry, Damage):
        effect = "The query cannot start, and where its first batch begins is known to nobody else."
    else:
        effect = (
            "Spark resolves startingOffsets again: with `latest`, all that was written since the query was first"
            " started is skipped."
        )
    evidence = {"found": "nothing" if entry is None else str(entry)}
    command = source.observed.command("backup list")
    subject = f"sources/{stand.source_id}/0"
    yield source.finding(conditions.SOURCE_INITIAL_OFFSETS_LOST, subject, effect, evidence, command)


def _check_negative(source: KafkaReading) -> Iterator[Finding]:
    """What stands where a position belongs."""
    stand = source.stand
    start, end = (_select_negatives(get_topics(offset)) for offset in (stand.start, stand.end))
    if not start and not end:
        return
    values = {at for parts in start.values() for at in parts.values()}
    # A batch that begins and ends there reads nothing, and the one after it begins there.
    is_earliest = values == {OFFSET_EARLIEST} and end in ({}, start)
    if is_earliest:
        effect = "The next batch begins at the earliest records there are: what of them was read is read again."
    else:
        effect = f"Batch {stand.batch_id} fails in its tasks at every start."
    if stand.batch_id:
        before = f"offsets/{stand.batch_id - 1}"
    else:
        before = f"sources/{stand.source_id}/0"
    if end:
        subject = f"offsets/{stand.batch_id}"
    else:
        subject = before
    evidence = {side: to_json(found) for side, found in (("start", start), ("end", end)) if found}
    level = None
    if is_earliest:
        level = Severity.WARNING if _may_leave_out(source) else Severity.INFO
    yield source.finding(conditions.SOURCE_OFFSET_NEGATIVE, subject, effect, evidence, source.inspect(), level)


def _may_leave_out(source: KafkaReading) -> bool:
    """Whether a start from the earliest may leave out what Kafka has deleted before anybody read it."""
    stand, observed = source.stand, source.observed
    if stand.start is None:
        return False
    starts = {stand.source_id: stand.start}
    recovery = observed.rewritten.get(stand.batch_id - 1)
    return any(each.may_lose for each in list_unresolved_ends(starts, starts, starts, observed.kafka, recovery))


def _check_orphan(source: KafkaReading) -> Iterator[Finding]:
    """A planned batch that runs again with a range that cannot be had, or that is very large."""
    if not source.stand.is_rerun:
        return
    batch_id, subject = source.stand.batch_id, f"offsets/{source.stand.batch_id}"
    wrong = _find_wrong_ranges(source)
    if wrong:
        level = None
        if source.is_in_sinks and source.restart.stop is None:
            level, outcome = Severity.INFO, "The sinks have it and drop it unread, so the start goes on."
        elif is_skipped(source.observed.sinks, batch_id) and source.restart.stop is None:
            outcome = "Spark commits it without running it, since a sink has a batch of that number."
        elif source.observed.fail_on_data_loss:
            outcome = "Every start fails at it with the same message, also when the cause is gone."
        else:
            outcome = "It is committed all the same: what is missing is lost without a word."
        if source.is_in_sinks and level is None:
            outcome += " Its rows are in the sink already."
        if batch_id == 0:
            outcome += f" Another startingOffsets changes nothing while sources/{source.stand.source_id}/0 is there."
        causes = "; ".join(text for text, _ in wrong.values())
        effect = f"Batch {batch_id} cannot run as it was planned: {causes}. {outcome}"
        evidence = {name: found for name, (_, found) in wrong.items()}
        yield source.finding(ORPHAN_UNREPLAYABLE, subject, effect, evidence, source.inspect(), level)
    count = count_offsets(find_planned_ranges(source.start, source.end))
    counts = (_count(span) for span in source.read if span.is_done)
    usual = [each for each in counts if each]
    if len(usual) > 1 and count >= _LARGE_FACTOR * max(usual):
        effect = f"Batch {batch_id} runs again over {count} offsets at once, whatever maxOffsetsPerTrigger says now."
        sizes = {"offsets": count, "largest_before": max(usual)}
        yield source.finding(conditions.ORPHAN_LARGE, subject, effect, sizes, source.inspect())


def _find_wrong_ranges(source: KafkaReading) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """What keeps the planned range from being read: by name, in words and as it stands in the evidence."""
    start, end, facts = source.start, source.end, source.facts
    reads = find_planned_ranges(start, end)
    if source.stand.start is None:
        added = {}
    else:
        added = select_only_in(end, start)
    from_earliest = find_planned_ranges(select_within(facts.earliest, added), added)
    back = find_went_back(start, end)
    missing = select_only_in(start, get_topics(source.stand.end))
    expired = select_below(reads, facts.earliest)
    beyond = select_from_on(unite(reads, from_earliest), facts.latest)
    late = _find_beginnings(source, added)
    gone = _find_gone(
        source,
        unite(reads, find_planned_ranges({topic: dict.fromkeys(parts, 0) for topic, parts in added.items()}, added)),
    )
    each: dict[str, tuple[object, str, Mapping[str, Any]]] = {
        "went_back": (back, f"it ends before it begins in {name_partitions(back)}", ranges_to_json(turn_ranges(back))),
        "missing": (
            missing,
            f"it leaves out {name_partitions(missing)}, which the plan before it has",
            to_json(missing),
        ),
        "expired": (expired, f"{describe_ranges(expired)} is deleted", ranges_to_json(expired)),
        "beyond_end": (beyond, f"{describe_ranges(beyond)} is above the end of its partition", ranges_to_json(beyond)),
        "starts_late": (late, f"{describe_ranges(late)} is deleted", ranges_to_json(late)),
        "gone": (gone, f"{name_partitions(gone)} does not exist", ranges_to_json(gone)),
    }
    return {name: (text, found) for name, (is_there, text, found) in each.items() if is_there}


def _find_beginnings(source: KafkaReading, added: Offsets) -> Ranges:
    """What is deleted at the beginning of partitions that are new with this batch."""
    return find_planned_ranges(
        {topic: dict.fromkeys(parts, 0) for topic, parts in added.items()}, source.facts.earliest
    )


def _find_gone(source: KafkaReading, reads: Ranges) -> Ranges:
    """Of what a batch reads: what is in topics or partitions that do not exist."""
    gone = {topic: dict(parts) for topic, parts in reads.items() if source.is_gone(topic)}
    for topic, found in source.there.items():
        gone[topic] = {p: spans for p, spans in reads.get(topic, {}).items() if p not in found.partitions}
    return {topic: parts for topic, parts in gone.items() if parts}


def _check_subscriptions(source: KafkaReading) -> Iterator[Finding]:
    """Committed batches that name other topics or partitions than the batch before them."""
    left: dict[tuple[str, int], int] = {}
    for span in source.read:
        start, end = get_topics(span.start), get_topics(span.end)
        if not span.is_done or not start or not end:
            continue
        dropped, added = select_only_in(start, end), select_only_in(end, start)
        twice = {
            topic: {p: ((0, min(left[topic, p], last)),) for p, last in parts.items() if left.get((topic, p), 0) > 0}
            for topic, parts in added.items()
        }
        twice = {topic: parts for topic, parts in twice.items() if parts}
        left = {place: at for place, at in left.items() if place[1] not in added.get(place[0], {})}
        left.update({(topic, p): at for topic, parts in dropped.items() for p, at in parts.items()})
        yield from _check_dropped(source, span.batch_id, dropped, end)
        if twice:
            again = "what had been read of it was read again, from its beginning"
            effect = f"{name_partitions(twice)} came back as new: {again}."
            found = {"batch": span.batch_id, "read_twice_at_most": ranges_to_json(twice)}
            yield source.finding(conditions.SOURCE_SUBSCRIPTION_CHANGED, f"offsets/{span.batch_id}", effect, found)
        new = {topic: parts for topic, parts in added.items() if topic not in start and topic not in twice}
        if new:
            effect = f"{name_partitions(new)} is read since batch {span.batch_id}, from its beginning."
            yield source.finding(
                conditions.SOURCE_SUBSCRIPTION_CHANGED,
                f"offsets/{span.batch_id}",
                effect,
                {"batch": span.batch_id, "read_up_to": to_json(new)},
                level=Severity.INFO,
            )


def find_batches_that_left_out(checkpoint: Checkpoint) -> frozenset[int]:
    """Done batches that name fewer topics or partitions than the batch before them."""
    return frozenset(
        span.batch_id
        for span in list_spans(checkpoint)
        if span.is_done and select_only_in(get_topics(span.start), get_topics(span.end))
    )


def _check_dropped(source: KafkaReading, batch_id: int, dropped: Offsets, end: Offsets) -> Iterator[Finding]:
    for topic, parts in dropped.items():
        effect = (
            f"Batch {batch_id} was committed without {name_partitions({topic: parts})}: what was unread there was not"
            " read, and if it comes back it is read from its beginning."
        )
        # A pattern takes every topic there is, so that one which it leaves out is not given up: it was gone.
        is_gone = topic in end or source.observed.is_pattern
        condition = conditions.SOURCE_PARTITIONS_GONE if is_gone else conditions.SOURCE_SUBSCRIPTION_CHANGED
        evidence: Mapping[str, Any] = {"batch": batch_id, "left_at": to_json({topic: parts})}
        command = source.observed.command("offsets", "--batch", str(max(0, batch_id - 1)))
        level = Severity.INFO if batch_id in source.observed.rewritten else Severity.WARNING
        yield source.finding(condition, f"offsets/{batch_id}", effect, evidence, command, level)


def _select_negatives(offsets: Offsets) -> Offsets:
    found = {topic: {p: at for p, at in parts.items() if at < 0} for topic, parts in offsets.items()}
    return {topic: parts for topic, parts in found.items() if parts}


def _count(span: Span) -> int:
    return count_offsets(
        find_planned_ranges(select_positions(get_topics(span.start)), select_positions(get_topics(span.end)))
    )
