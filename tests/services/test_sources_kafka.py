"""What a real broker tells about what a query has read."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.ports import LOOPBACK, find_free_port
from lastgood.sources.kafka.cluster import ask_kafka
from lastgood.sources.kafka.reader import (
    KafkaUnreachableError,
    OffsetRange,
    TopicMissingError,
    TopicRecreatedError,
    list_served_ranges,
)

pytestmark = pytest.mark.services


def fill(broker: KafkaBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0


def test_range_ends_where_retention_has_cut_it(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)
    fill(broker, topic, 20)
    broker.delete_records(topic, {0: 5})
    read = [OffsetRange("0", topic, 0, start=2, begin=2, end=18), OffsetRange("0", topic, 1, start=0, begin=0, end=0)]
    served = list_served_ranges(read, ask_kafka(broker.bootstrap, [topic]))
    assert [(each.start, each.begin, each.end) for each in served] == [(2, 5, 18), (0, 0, 0)]


def test_topic_created_again_with_less_is_recognised(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)
    fill(broker, topic, 5)
    read = [OffsetRange("0", topic, part, start=0, begin=0, end=end) for part, end in ((0, 5), (1, 0))]
    assert list_served_ranges(read, ask_kafka(broker.bootstrap, [topic]))
    broker.recreate_topic(topic)
    fill(broker, topic, 4)
    with pytest.raises(TopicRecreatedError, match="less than the query has read"):
        list_served_ranges(read, ask_kafka(broker.bootstrap, [topic]))
    broker.recreate_topic(topic, partitions=1)
    with pytest.raises(TopicRecreatedError) as caught:
        list_served_ranges(read, ask_kafka(broker.bootstrap, [topic]))
    assert caught.value.found == f"no partition {topic}-1"


def test_topic_that_is_gone_is_named(broker: KafkaBroker, topic: str) -> None:
    with pytest.raises(TopicMissingError) as caught:
        list_served_ranges([OffsetRange("0", topic, 0, start=0, begin=0, end=1)], ask_kafka(broker.bootstrap, [topic]))
    assert caught.value.found == f"no topic {topic}"


def test_broker_that_does_not_answer_is_an_error_that_may_pass() -> None:
    read = [OffsetRange("0", "orders", 0, start=0, begin=0, end=1)]
    with pytest.raises(KafkaUnreachableError) as caught:
        list_served_ranges(read, ask_kafka(f"{LOOPBACK}:{find_free_port()}", ["orders"], timeout_seconds=2))
    assert caught.value.retry.value == "later"
