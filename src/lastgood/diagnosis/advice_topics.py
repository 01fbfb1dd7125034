"""Advice about the topics that a query reads: how long, and how safely, they keep what it has not read. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.lines import Json
from lastgood.diagnosis import advice_conditions as told
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.pace import format_time
from lastgood.query.observation import Observation
from lastgood.sources.kafka.facts import KafkaFacts, TopicFacts
from lastgood.visible import join_words

RETENTION_DEFAULT_MS = 7 * 86_400_000
"""Kafka's `log.retention.hours`: a weekend, a holiday, and somebody who is ill."""
_SEGMENTS_OF_RETENTION = 10
_SEGMENTS_MANY = 1000
"""Of one partition; the broker keeps three files of each open, and maps two of them into memory."""
_SEGMENT_MIN_MS = 60_000


def advise_on_topics(observed: Observation) -> Iterator[Finding]:
    """Whether the topics that a query reads could lose what is unread."""
    if observed.kafka is None:
        return
    newest = observed.checkpoint.newest_offsets
    if newest:
        read = {topic for topics in newest.topics.values() for topic in topics}
    else:
        read = set()
    for name, topic in sorted(observed.kafka.topics.items()):
        if not read or name in read:
            yield from _advise_on_copies(observed.kafka, name, topic)
            yield from _advise_on_retention(observed.kafka, name, topic, observed.advice.max_downtime_ms)


def _advise_on_copies(kafka: KafkaFacts, name: str, topic: TopicFacts) -> Iterator[Finding]:
    if topic.replication_factor is None or topic.replication_factor >= 2:
        return
    command = ["kafka-reassign-partitions.sh", "--bootstrap-server", kafka.bootstrap]
    yield Finding(
        told.NOT_REPLICATED,
        name,
        f"If the broker with a partition of {name} loses its disk, what no batch has read of it is lost for good.",
        {"topic": name, "replication_factor": topic.replication_factor},
        join_words([*command, "--reassignment-json-file", "REPLICAS.json", "--execute"]),
    )


def _advise_on_retention(kafka: KafkaFacts, name: str, topic: TopicFacts, downtime_ms: int | None) -> Iterator[Finding]:
    """How long the topic keeps what is unread, where it deletes by age."""
    retention_ms = topic.config_number("retention.ms")
    if retention_ms is None or not topic.is_deleted_by_age:
        return
    wanted_ms = RETENTION_DEFAULT_MS if downtime_ms is None else downtime_ms
    if 0 <= retention_ms < wanted_ms:
        yield _make_short_retention(kafka, name, topic, retention_ms, downtime_ms)
    elif downtime_ms is not None:
        yield from _advise_on_size(kafka, name, topic, downtime_ms)
    if retention_ms > 0:
        yield from _advise_on_segments(kafka, name, topic, retention_ms)


def _make_short_retention(
    kafka: KafkaFacts, name: str, topic: TopicFacts, retention_ms: int, downtime_ms: int | None
) -> Finding:
    evidence: dict[str, Json] = {"topic": name, "retention_ms": retention_ms}
    by_size = topic.config_number("retention.bytes")
    if by_size and by_size > 0:
        sized: dict[str, Json] = {"retention_bytes": by_size}
    else:
        sized = {}
    kept = f"Kafka keeps records of {name} for {format_time(retention_ms // 1000)}"
    if downtime_ms is None:
        return Finding(
            told.SHORT_RETENTION,
            name,
            f"{kept}: a query that is down for longer, say over a weekend, loses what it had not read.",
            {**evidence, "default_ms": RETENTION_DEFAULT_MS, **sized},
            _make_setting_command(kafka, name, "retention.ms", RETENTION_DEFAULT_MS),
            Severity.INFO,
        )
    return Finding(
        told.SHORT_RETENTION,
        name,
        f"{kept}: after a downtime of {format_time(downtime_ms // 1000)} the oldest unread ones are gone.",
        {**evidence, "max_downtime_ms": downtime_ms, **sized},
        _make_setting_command(kafka, name, "retention.ms", _add_room(downtime_ms)),
    )


