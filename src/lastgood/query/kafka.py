"""What a query stands to lose in Kafka: unread records that are, or will be, deleted; topics that are others. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lastgood.checkpoint.source_offsets import name_offset
from lastgood.frozen import dataclass
from lastgood.query.topics import identify, merge_recorded_ids
from lastgood.redaction import redact
from lastgood.sources.kafka.facts import KafkaFacts, TopicFacts, resolve_offsets
from lastgood.sources.kafka.ranges import (
    Offsets,
    Ranges,
    count_offsets,
    find_planned_ranges,
    ranges_to_json,
    select_served,
    subtract,
)
from lastgood.sources.kafka.retention import (
    Headroom,
    HeadroomKind,
    IdentityAnswer,
    ReadUpTo,
    TopicIdentity,
    choose_least_headroom,
    estimate_headroom,
)
from lastgood.values import JsonValue, make_form

_FOREIGN = (TopicIdentity.ANOTHER, TopicIdentity.SHORTER)
_PERHAPS_FOREIGN = (TopicIdentity.LOOKS_RECREATED, TopicIdentity.MAY_BE_RECREATED)


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a query stands in its topics: what it has read and committed."""

    topics: tuple[str, ...]
    """Every topic that its newest plan, or where it began, names."""
    next_offsets: Offsets
    """First offset of each partition that no committed batch has read; of several sources the lowest.

    `OFFSET_EARLIEST`, `OFFSET_LATEST` where the query was given that as its position."""
    time_ms: int | None
    """Processing time of the newest committed batch; None without one."""
    reads: Mapping[str, tuple[ReadUpTo, ...]] = field(default_factory=dict)
    """Per topic how far the plans go that name it, newest first: also the one that is not committed."""
    after: tuple[int, ...] = ()
    """From when on the broker is to be asked for first records; see `list_times_to_ask`."""


class Losing(enum.Enum):
    """Whether records are lost that no committed batch has read."""

    NO = "no"
    UNKNOWN = "unknown"
    MAYBE = "maybe"
    """A topic looks created again, by the times of its records: no proof."""
    YES = "yes"


