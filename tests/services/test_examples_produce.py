"""`examples/flights/produce.py` as a user starts it: what it says was acknowledged is in Kafka."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from lastgood.lab.examples import locate_flights
from lastgood.lab.kafka import KafkaBroker

pytestmark = pytest.mark.services

DEADLINE_SECONDS = 120
PRODUCE = [sys.executable, str(locate_flights() / "produce.py"), "--bootstrap-servers"]


def produce(bootstrap: str, topic: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*PRODUCE, bootstrap, "--topic", topic, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)


def consume(broker: KafkaBroker, topic: str) -> dict[int, list[dict[str, Any]]]:
    """All flights of a topic, by partition."""
    ends = broker.latest_offsets(topic)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
    found: dict[int, list[dict[str, Any]]] = {partition: [] for partition in ends}
    while sum(map(len, found.values())) < sum(ends.values()):
        message = consumer.poll(DEADLINE_SECONDS)
        assert message is not None
        assert message.error() is None
        flight = json.loads(message.value())
        assert message.key() == flight["carrier"].encode()
        found[message.partition()].append(flight)
    consumer.close()
    return found


def ids(flights: Sequence[dict[str, Any]]) -> list[str]:
    return [flight["id"] for flight in flights]


def test_flights_are_sent_once_each_in_order_with_all_their_columns(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=3)
    shown = produce(broker.bootstrap, topic, "--limit", "2000", "--start", "101")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "2000 flights acknowledged\n", "")
    found = consume(broker, topic)
    everything = sorted((flight for flights in found.values() for flight in flights), key=lambda it: it["id"])
    assert ids(everything) == [f"2013-{number:06d}" for number in range(101, 2101)]
    assert [flight["event_time"] for flight in everything] == sorted(flight["event_time"] for flight in everything)
    assert all(ids(flights) == sorted(ids(flights)) for flights in found.values())
    assert all(len(flight) == 2 + 19 for flight in everything)
    cancelled = [flight for flight in everything if flight["dep_time"] is None]
    assert cancelled
    assert {type(flight["dep_delay"]) for flight in everything} == {int, type(None)}


def test_first_flight_is_the_earliest_departure_of_the_year(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    produce(broker.bootstrap, topic, "--limit", "1")
    (flight,) = consume(broker, topic)[0]
    assert {name: flight[name] for name in ("id", "event_time", "carrier", "flight", "origin", "dest")} == {
        "id": "2013-000001",
        "event_time": "2013-01-01T10:15:00Z",
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "dest": "IAH",
    }


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_producer_says_how_many_flights_are_in_kafka(
    broker: KafkaBroker, topic: str, signum: signal.Signals
) -> None:
    broker.create_topic(topic, partitions=3)
    command = [*PRODUCE, broker.bootstrap, "--topic", topic, "--rate", "500"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as producer:
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while sum(broker.latest_offsets(topic).values()) < 300:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            producer.send_signal(signum)
            stdout, stderr = producer.communicate(timeout=DEADLINE_SECONDS)
        finally:
            producer.kill()
    count = sum(broker.latest_offsets(topic).values())
    assert count < 336_776  # it kept to its rate
    assert (producer.returncode, stdout, stderr) == (0, f"{count} flights acknowledged\n", "")
    found = consume(broker, topic)
    sent = sorted(flight for flights in found.values() for flight in ids(flights))
    assert sent == [f"2013-{number:06d}" for number in range(1, count + 1)]


def test_broker_that_is_down_is_one_clear_error(topic: str) -> None:
    shown = produce("127.0.0.1:9", topic, "--limit", "1")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith("error: 127.0.0.1:9: ")
    assert shown.stderr.count("\n") == 1


def test_topic_that_does_not_exist_is_one_clear_error(broker: KafkaBroker, topic: str) -> None:
    shown = produce(broker.bootstrap, topic, "--limit", "1")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "Unknown topic" in shown.stderr
    assert shown.stderr.count("\n") == 1
