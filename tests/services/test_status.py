"""`status` with a real broker: what it deletes, what it keeps and for how long, and a topic that was made anew."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.grade import Grade
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.ports import LOOPBACK, find_free_port
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.query_status import Status
from lastgood.operations.diagnose import diagnose
from lastgood.operations.status import list_statuses_below, status
from lastgood.query.kafka import Losing
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.retention import HeadroomKind, TopicIdentity
from lastgood.testing.checkpoints import CheckpointBuilder, KafkaInput

pytestmark = pytest.mark.services

HOUR_MS = 3_600_000
KEPT = {"retention.ms": str(24 * HOUR_MS), "cleanup.policy": "delete"}


def produce(broker: KafkaBroker, topic: str, count: int, time_ms: int, partitions: int = 2) -> None:
    """So many records in each partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for partition in range(partitions):
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition, timestamp=time_ms)
    assert producer.flush(60) == 0


@pytest.fixture
def began_ms() -> int:
    return int(time.time() * 1000) - 3 * HOUR_MS


@pytest.fixture
def checkpoint(broker: KafkaBroker, topic: str, began_ms: int, tmp_path: Path) -> Path:
    """A query that has read 15 of the 15 records of each of two partitions, three hours ago; 10 came an hour ago."""
    broker.create_topic(topic, partitions=2, config=KEPT)
    produce(broker, topic, 15, began_ms - 1000)
    query = CheckpointBuilder(tmp_path / "chk" / "orders", KafkaInput(topic), started_ms=began_ms)
    query.run(3)
    produce(broker, topic, 10, began_ms + 2 * HOUR_MS)
    return query.folder


def look(checkpoint: Path, broker: KafkaBroker) -> Status:
    return status(resolve_target(str(checkpoint)), options=EvidenceOptions(kafka=broker.bootstrap))


def test_a_query_that_lags_loses_nothing_while_retention_is_far(
    broker: KafkaBroker, topic: str, checkpoint: Path
) -> None:
    found = look(checkpoint, broker)
    assert found.exposure is not None
    assert (found.grade, found.exposure.losing) == (Grade.HEALTHY, Losing.NO)
    assert found.exposure.unread == {topic: {0: ((15, 25),), 1: ((15, 25),)}}
    assert found.exposure.topics[topic].identity is TopicIdentity.SAME
    least = found.exposure.headroom
    assert least is not None
    assert least.kind is HeadroomKind.LIMITED
    assert least.ms is not None
    assert 0 < least.ms <= 23 * HOUR_MS


def test_what_the_broker_deleted_unread_is_lost(
    broker: KafkaBroker, topic: str, checkpoint: Path, began_ms: int
) -> None:
    broker.delete_records(topic, {0: 20})
    found = look(checkpoint, broker)
    assert found.exposure is not None
    assert (found.grade, found.exposure.losing) == (Grade.LOSING, Losing.YES)
    assert found.exposure.lost == {topic: {0: ((15, 20),)}}
    assert found.exposure.lost_after_ms == began_ms + 2000
    assert found.exposure.headroom_at == (topic, 1)
    standing = find_offsets_after(resolve_target(str(checkpoint)), options=EvidenceOptions(kafka=broker.bootstrap))
    assert standing.expired == {topic: {0: ((15, 20),)}}


def test_partitions_that_were_added_are_told_and_named(broker: KafkaBroker, topic: str, checkpoint: Path) -> None:
    broker.add_partitions(topic, 3)
    found = look(checkpoint, broker)
    assert found.exposure is not None
    assert (found.exposure.losing, found.exposure.added) == (Losing.NO, {})
    standing = find_offsets_after(resolve_target(str(checkpoint)), options=EvidenceOptions(kafka=broker.bootstrap))
    assert standing.starting_offsets()[topic] == {"0": 15, "1": 15, "2": -2}


def test_a_topic_that_was_made_anew_is_not_the_one_that_was_read(
    broker: KafkaBroker, topic: str, checkpoint: Path, began_ms: int
) -> None:
    broker.recreate_topic(topic, config=KEPT)
    produce(broker, topic, 5, began_ms + HOUR_MS)
    shorter = look(checkpoint, broker)
    assert shorter.exposure is not None
    assert shorter.exposure.topics[topic].identity is TopicIdentity.SHORTER
    assert shorter.grade is Grade.LOSING
    produce(broker, topic, 30, began_ms + HOUR_MS)
    larger = look(checkpoint, broker)
    assert larger.exposure is not None
    assert larger.exposure.topics[topic].identity is TopicIdentity.LOOKS_RECREATED
    assert larger.exposure.losing is Losing.MAYBE


def test_a_topic_that_is_gone_is_lost(broker: KafkaBroker, topic: str, checkpoint: Path) -> None:
    broker.delete_topic(topic)
    found = look(checkpoint, broker)
    assert found.exposure is not None
    assert (found.grade, found.exposure.gone) == (Grade.LOSING, {topic: {0: 15, 1: 15}})


