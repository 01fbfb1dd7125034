"""Why real queries of five Sparks died; the logs beside this file are theirs, with their stacks cut short.

`tests/spark/failures_app.py` is the application that they ran.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shared_corpus import CORPUS

from lastgood.failures.causes import read_causes
from lastgood.failures.classify import RULES, CodeLine, Failure, OffsetsNamed, classify_causes, classify_record
from lastgood.failures.driver_log import read_driver_log
from lastgood.failures.failure_class import FailureClass
from lastgood.records import record
from lastgood.records.record import ChainedException, Crashed, StartFailed, Terminated

LOGS = Path(__file__).with_name("logs")
VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0")

EVERYWHERE = {
    "udf": ("poison_data", "user_code"),
    "cast": ("poison_data", "bad_value"),
    "foreach_batch": ("poison_data", "user_code"),
    "another_driver": ("concurrent_run", "concurrent_log_update"),
    "stale_crc": ("log_damaged", "stale_crc"),
    "empty_offsets": ("log_damaged", "log_file_empty"),
    "cut_offsets": ("log_damaged", "log_json"),
    "offsets_gone": ("log_damaged", "log_entry_missing"),
    None: ("log_damaged", "log_json"),  # `metadata`, which is read before there is a query
    "state_gone": ("state_damaged", "state_not_loaded"),
    "state_gone_in_foreach_batch": ("state_damaged", "state_not_loaded"),
    "other_key": ("code_incompatible", "state_schema"),
    "two_sources": ("code_incompatible", "source_count"),
}
WITH_KAFKA = {
    "expired_in_foreach_batch": ("source_expired", "kafka_offsets_gone"),
    "expired_to_delta": ("source_expired", "kafka_offsets_gone"),
    "poison_to_delta": ("poison_data", "bad_value"),
    "recreated": ("source_recreated", "kafka_offset_went_back"),
    "partitions_gone": ("source_recreated", "kafka_partitions_gone"),
    "topic_gone": ("source_recreated", "kafka_topic_unknown"),
}


def failures(version: str) -> dict[str | None, Failure]:
    with (LOGS / f"spark-{version}.log").open("rb") as log:
        return {each.query_name: each for each in read_driver_log(log).failures}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_spark_says_what_its_queries_died_of(version: str) -> None:
    found = {name: (each.cls.value, each.rule) for name, each in failures(version).items()}
    assert found == EVERYWHERE | (WITH_KAFKA if version == "4.2.0" else {})


@pytest.mark.parametrize("version", VERSIONS)
def test_every_spark_names_the_file_that_is_damaged(version: str) -> None:
    found = failures(version)
    files = {name: found[name].checkpoint_file for name in ("stale_crc", "empty_offsets", "state_gone", None)}
    assert files.pop("state_gone") in {f"file:/data/chk/state_gone/state/0/{n}/2.delta" for n in (0, 1)}
    assert files == {
        "stale_crc": "file:/data/chk/stale_crc/offsets/.1.crc",
        "empty_offsets": "file:/data/chk/empty_offsets/offsets/1",
        None: "file:/data/chk/metadata_garbage/metadata",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_spark_shows_where_user_code_failed(version: str) -> None:
    found = failures(version)
    assert found["udf"].user_code == CodeLine(file="/app/app.py", line=49, function="parse")
    assert found["foreach_batch"].user_code == CodeLine(file="/app/app.py", line=59, function="write")
    assert found["foreach_batch"].message == "cannot parse record a"
    assert found["state_gone_in_foreach_batch"].user_code is None


def test_kafka_names_partitions_and_offsets() -> None:
    found = failures("4.2.0")
    expired = OffsetsNamed(topic="expired_in_foreach_batch", partition=0, start=10, end=20)
    assert found["expired_in_foreach_batch"].offsets == (expired,)
    assert found["recreated"].offsets == (OffsetsNamed(topic="recreated", partition=0, start=10, end=5),)
    assert found["partitions_gone"].offsets == (OffsetsNamed(topic="partitions_gone", partition=1),)
    assert found["expired_to_delta"].message.startswith("Could not read records in offset [10, 20) for topic partition")


def test_failed_write_is_no_sign_of_the_sink() -> None:
    write = ChainedException(
        language="java", class_name="org.apache.spark.SparkException", condition="TASK_WRITE_FAILED", message=""
    )
    alone = classify_causes([write])
    assert (alone.cls, alone.rule) == (FailureClass.UNKNOWN, "cause_not_told")
    inner = ChainedException(language="java", class_name="org.x.E", condition="DIVIDE_BY_ZERO")
    assert classify_causes([write, inner]).cls is FailureClass.POISON_DATA


OLD_KAFKA = """\
Some data may have been lost because they are not available in Kafka any more; either the
 data was aged out by Kafka or the topic may have been deleted before all the data in the
 topic was processed. If you don't want your streaming query to fail on such cases, set the
 source option "failOnDataLoss" to "false"."""


@pytest.mark.parametrize(
    ("message", "cls", "offsets"),
    [
        (
            "Partition t.a-0's offset was changed from 500 to 300, some data may have been missed. \n",
            "source_recreated",
            [OffsetsNamed(topic="t.a", partition=0, start=500, end=300)],
        ),
        (
            "Set(t-1, u-0) are gone. Some data may have been missed. \n",
            "source_recreated",
            [OffsetsNamed(topic="t", partition=1), OffsetsNamed(topic="u", partition=0)],
        ),
        (
            "Cannot fetch offset 15 (GroupId: spark-kafka-source-1-executor, TopicPartition: my-t-3). \n",
            "source_expired",
            [OffsetsNamed(topic="my-t", partition=3, start=15)],
        ),
        (
            "Added partition t-2 starts from 4 instead of 0. Some data may have been missed. \n",
            "source_expired",
            [OffsetsNamed(topic="t", partition=2, start=0, end=4)],
        ),
        (
            "Cannot find earliest offsets of Set(t-2). Some data may have been missed. \n",
            "source_expired",
            [OffsetsNamed(topic="t", partition=2)],
        ),
    ],
)
def test_kafka_of_spark_3_5_is_known_by_its_words(message: str, cls: str, offsets: list[OffsetsNamed]) -> None:
    """Its connector has no conditions; the words are those of its sources."""
    failure = classify_causes(
        [ChainedException(language="java", class_name="java.lang.IllegalStateException", message=message + OLD_KAFKA)]
    )
    assert (failure.cls.value, list(failure.offsets)) == (cls, offsets)


def test_data_loss_counts_before_what_user_code_made_of_it() -> None:
    wrapped = read_causes(
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
        'Traceback (most recent call last):\n  File "/app/a.py", line 3, in write\n    raise OurError(e) from None\n'
        "app.OurError: batch 7 failed: Could not read records in offset [1, 2) for topic partition t-0\n",
    )
    assert classify_causes(wrapped).cls is FailureClass.SOURCE_EXPIRED


def user(*inner: ChainedException) -> list[ChainedException]:
    outer = ChainedException(language="java", class_name="py4j.Py4JException", message="Return Message: …")
    return [outer, ChainedException(language="python", class_name="app.OurError", message="we failed"), *inner]


def test_user_code_that_only_met_an_error_of_spark_is_not_to_blame() -> None:
    assert classify_causes(user()).cls is FailureClass.POISON_DATA
    spark = ChainedException(
        language="java", class_name="org.apache.spark.sql.AnalysisException", condition="SOMETHING_NEW"
    )
    assert classify_causes(user(spark)).cls is FailureClass.UNKNOWN
    pyspark = ChainedException(language="python", class_name="pyspark.errors.exceptions.captured.AnalysisException")
    assert classify_causes(user(pyspark)).cls is FailureClass.UNKNOWN


@pytest.mark.parametrize(
    ("class_name", "cls"),
    [
        ("ValueError", "poison_data"),
        ("requests.exceptions.ConnectionError", "transient"),
        ("psycopg.OperationalError", "transient"),
        ("MemoryError", "resources"),
        ("ModuleNotFoundError", "code_incompatible"),
        ("PermissionError", "unknown"),
    ],
)
def test_not_every_exception_of_user_code_is_about_its_data(class_name: str, cls: str) -> None:
    assert classify_causes(user(ChainedException(language="python", class_name=class_name))).cls.value == cls


def test_error_of_an_application_outside_its_queries_is_not_about_data() -> None:
    failure = classify_causes([ChainedException(language="python", class_name="KeyError", message="'KAFKA_SERVERS'")])
    assert (failure.cls, failure.rule) == (FailureClass.UNKNOWN, None)
    assert failure.because == "no rule knows any of these exceptions"
    assert classify_causes([]).because == "nothing is told of why"


def test_json_that_a_task_cannot_parse_is_no_damaged_log() -> None:
    outer = "java.lang.RuntimeException: of a task\n"
    inner = "Caused by: com.fasterxml.jackson.core.JsonParseException: Unexpected character\n"
    frame = "\tat org.apache.spark.sql.catalyst.json.JacksonParser.parse(J.scala:1)\n"
    assert classify_causes(read_causes(outer + frame + inner + frame)).cls is FailureClass.UNKNOWN
    engine = "\tat org.apache.spark.sql.execution.streaming.OffsetSeqMetadata$.apply(O.scala:1)\n"
    assert classify_causes(read_causes(inner.removeprefix("Caused by: ") + engine)).cls is FailureClass.LOG_DAMAGED


def test_expression_that_fails_without_a_condition_fails_on_data() -> None:
    frame = "\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$X.processNext(Unknown Source)\n"
    causes = read_causes("java.lang.RuntimeException: no such record\n" + frame)
    assert classify_causes(causes).cls is FailureClass.POISON_DATA


def test_failure_tells_of_its_query_what_the_chain_tells() -> None:
    query, run = "9818c18b-9839-4690-99f7-f5f3cde02c1d", "4be5430f-f0bf-4d04-83b2-4faf6bd8a720"
    cause = ChainedException(
        language="python", message=f"[STREAM_FAILED] Query [id = {query}, runId = {run}] terminated"
    )
    assert (classify_causes([cause]).query_id, classify_causes([cause]).run_id) == (query, run)
    assert classify_causes([cause], query_id="other").query_id == "other"


def test_structured_exception_of_the_agent_is_a_failure_with_all_it_tells() -> None:
    causes = tuple(
        user(ChainedException(language="java", class_name="x.E", condition="KAFKA_DATA_LOSS.PARTITIONS_DELETED"))
    )
    of = record.RecordedFailure(causes=causes)
    ended = Terminated(
        recorded_at_ms=1, query_id="q", run_id="r", query_name="n", checkpoint="c", batch_id=7, failure=of
    )
    failure = classify_record(ended)
    assert failure is not None
    assert (failure.query_id, failure.run_id, failure.query_name) == ("q", "r", "n")
    assert (failure.checkpoint, failure.batch_id, failure.chain) == ("c", 7, causes)
    assert failure.cls is FailureClass.SOURCE_RECREATED
    for other in (StartFailed(recorded_at_ms=1, failure=of), Crashed(recorded_at_ms=1, failure=of)):
        assert (told := classify_record(other)) is not None
        assert (told.cls, told.batch_id) == (FailureClass.SOURCE_RECREATED, None)
    assert classify_record(Terminated(recorded_at_ms=1)) is None


def test_json_of_a_failure_holds_values_only() -> None:
    told = json.loads(json.dumps(failures("4.2.0")["expired_to_delta"].to_json()))
    assert told["class"] == "source_expired"
    assert told["offsets"] == [{"topic": "expired_to_delta", "partition": 0, "start": 10, "end": 20}]
    assert [each["condition"] for each in told["chain"]] == ["TASK_WRITE_FAILED", None, None]
    assert (
        told["chain"][1]["message"] == "Some data may have been lost because they are not available in Kafka any more;"
    )


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


KINDS = {
    "offset_gap_ahead": "log_damaged",
    "offset_last_truncated": "log_damaged",
    "offset_last_empty": "log_damaged",
    "rm_source_last": "log_damaged",
    "metadata_garbage": "log_damaged",
    "rm_metadata": "log_damaged",
    # What Spark itself takes for another run; only the logs tell that commits are ahead of offsets.
    "rm_offset_last": "concurrent_run",
    "rm_all_offsets": "concurrent_run",
    "commit_extra": "concurrent_run",
    "rm-last-version-files": "state_damaged",
    "rm-partition0": "state_damaged",
    "kafka-expired": "source_expired",
}


def test_corpus_failures_are_of_their_class() -> None:
    if not CORPUS.exists():
        pytest.skip("the corpus of checkpoints is not beside the repository")
    seen = 0
    for about in sorted(CORPUS.glob("*/about.json")):
        error = (json.loads(about.read_text()).get("restart") or {}).get("error")
        if not error:
            continue
        chain = [ChainedException(language="java", class_name="org.apache.spark.sql.streaming.StreamingQueryException")]
        name, condition = error["class"], error.get("condition")
        chain.append(ChainedException(language="java", class_name=name, condition=condition, message=error["message"]))
        chain += read_causes("\n".join(each.removeprefix(": ") for each in error.get("inner", ())))
        failure = classify_causes(chain)
        expected = next(cls for kind, cls in KINDS.items() if kind in about.parent.name)
        if about.parent.name == "4.3-damaged-rm_all_offsets":
            expected = "log_damaged"  # this version asks before anything runs
        assert failure.cls.value == expected, (about.parent.name, failure)
        seen += 1
    assert seen >= 20
