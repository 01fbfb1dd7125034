"""What a query has read from Kafka, and what Kafka still serves of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset, VoidOffset, get_topics
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.sources.kafka.cluster import TIMEOUT_SECONDS
from lastgood.sources.kafka.facts import KafkaFacts


class KafkaUnreachableError(LastgoodError):
    """No broker answers, or not to us."""

    condition = "KAFKA_UNREACHABLE"
    exit_code = 60
    retry = Retry.LATER


class TopicMissingError(LastgoodError):
    """A topic that the query has read does not exist."""

    condition = "SOURCE_TOPIC_MISSING"
    exit_code = 61
    retry = Retry.AFTER_CHANGE


class TopicRecreatedError(LastgoodError):
    """A topic is, or looks like, another one than the query has read, of the same name."""

    condition = "SOURCE_TOPIC_RECREATED"
    exit_code = 62


class SourceKindError(LastgoodError):
    """A source of the query is not Kafka."""

    condition = "SOURCE_NOT_KAFKA"
    exit_code = 64


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a query has read of one topic partition, and how much of it Kafka still serves."""

    source: str
    """Name of the source in the checkpoint, such as `0`."""
    topic: str
    partition: int
    start: int
    """First offset that the query read."""
    begin: int
    """First of them that Kafka still serves."""
    end: int
    """First offset that the newest committed batch did not read."""

    @property
    def served(self) -> int:
        """How many offsets Kafka still serves."""
        return self.end - self.begin

    @property
    def expired(self) -> int:
        """How many offsets Kafka no longer serves."""
        return self.begin - self.start

    def from_earliest(self, earliest: int) -> OffsetRange:
        """The same, where Kafka serves nothing below `earliest`."""
        return replace(self, begin=min(max(self.start, earliest), self.end))


def list_committed_ranges(
    committed: OffsetEntry, initial: Mapping[str, SourceOffset], oldest: OffsetEntry
) -> tuple[OffsetRange, ...]:
    """What was read up to the end of a committed batch, per topic partition.

    Args:
        committed: The batch's entry in the offset log; it ends at positions.
        initial: Source → where it began. A source that is not among them begins where `oldest` ends.
        oldest: The oldest entry of the offset log.

    Raises:
        SourceKindError: one of the sources is not Kafka.
    """
    ranges = []
    for line in committed.sources:
        end, start = line.offset, initial.get(line.source_id)
        if isinstance(end, VoidOffset):
            continue
        if not isinstance(end, KafkaOffset):
            raise SourceKindError(
                "a source of the query is not Kafka",
                subject=f"source {line.source_id}",
                found=f"offsets of kind '{end.kind}'",
                expected="offsets of Kafka",
            )
        if start is None and (known := oldest.source(line.source_id)) is not None:
            start = known.offset
        starts = get_topics(start)
        for topic, partitions in end.topics.items():
            for partition, next_offset in sorted(partitions.items()):
                # A partition that was added later is read from 0, and one that began at the earliest offset from
                # there at most. An end below the start is how Spark notes that a topic became shorter: nothing was
                # read.
                first = min(max(starts.get(topic, {}).get(partition, 0), 0), next_offset)
                ranges.append(OffsetRange(line.source_id, topic, partition, first, first, next_offset))
    return tuple(ranges)


def list_served_ranges(ranges: Iterable[OffsetRange], facts: KafkaFacts) -> tuple[OffsetRange, ...]:
    """The same ranges with what Kafka still serves of them.

    Raises:
        KafkaUnreachableError: the cluster did not answer, or not for all of them.
        TopicMissingError: a topic does not exist.
        TopicRecreatedError: a topic has fewer partitions than were read, or ends before what was read.
    """
    ranges = tuple(ranges)
    missing = sorted({each.topic for each in ranges}.intersection(facts.missing_topics))
    if missing:
        raise TopicMissingError(
            "a topic that the query has read does not exist",
            subject=facts.bootstrap,
            found=f"no topic {', '.join(missing)}",
            expected="the brokers and topics of this query",
        )
    earliest, latest, unknowns = facts.earliest, facts.latest, facts.unknowns
    gone = [each for each in ranges if each.partition not in latest.get(each.topic, {})]
    for each in gone:
        for name in ("", each.topic, f"{each.topic}/{each.partition}"):
            if name in unknowns:
                where = f"{facts.bootstrap} {name}".rstrip()
                raise KafkaUnreachableError(
                    "Kafka does not answer",
                    subject=where,
                    found=unknowns[name],
                    expected=f"an answer within {TIMEOUT_SECONDS:.0f} s",
                )
    if gone:
        names = ", ".join(sorted(f"{each.topic}-{each.partition}" for each in gone))
        raise _make_recreated_error(f"no partition {names}", "every partition that the query has read")
    for each in ranges:
        next_offset = latest[each.topic][each.partition]
        if next_offset < each.end:
            raise _make_recreated_error(
                f"{each.topic}-{each.partition} ends at {next_offset}", f"an end of {each.end} or more"
            )
    return tuple(each.from_earliest(earliest[each.topic][each.partition]) for each in ranges)


def _make_recreated_error(found: str, expected: str) -> TopicRecreatedError:
    return TopicRecreatedError(
        "a topic holds less than the query has read of it",
        found=found,
        expected=expected,
        effect="it was deleted and created again, or has lost records: its offsets mean something else now",
    )
