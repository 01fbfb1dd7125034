"""Findings about Kafka sources: what the plans alone tell, and what the broker says to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, topics_of
from lastgood.diagnosis import kafka_conditions as conditions
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.kafka_reading import (
    KafkaReading,
    between,
    names,
    positions,
    readings,
    status_command,
    to_json,
    told,
    within,
)
from lastgood.diagnosis.rules_kafka_broker import find_broker
from lastgood.diagnosis.source_conditions import ORPHAN_UNREPLAYABLE, SOURCE_UNKNOWN
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart
from lastgood.query.prediction.skipping import is_skipped
from lastgood.query.spans import Span
from lastgood.sources.kafka.ranges import (
    Offsets,
    Ranges,
    below,
    from_on,
    offset_count,
    only_in,
    planned,
    ranges_to_json,
    union,
    went_back,
)

CONDITIONS: tuple[Condition, ...] = conditions.CONDITIONS

_LARGE_FACTOR = 10


def find_kafka(world: Observation, restart: Restart) -> Iterator[Finding]:
    """Findings about every Kafka source of the query.

    Args:
        world: What was found, and what the broker said if it was asked.
        restart: What Spark will do.
    """
    sources = list(readings(world, restart))
    if sources and world.kafka is not None and world.kafka.unknown is not None:
        effect = "Nobody knows whether Kafka still has what is to be read, or for how long."
        found = {"bootstrap": world.kafka.bootstrap, "because": world.kafka.unknown}
        yield Finding(SOURCE_UNKNOWN, world.kafka.bootstrap or "kafka", effect, found, status_command(world))
    for source in sources:
        yield from _initial(source)
        yield from _negative(source)
        yield from _orphan(source)
        yield from _subscriptions(source)
        if source.is_asked:
            yield from find_broker(source)


def _initial(source: KafkaReading) -> Iterator[Finding]:
    """The first batch is not committed, and where it begins is lost."""
    stand = source.stand
    log = next((log for log in source.world.checkpoint.sources if log.name == stand.source_id), None)
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
    command = source.world.command("backup list")
    subject = f"sources/{stand.source_id}/0"
    yield source.finding(conditions.SOURCE_INITIAL_OFFSETS_LOST, subject, effect, evidence, command)


def _negative(source: KafkaReading) -> Iterator[Finding]:
    """What stands where a position belongs."""
    stand = source.stand
    start, end = (_negatives(topics_of(offset)) for offset in (stand.start, stand.end))
    if not start and not end:
        return
    values = {at for parts in start.values() for at in parts.values()}
    is_earliest = values == {OFFSET_EARLIEST} and not end
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
    level = Severity.INFO if is_earliest else None
    yield source.finding(conditions.SOURCE_OFFSET_NEGATIVE, subject, effect, evidence, source.inspect(), level)


def _orphan(source: KafkaReading) -> Iterator[Finding]:
    """A planned batch that runs again with a range that cannot be had, or that is very large."""
    if not source.stand.is_rerun:
        return
    batch_id, subject = source.stand.batch_id, f"offsets/{source.stand.batch_id}"
    wrong = _wrong_ranges(source)
    if wrong:
        level = None
        if source.is_in_sinks and source.restart.stop is None:
            level, outcome = Severity.INFO, "The sinks have it and drop it unread, so the start goes on."
        elif is_skipped(source.world.sinks, batch_id) and source.restart.stop is None:
            outcome = "Spark commits it without running it, since a sink has a batch of that number."
        elif source.world.fail_on_data_loss:
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
    count = offset_count(planned(source.start, source.end))
    counts = (_count(span) for span in source.read if span.is_done)
    usual = [each for each in counts if each]
    if len(usual) > 1 and count >= _LARGE_FACTOR * max(usual):
        effect = f"Batch {batch_id} runs again over {count} offsets at once, whatever maxOffsetsPerTrigger says now."
        sizes = {"offsets": count, "largest_before": max(usual)}
        yield source.finding(conditions.ORPHAN_LARGE, subject, effect, sizes, source.inspect())


def _wrong_ranges(source: KafkaReading) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """What keeps the planned range from being read: by name, in words and as it stands in the evidence."""
    start, end, facts = source.start, source.end, source.facts
    reads = planned(start, end)
    if source.stand.start is None:
        added = {}
    else:
        added = only_in(end, start)
    from_earliest = planned(within(facts.earliest, added), added)
    back = went_back(start, end)
    missing = only_in(start, topics_of(source.stand.end))
    expired = below(reads, facts.earliest)
    beyond = from_on(union(reads, from_earliest), facts.latest)
    late = _beginnings(source, added)
    gone = _gone(
        source, union(reads, planned({topic: dict.fromkeys(parts, 0) for topic, parts in added.items()}, added))
    )
    each: dict[str, tuple[object, str, Mapping[str, Any]]] = {
        "went_back": (back, f"it ends before it begins in {names(back)}", ranges_to_json(between(back))),
        "missing": (missing, f"it leaves out {names(missing)}, which the plan before it has", to_json(missing)),
        "expired": (expired, f"{told(expired)} is deleted", ranges_to_json(expired)),
        "beyond_end": (beyond, f"{told(beyond)} is above the end of its partition", ranges_to_json(beyond)),
        "starts_late": (late, f"{told(late)} is deleted", ranges_to_json(late)),
        "gone": (gone, f"{names(gone)} does not exist", ranges_to_json(gone)),
    }
    return {name: (text, found) for name, (is_there, text, found) in each.items() if is_there}


def _beginnings(source: KafkaReading, added: Offsets) -> Ranges:
    """What is deleted at the beginning of partitions that are new with this batch."""
    return planned({topic: dict.fromkeys(parts, 0) for topic, parts in added.items()}, source.facts.earliest)


def _gone(source: KafkaReading, reads: Ranges) -> Ranges:
    """Of what a batch reads: what is in topics or partitions that do not exist."""
    gone = {topic: dict(parts) for topic, parts in reads.items() if source.is_gone(topic)}
    for topic, found in source.there.items():
        gone[topic] = {p: spans for p, spans in reads.get(topic, {}).items() if p not in found.partitions}
    return {topic: parts for topic, parts in gone.items() if parts}


def _subscriptions(source: KafkaReading) -> Iterator[Finding]:
    """Committed batches that name other topics or partitions than the batch before them."""
    left: dict[tuple[str, int], int] = {}
    for span in source.read:
        start, end = topics_of(span.start), topics_of(span.end)
        if not span.is_done or not start or not end:
            continue
        dropped, added = only_in(start, end), only_in(end, start)
        twice = {
            topic: {p: ((0, min(left[topic, p], last)),) for p, last in parts.items() if left.get((topic, p), 0) > 0}
            for topic, parts in added.items()
        }
        twice = {topic: parts for topic, parts in twice.items() if parts}
        left = {place: at for place, at in left.items() if place[1] not in added.get(place[0], {})}
        left.update({(topic, p): at for topic, parts in dropped.items() for p, at in parts.items()})
        yield from _dropped(source, span.batch_id, dropped, end)
        if twice:
            effect = f"{names(twice)} came back as new: what had been read of it was read again, from its beginning."
            found = {"batch": span.batch_id, "read_twice_at_most": ranges_to_json(twice)}
            yield source.finding(conditions.SOURCE_SUBSCRIPTION_CHANGED, f"offsets/{span.batch_id}", effect, found)
        new = {topic: parts for topic, parts in added.items() if topic not in start and topic not in twice}
        if new:
            effect = f"{names(new)} is read since batch {span.batch_id}, from its beginning."
            yield source.finding(
                conditions.SOURCE_SUBSCRIPTION_CHANGED,
                f"offsets/{span.batch_id}",
                effect,
                {"batch": span.batch_id, "read_up_to": to_json(new)},
                level=Severity.INFO,
            )


def _dropped(source: KafkaReading, batch_id: int, dropped: Offsets, end: Offsets) -> Iterator[Finding]:
    for topic, parts in dropped.items():
        effect = (
            f"Batch {batch_id} was committed without {names({topic: parts})}: what was unread there was not read, and"
            " if it comes back it is read from its beginning."
        )
        condition = conditions.SOURCE_PARTITIONS_GONE if topic in end else conditions.SOURCE_SUBSCRIPTION_CHANGED
        evidence: Mapping[str, Any] = {"batch": batch_id, "left_at": to_json({topic: parts})}
        command = source.world.command("offsets", "--batch", str(max(0, batch_id - 1)))
        yield source.finding(condition, f"offsets/{batch_id}", effect, evidence, command, Severity.WARNING)


def _negatives(offsets: Offsets) -> Offsets:
    found = {topic: {p: at for p, at in parts.items() if at < 0} for topic, parts in offsets.items()}
    return {topic: parts for topic, parts in found.items() if parts}


def _count(span: Span) -> int:
    return offset_count(planned(positions(topics_of(span.start)), positions(topics_of(span.end))))
