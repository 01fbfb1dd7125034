from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.asked import Asked
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.rules_kafka import CONDITIONS, find_kafka
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts, TopicFacts
from lastgood.sources.kafka.ranges import Offsets
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

INFO, WARNING, ERROR = Severity


@dataclass(frozen=True)
class Topics:
    """A Kafka source whose batches end where the test says."""

    ends: Sequence[Offsets]
    began: Offsets | None = field(default_factory=lambda: {"t": {0: 0}})
    per_batch: int = 1

    def end(self, ends: Sequence[int]) -> KafkaOffset:
        return KafkaOffset(self.ends[len(ends) - 1])

    def log(self, ends: Sequence[int]) -> tuple[str, bytes] | None:
        if len(ends) > 1 or self.began is None:
            return None
        return "0", InitialOffset(KafkaOffset(self.began), has_nul=True).to_bytes()


def query(folder: Path, *ends: Offsets, committed: int, began: Offsets | None = None) -> CheckpointBuilder:
    """Batches that end at `ends`, of which so many are committed."""
    builder = CheckpointBuilder(folder, Topics(ends, began or {"t": {0: 0}}))
    for number in range(len(ends)):
        builder.plan()
        if number < committed:
            builder.commit()
    return builder


def broker(**partitions: dict[int, tuple[int, int]]) -> KafkaFacts:
    topics = {
        name: TopicFacts(partitions={p: PartitionFacts(*bounds) for p, bounds in parts.items()})
        for name, parts in partitions.items()
    }
    return KafkaFacts("broker:9092", 1, topics)


def observed(folder: Path, kafka: KafkaFacts | None = None, **others: Any) -> Observation:
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(folder)))
    asked = Asked("/lake/my orders", () if kafka is None else ("--kafka", "broker:9092"))
    return Observation(checkpoint, location="/lake/my orders", asked=asked, kafka=kafka, **others)


def find(folder: Path, kafka: KafkaFacts | None = None, **others: Any) -> list[Finding]:
    found = observed(folder, kafka, **others)
    return list(find_kafka(found, predict(found, SPARK_4_2)))


def told(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(finding.condition.name, finding.severity) for finding in findings]


def one(findings: list[Finding], condition: str) -> Finding:
    (found,) = [finding for finding in findings if finding.condition.name == condition]
    return found


def test_query_whose_topic_still_has_what_is_unread_is_healthy(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 10}}, {"t": {0: 20}}, committed=2)
    assert find(tmp_path, broker(t={0: (0, 30)})) == []
    assert find(tmp_path) == []


def test_batch_that_runs_again_is_no_fault_while_its_range_is_there(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 10}}, {"t": {0: 20}}, committed=1)
    assert find(tmp_path, broker(t={0: (10, 20)})) == []


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_broker_that_does_not_answer_is_said_once(tmp_path: Path, fail_on_data_loss: bool) -> None:
    query(tmp_path, {"t": {0: 10}}, committed=1)
    silent = KafkaFacts("broker:9092", 1, unknown="timed out")
    (found,) = find(tmp_path, silent, fail_on_data_loss=fail_on_data_loss)
    assert (found.condition.name, found.severity, found.evidence["because"]) == ("SOURCE_UNKNOWN", WARNING, "timed out")
    assert found.next == "lastgood status '/lake/my orders' --kafka broker:9092"


# --- the first batch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "error", "leaves_orphan"),
    [
        ((3, 30), "Could not read records in offset [", True),
        ((0, -1), "", False),
        ((0, 30), None, False),
    ],
)
def test_first_batch_fails_where_what_it_begins_with_is_gone_and_without_the_option_starts(
    tmp_path: Path, bounds: tuple[int, int], error: str | None, leaves_orphan: bool
) -> None:
    query(tmp_path, {"t": {0: 10}}, committed=0)
    (tmp_path / "offsets/0").unlink()
    facts = broker(t={0: bounds}) if bounds[1] >= 0 else KafkaFacts("broker:9092", 1, {"t": TopicFacts(exists=False)})
    strict = predict(observed(tmp_path, facts), SPARK_4_2)
    assert (strict.outcome is Outcome.STARTS, strict.leaves_orphan) == (error is None, leaves_orphan)
    assert (strict.error or "").startswith(error or "")
    if bounds[1] >= 0:
        assert predict(observed(tmp_path, facts, fail_on_data_loss=False), SPARK_4_2).outcome is Outcome.STARTS


def test_first_batch_without_its_beginning_would_resolve_starting_offsets_again(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 10}}, committed=0)
    (tmp_path / "sources/0/0").unlink()
    (found,) = find(tmp_path)
    assert (found.condition.name, found.severity) == ("SOURCE_INITIAL_OFFSETS_LOST", ERROR)
    assert found.subject == "sources/0/0"