def test_queries_that_stand_at_different_places_of_a_topic_are_told_apart(
    broker: KafkaBroker, topic: str, checkpoint: Path, began_ms: int
) -> None:
    CheckpointBuilder(checkpoint.parent / "behind", KafkaInput(topic), started_ms=began_ms).run(1)
    broker.delete_records(topic, {0: 6})
    found = list_statuses_below(resolve_target(str(checkpoint.parent)), options=EvidenceOptions(kafka=broker.bootstrap))
    assert [(each.location.name, each.grade) for each in found] == [
        ("behind", Grade.LOSING),
        ("orders", Grade.HEALTHY),
    ]
    behind, orders = (each.exposure for each in found)
    assert behind is not None
    assert orders is not None
    assert behind.lost == {topic: {0: ((5, 6),)}}
    assert orders.losing is Losing.NO
    assert behind.headroom is not None
    assert orders.headroom is not None
    assert behind.headroom.ms is not None
    assert orders.headroom.ms is not None
    assert behind.headroom.ms < orders.headroom.ms  # what it reads next is three hours old, not one


def test_a_broker_that_cannot_be_reached_leaves_the_rest_of_the_answer(checkpoint: Path) -> None:
    options = EvidenceOptions(kafka=f"{LOOPBACK}:{find_free_port()}")
    found = status(resolve_target(str(checkpoint)), options=options)
    assert (found.grade, found.last_good) == (Grade.HEALTHY, 2)
    assert found.exposure is not None
    assert found.exposure.losing is Losing.UNKNOWN
    assert found.exposure.headroom is not None
    assert found.exposure.headroom.kind is HeadroomKind.UNKNOWN


def conditions(checkpoint: Path, broker: KafkaBroker, **said: int) -> dict[str, Finding]:
    report = diagnose(
        resolve_target(str(checkpoint)),
        DiagnoseOptions(EvidenceOptions(kafka=broker.bootstrap), max_downtime_ms=said.get("downtime_ms")),
    )
    return {each.condition.name: each for each in report.findings if each.condition.name.startswith("TOPIC_RET")}


def test_a_retention_below_the_downtime_is_told_until_the_named_value_is_set(
    broker: KafkaBroker, topic: str, checkpoint: Path
) -> None:
    short = conditions(checkpoint, broker, downtime_ms=36 * HOUR_MS)["TOPIC_RETENTION_SHORT"]
    assert (short.severity, short.evidence["retention_ms"]) == (Severity.WARNING, 24 * HOUR_MS)
    assert conditions(checkpoint, broker)["TOPIC_RETENTION_SHORT"].severity is Severity.INFO
    warned = status(
        resolve_target(str(checkpoint)), options=EvidenceOptions(kafka=broker.bootstrap), max_downtime_ms=36 * HOUR_MS
    ).warnings
    assert len(warned) == 1
    assert short.next is not None
    key, _, value = short.next.rpartition(" ")[2].partition("=")
    broker.set_topic_config(topic, {key: value, "cleanup.policy": "delete"})
    assert conditions(checkpoint, broker, downtime_ms=36 * HOUR_MS) == {}


def test_a_limit_of_bytes_reaches_back_as_far_as_its_oldest_record(
    broker: KafkaBroker, topic: str, checkpoint: Path
) -> None:
    broker.set_topic_config(
        topic, {"retention.ms": str(168 * HOUR_MS), "cleanup.policy": "delete", "retention.bytes": "1000000"}
    )
    assert conditions(checkpoint, broker, downtime_ms=36 * HOUR_MS) == {}  # nothing was deleted yet
    broker.delete_records(topic, {0: 15, 1: 3})
    found = conditions(checkpoint, broker, downtime_ms=36 * HOUR_MS)["TOPIC_RETENTION_BY_SIZE"]
    assert (found.subject, found.severity) == (f"{topic}/0", Severity.INFO)
    assert HOUR_MS <= found.evidence["reaches_back_ms"] < 2 * HOUR_MS
    assert conditions(checkpoint, broker, downtime_ms=HOUR_MS // 2) == {}


def test_segments_go_whole_the_newest_one_too(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """What the advice says of Kafka: a partition in use keeps its oldest records, an idle one loses all of them."""
    retention_ms = 5000
    broker.create_topic(
        topic, config={"retention.ms": str(retention_ms), "cleanup.policy": "delete", "segment.ms": "3600000"}
    )
    query = CheckpointBuilder(tmp_path / "chk", KafkaInput(topic, partitions=1), started_ms=int(time.time() * 1000))
    query.run(1)
    began = time.monotonic()
    while time.monotonic() - began < 2 * retention_ms / 1000:  # twice the retention, with a record every second
        produce(broker, topic, 1, int(time.time() * 1000), partitions=1)
        time.sleep(1)
    assert broker.earliest_offsets(topic) == {0: 0}
    report = diagnose(resolve_target(str(query.folder)), DiagnoseOptions(EvidenceOptions(kafka=broker.bootstrap)))
    found = next(each for each in report.findings if each.condition.name == "TOPIC_SEGMENTS_LONG")
    assert (found.evidence["segment_ms"], found.evidence["retention_ms"]) == (3_600_000, retention_ms)
    deadline = time.monotonic() + 60
    while broker.earliest_offsets(topic) == {0: 0}:  # nobody writes any more
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert broker.earliest_offsets(topic) == broker.latest_offsets(topic)
