from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lastgood.checkpoint.contents import Checkpoint, Mode, Presence
from lastgood.checkpoint.logs import BatchIds, BatchLog, LogListing
from lastgood.query.agreement import SinkStanding, sink_standing
from lastgood.query.kafka import Exposure, Losing, Reading, exposure_of
from lastgood.query.sinks import Agreement, sink_views
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, unknown_evidence
from lastgood.sources.kafka_facts import FoundRecord, KafkaFacts, PartitionFacts, TopicFacts
from lastgood.sources.kafka_retention import HeadroomKind, ReadUpTo, TopicIdentity

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
    return exposure_of(reading, found, now_ms=NOW, **more)


def standing(sink: SinkEvidence, planned: int | None, committed: int | None) -> SinkStanding:
    """What is said of it, of a query without state whose batches read who knows what."""
    (view,) = sink_views(logs(planned, committed), [sink], is_stateful=False)
    return sink_standing(view)


def logs(planned: int | None, committed: int | None) -> Checkpoint:
    """Of these the newest batches are known, and nothing else."""
    newest = {"offsets": planned, "commits": committed}
    ids = {name: BatchIds.of(() if last is None else range(last + 1)) for name, last in newest.items()}
    offsets, commits = (BatchLog(name, LogListing(exists=True, ids=each), {}) for name, each in ids.items())
    return Checkpoint(
        location="/chk",
        presence=Presence.PRESENT,
        mode=Mode.MICRO_BATCH,
        query=None,
        offsets=offsets,
        commits=commits,
        sources=(),
        state=None,
    )


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
    assert judge(whole, recorded_ids={"orders": "new"}).losing is Losing.NO
    found = judge(whole, recorded_ids={"orders": "old"})
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


# --- sinks --------------------------------------------------------------------------------------------------------


def sink(last: int | None, *, skips: int | None = None, key: DedupeKey = DedupeKey.QUERY_ID) -> SinkEvidence:
    batches = tuple(CommittedBatch(each, each) for each in range(-1 if last is None else last + 1))
    return SinkEvidence("delta", "/t", key, last, known=True, because="seen", skips_up_to=skips, batches=batches)


@pytest.mark.parametrize(
    ("last", "skips", "planned", "committed", "agreement", "drops"),
    [
        (5, 5, 5, 5, Agreement.AGREES, None),
        (5, 5, 6, 5, Agreement.AGREES, None),  # the orphan is not in it yet
        (6, 6, 6, 5, Agreement.AGREES, None),  # it is: run again with the same ranges, nothing is added
        (None, None, None, None, Agreement.AGREES, None),
        (None, None, 0, None, Agreement.AGREES, None),
        (0, 0, 0, None, Agreement.AGREES, None),
        (7, 7, 5, 5, Agreement.AHEAD, (6, 7)),  # an older checkpoint was put back
        (7, 7, 6, 5, Agreement.AHEAD, (7, 7)),
        (3, 3, 5, 5, Agreement.BEHIND, None),  # taken back with its marker
        (3, 5, 5, 5, Agreement.BEHIND, None),
        (3, 9, 5, 5, Agreement.BEHIND, (6, 9)),  # RESTOREd, and the marker left high
        (5, 6, 6, 5, Agreement.AGREES, (6, 6)),  # the orphan would be dropped, and is not shown
        (None, None, 5, 5, Agreement.NONE, None),
        (None, 8, 5, 5, Agreement.NONE, (6, 8)),
        (5, 5, None, 5, Agreement.AGREES, None),  # the offset log is lost
    ],
)
def test_a_sink_is_held_against_what_is_planned_and_committed(
    last: int | None,
    skips: int | None,
    planned: int | None,
    committed: int | None,
    agreement: Agreement,
    drops: tuple[int, int] | None,
) -> None:
    found = standing(sink(last, skips=skips), planned, committed)
    assert (found.agreement, found.would_drop) == (agreement, drops)


def test_a_sink_that_did_not_answer_is_unknown() -> None:
    found = standing(unknown_evidence("delta", "/t", DedupeKey.QUERY_ID, "denied"), 1, 1)
    assert (found.agreement, found.sentence) == (Agreement.UNKNOWN, "unknown, because denied")


@pytest.mark.parametrize(
    ("mark", "planned", "drops"),
    [(7, 5, (6, 7)), (7, 6, (7, 7)), (6, 6, None), (5, 5, None), (4, 5, None), (None, 5, None)],
)
def test_a_mark_that_may_not_be_the_last_counts_as_far_as_it_is_seen(
    mark: int | None, planned: int, drops: tuple[int, int] | None
) -> None:
    untold = unknown_evidence("delta", "/t", DedupeKey.QUERY_ID, "a catalog")
    found = standing(replace(untold, skips_up_to=mark), planned, 5)
    assert (found.agreement, found.would_drop) == (Agreement.UNKNOWN, drops)
    assert ("may be dropped without a word" in found.sentence) is (drops is not None)


def test_what_is_so_is_said_in_one_line() -> None:
    def said(last: int | None, skips: int | None, planned: int, committed: int) -> str:
        return standing(sink(last, skips=skips), planned, committed).sentence

    assert said(5, 5, 5, 5) == "agrees: its newest is batch 5"
    assert (
        said(6, 6, 6, 5)
        == "agrees: its newest is batch 6, which is planned and not committed: run again, it adds nothing"
    )
    assert said(7, 7, 5, 5) == (
        "ahead: holds batches 6 to 7, which the checkpoint does not know;"
        " batches 6 to 7 of the query would be dropped without a word"
    )
    assert said(4, 4, 5, 5) == "behind: batch 5 committed, and not in it"
    assert said(None, None, 5, 5) == "shows no batch of this query: seen"


def test_the_json_of_a_sink_says_all_of_it() -> None:
    told = standing(sink(7, skips=7), 5, 5).to_json()
    assert told["agreement"] == "ahead"
    assert (told["location"], told["kind"], told["last_batch"], told["would_drop"]) == ("/t", "delta", 7, [6, 7])
    assert (told["known"], told["skips_up_to"], told["holes"], told["notes"]) == (True, 7, [], [])
