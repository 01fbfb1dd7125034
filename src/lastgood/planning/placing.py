"""Where Kafka sources are to start: what was chosen, moved to what Kafka still serves. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.source_offsets import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    KafkaOffset,
    SourceOffset,
    get_topics,
    name_offset,
)
from lastgood.frozen import dataclass
from lastgood.planning.pricing import Reached
from lastgood.planning.repairs.repair import refuse
from lastgood.planning.standing import Standing
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts
from lastgood.sources.kafka.ranges import Offsets, select_only_in


@dataclass(frozen=True, slots=True)
class Placed:
    """Where every source starts."""

    starts: Mapping[str, SourceOffset]
    moved: tuple[str, ...] = ()
    """Partitions that do not start where they were to."""
    doubts: tuple[str, ...] = ()
    """What may be lost and cannot be counted; one line each."""


def place_sources(standing: Standing, base: Mapping[str, SourceOffset], wanted: Mapping[str, Offsets]) -> Placed:
    """Where every source starts.

    Args:
        standing: With what Kafka serves, if it was asked.
        base: Where each source starts if nothing is chosen.
        wanted: What is chosen, by the id of the source.

    Raises:
        RepairRefusedError: what is chosen is not there.
    """
    for source_id in wanted:
        if not isinstance(base.get(source_id), KafkaOffset):
            kinds = ", ".join(f"{name}: {offset.kind}" for name, offset in base.items())
            raise refuse(
                standing,
                "offsets are chosen for a source that is no Kafka source of the query",
                subject=f"source {source_id}",
                found=kinds,
                expected="the id of a Kafka source",
            )
    starts: dict[str, SourceOffset] = {}
    moved: list[str] = []
    doubts: list[str] = []
    for source_id, offset in base.items():
        starts[source_id] = offset
        if isinstance(offset, KafkaOffset):
            chosen = _leave_out_added(standing, source_id, offset.topics, wanted.get(source_id, {}))
            placing = _Placing(standing, offset.topics, chosen)
            starts[source_id] = KafkaOffset(placing.place())
            moved += placing.moved
            doubts += placing.doubts
    return Placed(starts, tuple(moved), tuple(doubts))


def _leave_out_added(standing: Standing, source_id: str, base: Offsets, wanted: Offsets) -> Offsets:
    """What is chosen, without the partitions that were new to the newest plan and are to be read from the earliest.

    `--stable-lag` names them, since a start that is told where to begin has to be told of all. No plan need name them:
    Spark reads a partition that none names from its earliest offset.
    """
    newest = standing.checkpoint.newest_offsets
    line = None if newest is None else newest.source(source_id)
    added = select_only_in(get_topics(line.offset if line else None), base)
    kept: dict[str, dict[int, int]] = {}
    for topic, parts in wanted.items():
        for partition, at in parts.items():
            if at == OFFSET_EARLIEST and partition in added.get(topic, {}):
                continue
            kept.setdefault(topic, {})[partition] = at
    return kept


def reduce_to_now(reached: Reached, may_be_read: Offsets) -> Reached:
    """The same but for topics that were created again: how far the old ones were read says nothing of the new.

    Args:
        reached: By the offsets of all topics.
        may_be_read: Per topic that was created again and partition, below which offset it may have been read since.
    """
    if not may_be_read:
        return reached
    least = _replace_topics(reached.least, {topic: {} for topic in may_be_read})
    most = None
    if reached.most is not None:
        most = _replace_topics(reached.most, may_be_read)
    return Reached(least, most, _replace_topics(reached.read, may_be_read))


def _replace_topics(offsets: Mapping[str, SourceOffset], others: Offsets) -> dict[str, SourceOffset]:
    replaced = dict(offsets)
    for source_id, offset in offsets.items():
        if isinstance(offset, KafkaOffset):
            topics = {topic: others.get(topic, parts) for topic, parts in offset.topics.items()}
            replaced[source_id] = KafkaOffset(topics)
    return replaced


class _Placing:
    """One Kafka source."""

    def __init__(self, standing: Standing, base: Offsets, wanted: Offsets) -> None:
        self._standing = standing
        self._facts = standing.kafka
        self._base = base
        self._wanted = wanted
        self.moved: list[str] = []
        self.doubts: list[str] = []

    def place(self) -> dict[str, dict[int, int]]:
        for topic, parts in self._wanted.items():
            for partition in parts:
                self._require_known(topic, partition)
        found: dict[str, dict[int, int]] = {}
        for topic in {**self._base, **self._wanted}:
            named = self._wanted.get(topic, {})
            offsets = {**self._base.get(topic, {}), **named}
            there = {p: at for p, at in offsets.items() if self._is_there(topic, p)}
            if topic in self._standing.recreated and not named:
                there = {p: self._beginning(topic, p) for p in there}
            elif topic in self._standing.recreated and not there.keys() <= named.keys():
                raise self._refused(topic, "created again since it was read", "an offset for every partition of it")
            found[topic] = {p: self._placed(topic, p, at) for p, at in sorted(there.items())}
            found[topic] |= self._added(topic, offsets)
        return {topic: parts for topic, parts in found.items() if parts}

    def _require_known(self, topic: str, partition: int) -> None:
        known = None
        if self._facts:
            known = self._facts.topics.get(topic)
        if known is not None and known.unknown is None:
            is_there = partition in known.partitions and (topic in self._base)
        else:
            is_there = partition in self._base.get(topic, {})
        if not is_there:
            raise self._refused(f"{topic}-{partition}", "no such partition", "partitions that the source reads")

    def _is_there(self, topic: str, partition: int) -> bool:
        known = None
        if self._facts:
            known = self._facts.topics.get(topic)
        if known is None or not known.exists or known.unknown is not None or partition in known.partitions:
            return True
        self.doubts.append(f"{topic}-{partition} is gone: what was unread of it is lost")
        return False

    def _beginning(self, topic: str, partition: int) -> int:
        """Of a topic that was created again nothing is read yet."""
        earliest = _find_bounds(self._facts, topic, partition).earliest
        return OFFSET_EARLIEST if earliest is None else earliest

    def _placed(self, topic: str, partition: int, offset: int) -> int:
        name, bounds = f"{topic}-{partition}", _find_bounds(self._facts, topic, partition)
        stood = self._base.get(topic, {}).get(partition, 0)
        if bounds.latest is not None and bounds.latest < stood and topic not in self._standing.recreated:
            self.doubts.append(f"{name} ends before {stood}, up to which it was read: its records are others now")
        if offset == OFFSET_EARLIEST:
            if bounds.earliest is None:
                self.doubts.append(f"{name}: what Kafka no longer has when the query starts, it cannot read")
            return offset
        if offset == OFFSET_LATEST and bounds.latest is not None:
            return bounds.latest
        if offset < 0:
            found = f"{name_offset(offset)}, and no broker that tells where that is"
            raise self._refused(name, found, "an offset, or --kafka SERVERS")
        if bounds.latest is not None and offset > bounds.latest:
            raise self._refused(name, f"the offset {offset}", f"at most {bounds.latest}, where the partition ends")
        if bounds.earliest is not None and offset < bounds.earliest:
            self.moved.append(name)
            return bounds.earliest
        return offset

    def _added(self, topic: str, known: Mapping[int, int]) -> dict[int, int]:
        """Partitions that are newer than the plans: Spark reads them from 0, and fails if that is gone."""
        topics = self._facts.topics if self._facts else {}
        if topic in topics:
            parts = topics[topic].partitions
        else:
            parts = {}
        return {p: bounds.earliest for p, bounds in sorted(parts.items()) if p not in known and bounds.earliest}

    def _refused(self, subject: str, found: str, expected: str) -> Exception:
        sentence = "the query cannot start at the offsets that were chosen"
        return refuse(self._standing, sentence, subject=subject, found=found, expected=expected)


def _find_bounds(facts: KafkaFacts | None, topic: str, partition: int) -> PartitionFacts:
    known = None
    if facts:
        known = facts.topics.get(topic)
    if known:
        return known.partitions.get(partition, PartitionFacts())
    return PartitionFacts()
