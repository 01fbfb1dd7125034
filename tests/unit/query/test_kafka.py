from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lastgood.query.kafka import Exposure, Losing, Reading, judge_exposure
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts, TopicFacts
from lastgood.sources.kafka.retention import HeadroomKind, ReadUpTo, TopicIdentity

HOUR_MS = 3_600_000
BATCH_MS = 1_000_000_000
NOW = BATCH_MS + 10 * HOUR_MS
READ = {"orders": (ReadUpTo(BATCH_MS, {0: 15, 1: 15}),)}
READING = Reading(("orders",), {"orders": {0: 15, 1: 15}}, BATCH_MS, READ, (BATCH_MS + 1,))
SETTINGS = {"cleanup.policy": "delete", "retention.ms": str(24 * HOUR_MS), "retention.bytes": "-1"}
NOTHING_NEWER = {BATCH_MS + 1: {"orders": {0: FoundRecord(15, NOW), 1: FoundRecord(15, NOW)}}}


def facts(
    partitions: Mapping[int, tuple[int, int]], *, written_ms: int = NOW - HOUR_MS, topic_id: str = "id"
) -> KafkaFacts:
    topic = TopicFacts(topic_id, {each: PartitionFacts(*ends) for each, ends in partitions.items()}, SETTINGS)
    unread = {"orders": {each: FoundRecord(15, written_ms) for each in partitions}}
    return KafkaFacts("b:9092", NOW, {"orders": topic}, NOTHING_NEWER, unread)


def judge(found: KafkaFacts, reading: Reading = READING, **more: Mapping[str, str]) -> Exposure:
    return judge_exposure(reading, found, now_ms=NOW, **more)


def test_nothing_is_lost_while_kafka_has_all_that_is_unread() -> None:
    found = judge(facts({0: (0, 30), 1: (15, 20)}))
    assert (found.losing, found.problems, found.doubts) == (Losing.NO, (), ())
    assert found.unread == {"orders": {0: ((15, 30),), 1: ((15, 20),)}}
    assert found.headroom is not None
    assert (found.headroom.kind, found.headroom.ms, found.headroom_at) == (
        HeadroomKind.LIMITED,
        23 * HOUR_MS,
        ("orders", 0),
    )


def test_what_was_deleted_before_it_was_read_is_lost() -> None:
    found = judge(facts({0: (20, 25), 1: (0, 25)}))
    assert found.losing is Losing.YES
    assert found.lost == {"orders": {0: ((15, 20),)}}
    assert found.lost_after_ms == BATCH_MS
    assert found.problems == ("orders/0: offsets 15 to 19 are unread, and Kafka has deleted them",)
    assert found.unread == {"orders": {0: ((20, 25),), 1: ((15, 25),)}}
    assert found.headroom_at == ("orders", 1)  # what is lost is lost: the next loss is what can be prevented


def test_a_partition_that_kafka_no_longer_has_is_lost() -> None:
    found = judge(facts({0: (0, 30)}))
    assert (found.losing, found.gone) == (Losing.YES, {"orders": {1: 15}})
    assert found.problems == (
        "orders/1: the partition is gone, unread from offset 15 on",
        "orders: looks created again: it has fewer partitions than were read",
    )


@pytest.mark.parametrize("topics", [{"orders": TopicFacts(exists=False)}, {"orders": TopicFacts()}, {}])
def test_a_topic_that_kafka_no_longer_has_is_lost(topics: dict[str, TopicFacts]) -> None:
    found = judge(KafkaFacts("b", NOW, topics))
    assert (found.losing, found.gone) == (Losing.YES, {"orders": {0: 15, 1: 15}})