@dataclass(frozen=True, slots=True)
class Exposure(JsonValue):
    """What Kafka has deleted of what is unread, what it still has, and for how long."""

    json = make_form(
        "bootstrap=_bootstrap asked_at_ms=facts.asked_at_ms losing lost=_lost lost_after_ms=_lost_after_ms gone=_gone "
        "unread=_unread unread_offsets=_unread_offsets added=_added topics=_topics headroom=_headroom unknown=doubts"
    )
    """The part `kafka` of `status --format json`."""

    facts: KafkaFacts
    at_ms: int
    """When this was judged."""
    lost: Ranges
    """Unread, and no longer served."""
    lost_after_ms: int | None
    """They were deleted after this: the newest committed batch was planned while they were there."""
    gone: Offsets
    """Partitions that no longer exist, and the first offset of each that is unread."""
    unread: Ranges
    """The lag: unread, and still served."""
    added: Ranges
    """Served by partitions that the query has not read yet; it will, if it subscribes to the whole topic."""
    topics: Mapping[str, IdentityAnswer]
    """Per topic whether it is the one that was read."""
    headroom: Headroom | None
    """Of the partition that loses unread records next; None if there is no partition left that could."""
    headroom_at: tuple[str, int] | None
    unknown: Mapping[str, str] = field(default_factory=dict)
    """What is not known, and why: the cluster (empty name), topics, and partitions as `topic/0`."""

    @property
    def losing(self) -> Losing:
        """The worst that is known."""
        identities = {answer.identity for answer in self.topics.values()}
        if self.lost or self.gone or identities.intersection(_FOREIGN):
            return Losing.YES
        if identities.intersection(_PERHAPS_FOREIGN):
            return Losing.MAYBE
        return Losing.UNKNOWN if self.doubts else Losing.NO

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why nobody can say that nothing is lost, each reason one line for a person; none if somebody can."""
        foreign = "whether {} is still the topic that was read is not known: {}"
        identities = (
            foreign.format(topic, answer.because)
            for topic, answer in self.topics.items()
            if answer.identity is TopicIdentity.UNKNOWN
        )
        return tuple(dict.fromkeys((*self.unknown.values(), *identities)))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is lost, each thing one line for a person."""
        lines = [
            f"{topic}/{partition}: offsets {start:,} to {end - 1:,} are unread, and Kafka has deleted them"
            for topic, parts in self.lost.items()
            for partition, spans in parts.items()
            for start, end in spans
        ]
        lines += [
            f"{topic}/{partition}: the partition is gone, unread from {_format_offset(offset)} on"
            for topic, parts in self.gone.items()
            for partition, offset in parts.items()
        ]
        suspect = (*_FOREIGN, *_PERHAPS_FOREIGN)
        for topic, answer in self.topics.items():
            if answer.identity in suspect:
                what = "not the topic that was read" if answer.identity in _FOREIGN else "looks created again"
                lines.append(f"{topic}: {what}: {answer.because}")
        return tuple(lines)

    @property
    def _bootstrap(self) -> str:
        return redact(self.facts.bootstrap)

    @property
    def _lost(self) -> dict[str, Any]:
        return ranges_to_json(self.lost)

    @property
    def _lost_after_ms(self) -> int | None:
        return self.lost_after_ms if self.lost else None

    @property
    def _gone(self) -> dict[str, dict[int, int | str]]:
        return {
            topic: {each: name_offset(offset) for each, offset in parts.items()} for topic, parts in self.gone.items()
        }

    @property
    def _unread(self) -> dict[str, Any]:
        return ranges_to_json(self.unread)

    @property
    def _unread_offsets(self) -> int | None:
        return None if self.unknown else count_offsets(self.unread)

    @property
    def _added(self) -> dict[str, Any]:
        return ranges_to_json(self.added)

    @property
    def _topics(self) -> dict[str, dict[str, str]]:
        return {
            topic: {"identity": answer.identity.value, "because": answer.because}
            for topic, answer in self.topics.items()
        }

    @property
    def _headroom(self) -> dict[str, Any] | None:
        least = self.headroom
        if least is None:
            return None
        topic, partition = self.headroom_at or (None, None)
        return {
            "kind": least.kind.value,
            "ms": least.ms,
            "because": least.because,
            "limited_by_size": least.limited_by_size,
            "topic": topic,
            "partition": partition,
        }


def find_expired(unread: Offsets, facts: KafkaFacts) -> Ranges:
    """What lies between offsets and the first that Kafka still has; nothing of partitions of which it said nothing."""
    return find_planned_ranges(unread, facts.earliest)


def find_not_served(ranges: Ranges, facts: KafkaFacts) -> Ranges:
    """What of ranges Kafka does not serve; all of a partition of which it said nothing."""
    return subtract(ranges, select_served(ranges, facts.earliest, facts.latest))


def find_expiring(
    unread: Offsets, facts: KafkaFacts, *, now_ms: int, within_ms: int
) -> dict[tuple[str, int], Headroom]:
    """Partitions of which Kafka may delete, by age and within a time, what is still to be read; others it leaves out.

    Args:
        unread: First offset of each partition that is still to be read; `OFFSET_EARLIEST`, `OFFSET_LATEST` as well.
        facts: What the cluster said; with `unread` as `look_around(headroom=True)` asks for it.
        now_ms: The time by which to judge, milliseconds since 1970.
        within_ms: How soon.
    """
    found: dict[tuple[str, int], Headroom] = {}
    for name, parts in resolve_offsets(unread, facts).items():
        for partition, offset in parts.items() if name in facts.topics else ():
            room = _compute_headroom(facts, name, partition, offset, now_ms)
            if room.kind is HeadroomKind.LIMITED and room.ms is not None and room.ms < within_ms:
                found[name, partition] = room
    return found


