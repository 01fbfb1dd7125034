"""What Spark makes of planned Kafka offsets that are none, or no longer there; without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from predicting import change, does, fails, line, remove, report, resumes, write

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.restart import Outcome, SinkCalled
from lastgood.diagnosis.spark_version import SPARK_3_5, SPARK_4_0, SPARK_4_2, SPARK_4_3, SparkVersion
from lastgood.diagnosis.world import World
from lastgood.sources.kafka_facts import KafkaFacts, PartitionFacts, TopicFacts
from lastgood.storage import LocalStorage, parse_location
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
    restart = diagnose(World(checkpoint, fail_on_data_loss=fail_on_data_loss), SPARK_4_2).restart
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
    restart = diagnose(World(checkpoint, kafka=facts, fail_on_data_loss=fail_on_data_loss), SPARK_4_2).restart
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
    restart = diagnose(World(checkpoint, kafka=facts, is_pattern=is_pattern), SPARK_4_2).restart
    assert (restart.outcome, restart.batch, restart.error) == (Outcome.FAILS, 2, error)
