"""The topic of a Kafka case on a real broker: made to hold what the folder of the case says, then told as facts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from conformance.edits_of_kafka import read_topic, write_topic
from conformance.folders import entry, ids, write

from lastgood.lab.kafka import KafkaBroker
from lastgood.sources.kafka.cluster import ask_kafka

READ = 20
"""Records per partition that the healthy query has read, ten a batch over both partitions."""
UNREAD = 10
_PARTITIONS = 2
_FLUSH_SECONDS = 30
_EARLIER_MS = 60_000
_LATER_MS = 600_000


def pattern_of(topic: str) -> str:
    """A pattern that matches the one topic."""
    return re.escape(topic)


def options(
    broker: KafkaBroker, topic: str, *, fail_on_data_loss: bool = True, is_pattern: bool = False
) -> dict[str, str]:
    """How the query reads its topic."""
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        **({"subscribePattern": pattern_of(topic)} if is_pattern else {"subscribe": topic}),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(5 * _PARTITIONS),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
        # How long a task waits for a record that is not there, and Kafka's client for a partition (else a minute).
        "kafkaConsumer.pollTimeoutMs": "6000",
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "20000",
    }


def make_healthy(broker: KafkaBroker, topic: str, folder: Path) -> None:
    """The topic that a healthy query reads, and what it will hold when the query is started again."""
    broker.create_topic(topic, _PARTITIONS)
    whole = {str(number): [0, READ] for number in range(_PARTITIONS)}
    _produce(broker, topic, {"partitions": whole, "recreated": False}, at_ms=None)
    unread = {str(number): [0, READ + UNREAD] for number in range(_PARTITIONS)}
    write_topic(folder, {"exists": True, "recreated": False, "name": topic, "partitions": unread})


def rename_topic(case: Path, topic: str) -> None:
    """Let a healthy checkpoint speak of another topic: each case has its own."""
    healthy = read_topic(case)
    for log in ("offsets", "sources/0"):
        for path in [entry(case, log, batch) for batch in ids(case, log)]:
            content = path.read_bytes()
            write(path, content.replace(f'"{healthy["name"]}":'.encode(), f'"{topic}":'.encode()))
    write_topic(case, {**healthy, "name": topic})


def lay_out(broker: KafkaBroker, case: Path) -> dict[str, Any]:
    """Make the broker hold what `topic.json` says; the facts about it, as lastgood keeps them in a file.

    Records that the query has read are older than its batches; those of a topic that is another one by now are newer
    than any clock explains.
    """
    topic = read_topic(case)
    name, planned_ms = topic["name"], _planned_ms(case)
    if topic["exists"]:
        broker.create_topic(name, len(topic["partitions"]))
        _produce(broker, name, topic, at_ms=planned_ms + (_LATER_MS if topic["recreated"] else -_EARLIER_MS))
        gone = {int(number): first for number, (first, _) in topic["partitions"].items() if first}
        if gone:
            broker.delete_records(name, gone)
    facts: dict[str, Any] = ask_kafka(broker.bootstrap, [name], times_ms=[planned_ms + 1]).to_json()
    return facts


def clear(broker: KafkaBroker, case: Path) -> None:
    """Remove the topic of a case."""
    topic = read_topic(case)
    if topic["exists"]:
        broker.delete_topic(topic["name"])


def expected(case: Path) -> Counter[str]:
    """What the sink shows once everything that was ever in the topic is in it exactly once."""
    topic = read_topic(case)
    read = {str(number): [0, READ] for number in range(_PARTITIONS)}
    before = {"recreated": False, "partitions": read} if topic["recreated"] else {"partitions": {}}
    return Counter(value for each in (before, topic) for _, _, value in _records(each))


def records_of(case: Path) -> dict[tuple[int, int], str]:
    """Partition and offset of every record that the topic has ever had since it was created last, and its value."""
    return {(partition, offset): value for partition, offset, value in _records(read_topic(case))}


def _records(topic: dict[str, Any]) -> Iterator[tuple[int, int, str]]:
    for number, (_, end) in topic["partitions"].items():
        for offset in range(end):
            yield int(number), offset, f"{'again-' if topic['recreated'] else ''}{number}-{offset}"


def _produce(broker: KafkaBroker, name: str, topic: dict[str, Any], *, at_ms: int | None) -> None:
    """Write the records; those that a query has read, or that replace them, with this time."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for partition, offset, value in _records(topic):
        when = {"timestamp": at_ms} if at_ms is not None and offset < READ else {}
        producer.produce(name, value, partition=partition, **when)
    assert producer.flush(_FLUSH_SECONDS) == 0


def _planned_ms(case: Path) -> int:
    """When the newest batch was planned that the offset log still tells of."""
    for batch in reversed(ids(case, "offsets")):
        try:
            return int(json.loads(entry(case, "offsets", batch).read_bytes().split(b"\n")[1])["batchTimestampMs"])
        except (ValueError, IndexError, KeyError, TypeError):
            continue
    return 0
