"""Each limit that a failure names comes with the option that raises it, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Checkpoint, Mode, Presence
from lastgood.checkpoint.file_logs import SourceFile
from lastgood.checkpoint.logs import BatchIds, BatchLog, LogListing
from lastgood.checkpoint.offsets import BatchMetadata, OffsetEntry, SourceLine
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset
from lastgood.diagnosis.advice_failures import advise_on_failures
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.rules_advice import CONDITIONS
from lastgood.failures.classify import Failure, classify_causes
from lastgood.failures.driver_log import read_driver_log
from lastgood.failures.failure_class import FailureClass
from lastgood.query.observation import Observation
from lastgood.records.record import ChainedException
from lastgood.sources.files.facts import FileFacts, FileState
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts, TopicFacts

LOGS = Path(__file__).parents[1] / "failures/logs"


def checkpoint(offsets: Mapping[int, SourceOffset], committed: int) -> Checkpoint:
    """Batches that end at these offsets; those up to `committed` are done."""
    metadata = BatchMetadata(MappingProxyType({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}}), "")
    plans = {n: OffsetEntry(1, metadata, (SourceLine("0", at.to_text(), at),)) for n, at in offsets.items()}
    done = {n: CommitEntry.of(1, next_batch_watermark_ms=0) for n in offsets if n <= committed}
    return Checkpoint(
        location="/chk",
        presence=Presence.PRESENT,
        mode=Mode.MICRO_BATCH,
        query=None,
        offsets=BatchLog("offsets", LogListing(exists=True, ids=BatchIds.of(plans)), plans),
        commits=BatchLog("commits", LogListing(exists=True, ids=BatchIds.of(done)), done),
        sources=(),
        state=None,
    )


EMPTY = Observation(checkpoint({}, -1))


def advice(*failures: Failure, query_id: str | None = None, observed: Observation = EMPTY) -> dict[str, Finding]:
    found = list(advise_on_failures(failures, query_id, observed))
    assert all(each.condition in CONDITIONS and each.severity is Severity.INFO for each in found)
    assert all(each.evidence and each.effect.endswith(".") and each.next for each in found)
    names = [each.condition.name for each in found]
    assert len(names) == len(set(names))
    return dict(zip(names, found, strict=True))


def of_log(name: str) -> dict[str, Finding]:
    with (LOGS / name).open("rb") as stream:
        return advice(*read_driver_log(stream).failures)


def died(*causes: tuple[str, str], batch_id: int | None = None) -> Failure:
    return classify_causes(
        [ChainedException(language="java", class_name=name, message=text) for name, text in causes], batch_id=batch_id
    )


def test_a_task_that_waited_for_a_record_in_a_real_log() -> None:
    found = of_log("advice/task-poll.log")
    assert set(found) == {"KAFKA_CLIENT_TIMEOUT", "TASK_FAILURES_FEW"}
    waited, tried = found["KAFKA_CLIENT_TIMEOUT"], found["TASK_FAILURES_FEW"]
    assert (waited.evidence["waited_ms"], waited.evidence["default_ms"]) == (1, 120_000)
    assert waited.next == '.option("kafkaConsumer.pollTimeoutMs", "120000")'
    assert (tried.evidence["attempts"], tried.evidence["executor"]) == (1, "driver")
    assert tried.next == '--master "local[*,4]"'


def test_a_driver_that_was_not_told_of_offsets_in_a_real_log() -> None:
    found = of_log("advice/driver-offsets.log")
    assert set(found) == {"KAFKA_CLIENT_TIMEOUT"}
    assert found["KAFKA_CLIENT_TIMEOUT"].next == (
        '.option("fetchOffset.numRetries", "10").option("fetchOffset.retryIntervalMs", "10000")'
    )


def test_a_sink_that_was_not_told_of_its_topic_in_a_real_log() -> None:
    found = of_log("advice/sink-metadata.log")["KAFKA_CLIENT_TIMEOUT"]
    assert found.evidence["waited_ms"] == 2000
    assert found.next == '.option("kafka.max.block.ms", "60000")'
    assert "which has to exist" in found.effect


@pytest.mark.parametrize("log", sorted(path.name for path in LOGS.glob("*.log")))
def test_logs_of_other_failures_call_for_no_advice(log: str) -> None:
    assert of_log(log) == {}


KAFKA_TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"


@pytest.mark.parametrize(
    ("text", "option"),
    [
        (
            "Timeout of 60000ms expired before the position for partition orders-0 could be determined",
            '.option("kafka.default.api.timeout.ms", "120000")',
        ),
        ("Failed to get offsets by times in 5000ms", '.option("kafka.default.api.timeout.ms", "60000")'),
        (
            "Expiring 7 record(s) for orders-0:120000 ms has passed since batch creation",
            '.option("kafka.delivery.timeout.ms", "240000")',
        ),
        (
            "Call(callName=describeTopics, deadlineMs=1, tries=1, nextAllowedTryMs=2) timed out at 1 after 1 attempts",
            '.option("fetchOffset.numRetries", "10").option("fetchOffset.retryIntervalMs", "10000")',
        ),
    ],
)
def test_who_waited_is_told_by_the_clients_words(text: str, option: str) -> None:
    assert advice(died((KAFKA_TIMEOUT, text)))["KAFKA_CLIENT_TIMEOUT"].next == option


def lost(times: int, cause: str = "ExecutorLostFailure (executor 3 exited)") -> Failure:
    text = (
        f"Job aborted due to stage failure: Task 7 in stage 12.0 failed {times} times, most recent failure: Lost task"
        f" 7.3 in stage 12.0 (TID 99) (10.0.0.7 executor 3): {cause}"
    )
    return died(("org.apache.spark.SparkException", text))


def test_tasks_on_executors_get_the_attempts_of_a_setting() -> None:
    assert advice(lost(4))["TASK_FAILURES_FEW"].next == "--conf spark.task.maxFailures=8"
    assert advice(lost(1))["TASK_FAILURES_FEW"].next == "--conf spark.task.maxFailures=4"


def test_more_attempts_do_not_help_against_data_or_memory() -> None:
    assert advice(lost(4, "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] x")) == {}
    assert advice(died(("java.lang.OutOfMemoryError", "Java heap space"), ("java.lang.X", lost(4).message))) == {}


def test_what_failed_in_another_query_is_no_advice() -> None:
    other = classify_causes(
        [ChainedException(language="java", class_name=KAFKA_TIMEOUT, message="Timeout of 1ms expired before x")]
    )
    assert advice(other, query_id="mine")  # nobody says whose it is
    named = classify_causes(
        [ChainedException(language="java", class_name=KAFKA_TIMEOUT, message="Timeout of 1ms expired before x")],
        query_id="yours",
    )
    assert advice(named, query_id="mine") == {}


def test_a_service_other_than_kafka_that_did_not_answer_is_no_business_of_kafkas_options() -> None:
    failure = died(("java.net.SocketTimeoutException", "Read timed out"))
    assert failure.cls is FailureClass.TRANSIENT
    assert advice(failure) == {}


def test_dynamic_allocation_without_what_keeps_shuffle_files_in_a_real_log() -> None:
    found = of_log("advice/dynamic-allocation.log")["SHUFFLE_NOT_TRACKED"]
    assert found.next == "--conf spark.dynamicAllocation.shuffleTracking.enabled=true"


def test_shuffle_files_that_are_gone_with_idle_executors() -> None:
    text = (
        "ShuffleMapStage 3 has failed the maximum allowable number of times: 4. Most recent failure reason: FetchFailed"
    )
    gone = died(("org.apache.spark.SparkException", text))
    found = {each.condition.name: each for each in advise_on_failures([gone], None, EMPTY, removed_idle=2)}
    assert found["SHUFFLE_NOT_TRACKED"].evidence == {"message": "FetchFailed", "executors_removed_idle": 2}
    assert advice(gone) == {}
    other = died((KAFKA_TIMEOUT, "Timeout of 1ms expired before x"))
    assert [each.condition.name for each in advise_on_failures([other], None, EMPTY, removed_idle=2)] == [
        "KAFKA_CLIENT_TIMEOUT"
    ]


def kafka(*ends: int) -> dict[int, SourceOffset]:
    return {n: KafkaOffset({"orders": {0: end}}) for n, end in enumerate(ends)}


OOM = died(("java.lang.OutOfMemoryError", "Java heap space"))


def test_a_batch_far_larger_than_all_before_it_that_memory_did_not_suffice_for() -> None:
    observed = Observation(checkpoint(kafka(100, 200, 320, 420, 9000), committed=3))
    found = advice(OOM, observed=observed)["BATCH_EXCEEDS_RESOURCES"]
    assert found.evidence == {"batch": 4, "offsets": 8580, "median_before": 100, "largest_before": 120}
    assert found.next == '.option("maxOffsetsPerTrigger", "120")'
    assert "--goal replan" in found.effect


def test_a_backlog_that_waits_where_memory_did_not_suffice_before() -> None:
    facts = KafkaFacts("b:9092", 0, {"orders": TopicFacts(partitions={0: PartitionFacts(0, 9000)})})
    observed = Observation(checkpoint(kafka(100, 200, 320, 420), committed=3), kafka=facts)
    found = advice(OOM, observed=observed)["BATCH_EXCEEDS_RESOURCES"]
    assert (found.evidence["batch"], found.evidence["offsets"]) == (None, 8580)
    assert "replan" not in found.effect


@pytest.mark.parametrize(
    ("ends", "committed", "failure"),
    [
        ((100, 200, 320, 420, 1000), 3, OOM),  # not much larger than usual
        ((100, 200, 9000), 1, OOM),  # nobody knows what is usual
        ((100, 200, 320, 420, 9000), 3, died(("java.io.IOException", "Too many open files"))),
        ((100, 200, 320, 420, 9000), 3, died(("java.lang.OutOfMemoryError", "x"), batch_id=2)),
        ((100, 200, 320, 420, 9000), 3, died((KAFKA_TIMEOUT, "no words that tell"))),
        ((100, 200, 320, 420), 3, OOM),  # nothing is to be run, and nobody asked Kafka
    ],
)
def test_a_batch_as_large_as_any_or_another_reason_is_no_advice(
    ends: tuple[int, ...], committed: int, failure: Failure
) -> None:
    assert advice(failure, observed=Observation(checkpoint(kafka(*ends), committed=committed))) == {}


@pytest.mark.parametrize(("count", "limit"), [(250, "25"), (9, None)])
def test_a_batch_of_many_files(count: int, limit: str | None) -> None:
    files = tuple(FileFacts(SourceFile(f"file:/in/{n}", 1, 1), FileState.PRESENT) for n in range(count))
    about = checkpoint({0: FileOffset(0), 1: FileOffset(1)}, committed=0)
    found = advice(OOM, observed=Observation(about, files={"0": files}))
    assert set(found) == ({"BATCH_EXCEEDS_RESOURCES"} if limit else set())
    if limit:
        assert found["BATCH_EXCEEDS_RESOURCES"].next == f'.option("maxFilesPerTrigger", "{limit}")'
