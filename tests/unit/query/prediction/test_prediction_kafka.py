"""What Spark makes of planned Kafka offsets that are none, or no longer there; without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from predicting import change, does, fails, line, remove, report, resumes, write

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import diagnose
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome, Restart, SinkCalled
from lastgood.query.prediction.spark_version import SPARK_3_5, SPARK_4_0, SPARK_4_2, SPARK_4_3, SparkVersion
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts, TopicFacts
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder, KafkaInput


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize(
    ("start", "error"), [(-1, "earliest offset -1 does not equal -2"), (-3, "earliest offset -3 does")]
)
def test_number_that_is_no_position_fails_in_a_task_whatever_the_option(
    tmp_path: Path, start: int, error: str, fail_on_data_loss: bool
) -> None:
    CheckpointBuilder(tmp_path, KafkaInput("orders", 2)).run(1)
    change("offsets/0", line(2, f'{{"orders":{{"0":{start},"1":5}}}}'))(tmp_path)
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(tmp_path)))
    restart = diagnose(Observation(checkpoint, fail_on_data_loss=fail_on_data_loss), SPARK_4_2).restart
    assert (restart.outcome, restart.batch, restart.leaves_orphan) == (Outcome.FAILS, 1, True)
    assert (restart.sink_called, restart.error is not None and error in restart.error) == (SinkCalled.MAYBE, True)


def test_earliest_in_a_committed_plan_is_resolved_by_the_task(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path, KafkaInput("orders", 2)).run(1)
    change("offsets/0", line(2, '{"orders":{"0":-2,"1":-2}}'))(tmp_path)
    assert does(report(tmp_path, SPARK_4_2)) == resumes(1)


def test_planned_batch_that_begins_at_no_position_fails_too(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path, KafkaInput("orders", 1))
    builder.plan()
    write("sources/0/0", '\x00v1\n{"orders":{"0":-3}}')(tmp_path)
    assert does(report(tmp_path, SPARK_4_2)) == fails("earliest offset -3 does not equal -2", 0)


_EXPECTED = 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got'


@pytest.mark.parametrize(
    ("raw", "version", "error"),
    [
        (b'2{"orders":{"0":0}}\n', SPARK_4_2, None),  # as Spark 2.1 wrote it
        (b'0v1\n{"orders":{"0":0}}', SPARK_4_2, None),
        (b'0v99999\n{"orders":{"0":0}}', SPARK_4_2, "The maximum supported log version is v1, but encountered v99999"),
        (b'0v99999\n{"orders":{"0":0}}', SPARK_3_5, "maximum supported log version is v1, but encountered v99999"),
        (b'\0v+02\n{"orders":{"0":0}}', SPARK_4_3, "The maximum supported log version is v1, but encountered v2"),
        (b'v1\n{"orders":{"0":0}}', SPARK_4_2, _EXPECTED),
        (b'v99\n{"orders":{"0":0}}', SPARK_4_2, _EXPECTED),
        (b'{"orders":{"0":0}}', SPARK_4_2, _EXPECTED),
        (b'\0v1\n{"orders', SPARK_4_2, _EXPECTED),
        (b"\0v1\n", SPARK_4_2, _EXPECTED),
        (b"\0\xff\x13garbage", SPARK_4_2, _EXPECTED),
        (b"garbage", SPARK_4_2, _EXPECTED),
        (b"\0v1", SPARK_4_2, "failed to detect the log file version line"),
        (b"\0v", SPARK_4_2, "failed to detect the log file version line"),
        (b"\0vx\n", SPARK_4_2, "failed to read correct log version from"),
        (b"\0", SPARK_4_2, "requirement failed"),
        (b"", SPARK_4_2, "requirement failed"),
        (b"", SPARK_4_0, "assertion failed"),
    ],
)
def test_where_the_first_batch_begins_is_read_as_spark_reads_it(
    tmp_path: Path, raw: bytes, version: SparkVersion, error: str | None
) -> None:
    """All but those of other versions were seen with Spark 4.2."""
    CheckpointBuilder(tmp_path, KafkaInput("orders", 1)).plan()
    (tmp_path / "sources/0/0").write_bytes(raw)
    found = report(tmp_path, version).restart
    assert found.error == error
    assert found.outcome is (Outcome.RERUNS if error is None else Outcome.FAILS)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("topic", [TopicFacts(exists=False), TopicFacts(partitions={1: PartitionFacts(0, 100)})])
def test_planned_batch_of_a_partition_that_is_gone_fails_when_its_client_gives_up(
    topic: TopicFacts, tmp_path: Path, fail_on_data_loss: bool
) -> None:
    CheckpointBuilder(tmp_path, KafkaInput("orders", 2)).run(3)
    remove("commits/2")(tmp_path)
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(tmp_path)))
    facts = KafkaFacts("broker:9092", 1, {"orders": topic})
    restart = diagnose(Observation(checkpoint, kafka=facts, fail_on_data_loss=fail_on_data_loss), SPARK_4_2).restart
    assert (restart.outcome, restart.batch) == (Outcome.FAILS, 2)
    assert restart.error == "expired before the position for partition"


@pytest.mark.parametrize(
    ("late", "is_pattern", "error"),
    [
        (TopicFacts(partitions={0: PartitionFacts(3, 9)}), True, "Added partition late-0 starts from 3 instead of 0"),
        (TopicFacts(partitions={0: PartitionFacts(3, 9)}), False, "Added partition late-0 starts from 3 instead of 0"),
        (TopicFacts(partitions={0: PartitionFacts(0, 2)}), True, "Could not read records in offset ["),
        (TopicFacts(exists=False), True, "Cannot find initial offsets"),
        (TopicFacts(exists=False), False, "This server does not host this topic-partition"),
    ],
)
def test_topic_that_is_new_with_the_planned_batch_and_is_not_what_it_was(
    tmp_path: Path, late: TopicFacts, is_pattern: bool, error: str
) -> None:
    CheckpointBuilder(tmp_path, KafkaInput("orders", 1)).run(3)
    change("offsets/2", line(2, '{"orders":{"0":15},"late":{"0":6}}'))(tmp_path)
    remove("commits/2")(tmp_path)
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(tmp_path)))
    orders = TopicFacts(partitions={0: PartitionFacts(0, 99)})
    facts = KafkaFacts("broker:9092", 1, {"orders": orders, "late": late})
    restart = diagnose(Observation(checkpoint, kafka=facts, is_pattern=is_pattern), SPARK_4_2).restart
    assert (restart.outcome, restart.batch, restart.error) == (Outcome.FAILS, 2, error)


# --- a topic that is gone -------------------------------------------------------------------------------------------

ORDERS = TopicFacts(partitions={0: PartitionFacts(0, 99)})
NO_HOST = "This server does not host this topic-partition"
BY_PATTERN = "whether topics are subscribed by a pattern (--subscribe-pattern)"


def two_topics(tmp_path: Path, kafka: KafkaFacts, *, orphan: str | None = None, **others: Any) -> Restart:
    """What becomes of a query that has read `late` and `orders`; `orphan` is its newest plan, not committed."""
    CheckpointBuilder(tmp_path, KafkaInput("orders", 1)).run(4)
    for batch in (2, 3):
        change(f"offsets/{batch}", line(2, '{"orders":{"0":15},"late":{"0":6}}'))(tmp_path)
    if orphan is not None:
        change("offsets/3", line(2, orphan))(tmp_path)
        remove("commits/3")(tmp_path)
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(tmp_path)))
    restart = diagnose(Observation(checkpoint, kafka=kafka, **others), SPARK_4_2).restart
    return replace(restart, unknowns=tuple(each for each in restart.unknowns if not _is_of_others(each)))


def _is_of_others(unknown: str) -> bool:
    """Whether it is not about what is gone: no sink was asked, and neither ids nor times of the topics are known."""
    return "--sink" in unknown or "is the topic that was read" in unknown


def told(*, late: TopicFacts | None, others: Mapping[str, TopicFacts] | None = None) -> KafkaFacts:
    topics = {"orders": ORDERS, **(others or {})}
    return KafkaFacts("broker:9092", 1, topics if late is None else {**topics, "late": late})


GONE = told(late=TopicFacts(exists=False))


def test_topic_that_is_gone_fails_either_way_and_what_differs_is_said(tmp_path: Path) -> None:
    restart = two_topics(tmp_path, GONE)
    assert (restart.outcome, restart.error, restart.leaves_orphan) == (Outcome.FAILS, NO_HOST, False)
    assert restart.unknowns == (f"{BY_PATTERN}; if so Spark 4.2 fails: have been deleted, and leaves its plan behind",)


def test_topic_that_is_gone_without_loss_of_data_being_an_error_differs_by_the_subscription(tmp_path: Path) -> None:
    restart = two_topics(tmp_path, GONE, fail_on_data_loss=False)
    assert (restart.outcome, restart.error) == (Outcome.FAILS, NO_HOST)
    assert restart.unknowns == (f"{BY_PATTERN}; if so Spark 4.2 resumes, batch 4",)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_nothing_is_unknown_where_it_is_known_how_the_topics_are_subscribed(
    tmp_path: Path, fail_on_data_loss: bool
) -> None:
    option = {"fail_on_data_loss": fail_on_data_loss}
    by_name = two_topics(tmp_path / "name", GONE, is_by_name=True, **option)
    assert (by_name.outcome, by_name.error, by_name.unknowns) == (Outcome.FAILS, NO_HOST, ())
    by_pattern = two_topics(tmp_path / "pattern", GONE, is_pattern=True, **option)
    assert by_pattern.unknowns == ()
    assert by_pattern.outcome is (Outcome.FAILS if fail_on_data_loss else Outcome.RESUMES)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_pattern_that_matches_no_topic_any_more_has_nothing_to_plan(tmp_path: Path, fail_on_data_loss: bool) -> None:
    none = KafkaFacts("broker:9092", 1, {"orders": TopicFacts(exists=False), "late": TopicFacts(exists=False)})
    option = {"fail_on_data_loss": fail_on_data_loss}
    restart = two_topics(tmp_path / "pattern", none, is_pattern=True, **option)
    assert (restart.outcome, restart.batch, restart.unknowns) == (Outcome.RESUMES, 4, ())
    either = two_topics(tmp_path / "either", none, **option)
    assert (either.error, either.unknowns) == (NO_HOST, (f"{BY_PATTERN}; if so Spark 4.2 resumes, batch 4",))
    others = replace(none, topics={**none.topics, "new": ORDERS})
    assert two_topics(tmp_path / "others", others, is_pattern=True).error == "have been deleted"


def test_topic_that_facts_do_not_name_may_be_gone(tmp_path: Path) -> None:
    restart = two_topics(tmp_path, told(late=None), is_by_name=True)
    assert (restart.outcome, restart.batch) == (Outcome.RESUMES, 4)
    (unknown,) = restart.unknowns
    asked = "whether late exists, which the facts about Kafka do not name"
    assert unknown == f"{asked}; if not, Spark 4.2 fails: {NO_HOST}"


def test_topic_that_facts_do_not_name_may_be_gone_and_be_subscribed_by_a_pattern(tmp_path: Path) -> None:
    restart = two_topics(tmp_path, told(late=None), fail_on_data_loss=False)
    first, second = restart.unknowns
    assert first.endswith(f"if not, Spark 4.2 fails: {NO_HOST}")
    assert second == f"{BY_PATTERN}; if so, and without late, Spark 4.2 resumes, batch 4"


@pytest.mark.parametrize("late", [TopicFacts(), TopicFacts(exists=False)])
def test_topic_without_a_partition_does_not_exist(tmp_path: Path, late: TopicFacts) -> None:
    assert two_topics(tmp_path, told(late=late), fail_on_data_loss=False).error == NO_HOST


def test_topic_of_which_the_broker_tells_nothing_is_not_taken_for_gone(tmp_path: Path) -> None:
    secret = told(late=TopicFacts(exists=None, unknown="not authorized"))
    restart = two_topics(tmp_path, secret)
    assert (restart.outcome, restart.unknowns) == (Outcome.RESUMES, ("Kafka, late: not authorized",))


def test_planned_batch_that_does_not_read_the_topic_that_is_gone_runs(tmp_path: Path) -> None:
    restart = two_topics(tmp_path, GONE, orphan='{"orders":{"0":20},"late":{"0":6}}')
    assert (restart.outcome, restart.batch, restart.unknowns) == (Outcome.RERUNS, 3, ())


def test_planned_batch_that_reads_the_topic_that_is_gone_fails_however_it_is_subscribed(tmp_path: Path) -> None:
    restart = two_topics(tmp_path, GONE, orphan='{"orders":{"0":20},"late":{"0":9}}', fail_on_data_loss=False)
    assert (restart.outcome, restart.batch, restart.unknowns) == (Outcome.FAILS, 3, ())


def test_broker_that_has_no_topic_at_all_has_none_of_a_planned_batch(tmp_path: Path) -> None:
    restart = two_topics(tmp_path, KafkaFacts("broker:9092", 1), orphan='{"orders":{"0":20},"late":{"0":6}}')
    assert restart.outcome is Outcome.FAILS
