from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.asked import Asked
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.rules_kafka import find_kafka
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts, TopicFacts
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, KafkaInput

INFO, WARNING, ERROR = Severity
OLD, NEW = "4JsV+tHNSU+gPfgSpzeUDQ", "nDEnP2/uQAmNBGp3x9TKJA"
ASKED = Asked("/chk", ("--kafka", "broker:9092"))
BATCH_2_MS = STARTED_MS + 2000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three committed batches: `orders-0` and `orders-1` are read up to 15."""
    CheckpointBuilder(tmp_path, KafkaInput("orders", 2, 5)).run(3)
    return tmp_path


def topic(bounds: Mapping[int, tuple[int | None, int | None]], **others: Any) -> TopicFacts:
    return TopicFacts(partitions={p: PartitionFacts(*each) for p, each in bounds.items()}, **others)


def facts(orders: TopicFacts, **others: Any) -> KafkaFacts:
    return KafkaFacts("broker:9092", 1, {"orders": orders}, **others)


WHOLE = topic({0: (0, 30), 1: (0, 30)})


def find(folder: Path, kafka: KafkaFacts, **others: Any) -> list[Finding]:
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(folder)))
    observed = Observation(checkpoint, location="/chk", asked=ASKED, kafka=kafka, **others)
    return list(find_kafka(observed, predict(observed, SPARK_4_2)))


def told(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(finding.condition.name, finding.severity) for finding in findings]


def one(findings: list[Finding], condition: str) -> Finding:
    (found,) = [finding for finding in findings if finding.condition.name == condition]
    return found


# --- what is deleted ----------------------------------------------------------------------------------------------


def test_unread_records_that_are_deleted_are_an_error_with_their_exact_range(folder: Path) -> None:
    (found,) = find(folder, facts(topic({0: (20, 25), 1: (15, 25)})))
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_RANGE_EXPIRED", ERROR, "orders-0")
    assert found.evidence["lost"] == {"orders": {"0": [[15, 20]]}}
    assert "its plan stays behind" in found.effect
    assert found.next == "lastgood status /chk --kafka broker:9092"


def test_deleted_records_are_skipped_without_a_word_if_the_option_says_so(folder: Path) -> None:
    (found,) = find(folder, facts(topic({0: (25, 25), 1: (0, 25)})), fail_on_data_loss=False)
    assert (found.severity, found.evidence["lost"]) == (ERROR, {"orders": {"0": [[15, 25]]}})
    assert "skipped without a word" in found.effect


def test_partition_that_ends_below_the_position_goes_back(folder: Path) -> None:
    same = topic({0: (0, 12), 1: (0, 25)}, topic_id=OLD)
    (found,) = find(folder, facts(same), topic_ids={"orders": OLD})
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_OFFSET_WENT_BACK", ERROR, "orders-0")
    assert found.evidence["above_end"] == {"orders": {"0": [[12, 15]]}}


# --- another topic ------------------------------------------------------------------------------------------------


def test_other_id_proves_another_topic_though_nothing_fails(folder: Path) -> None:
    (found,) = find(folder, facts(replace(WHOLE, topic_id=NEW)), topic_ids={"orders": OLD})
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_TOPIC_RECREATED", ERROR, "orders")
    assert found.evidence["never_read"] == {"orders": {"0": [[0, 15]], "1": [[0, 15]]}}
    assert "whatever failOnDataLoss says" in found.effect
    assert found.next == "kafka-topics.sh --bootstrap-server broker:9092 --describe --topic orders"


def test_id_that_stands_beside_the_facts_proves_it_as_well(folder: Path) -> None:
    other = facts(replace(WHOLE, topic_id=NEW), topic_ids_before={"orders": OLD})
    assert told(find(folder, other)) == [("SOURCE_TOPIC_RECREATED", ERROR)]


def test_deleted_offsets_of_another_topic_say_nothing_of_what_was_unread(folder: Path) -> None:
    other = facts(topic({0: (20, 30), 1: (20, 30)}, topic_id=NEW), topic_ids_before={"orders": OLD})
    assert told(find(folder, other)) == [("SOURCE_TOPIC_RECREATED", ERROR)]


def test_topic_that_ends_below_what_was_read_was_created_again_or_cut(folder: Path) -> None:
    found = find(folder, facts(topic({0: (0, 5), 1: (0, 5)})))
    assert told(found) == [("SOURCE_TOPIC_RECREATED", ERROR), ("SOURCE_OFFSET_WENT_BACK", ERROR)]
    assert found[0].evidence["never_read"] == {"orders": {"0": [[0, 5]], "1": [[0, 5]]}}


def test_younger_records_below_the_position_are_a_hint_and_no_proof(folder: Path) -> None:
    after = {2: {"orders": {0: FoundRecord(0), 1: FoundRecord(0)}}}
    assert told(find(folder, facts(WHOLE, first_after_batch=after))) == [("SOURCE_TOPIC_RECREATED", WARNING)]


def test_times_are_asked_for_just_after_the_newest_batch(folder: Path) -> None:
    late = FoundRecord(3, BATCH_2_MS + 3_600_000)
    found = find(folder, facts(WHOLE, first_at={BATCH_2_MS + 1: {"orders": {0: late, 1: FoundRecord(15)}}}))
    assert told(found) == [("SOURCE_TOPIC_RECREATED", WARNING)]
    assert found[0].evidence["partitions"] == [0]


@pytest.mark.parametrize("offset", [15, None])
def test_healthy_topic_has_nothing_younger_below_the_position(folder: Path, offset: int | None) -> None:
    record = FoundRecord(offset, BATCH_2_MS + 10)
    assert find(folder, facts(WHOLE, first_at={BATCH_2_MS + 1: {"orders": {0: record, 1: record}}})) == []


def test_clocks_that_differ_a_little_are_no_alarm(folder: Path) -> None:
    record = FoundRecord(14, BATCH_2_MS + 300)
    found = find(folder, facts(WHOLE, first_at={BATCH_2_MS + 1: {"orders": {0: record, 1: record}}}))
    assert told(found) == [("SOURCE_TOPIC_RECREATED", INFO)]


def test_same_id_outweighs_what_times_seem_to_tell(folder: Path) -> None:
    after = {2: {"orders": {0: FoundRecord(0), 1: FoundRecord(0)}}}
    same = facts(replace(WHOLE, topic_id=OLD), first_after_batch=after)
    assert find(folder, same, topic_ids={"orders": OLD}) == []


# --- what does not exist ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gone",
    [TopicFacts(exists=False), TopicFacts(exists=False, unknown="Unknown topic or partition"), TopicFacts()],
)
def test_topic_that_does_not_exist_keeps_the_query_from_starting(folder: Path, gone: TopicFacts) -> None:
    (found,) = find(folder, facts(gone))
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_TOPIC_GONE", ERROR, "orders")
    assert found.evidence["unread_from"] == {"orders": {"0": 15, "1": 15}}
    assert "whatever failOnDataLoss says" in found.effect


def test_topic_of_a_pattern_that_is_gone_counts_as_deleted_partitions(folder: Path) -> None:
    others = KafkaFacts("broker:9092", 1, {"orders": TopicFacts(exists=False), "orders.eu": WHOLE})
    (found,) = find(folder, others, is_pattern=True)
    assert "plans a batch and then fails" in found.effect
    (silent,) = find(folder, others, is_pattern=True, fail_on_data_loss=False)
    assert "forgets where it stood" in silent.effect


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_pattern_that_matches_no_topic_any_more_reads_nothing_and_says_nothing(
    folder: Path, fail_on_data_loss: bool
) -> None:
    gone = facts(TopicFacts(exists=False))
    (found,) = find(folder, gone, is_pattern=True, fail_on_data_loss=fail_on_data_loss)
    assert (found.condition.name, found.severity) == ("SOURCE_TOPIC_GONE", ERROR)
    assert found.effect.startswith("The query starts and reads nothing of it, without an error")


def test_what_becomes_of_the_query_is_told_for_each_way_to_subscribe(folder: Path) -> None:
    gone = KafkaFacts("broker:9092", 1, {"orders": TopicFacts(exists=False), "orders.eu": WHOLE})
    (either,) = find(folder, gone, fail_on_data_loss=False)
    assert either.effect.startswith("Subscribed by name, the query cannot start, whatever failOnDataLoss says")
    assert "By a pattern: its partitions count as deleted: Spark goes on and forgets" in either.effect
    (named,) = find(folder, gone, is_by_name=True)
    assert named.effect == "The query cannot start, whatever failOnDataLoss says, and what was unread in it is lost."
    (folder / "commits/2").unlink()
    planned = one(find(folder, gone, is_by_name=True), "SOURCE_TOPIC_GONE")
    assert planned.effect.startswith("No batch after 2 can be planned")


def test_facts_that_leave_a_topic_out_do_not_prove_that_it_is_gone(folder: Path) -> None:
    others = KafkaFacts("broker:9092", 1, {"clicks": WHOLE})
    assert told(find(folder, others)) == [("SOURCE_TOPIC_GONE", WARNING)]
    assert told(find(folder, KafkaFacts("broker:9092", 1))) == [("SOURCE_TOPIC_GONE", ERROR)]


def test_partition_that_is_gone_can_only_come_from_another_topic(folder: Path) -> None:
    found = find(folder, facts(topic({0: (0, 30)})))
    assert told(found) == [("SOURCE_TOPIC_RECREATED", WARNING), ("SOURCE_PARTITIONS_GONE", ERROR)]
    assert one(found, "SOURCE_PARTITIONS_GONE").evidence["unread_from"] == {"orders": {"1": 15}}


# --- what is new --------------------------------------------------------------------------------------------------


def test_new_partitions_are_read_from_their_beginning(folder: Path) -> None:
    (found,) = find(folder, facts(topic({0: (0, 30), 1: (0, 30), 2: (0, 6), 3: (0, 0)})))
    assert (found.condition.name, found.severity, found.subject) == (
        "SOURCE_PARTITIONS_ADDED",
        INFO,
        "orders-2, orders-3",
    )


def test_new_partition_whose_first_records_are_gone_fails(folder: Path) -> None:
    (found,) = find(folder, facts(topic({0: (0, 30), 1: (0, 30), 2: (4, 6)})))
    assert (found.condition.name, found.severity) == ("SOURCE_PARTITION_STARTS_LATE", ERROR)
    assert found.evidence["lost"] == {"orders": {"2": [[0, 4]]}}


# --- what is not known, and what numbers do not tell --------------------------------------------------------------


def test_topic_that_may_not_be_looked_at_is_unknown(folder: Path) -> None:
    (found,) = find(folder, facts(TopicFacts(exists=None, unknown="not authorized")))
    assert (found.condition.name, found.subject, found.evidence["because"]) == (
        "SOURCE_UNKNOWN",
        "orders",
        "not authorized",
    )


def test_partition_without_a_leader_is_unknown_and_the_others_are_judged(folder: Path) -> None:
    found = find(folder, facts(topic({0: (None, None), 1: (20, 30)})))
    assert told(found) == [("SOURCE_UNKNOWN", WARNING), ("SOURCE_RANGE_EXPIRED", ERROR)]
    assert found[0].subject == "orders-0"


def test_compacted_topic_and_open_transaction_are_only_told(folder: Path) -> None:
    held = TopicFacts(
        partitions={0: PartitionFacts(0, 30, 28), 1: PartitionFacts(0, 30, 30)}, config={"cleanup.policy": "compact"}
    )
    found = find(folder, facts(held))
    assert told(found) == [("SOURCE_TOPIC_COMPACTED", INFO), ("SOURCE_TRANSACTION_OPEN", INFO)]
    assert found[1].evidence["held_back"] == {"orders": {"0": [[28, 30]]}}


def test_many_partitions_do_not_make_a_sentence_without_end(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path, KafkaInput("orders", 100, 5)).run(3)
    (found,) = find(tmp_path, facts(topic(dict.fromkeys(range(100), (20, 30)))))
    assert found.subject.endswith("and 96 more")
    assert len(found.evidence["lost"]["orders"]) == 100
