from __future__ import annotations

import json

import pytest

from lastgood.sources.kafka_facts import (
    FoundRecord,
    KafkaFacts,
    KafkaFactsError,
    PartitionFacts,
    TopicFacts,
    facts_from_json,
)

FACTS = KafkaFacts(
    bootstrap="broker:9092",
    asked_at_ms=1_795_220_538_686,
    topics={
        "orders": TopicFacts(
            topic_id="9JPQyfArQ+aZx6BaiNCAVQ",
            partitions={
                0: PartitionFacts(20, 25, 24, 3),
                1: PartitionFacts(earliest=0, unknown="latest: no answer in time"),
            },
            config={"retention.ms": "3600000", "cleanup.policy": "compact,delete"},
            replication_factor=3,
        ),
        "gone": TopicFacts(exists=False, unknown="Broker: Unknown topic or partition"),
        "secret": TopicFacts(exists=None, unknown="not authorized", config_unknown="not authorized"),
    },
    first_at={1000: {"orders": {0: FoundRecord(20, 1001), 1: FoundRecord(unknown="no answer in time")}}},
    unread={"orders": {0: FoundRecord(21, 1002), 1: FoundRecord()}},
)
OLD = {
    "bootstrap": "broker:9092",
    "captured_at_ms": 5,
    "topics": {"t": {"topic_id": "x", "partitions": {"0": {"earliest": 1, "latest": 2}}}},
    "topic_id_when_the_checkpoint_was_written": "y",
}


def test_facts_come_back_from_json_as_they_were() -> None:
    assert facts_from_json(json.loads(json.dumps(FACTS.to_json()))) == FACTS


def test_facts_of_a_cluster_that_did_not_answer_come_back_too() -> None:
    silent = KafkaFacts("broker:9092", 5, unknown="Connection refused")
    assert facts_from_json(silent.to_json()) == silent
    assert silent.unknowns == {"": "Connection refused"}


def test_files_without_the_later_keys_are_read() -> None:
    facts = facts_from_json(OLD)
    assert facts == KafkaFacts("broker:9092", 5, {"t": TopicFacts("x", {0: PartitionFacts(1, 2)})})
    assert facts.topics["t"].is_compacted is None
    assert facts.topics["t"].config_number("retention.ms") is None


def test_what_plain_facts_have_not_stands_not_in_their_json() -> None:
    assert facts_from_json(OLD).to_json() == {key: OLD[key] for key in ("bootstrap", "captured_at_ms", "topics")}


def test_offsets_leave_out_what_is_unknown() -> None:
    assert FACTS.earliest == {"orders": {0: 20, 1: 0}}
    assert FACTS.latest == {"orders": {0: 25}}


def test_every_unknown_part_says_why() -> None:
    assert FACTS.unknowns == {
        "orders/1": "latest: no answer in time",
        "gone": "Broker: Unknown topic or partition",
        "secret": "not authorized",
    }
    assert FACTS.missing_topics == ("gone",)


def test_cleanup_policy_may_name_both() -> None:
    topic = FACTS.topics["orders"]
    assert topic.is_compacted is True
    assert topic.is_deleted_by_age is True


@pytest.mark.parametrize(
    ("facts", "subject"),
    [
        ([], "the facts"),
        ({"topics": []}, "topics"),
        ({"topics": {"t": 1}}, "topic t"),
        ({"topics": {"t": {"partitions": {"a": {}}}}}, "a key of topic t"),
        ({"topics": {"t": {"partitions": {"0": {"earliest": "1"}}}}}, "earliest of topic t, partition 0"),
        ({"topics": {"t": {"exists": "no"}}}, "exists of topic t"),
        ({"first_at": {"-1": {}}}, "a key of first_at"),
        ({"captured_at_ms": True}, "captured_at_ms of the facts"),
    ],
)
def test_other_shapes_are_refused_by_name(facts: object, subject: str) -> None:
    with pytest.raises(KafkaFactsError) as raised:
        facts_from_json(facts)
    assert raised.value.subject == subject
