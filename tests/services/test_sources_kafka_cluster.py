"""What a real broker says, and what becomes of one that says nothing."""

from __future__ import annotations

import contextlib
import gc
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.ports import LOOPBACK, find_free_port
from lastgood.process.java import Java
from lastgood.sources.kafka.cluster import ask_kafka, ask_offsets_for_times, ask_record_times
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts, facts_from_json
from lastgood.sources.kafka.retention import HeadroomKind, ReadUpTo, TopicIdentity, estimate_headroom, identify_topic

pytestmark = pytest.mark.services

KEPT = {"retention.ms": "-1"}  # else the broker deletes records as old as those below within a second
NEVER_ANSWERED_SECONDS = 60  # a hang, as against an answer that is late


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server((LOOPBACK, 0)) as server:
        accepted: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(server.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in accepted:
            connection.close()


def produce(broker: KafkaBroker, topic: str, times_ms: Mapping[int, list[int]]) -> None:
    """Write records with these times, per partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for partition, times in times_ms.items():
        for time_ms in times:
            producer.produce(topic, b"x", partition=partition, timestamp=time_ms)
    assert producer.flush(60) == 0


def answered(ask: Callable[[], KafkaFacts]) -> KafkaFacts:
    """The facts, which are there before a hang would be noticed."""
    facts: list[KafkaFacts] = []
    thread = threading.Thread(target=lambda: facts.append(ask()), daemon=True)
    thread.start()
    thread.join(NEVER_ANSWERED_SECONDS)
    assert facts, "no answer at all"
    return facts[0]


def test_facts_name_everything_that_the_broker_knows(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2, config={"retention.ms": "3600000", "cleanup.policy": "delete"})
    now_ms = int(time.time() * 1000)
    produce(broker, topic, {0: [now_ms] * 3, 1: [now_ms]})
    facts = ask_kafka(broker.bootstrap, [topic], clock=lambda: 12.5)
    found = facts.topics[topic]
    assert facts.unknowns == {}
    assert facts.asked_at_ms == 12500
    assert found.topic_id == broker.topic_id(topic)
    assert found.partitions == {0: PartitionFacts(0, 3, 3, 0), 1: PartitionFacts(0, 1, 1, 0)}
    assert found.replication_factor == 1
    assert found.config_number("retention.ms") == 3_600_000
    assert found.config_number("retention.bytes") == -1
    assert found.config["message.timestamp.type"] == "CreateTime"
    assert {"segment.ms", "segment.bytes"} < set(found.config)
    assert found.is_deleted_by_age is True
    assert found.is_compacted is False
    assert facts_from_json(facts.to_json()) == facts


def test_open_transaction_holds_the_last_stable_offset_back(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(60) == 0
    open_facts = ask_kafka(broker.bootstrap, [topic]).topics[topic].partitions[0]
    producer.commit_transaction(60)
    assert (open_facts.latest, open_facts.last_stable) == (1, 0)
    deadline = time.monotonic() + 60
    while (closed := ask_kafka(broker.bootstrap, [topic]).topics[topic].partitions[0]).last_stable != 2:
        assert time.monotonic() < deadline, closed
        time.sleep(0.05)
    assert closed.latest == 2  # the record and the marker of the commit


def test_deleted_records_are_below_the_earliest_offset(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2, config=KEPT)
    produce(broker, topic, {0: [1] * 25, 1: [1] * 25})
    broker.delete_records(topic, {0: 20})
    facts = ask_kafka(broker.bootstrap, [topic])
    assert facts.earliest == {topic: {0: 20, 1: 0}}
    assert facts.latest == {topic: {0: 25, 1: 25}}


def test_recreated_topic_has_another_id_and_older_offsets_with_newer_times(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2, config=KEPT)
    produce(broker, topic, {0: [1000] * 15, 1: [1000] * 15})
    before = ask_kafka(broker.bootstrap, [topic]).topics[topic]
    batch_timestamp_ms = 2000
    healthy = ask_kafka(broker.bootstrap, [topic], times_ms=[batch_timestamp_ms + 1])
    broker.recreate_topic(topic, config=KEPT)
    produce(broker, topic, {0: [900_000] * 30, 1: [900_000] * 30})
    after = ask_kafka(broker.bootstrap, [topic], times_ms=[batch_timestamp_ms + 1])

    def identity(facts: KafkaFacts, recorded: str | None = None) -> TopicIdentity:
        return identify_topic(
            facts.topics[topic],
            reads=[ReadUpTo(batch_timestamp_ms, {0: 15, 1: 15})],
            asked={after_ms: records[topic] for after_ms, records in facts.first_at.items()},
            recorded_topic_id=recorded,
        ).identity

    assert identity(healthy) is TopicIdentity.SAME
    assert identity(after) is TopicIdentity.LOOKS_RECREATED
    assert identity(after, before.topic_id) is TopicIdentity.ANOTHER
    assert after.first_at[batch_timestamp_ms + 1][topic][0] == FoundRecord(0, 900_000, leader_epoch=0)


def test_offsets_are_found_by_a_time_for_each_partition(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=3, config=KEPT)
    produce(broker, topic, {0: [1000, 2000, 3000], 1: [1000, 9000]})
    found = ask_offsets_for_times(broker.bootstrap, {topic: {0: 1500, 1: 9001, 2: 0}})
    assert found == {topic: {0: FoundRecord(1, 2000, leader_epoch=0), 1: FoundRecord(), 2: FoundRecord()}}


def test_first_unread_record_tells_how_much_time_is_left(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=3, config={"retention.ms": "3600000"})
    now_ms = int(time.time() * 1000)
    produce(broker, topic, {0: [now_ms - 600_000, now_ms - 300_000], 1: [now_ms], 2: [now_ms, now_ms]})
    broker.delete_records(topic, {2: 1})
    facts = ask_kafka(broker.bootstrap, [topic], next_offsets={topic: {0: 1, 1: 1, 2: 0}})
    assert facts.unread == {topic: {0: FoundRecord(1, now_ms - 300_000)}}
    found = [
        estimate_headroom(facts.topics[topic], part, at, facts.unread[topic].get(part), now_ms)
        for part, at in ((0, 1), (1, 1), (2, 0))
    ]
    assert [one.kind for one in found] == [HeadroomKind.LIMITED, HeadroomKind.NOTHING_UNREAD, HeadroomKind.LOST]
    assert found[0].ms == 3_300_000


def test_record_times_are_asked_of_many_partitions_at_once(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=50, config=KEPT)
    produce(broker, topic, {part: [1000 + part, 2000 + part] for part in range(50)})
    found = ask_record_times(broker.bootstrap, {topic: dict.fromkeys(range(50), 1)})
    assert found == {topic: {part: FoundRecord(1, 2000 + part) for part in range(50)}}


def test_where_nothing_readable_follows_there_is_no_record(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.commit_transaction(60)
    assert ask_record_times(broker.bootstrap, {topic: {0: 1}}) == {topic: {0: FoundRecord()}}


def test_offset_out_of_range_is_an_answer(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, config=KEPT)
    produce(broker, topic, {0: [1, 2, 3]})
    broker.delete_records(topic, {0: 2})
    found = ask_record_times(broker.bootstrap, {topic: {0: 1}})[topic][0]
    assert found.offset is None
    assert found.unknown is not None
    assert "out of range" in found.unknown


def test_unknown_topic_is_an_answer_and_is_not_created(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic)
    facts = ask_kafka(broker.bootstrap, [topic, f"{topic}-missing"], times_ms=[5])
    assert facts.topics[topic].exists is True
    assert facts.topics[topic].unknown is None
    assert facts.missing_topics == (f"{topic}-missing",)
    assert facts.unknowns == {}
    assert facts.unknown is None
    assert broker.latest_offsets(f"{topic}-missing") == {}
    assert facts_from_json(facts.to_json()) == facts


def test_pattern_finds_topics_by_their_whole_name(broker: KafkaBroker) -> None:
    name = f"pat-{uuid.uuid4().hex[:8]}"
    for suffix in (".a", ".b", ".b.more"):
        broker.create_topic(name + suffix)
    facts = ask_kafka(broker.bootstrap, subscribe_pattern=rf"{name}\.[ab]")
    assert set(facts.topics) == {f"{name}.a", f"{name}.b"}
    assert facts.unknowns == {}
    facts = ask_kafka(broker.bootstrap, subscribe_pattern=f"{name}-nothing-of-that")
    assert (facts.topics, facts.unknown) == ({}, None)


def test_question_about_no_topic_is_no_question(broker: KafkaBroker) -> None:
    assert ask_kafka(broker.bootstrap, clock=lambda: 1.0) == KafkaFacts(broker.bootstrap, 1000)


def test_asking_leaves_no_consumer_group_behind(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(topic, config=KEPT)
    produce(broker, topic, {0: [1, 2]})
    assert ask_record_times(broker.bootstrap, {topic: {0: 0}})[topic][0].offset == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    groups = admin.list_consumer_groups(request_timeout=30).result(60)
    assert "lastgood" not in {group.group_id for group in groups.valid}


def test_port_that_nobody_listens_on_is_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    bootstrap = f"{LOOPBACK}:{find_free_port()}"
    facts = answered(lambda: ask_kafka(bootstrap, ["orders"], subscribe_pattern="x.*", next_offsets={"orders": {0: 1}}))
    assert facts.unknown is not None
    assert "refused" in facts.unknown
    assert facts.topics["orders"].exists is None
    assert facts.topics["orders"].unknown == facts.unknown
    found = ask_record_times(bootstrap, {"orders": {0: 1}}, timeout_seconds=3)["orders"][0]
    assert "refused" in (found.unknown or "")
    assert capfd.readouterr() == ("", "")  # the client library likes to complain there


def test_host_that_nobody_knows_is_an_answer() -> None:
    facts = answered(lambda: ask_kafka("no-such-host.invalid:9092", ["orders"]))
    assert "resolve" in (facts.unknown or "")


def test_broker_that_accepts_and_never_answers_is_an_answer(silent_port: int) -> None:
    bootstrap = f"{LOOPBACK}:{silent_port}"
    facts = answered(lambda: ask_kafka(bootstrap, ["orders"], timeout_seconds=2))
    assert facts.unknowns.keys() == {"", "orders"}
    facts = answered(lambda: ask_kafka(bootstrap, subscribe_pattern="x.*", timeout_seconds=2))
    assert facts.unknown is not None
    found = ask_record_times(bootstrap, {"orders": {0: 1, 1: 1}}, timeout_seconds=2)["orders"]
    assert all(record.unknown and record.offset is None for record in found.values())
    assert ask_offsets_for_times(bootstrap, {"orders": {0: 1}}, timeout_seconds=2)["orders"][0].unknown


def test_no_client_is_left_to_the_garbage_collector(silent_port: int) -> None:
    """In a thread of its own that aborts the process."""
    bootstrap = f"{LOOPBACK}:{silent_port}"
    gc.collect()
    gc.disable()
    try:
        ask_kafka(bootstrap, ["orders"], timeout_seconds=1)
        ask_kafka(bootstrap, subscribe_pattern="x.*", timeout_seconds=1)
        ask_record_times(bootstrap, {"orders": {0: 1}}, timeout_seconds=1)
        deadline = time.monotonic() + NEVER_ANSWERED_SECONDS
        while left := [each for each in gc.get_objects() if isinstance(each, AdminClient)]:
            assert time.monotonic() < deadline, left  # one may still be listing topics
            del left
            time.sleep(0.1)
    finally:
        gc.enable()


def test_broker_that_dies_is_an_answer_and_is_asked_again_when_it_is_back(
    java: Java, broker_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    with KafkaBroker(tmp_path / "broker", java=java, jars=broker_jars) as broker:
        broker.create_topic("orders")
        broker.kill()
        assert answered(lambda: ask_kafka(broker.bootstrap, ["orders"])).unknown is not None
        broker.start()
        assert ask_kafka(broker.bootstrap, ["orders"]).latest == {"orders": {0: 0}}


def test_settings_that_the_client_refuses_are_an_answer() -> None:
    facts = ask_kafka("broker:9092", ["orders"], config={"no.such.setting": "1"})
    assert facts.unknown is not None
    assert re.search(r"refused.*no\.such\.setting", facts.unknown)