def _advise_on_size(kafka: KafkaFacts, name: str, topic: TopicFacts, downtime_ms: int) -> Iterator[Finding]:
    """Whether `retention.bytes` seems to delete before `retention.ms` does, as far back as the topic reaches today."""
    retention_bytes = topic.config_number("retention.bytes") or 0
    reaches = {
        number: kafka.asked_at_ms - record.timestamp_ms
        for number, record in kafka.oldest.get(name, {}).items()
        if record.timestamp_ms is not None and (topic.partitions[number].earliest or 0) > 0
    }
    if retention_bytes <= 0 or not reaches:
        return
    partition, reach_ms = min(reaches.items(), key=lambda each: each[1])
    if not 0 < reach_ms < downtime_ms:
        return
    wanted = -(-retention_bytes * _add_room(downtime_ms) // reach_ms)
    reach, downtime = format_time(reach_ms // 1000), format_time(downtime_ms // 1000)
    yield Finding(
        told.RETENTION_BY_SIZE,
        f"{name}/{partition}",
        f"A partition of {name} keeps at most {retention_bytes:,} bytes, and what partition {partition} holds reaches"
        f" back {reach}, with older records deleted: if size was the reason, a downtime of {downtime} outlasts it.",
        {
            "topic": name,
            "partition": partition,
            "retention_bytes": retention_bytes,
            "reaches_back_ms": reach_ms,
            "max_downtime_ms": downtime_ms,
        },
        _make_setting_command(kafka, name, "retention.bytes", wanted),
    )


def _advise_on_segments(kafka: KafkaFacts, name: str, topic: TopicFacts, retention_ms: int) -> Iterator[Finding]:
    """Whether segments are of a length that goes with the retention: Kafka deletes whole ones only."""
    segment_ms = topic.config_number("segment.ms")
    if not segment_ms or topic.config.get("remote.storage.enable", "false") != "false":
        return
    fitting_ms = max(_SEGMENT_MIN_MS, retention_ms // _SEGMENTS_OF_RETENTION)
    evidence: dict[str, Json] = {"topic": name, "retention_ms": retention_ms, "segment_ms": segment_ms}
    segment_bytes = topic.config_number("segment.bytes")
    kept, both = format_time(retention_ms // 1000), format_time((retention_ms + segment_ms) // 1000)
    if segment_ms > retention_ms:
        if segment_bytes is None:
            size = ""
        else:
            size = f", or to {segment_bytes:,} bytes,"
        yield Finding(
            told.SEGMENTS_LONG,
            name,
            f"A segment of {name} grows for {format_time(segment_ms // 1000)}{size} and is deleted whole, {kept} after"
            f" its newest record: a partition in use keeps records up to {both}, one"
            f" that nobody writes to any more loses all of them after {kept}. Only {kept} can be counted on.",
            evidence | ({} if segment_bytes is None else {"segment_bytes": segment_bytes}),
            _make_setting_command(kafka, name, "segment.ms", fitting_ms),
        )
    elif retention_ms // segment_ms >= _SEGMENTS_MANY:
        count = retention_ms // segment_ms
        yield Finding(
            told.SEGMENTS_MANY,
            name,
            f"A segment of {name} ends after {format_time(segment_ms // 1000)} and is kept for {kept}: each of"
            f" {len(topic.partitions)} partitions that is written to all the time has up to {count:,} of them, and the"
            " broker that this query reads from runs out of open files or memory maps.",
            evidence | {"partitions": len(topic.partitions), "segments_at_most": count},
            _make_setting_command(kafka, name, "segment.ms", fitting_ms),
        )


def _add_room(downtime_ms: int) -> int:
    """With a third more for the lag that a query has when it goes down, and for catching up."""
    return downtime_ms * 4 // 3


def _make_setting_command(kafka: KafkaFacts, name: str, key: str, value: int) -> str:
    """The command that changes a setting of a topic."""
    entity = ["--entity-type", "topics", "--entity-name", name]
    server = ["kafka-configs.sh", "--bootstrap-server", kafka.bootstrap]
    return join_words([*server, *entity, "--alter", "--add-config", f"{key}={value}"])