@pytest.mark.parametrize(
    ("found", "because"),
    [
        (KafkaFacts("b", NOW, unknown="no answer"), "no answer"),
        (KafkaFacts("b", NOW, {"orders": TopicFacts(exists=None, unknown="not authorized")}), "not authorized"),
        (KafkaFacts("b", NOW, {"other": TopicFacts(unknown="not asked")}), "nothing is said of topic orders"),
        (
            KafkaFacts(
                "b",
                NOW,
                {"orders": TopicFacts("id", {0: PartitionFacts(0, 30), 1: PartitionFacts(None, 30, unknown="?")})},
            ),
            "?",
        ),
    ],
)
def test_who_gave_no_answer_makes_it_unknown(found: KafkaFacts, because: str) -> None:
    judged = judge(found)
    assert (judged.losing, judged.doubts[0]) == (Losing.UNKNOWN, because)
    assert judged.to_json()["unread_offsets"] is None


def test_a_topic_that_may_be_another_one_makes_it_unknown() -> None:
    found = judge(replace(facts({0: (0, 30), 1: (0, 30)}), first_at={}))
    assert found.losing is Losing.UNKNOWN
    assert found.doubts == ("whether orders is still the topic that was read is not known: it was not asked by time",)


def test_its_id_proves_that_a_topic_is_another_one() -> None:
    whole = facts({0: (0, 30), 1: (0, 30)}, topic_id="new")
    assert judge(whole, noted_ids={"orders": "new"}).losing is Losing.NO
    found = judge(whole, noted_ids={"orders": "old"})
    assert (found.losing, found.topics["orders"].identity) == (Losing.YES, TopicIdentity.ANOTHER)
    assert found.problems == ("orders: not the topic that was read: its id was old and is new",)


def test_an_end_before_what_was_read_proves_it_too() -> None:
    found = judge(facts({0: (0, 10), 1: (0, 30)}))
    assert (found.losing, found.topics["orders"].identity) == (Losing.YES, TopicIdentity.SHORTER)


def test_newer_records_below_what_was_read_are_a_strong_hint() -> None:
    newer = {BATCH_MS + 1: {"orders": {0: FoundRecord(0, NOW), 1: FoundRecord(0, NOW)}}}
    found = judge(replace(facts({0: (0, 30), 1: (0, 30)}), first_at=newer))
    assert found.losing is Losing.MAYBE
    assert found.problems[0].startswith("orders: looks created again: ")


def test_before_the_first_commit_no_topic_can_be_another_one() -> None:
    reading = Reading(("orders",), {"orders": {0: 0, 1: 0}}, None)
    assert judge(replace(facts({0: (0, 30), 1: (0, 30)}), first_at={}), reading).losing is Losing.NO


def test_partitions_that_the_query_has_not_read_yet_are_no_lag() -> None:
    found = judge(facts({0: (0, 15), 1: (0, 15), 2: (0, 6)}))
    assert (found.unread, found.added) == ({}, {"orders": {2: ((0, 6),)}})
    assert found.headroom is not None
    assert found.headroom.kind is HeadroomKind.NOTHING_UNREAD


def test_other_topics_of_the_facts_are_not_of_this_query() -> None:
    more = facts({0: (0, 15), 1: (0, 15)})
    other = {**more.topics, "other": TopicFacts("x", {0: PartitionFacts(0, 9)}), "dark": TopicFacts(unknown="no")}
    found = judge(replace(more, topics=other))
    assert (found.losing, found.added, list(found.topics)) == (Losing.NO, {}, ["orders"])


def test_the_json_says_all_of_it() -> None:
    told = judge(facts({0: (20, 25), 1: (0, 25)})).to_json()
    assert told == {
        "bootstrap": "b:9092",
        "asked_at_ms": NOW,
        "losing": "yes",
        "lost": {"orders": {"0": [[15, 20]]}},
        "lost_after_ms": BATCH_MS,
        "gone": {},
        "unread": {"orders": {"0": [[20, 25]], "1": [[15, 25]]}},
        "unread_offsets": 15,
        "added": {},
        "topics": {
            "orders": {"identity": "same", "because": "nothing below the committed end is newer than the batch"}
        },
        "headroom": {
            "kind": "limited",
            "ms": 23 * HOUR_MS,
            "because": f"the first unread record is {HOUR_MS} ms old, retention.ms is {24 * HOUR_MS}",
            "limited_by_size": False,
            "topic": "orders",
            "partition": 1,
        },
        "unknown": [],
    }