def judge_exposure(
    reading: Reading,
    facts: KafkaFacts,
    *,
    now_ms: int,
    noted_ids: Mapping[str, str] | None = None,
    is_same_topic: bool = False,
    in_sinks: Offsets | None = None,
) -> Exposure:
    """Hold what a query has read against what Kafka serves.

    Args:
        reading: Where the query stands.
        facts: What the cluster said; with `unread` and `first_at` as `look_around(headroom=True)` asks for them.
        now_ms: The time by which to judge, milliseconds since 1970.
        noted_ids: Topic → the id that was written down while the query ran; facts may know it as well.
        is_same_topic: Whether a person says that they are the topics that were read.
        in_sinks: Where the planned batch ends, if every sink has it: what it reads is not unread any more.
    """
    next_offsets = resolve_offsets(in_sinks or reading.next_offsets, facts)
    ids = merge_recorded_ids(facts, noted_ids or {})
    unknown = {name: why for name, why in facts.unknowns.items() if name.partition("/")[0] in ("", *next_offsets)}
    gone: dict[str, dict[int, int]] = {}
    rooms: dict[tuple[str, int], Headroom] = {}
    for name, parts in next_offsets.items():
        topic = facts.topics.get(name)
        if facts.exists(name) is False:
            gone[name] = dict(parts)
            continue
        if topic is None:
            unknown.setdefault("" if facts.unknown else name, facts.unknown or f"nothing is said of topic {name}")
            continue
        for partition, offset in parts.items():
            if _is_gone(topic, partition):
                gone.setdefault(name, {})[partition] = offset
                continue
            rooms[name, partition] = _compute_headroom(facts, name, partition, offset, now_ms)
    first_left = _raise_to_least(next_offsets, facts.earliest)
    there = find_planned_ranges(facts.earliest, facts.latest)
    left = {at: room for at, room in rooms.items() if room.kind is not HeadroomKind.LOST}
    least = choose_least_headroom(list(left.values()))
    return Exposure(
        facts=facts,
        at_ms=now_ms,
        lost=find_expired(next_offsets, facts),
        lost_after_ms=reading.time_ms,
        gone=gone,
        unread=find_planned_ranges(first_left, facts.latest),
        added={
            name: added
            for name, parts in there.items()
            if name in next_offsets
            and (added := {each: spans for each, spans in parts.items() if each not in next_offsets[name]})
        },
        topics={
            name: identify(
                name, facts, reading.reads.get(name, ()), {}, recorded_id=ids.get(name), is_same_topic=is_same_topic
            )
            for name, topic in facts.topics.items()
            if name in next_offsets and topic.partitions
        },
        headroom=least,
        headroom_at=next((at for at, room in left.items() if room is least), None),
        unknown=unknown,
    )


def _compute_headroom(facts: KafkaFacts, topic: str, partition: int, offset: int, now_ms: int) -> Headroom:
    """How long what is unread of a partition is still served."""
    record = facts.unread.get(topic, {}).get(partition)
    return estimate_headroom(facts.topics[topic], partition, offset, record, now_ms)


def _format_offset(offset: int) -> str:
    if offset >= 0:
        return f"offset {offset:,}"
    return f"the {name_offset(offset)} offset"


def _is_gone(topic: TopicFacts, partition: int) -> bool:
    """Whether the cluster said that there is no such partition."""
    if topic.exists is False:
        return True
    return topic.exists is True and topic.unknown is None and partition not in topic.partitions


def _raise_to_least(offsets: Offsets, bounds: Offsets) -> Offsets:
    return {
        topic: {each: max(offset, bounds.get(topic, {}).get(each, offset)) for each, offset in parts.items()}
        for topic, parts in offsets.items()
    }
