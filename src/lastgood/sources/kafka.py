"""What a query has read from Kafka, and what Kafka still serves of it."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset, VoidOffset
from lastgood.errors import ExtraMissingError, LastgoodError, Retry

CONNECT_SECONDS = 10.0
"""How long a broker may take to answer."""

TopicPartition: TypeAlias = tuple[str, int]


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
    """A topic holds less than the query has read of it: it is another one with the same name."""

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


def committed_ranges(
    committed: OffsetEntry, initial: Mapping[str, SourceOffset], oldest: OffsetEntry
) -> tuple[OffsetRange, ...]:
    """What was read up to the end of a committed batch, per topic partition.

    Args:
        committed: The batch's entry in the offset log.
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
        starts = start.topics if isinstance(start, KafkaOffset) else {}
        for topic, partitions in end.topics.items():
            for partition, next_offset in sorted(partitions.items()):
                # A partition that was added later is read from 0. An end below the start is how Spark notes that
                # a topic became shorter: nothing was read.
                first = min(starts.get(topic, {}).get(partition, 0), next_offset)
                ranges.append(OffsetRange(line.source_id, topic, partition, first, first, next_offset))
    return tuple(ranges)


def served_ranges(ranges: Iterable[OffsetRange], broker: Broker) -> tuple[OffsetRange, ...]:
    """The same ranges with what the broker still serves of them.

    Raises:
        KafkaUnreachableError: the broker does not answer.
        TopicMissingError: a topic does not exist.
        TopicRecreatedError: a topic has fewer partitions than were read, or ends before what was read.
    """
    ranges = tuple(ranges)
    there = broker.partitions({each.topic for each in ranges})
    places = sorted({(each.topic, each.partition) for each in ranges})
    gone = [f"{topic}-{partition}" for topic, partition in places if partition not in there[topic]]
    if gone:
        raise _recreated(f"no partition {', '.join(gone)}", "every partition that the query has read")
    earliest, latest = broker.earliest(places), broker.latest(places)
    for each in ranges:
        next_offset = latest[each.topic, each.partition]
        if next_offset < each.end:
            raise _recreated(f"{each.topic}-{each.partition} ends at {next_offset}", f"an end of {each.end} or more")
    return tuple(each.from_earliest(earliest[each.topic, each.partition]) for each in ranges)


def _recreated(found: str, expected: str) -> TopicRecreatedError:
    return TopicRecreatedError(
        "a topic holds less than the query has read of it",
        found=found,
        expected=expected,
        effect="it was deleted and created again, or has lost records: its offsets mean something else now",
    )


class Broker:
    """Questions to a Kafka cluster; each is answered within seconds or raises `KafkaUnreachableError`."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Ask the cluster behind these servers; nothing is asked yet.

        Raises:
            ExtraMissingError: confluent-kafka is not installed.
        """
        self._servers = bootstrap_servers
        self._client = _confluent_kafka("confluent_kafka")
        self._admin = _confluent_kafka("confluent_kafka.admin")
        settings = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "allow.auto.create.topics": False}
        self._broker = self._admin.AdminClient(settings)

    def partitions(self, topics: Collection[str]) -> dict[str, set[int]]:
        """Topic → its partitions.

        Raises:
            TopicMissingError: one of the topics does not exist.
        """
        try:
            there = self._broker.list_topics(timeout=CONNECT_SECONDS).topics
        except self._client.KafkaException as error:
            raise self._unreachable(error) from error
        missing = sorted(topic for topic in topics if topic not in there)
        if missing:
            raise TopicMissingError(
                "a topic that the query has read does not exist",
                subject=self._servers,
                found=f"no topic {', '.join(missing)}",
                expected="the brokers and topics of this query",
            )
        return {topic: set(there[topic].partitions) for topic in topics}

    def earliest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is served of each topic partition."""
        return self._offsets(places, self._admin.OffsetSpec.earliest())

    def latest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each topic partition will have."""
        return self._offsets(places, self._admin.OffsetSpec.latest())

    def compacted(self, topics: Collection[str]) -> list[str]:
        """The topics whose cleanup policy contains `compact`."""
        resources = [self._admin.ConfigResource(self._admin.ResourceType.TOPIC, topic) for topic in sorted(topics)]
        found = self._answers(self._broker.describe_configs(resources, request_timeout=CONNECT_SECONDS))
        return [each.name for each, config in found.items() if "compact" in config["cleanup.policy"].value]

    def _offsets(self, places: Sequence[TopicPartition], spec: object) -> dict[TopicPartition, int]:
        wanted = {self._client.TopicPartition(*place): spec for place in places}
        found = self._answers(self._broker.list_offsets(wanted, request_timeout=CONNECT_SECONDS)) if wanted else {}
        return {(each.topic, each.partition): answer.offset for each, answer in found.items()}

    def _answers(self, futures: Mapping[Any, Any]) -> dict[Any, Any]:
        try:
            return {each: future.result(2 * CONNECT_SECONDS) for each, future in futures.items()}
        except self._client.KafkaException as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> KafkaUnreachableError:
        return KafkaUnreachableError(
            "Kafka does not answer",
            subject=self._servers,
            found=error.args[0].str(),
            expected=f"an answer within {CONNECT_SECONDS:.0f} s",
        )


def _confluent_kafka(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissingError(extra="kafka", module="confluent_kafka", needed_for="asking Kafka") from error
