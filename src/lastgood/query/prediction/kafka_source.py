"""Where what a Kafka source has to read and what its broker serves part company, and what Spark says of it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST
from lastgood.frozen import dataclass
from lastgood.query.prediction.restart import StartStage, Stop
from lastgood.query.prediction.spark_version import SPARK_4_0, SparkVersion
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Offsets, select_only_in


class Gap(enum.IntEnum):
    """How offsets and broker disagree, in the order in which Spark meets it."""

    TOPIC_GONE = 0
    """The topic does not exist."""
    ADDED_GONE = 1
    """A new partition that does not exist any more."""
    ADDED_LATE = 2
    """A new partition whose first records are gone already."""
    PARTITION_GONE = 3
    """A partition that was read does not exist, or the plan left it out."""
    WENT_BACK = 4
    """It ends below where the batch begins: the topic was made again, or its log was cut."""
    NEGATIVE = 5
    """It begins at a number that is no position, nor stands for the earliest."""
    EXPIRED = 6
    """Its first unread records are deleted."""
    BEYOND_END = 7
    """The batch ends above where the partition ends."""


@dataclass(frozen=True, slots=True)
class KafkaGap:
    """One partition where they disagree."""

    gap: Gap
    topic: str
    partition: int
    first: int
    """Of the offsets concerned."""
    end: int
    """One past the last of them."""

    @property
    def name(self) -> str:
        """As Kafka writes a partition."""
        return f"{self.topic}-{self.partition}"


def find_planning_gaps(start: Offsets, facts: KafkaFacts | None, *, is_pattern: bool = False) -> list[KafkaGap]:
    """What a batch meets that is planned from `start` on, in the order in which Spark meets it.

    Args:
        start: The next offset to read of each partition.
        facts: What the broker serves; partitions of which it said nothing are left out. None: it was not asked.
        is_pattern: Whether the query subscribes to a pattern: there a topic that is gone is partitions that are gone.
    """
    gaps = _find_negative(start)
    if facts is None:
        return _sort_gaps(gaps)
    for topic, partition, first in _list_each(start):
        is_there = facts.exists(topic)
        if is_there is False:
            gaps.append(KafkaGap(Gap.PARTITION_GONE if is_pattern else Gap.TOPIC_GONE, topic, partition, first, first))
        if not is_there:
            continue
        bounds = facts.topics[topic].partitions.get(partition)
        if bounds is None:
            gaps.append(KafkaGap(Gap.PARTITION_GONE, topic, partition, first, first))
        elif bounds.latest is not None and 0 <= bounds.latest < first:
            gaps.append(KafkaGap(Gap.WENT_BACK, topic, partition, first, bounds.latest))
        elif bounds.earliest is not None and 0 <= first < bounds.earliest:
            gaps.append(KafkaGap(Gap.EXPIRED, topic, partition, first, bounds.earliest))
    known_topics = {topic: parts for topic, parts in facts.earliest.items() if topic in start}
    return _sort_gaps([*gaps, *_find_added(start, known_topics, facts)])


def is_without_topics(start: Offsets, facts: KafkaFacts | None, *, is_pattern: bool) -> bool:
    """Whether a pattern matches no topic any more: Spark then plans nothing of the source, and says nothing of it.

    Its newest offset is none then, so that the source counts as one that has nothing new (`KafkaMicroBatchStream`).
    """
    if not is_pattern or facts is None or not start:
        return False
    return all(facts.exists(topic) is False for topic in (*start, *facts.topics))


def find_replay_gaps(
    start: Offsets, end: Offsets, facts: KafkaFacts | None, *, is_pattern: bool = False
) -> list[KafkaGap]:
    """What a batch meets that runs again with recorded offsets; without facts only what the records themselves show."""
    gaps = [
        KafkaGap(Gap.PARTITION_GONE, topic, partition, first, first)
        for topic, parts in select_only_in(start, end).items()
        for partition, first in parts.items()
    ]
    for topic, partition, first in _list_each(start):
        last = end.get(topic, {}).get(partition, first)
        if last < first:  # Spark compares the numbers, also where one of them is no position
            gaps.append(KafkaGap(Gap.WENT_BACK, topic, partition, first, last))
    reads = {}
    for topic, parts in end.items():
        begun = start.get(topic, {})
        reads[topic] = {partition: at for partition, at in begun.items() if partition in parts}
    gaps += _find_negative(reads)
    if facts is None:
        return _sort_gaps(gaps)
    for topic, partition, last in _list_each(end):
        is_there = facts.exists(topic)
        new = partition not in start.get(topic, {})
        first = 0 if new else start[topic][partition]
        if is_there is None or (first >= last and not new):
            continue
        bounds = facts.topics[topic].partitions.get(partition) if is_there else None
        if bounds is None:
            gaps.append(
                KafkaGap(Gap.ADDED_GONE if new and is_pattern else Gap.TOPIC_GONE, topic, partition, first, last)
            )
        elif bounds.earliest is not None and 0 <= first < bounds.earliest and not new:
            gaps.append(KafkaGap(Gap.EXPIRED, topic, partition, first, min(last, bounds.earliest)))
        elif bounds.latest is not None and bounds.latest < last:
            gaps.append(KafkaGap(Gap.BEYOND_END, topic, partition, max(first, bounds.latest), last))
    return _sort_gaps([*gaps, *_find_added(start, end, facts)])


def _find_negative(start: Offsets) -> list[KafkaGap]:
    """Partitions that begin at no position; the earliest one is looked up by the task itself."""
    wrong = ((*each, each[2]) for each in _list_each(start) if each[2] < 0 and each[2] != OFFSET_EARLIEST)
    return [KafkaGap(Gap.NEGATIVE, *each) for each in wrong]


def _find_added(start: Offsets, end: Offsets, facts: KafkaFacts) -> list[KafkaGap]:
    """Partitions of `end` that `start` does not know and that do not begin at 0 any more."""
    earliest = facts.earliest
    added = ((topic, number) for topic, parts in select_only_in(end, start).items() for number in parts)
    found = ((topic, number, earliest.get(topic, {}).get(number, 0)) for topic, number in added)
    return [KafkaGap(Gap.ADDED_LATE, topic, number, 0, first) for topic, number, first in found if first > 0]


def choose_stop(gaps: Sequence[KafkaGap], spark: SparkVersion, *, is_planned: bool) -> Stop | None:
    """What Spark stops with under `failOnDataLoss=true`; None if there is no gap.

    Args:
        gaps: In the order in which Spark meets them.
        spark: Its version.
        is_planned: Whether nobody asks for the topic before the tasks do: the batch is in the offset log, and no
            partition is new with it.
    """
    if not gaps:
        return None
    first = gaps[0].gap
    alike = [gap for gap in gaps if gap.gap is first]
    alone = None
    if len(alike) == 1:
        alone = alike[0]
    stage, error, because = _describe_gap(first, alone, spark, is_planned=is_planned)
    if first is Gap.TOPIC_GONE:
        names = gaps[0].topic
    else:
        names = ", ".join(gap.name for gap in alike)
    return Stop(stage, error, names, because)


def _describe_gap(
    gap: Gap, alone: KafkaGap | None, spark: SparkVersion, *, is_planned: bool
) -> tuple[StartStage, str, str]:
    """When Spark stops, a literal part of what it says (all of it for one partition alone), and why."""
    unread = "Cannot fetch offset" if spark < SPARK_4_0 else "Could not read records in offset ["
    added, moved, negative = "Added partition ", "offset was changed from ", f"does not equal {OFFSET_EARLIEST}"
    if alone:
        negative = f"earliest offset {alone.first} {negative}"
        added += f"{alone.name} starts from {alone.end} instead of 0"
        moved += f"{alone.first} to {alone.end}"
    missing = (StartStage.START, "This server does not host this topic-partition")
    if is_planned:
        missing = (StartStage.TASK, "expired before the position for partition")
    told = {
        Gap.TOPIC_GONE: (*missing, "it does not exist"),
        Gap.ADDED_GONE: (StartStage.PLANNED, "Cannot find initial offsets", "partitions that it was to read are gone"),
        Gap.ADDED_LATE: (StartStage.PLANNED, added, "the first records of a new partition are gone"),
        Gap.PARTITION_GONE: (
            StartStage.PLANNED,
            "are gone" if spark < SPARK_4_0 else "have been deleted",
            "partitions that were read are gone",
        ),
        Gap.WENT_BACK: (StartStage.PLANNED, moved, "the partition ends before the position of the query"),
        Gap.NEGATIVE: (StartStage.TASK, negative, "what stands there is no position"),
        Gap.EXPIRED: (StartStage.TASK, unread, "records that are still to be read are deleted"),
        Gap.BEYOND_END: (StartStage.TASK, unread, "the batch ends above the end of the partition"),
    }
    return told[gap]


def _list_each(offsets: Offsets) -> Iterable[tuple[str, int, int]]:
    return ((topic, partition, offset) for topic, parts in offsets.items() for partition, offset in parts.items())


def _sort_gaps(gaps: Iterable[KafkaGap]) -> list[KafkaGap]:
    return sorted(gaps, key=lambda gap: (gap.gap, gap.topic, gap.partition))