def test_beginning_that_cannot_be_read_is_as_good_as_lost(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 10}}, committed=0)
    (tmp_path / "sources/0/0").write_bytes(b'\0v1\n{"t":')
    assert told(find(tmp_path)) == [("SOURCE_INITIAL_OFFSETS_LOST", ERROR)]


def test_beginning_matters_no_more_once_the_first_batch_is_committed(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 10}}, committed=1)
    (tmp_path / "sources/0/0").unlink()
    assert find(tmp_path) == []


def test_wrong_starting_offsets_are_pinned_by_the_first_plan(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 30}}, committed=0, began={"t": {0: 100}})
    found = one(find(tmp_path), "ORPHAN_UNREPLAYABLE")
    assert found.evidence["went_back"] == {"t": {"0": [[30, 100]]}}
    assert "Another startingOffsets changes nothing while sources/0/0 is there." in found.effect


# --- offsets that are no position -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("earliest", "severity"), [(0, INFO), (5, WARNING)])
def test_earliest_in_a_committed_plan_reads_again_and_may_leave_out_what_is_deleted(
    tmp_path: Path, earliest: int, severity: Severity
) -> None:
    query(tmp_path, {"t": {0: 10}}, {"t": {0: -2}}, committed=2)
    (found,) = find(tmp_path, broker(t={0: (earliest, 30)}))
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_OFFSET_NEGATIVE", severity, "offsets/1")


def test_batch_that_begins_and_ends_at_the_earliest_reads_nothing_and_fails_at_nothing(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: -2}}, {"t": {0: -2}}, committed=1)
    assert [
        each.severity
        for each in find(tmp_path, broker(t={0: (0, 30)}))
        if each.condition.name == "SOURCE_OFFSET_NEGATIVE"
    ] == [INFO]


@pytest.mark.parametrize(("offset", "shown"), [(-1, "latest"), (-3, -3)])
def test_other_negative_offsets_fail_at_every_start(tmp_path: Path, offset: int, shown: int | str) -> None:
    query(tmp_path, {"t": {0: offset, 1: -2}}, committed=1)
    (found,) = find(tmp_path, broker(t={0: (0, 30), 1: (0, 30)}))
    assert (found.condition.name, found.severity) == ("SOURCE_OFFSET_NEGATIVE", ERROR)
    assert found.evidence["start"] == {"t": {"0": shown, "1": "earliest"}}


def test_negative_end_of_a_planned_batch_is_named_where_it_stands(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 10}}, {"t": {0: -2}}, committed=1)
    found = one(find(tmp_path), "SOURCE_OFFSET_NEGATIVE")
    assert (found.severity, found.subject) == (ERROR, "offsets/1")


# --- a batch that cannot run again ------------------------------------------------------------------------------------


def test_plan_that_ends_before_it_begins_fails_for_ever(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 15}}, {"t": {0: 5}}, committed=1)
    found = one(find(tmp_path), "ORPHAN_UNREPLAYABLE")
    assert (found.severity, found.subject) == (ERROR, "offsets/1")
    assert found.evidence["went_back"] == {"t": {"0": [[5, 15]]}}
    assert "Every start fails at it with the same message" in found.effect
    assert found.next == "lastgood inspect '/lake/my orders' --batch 1"


def test_plan_that_leaves_a_topic_out_outlives_the_change_of_the_subscription(tmp_path: Path) -> None:
    began = {"a": {0: 0}, "b": {0: 0}}
    query(tmp_path, {"a": {0: 5}, "b": {0: 5}}, {"a": {0: 8}}, committed=1, began=began)
    found = one(find(tmp_path, broker(a={0: (0, 9)}, b={0: (0, 9)})), "ORPHAN_UNREPLAYABLE")
    assert found.evidence["missing"] == {"b": {"0": 5}}


def test_plan_over_deleted_records_is_both_unreplayable_and_lost(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 15}}, {"t": {0: 20}}, committed=1)
    found = find(tmp_path, broker(t={0: (22, 30)}))
    assert one(found, "ORPHAN_UNREPLAYABLE").evidence["expired"] == {"t": {"0": [[15, 20]]}}
    assert one(found, "SOURCE_RANGE_EXPIRED").evidence["lost"] == {"t": {"0": [[15, 22]]}}


def test_plan_over_deleted_records_that_the_sink_holds_has_lost_none_of_them(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 15}}, {"t": {0: 20}}, committed=1)
    sink = SinkEvidence("delta", "/t", DedupeKey.QUERY_ID, 1, known=True, because="x", skips_up_to=1)
    shown = (CommittedBatch(1, committed_at_ms=4_000_000_000_000),)
    found = find(tmp_path, broker(t={0: (20, 30)}), sinks=(replace(sink, batches=shown),))
    assert told(found) == [("ORPHAN_UNREPLAYABLE", INFO)]
    assert "The sinks have it and drop it unread" in found[0].effect
    older = find(
        tmp_path, broker(t={0: (20, 30)}), sinks=(replace(sink, batches=(CommittedBatch(1, committed_at_ms=1),)),)
    )
    assert ("SOURCE_RANGE_EXPIRED", ERROR) in told(older)


