from __future__ import annotations

import json

import pytest

from lastgood.sources.kafka.facts import (
    FoundRecord,
    KafkaFacts,
    KafkaFactsError,
    PartitionFacts,
    TopicFacts,
    facts_from_json,
    resolve_offsets,
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
        "gone": TopicFacts(exists=False),
        "secret": TopicFacts(exists=None, unknown="not authorized", config_unknown="not authorized"),
    },
    first_at={1000: {"orders": {0: FoundRecord(20, 1001), 1: FoundRecord(unknown="no answer in time")}}},
    unread={"orders": {0: FoundRecord(21, 1002), 1: FoundRecord()}},
    topic_ids_before={"orders": "old"},
    first_after_batch={2: {"orders": {0: FoundRecord(20, 1001), 1: FoundRecord()}}},
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


def test_topics_that_are_gone_stand_by_their_names() -> None:
    written = FACTS.to_json()
    assert (written["gone"], "gone" in written["topics"]) == (["gone"], False)
    assert "gone" not in KafkaFacts("broker:9092", 5, {"orders": TopicFacts()}).to_json()


@pytest.mark.parametrize(
    "told",
    [
        {"topics": {}, "gone": ["t"]},
        {"gone": ["t"]},
        {"topics": {"t": {"partitions": {}}}, "gone": ["t"]},
        {"topics": {"t": {"gone": True}}},
        {"topics": {"t": {"exists": False, "partitions": {}, "unknown": "Broker: Unknown topic or partition"}}},
    ],
)
def test_topic_is_gone_however_a_file_says_so(told: dict[str, object]) -> None:
    facts = facts_from_json(told)
    assert facts.topics == {"t": TopicFacts(exists=False)}
    assert (facts.missing_topics, facts.exists("t"), facts.unknowns) == (("t",), False, {})


@pytest.mark.parametrize(
    ("facts", "exists"),
    [
        (KafkaFacts("b", 1), False),
        (KafkaFacts("b", 1, unknown="no answer"), None),
        (KafkaFacts("b", 1, {"u": TopicFacts(partitions={0: PartitionFacts()})}), None),
        (KafkaFacts("b", 1, {"t": TopicFacts(exists=None)}), None),
        (KafkaFacts("b", 1, {"t": TopicFacts(unknown="not authorized")}), None),
        (KafkaFacts("b", 1, {"t": TopicFacts()}), False),
        (KafkaFacts("b", 1, {"t": TopicFacts(partitions={0: PartitionFacts()})}), True),
    ],
)
def test_whether_a_topic_exists_is_known_or_not(facts: KafkaFacts, exists: bool | None) -> None:
    assert facts.exists("t") is exists


def test_earliest_and_latest_are_what_the_cluster_says() -> None:
    facts = KafkaFacts("b", 1, {"t": TopicFacts(partitions={0: PartitionFacts(3, 9), 1: PartitionFacts(3, 9)})})
    assert resolve_offsets({"t": {0: -2, 1: -1, 2: -2}, "u": {0: -1}}, facts) == {
        "t": {0: 3, 1: 9, 2: -2},
        "u": {0: -1},
    }
    assert resolve_offsets({"t": {0: 5}}, facts) == {"t": {0: 5}}


def test_files_without_the_later_keys_are_read() -> None:
    facts = facts_from_json(OLD)
    topics = {"t": TopicFacts("x", {0: PartitionFacts(1, 2)})}
    assert facts == KafkaFacts("broker:9092", 5, topics, topic_ids_before={"t": "y"})
    assert facts.topics["t"].is_compacted is None
    assert facts.topics["t"].config_number("retention.ms") is None


def test_what_plain_facts_have_not_stands_not_in_their_json() -> None:
    plain = {key: OLD[key] for key in ("bootstrap", "captured_at_ms", "topics")}
    assert facts_from_json(plain).to_json() == plain


def test_offsets_leave_out_what_is_unknown() -> None:
    assert FACTS.earliest == {"orders": {0: 20, 1: 0}}
    assert FACTS.latest == {"orders": {0: 25}}


def test_every_unknown_part_says_why() -> None:
    assert FACTS.unknowns == {
        "orders/1": "latest: no answer in time",
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
        ({"topics": {"t": {"gone": "yes"}}}, "gone of topic t"),
        ({"gone": "t"}, "gone"),
        ({"gone": [7]}, "gone"),
        ({"topics": {"t": {"partitions": {"0": {}}}}, "gone": ["t"]}, "topic t"),
        ({"topics": {"t": {"exists": False, "partitions": {"0": {}}}}}, "topic t"),
        ({"first_at": {"-1": {}}}, "a key of first_at"),
        ({"captured_at_ms": True}, "captured_at_ms of the facts"),
    ],
)
def test_other_shapes_are_refused_by_name(facts: object, subject: str) -> None:
    with pytest.raises(KafkaFactsError) as raised:
        facts_from_json(facts)
    assert raised.value.subject == subject


FIRST_AFTER = "first_offset_with_timestamp_after_batch_2"


@pytest.mark.parametrize("found", [{"0": 7, "1": -1, "2": None}, {"t": {"0": 7, "1": {}, "2": {"unknown": "x"}}}])
def test_first_offsets_after_a_batch_are_read_with_and_without_the_name_of_the_topic(found: object) -> None:
    records = facts_from_json({**OLD, FIRST_AFTER: found}).first_after_batch[2]["t"]
    assert (records[0], records[1]) == (FoundRecord(7), FoundRecord())
    assert records[2].offset is None
    assert records[2].unknown is not None


def test_what_is_said_of_each_of_several_topics_has_its_name() -> None:
    topics = {"a": {}, "b": {}}
    facts = facts_from_json(
        {
            "topics": topics,
            "topic_id_when_the_checkpoint_was_written": {"a": "x", "b": "y"},
            FIRST_AFTER: {"a": {"0": 1}, "b": {"0": 2}},
        }
    )
    assert facts.topic_ids_before == {"a": "x", "b": "y"}
    assert facts.first_after_batch == {2: {"a": {0: FoundRecord(1)}, "b": {0: FoundRecord(2)}}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topic_id_when_the_checkpoint_was_written", "x"),
        ("topic_id_when_the_checkpoint_was_written", {"a": 1}),
        (FIRST_AFTER, {"0": 1}),
        (FIRST_AFTER, {"a": 5, "b": {"0": 1}}),
        ("first_offset_with_timestamp_after_batch_x", {}),
    ],
)
def test_what_could_be_meant_of_several_topics_is_refused(key: str, value: object) -> None:
    with pytest.raises(KafkaFactsError):
        facts_from_json({"topics": {"a": {}, "b": {}}, key: value})


def test_what_is_said_of_a_topic_that_is_not_told_of_is_no_error() -> None:
    said = {"topics": {}, "topic_id_when_the_checkpoint_was_written": "x", FIRST_AFTER: {"0": 1}}
    assert facts_from_json(said) == KafkaFacts("", 0, first_after_batch={2: {}})
