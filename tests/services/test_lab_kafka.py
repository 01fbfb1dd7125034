"""The broker of the lab, as its clients see it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lastgood.lab import server
from lastgood.lab.kafka import BrokerRequestError, BrokerStartError, KafkaBroker
from lastgood.lab.ports import LOOPBACK, find_free_port, find_free_ports
from lastgood.process.java import Java

pytestmark = pytest.mark.services

DEADLINE_SECONDS = 60
Describe = Callable[..., KafkaBroker]


@pytest.fixture
def describe(java: Java, broker_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[Describe]:
    """Makes brokers of the test's own and stops them in the end."""
    brokers = []

    def make(folder: str = "broker", **how: object) -> KafkaBroker:
        brokers.append(KafkaBroker(tmp_path / folder, java=java, jars=broker_jars, **how))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.stop()


def produce(broker: KafkaBroker, topic: str, values: list[str], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    refused = []
    for value in values:
        producer.produce(
            topic,
            value.encode(),
            partition=partition,
            on_delivery=lambda error, _: error and refused.append(error),
        )
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert refused == []


def consume(broker: KafkaBroker, topic: str, count: int, partition: int = 0) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.auto.commit": False, "log_level": 0},
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    messages = consumer.consume(count, timeout=DEADLINE_SECONDS)
    consumer.close()
    return [message.value().decode() for message in messages]


def await_true(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_records_are_read_as_they_were_written(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)
    produce(broker, topic, ["a", "b", "c"], partition=1)
    assert consume(broker, topic, 3, partition=1) == ["a", "b", "c"]
    assert broker.latest_offsets(topic) == {0: 0, 1: 3}
    assert broker.earliest_offsets(topic) == {0: 0, 1: 0}


def test_topic_exists_only_if_somebody_creates_it(broker: KafkaBroker, topic: str) -> None:
    assert broker.latest_offsets(topic) == {}
    with pytest.raises(BrokerRequestError) as raised:
        broker.topic_id(topic)
    assert raised.value.code == "UNKNOWN_TOPIC_OR_PART"
    assert raised.value.subject == topic


def test_topic_is_not_created_twice(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    with pytest.raises(BrokerRequestError) as raised:
        broker.create_topic(topic)
    assert raised.value.code == "TOPIC_ALREADY_EXISTS"


def test_deleted_topic_is_gone(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=3)
    broker.delete_topic(topic)
    assert broker.latest_offsets(topic) == {}


def test_recreated_topic_is_empty_and_has_another_id(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)
    produce(broker, topic, ["old"])
    before = broker.topic_id(topic)
    assert broker.topic_id(topic) == before
    broker.recreate_topic(topic)
    assert broker.topic_id(topic) != before
    assert broker.latest_offsets(topic) == {0: 0, 1: 0}
    produce(broker, topic, ["new"])
    assert consume(broker, topic, 1) == ["new"]


def test_recreated_topic_may_have_other_partitions(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)
    broker.recreate_topic(topic, partitions=1)
    assert broker.latest_offsets(topic) == {0: 0}


def test_added_partitions_can_be_written_to(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, ["a"])
    broker.add_partitions(topic, 3)
    produce(broker, topic, ["b"], partition=2)
    assert broker.latest_offsets(topic) == {0: 1, 1: 0, 2: 1}


def test_deleted_records_move_the_earliest_offset_of_their_partition_alone(
    broker: KafkaBroker,
    topic: str,
) -> None:
    broker.create_topic(topic, partitions=2)
    produce(broker, topic, ["a", "b", "c"])
    produce(broker, topic, ["x"], partition=1)
    broker.delete_records(topic, {0: 2})
    assert broker.earliest_offsets(topic) == {0: 2, 1: 0}
    assert broker.latest_offsets(topic) == {0: 3, 1: 1}
    assert consume(broker, topic, 1) == ["c"]


def test_records_beyond_the_end_cannot_be_deleted(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    with pytest.raises(BrokerRequestError) as raised:
        broker.delete_records(topic, {0: 5})
    assert raised.value.code == "OFFSET_OUT_OF_RANGE"


def test_short_retention_really_deletes(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, ["a", "b"])
    broker.set_topic_config(topic, {"retention.ms": "1"})
    await_true(lambda: broker.earliest_offsets(topic) == {0: 2})
    assert broker.latest_offsets(topic) == {0: 2}


def test_setting_of_a_topic_can_be_taken_back(broker: KafkaBroker, topic: str) -> None:
    short = f"{topic}-short"
    for name in (topic, short):
        broker.create_topic(name, config={"retention.ms": "1"})
    broker.set_topic_config(topic, {"retention.ms": None, "max.message.bytes": "2000"})
    produce(broker, topic, ["kept"])
    produce(broker, short, ["expired"])
    await_true(lambda: broker.earliest_offsets(short) == {0: 1})
    assert broker.earliest_offsets(topic) == {0: 0}


def test_setting_that_does_not_exist_is_refused(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    with pytest.raises(BrokerRequestError) as raised:
        broker.set_topic_config(topic, {"retention.days": "1"})
    assert raised.value.code == "INVALID_CONFIG"


def test_records_and_port_survive_kill_9(describe: Describe, topic: str) -> None:
    broker = describe()
    broker.start()
    broker.create_topic(topic, partitions=2)
    produce(broker, topic, ["a", "b"])
    bootstrap, topic_id, pid = broker.bootstrap, broker.topic_id(topic), broker.pid
    broker.kill()
    assert not broker.is_running
    assert not psutil.pid_exists(pid or 0)
    broker.restart()
    assert broker.bootstrap == bootstrap
    assert broker.topic_id(topic) == topic_id
    assert consume(broker, topic, 2) == ["a", "b"]
    produce(broker, topic, ["c"])
    assert broker.latest_offsets(topic) == {0: 3, 1: 0}


@pytest.mark.proof
def test_data_of_a_folder_serve_the_next_broker(describe: Describe, topic: str) -> None:
    with describe() as first:
        first.create_topic(topic)
        produce(first, topic, ["a"])
    with describe() as second:
        assert consume(second, topic, 1) == ["a"]
        second.restart()
        assert consume(second, topic, 1) == ["a"]


@pytest.mark.proof
def test_folder_may_have_any_name(describe: Describe, topic: str) -> None:
    with describe("a folder für Ünïcode \\ 😀") as broker:
        broker.create_topic(topic)
        produce(broker, topic, ["a"])
        assert (broker.folder / "data" / f"{topic}-0").is_dir()


@pytest.mark.proof
def test_taken_port_is_left_to_its_owner(describe: Describe, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as owner:
        owner.bind((LOOPBACK, find_free_port()))
        owner.listen()
        taken = owner.getsockname()[1]
        choices = iter([(taken, *find_free_ports(2))])
        monkeypatch.setattr(
            server, "find_free_ports", lambda *args, **beside: next(choices, None) or find_free_ports(*args, **beside)
        )
        with describe() as broker:
            assert broker.port != taken


@pytest.mark.proof
def test_port_that_was_asked_for_and_is_taken_is_named_as_the_cause(describe: Describe) -> None:
    with socket.socket() as owner:
        owner.bind((LOOPBACK, find_free_port()))
        owner.listen()
        broker = describe(port=owner.getsockname()[1])
        with pytest.raises(BrokerStartError) as raised:
            broker.start()
    assert "java.net.BindException" in (raised.value.found or "")
    assert raised.value.subject == str(broker.log)
    assert not broker.is_running


def test_setting_that_kafka_refuses_is_named_as_the_cause(describe: Describe) -> None:
    broker = describe(config={"log.retention.check.interval.ms": "many"})
    with pytest.raises(BrokerStartError) as raised:
        broker.start()
    assert "log.retention.check.interval.ms" in (raised.value.found or "")
    assert "log.retention.check.interval.ms" in broker.log.read_text()


def test_clients_are_sent_to_the_proxy_and_we_are_not(describe: Describe, topic: str) -> None:
    proxy = find_free_port()
    with describe(advertised_port=proxy) as broker:
        assert broker.bootstrap == f"{LOOPBACK}:{proxy}"
        client = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{broker.port}", "log_level": 0})
        (node,) = client.list_topics(timeout=DEADLINE_SECONDS).brokers.values()
        assert node.port == proxy
        broker.create_topic(topic)  # although nobody listens at the proxy's port
        assert broker.latest_offsets(topic) == {0: 0}


OWNER = """
import os, sys, time
from pathlib import Path
from lastgood.lab.jars import fetch_jars
from lastgood.lab.kafka import KafkaBroker
from lastgood.process.java import find_java
java = find_java(os.environ)
broker = KafkaBroker(Path(sys.argv[1]), java=java, jars=fetch_jars(["broker"], java=java)["broker"])
broker.start()
print(broker.pid, broker.port, flush=True)
time.sleep(600)
"""


def test_broker_ends_with_its_owner_even_when_that_is_killed(
    broker_jars: tuple[Path, ...],
    tmp_path: Path,
) -> None:
    assert broker_jars  # are in the cache: the owner downloads nothing
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, port = map(int, owner.stdout.readline().split())
        broker = psutil.Process(pid)
        assert "kafka.Kafka" in broker.cmdline()
        owner.send_signal(signal.SIGKILL)
    broker.wait(DEADLINE_SECONDS)
    with socket.socket() as next_user:
        next_user.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        next_user.bind((LOOPBACK, port))