def test_plan_that_ends_above_its_partition_cannot_run(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 15}}, {"t": {0: 20}}, committed=1)
    found = one(find(tmp_path, broker(t={0: (0, 17)})), "ORPHAN_UNREPLAYABLE")
    assert found.evidence["beyond_end"] == {"t": {"0": [[17, 20]]}}


def test_plan_with_a_new_partition_fails_once_its_first_records_are_gone(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 15}}, {"t": {0: 20, 1: 9}}, committed=1)
    found = one(find(tmp_path, broker(t={0: (0, 30), 1: (4, 9)})), "ORPHAN_UNREPLAYABLE")
    assert found.evidence["starts_late"] == {"t": {"1": [[0, 4]]}}
    assert find(tmp_path, broker(t={0: (0, 30), 1: (0, 9)})) == []


def test_plan_over_a_partition_that_is_gone_cannot_run(tmp_path: Path) -> None:
    began = {"t": {0: 0, 1: 0}}
    query(tmp_path, {"t": {0: 5, 1: 5}}, {"t": {0: 8, 1: 8}}, committed=1, began=began)
    found = find(tmp_path, broker(t={0: (0, 9)}))
    assert one(found, "ORPHAN_UNREPLAYABLE").evidence["gone"] == {"t": {"1": [[5, 8]]}}
    assert one(found, "SOURCE_PARTITIONS_GONE").severity is ERROR


def test_unreplayable_plan_is_silent_loss_without_fail_on_data_loss(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 15}}, {"t": {0: 20}}, committed=1)
    found = one(find(tmp_path, broker(t={0: (18, 30)}), fail_on_data_loss=False), "ORPHAN_UNREPLAYABLE")
    assert found.severity is ERROR
    assert "lost without a word" in found.effect


def test_plan_far_larger_than_those_before_it_is_not_made_smaller_by_a_limit(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 5}}, {"t": {0: 10}}, {"t": {0: 410}}, committed=2)
    found = one(find(tmp_path, broker(t={0: (0, 410)})), "ORPHAN_LARGE")
    assert (found.severity, found.evidence["offsets"], found.evidence["largest_before"]) == (INFO, 400, 5)


# --- what committed batches left out --------------------------------------------------------------------------------


def test_committed_batch_without_a_topic_has_forgotten_where_it_stood(tmp_path: Path) -> None:
    began = {"a": {0: 0}, "b": {0: 0}}
    query(tmp_path, {"a": {0: 5}, "b": {0: 6}}, {"a": {0: 8}}, committed=2, began=began)
    (found,) = find(tmp_path)
    assert (found.condition.name, found.severity) == ("SOURCE_SUBSCRIPTION_CHANGED", WARNING)
    assert found.evidence["left_at"] == {"b": {"0": 6}}
    assert found.next == "lastgood offsets '/lake/my orders' --batch 0"


def test_committed_batch_without_a_partition_has_lost_it(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 5, 1: 6}}, {"t": {0: 8}}, committed=2, began={"t": {0: 0, 1: 0}})
    assert told(find(tmp_path)) == [("SOURCE_PARTITIONS_GONE", WARNING)]


def test_topic_that_came_back_was_read_again_from_its_beginning(tmp_path: Path) -> None:
    ends = ({"a": {0: 5}, "b": {0: 6}}, {"a": {0: 8}}, {"a": {0: 9}, "b": {0: 10}})
    query(tmp_path, *ends, committed=3, began={"a": {0: 0}, "b": {0: 0}})
    found = find(tmp_path)
    assert told(found) == [("SOURCE_SUBSCRIPTION_CHANGED", WARNING)] * 2
    assert found[1].evidence["read_twice_at_most"] == {"b": {"0": [[0, 6]]}}


def test_topic_that_was_added_is_only_told(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 5}}, {"t": {0: 8}, "u": {0: 4}}, committed=2)
    assert told(find(tmp_path)) == [("SOURCE_SUBSCRIPTION_CHANGED", INFO)]


def test_each_source_of_a_union_is_judged_by_itself(tmp_path: Path) -> None:
    query(tmp_path, {"t": {0: 5}}, committed=1)
    entry = tmp_path / "offsets/0"
    entry.write_bytes(entry.read_bytes() + b'\n{"t":{"0":9}}')
    found = find(tmp_path, broker(t={0: (7, 20)}))
    assert [(each.condition.name, each.evidence["source"]) for each in found] == [("SOURCE_RANGE_EXPIRED", "0")]


def test_conditions_have_names_of_their_own_and_stories() -> None:
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)
    assert all(len(condition.story) > 200 and "." not in condition.title[-1] for condition in CONDITIONS)
