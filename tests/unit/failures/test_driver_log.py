from __future__ import annotations

import io
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lastgood.failures.driver_log import DriverLog, read_driver_log
from lastgood.failures.failure_class import FailureClass

LOGS = Path(__file__).with_name("logs")
ONE, TWO = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def read(log: str) -> DriverLog:
    return read_driver_log(io.BytesIO(log.encode()))


def started(name: str, query: str, run: str) -> str:
    return (
        f"26/11/21 12:00:00 INFO MicroBatchExecution: Starting {name} [id = {query}, runId = {run}]. "
        f"Use file:/chk/{name} to store the query checkpoint.\n"
    )


def ended(query: str, run: str, exception: str) -> str:
    line = f"26/11/21 12:00:00 ERROR MicroBatchExecution: Query [id = {query}, runId = {run}] terminated with error\n"
    return f"{line}{exception}\n\tat x.Y.z(Y:1)\n"


def raised(query: str, run: str, text: str, then: str = "") -> str:
    return (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
        "pyspark.errors.exceptions.captured.StreamingQueryException: "
        f"[STREAM_FAILED] Query [id = {query}, runId = {run}] terminated with exception: {text} SQLSTATE: XXKST\n{then}"
    )


DAMAGED = "java.lang.IllegalStateException: batch 6 doesn't exist"
CONCURRENT = "org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log."


def test_log_without_failures_has_none() -> None:
    log = read("26/11/21 12:00:00 INFO SparkContext: Running Spark version 4.2.0\nall is well\n")
    assert (log.failure, log.failures, log.num_failures) == (None, (), 0)
    assert (log.facts.spark_version, log.num_lines) == ("4.2.0", 2)
    assert read("").failure is None


def test_end_of_a_query_and_the_exception_made_of_it_are_one_failure() -> None:
    log = read(ended(ONE, TWO, DAMAGED) + raised(ONE, TWO, "batch 6 doesn't exist"))
    assert log.num_failures == 1
    assert log.failure is not None
    assert (log.failure.class_name, log.failure.lines) == ("java.lang.IllegalStateException", (1, 6))


def test_last_failure_of_each_query_is_told_and_all_are_counted() -> None:
    runs = [f"{n}" * 8 + "-0000-0000-0000-000000000000" for n in range(4)]
    log = read(
        started("a", ONE, runs[0])
        + ended(ONE, runs[0], CONCURRENT)
        + started("b", TWO, runs[1])
        + ended(TWO, runs[1], CONCURRENT)
        + started("a", ONE, runs[2])
        + ended(ONE, runs[2], DAMAGED),
    )
    assert log.num_failures == 3
    assert [(each.query_name, each.run_id, each.cls.value) for each in log.failures] == [
        ("b", runs[1], "concurrent_run"),
        ("a", runs[2], "log_damaged"),
    ]
    assert log.failure == log.failures[-1]
    assert log.failures[0].checkpoint == "file:/chk/b"


def test_what_only_follows_does_not_count_before_its_reason() -> None:
    shut = "org.apache.spark.SparkException: Job 4 cancelled because SparkContext was shut down"
    gone = "Traceback (most recent call last):\npy4j.protocol.Py4JNetworkError: Answer from Java side is empty\n"
    log = read(ended(ONE, ONE, DAMAGED) + ended(TWO, TWO, shut) + gone)
    assert log.failure is not None
    assert (log.failure.query_id, log.failure.cls) == (ONE, FailureClass.LOG_DAMAGED)
    alone = read(gone).failure
    assert alone is not None
    assert alone.is_aftermath


def test_applications_own_end_does_not_hide_why_its_query_died() -> None:
    own = "Traceback (most recent call last):\nRuntimeError: the stream is dead\n"
    log = read(ended(ONE, TWO, DAMAGED) + own)
    assert log.failure is not None
    assert log.failure.cls is FailureClass.LOG_DAMAGED
    assert log.num_failures == 2
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n" + own
    log = read(ended(ONE, TWO, DAMAGED) + raised(ONE, TWO, "batch 6 doesn't exist", chained))
    assert log.num_failures == 1
    assert log.failure is not None
    assert log.failure.cls is FailureClass.LOG_DAMAGED


def test_driver_that_ran_out_of_memory_says_so_only_in_its_log() -> None:
    logged = "26/11/21 12:00:00 ERROR SparkUncaughtExceptionHandler: Uncaught exception\n"
    gone = "Traceback (most recent call last):\npy4j.protocol.Py4JNetworkError: Answer from Java side is empty\n"
    log = read(logged + "java.lang.OutOfMemoryError: Java heap space\n\tat x.Y.z(Y:1)\n" + gone)
    assert log.failure is not None
    assert log.failure.cls is FailureClass.RESOURCES


def test_log_that_was_cut_before_the_end_tells_what_was_logged_last() -> None:
    error = "26/11/21 12:00:00 ERROR Executor: Exception in task 0.0 in stage 2.0 (TID 3)\n"
    full = error + "java.io.IOException: No space left on device\n\tat x.Y.z(Y:1)\n"
    log = read(full)
    assert log.failure is not None
    assert log.failure.cls is FailureClass.RESOURCES
    assert log.failures == ()
    assert read(full.replace("ERROR", "WARN")).failure is None
    went_on = "26/11/21 12:00:00 INFO ProgressReporter: Streaming query made progress: {}\n"
    assert read(full + went_on).failure is None
    own = "Traceback (most recent call last):\nKeyError: 'KAFKA_SERVERS'\n"
    crashed = read(full + own).failure
    assert crashed is not None
    assert crashed.class_name == "KeyError"


def test_driver_that_was_sent_a_signal_was_stopped() -> None:
    log = read("26/11/21 12:00:00 ERROR ApplicationMaster: RECEIVED SIGNAL TERM\n")
    assert log.failure is not None
    assert log.failure.cls is FailureClass.STOPPED_ON_PURPOSE
    both = read(ended(ONE, TWO, DAMAGED) + "26/11/21 12:00:00 ERROR ApplicationMaster: RECEIVED SIGNAL TERM\n")
    assert both.failure is not None
    assert both.failure.cls is FailureClass.LOG_DAMAGED


def test_json_layout_which_leaves_causes_out_is_completed_from_the_task() -> None:
    with (LOGS / "spark-4.2.0-json.log").open("rb") as stream:
        log = read_driver_log(stream)
    assert log.failure is not None
    assert (log.failure.query_name, log.failure.cls.value) == ("expired_to_delta", "source_expired")
    assert [each.class_name for each in log.failure.chain] == [
        "org.apache.spark.SparkException",
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
        "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
    ]
    assert log.failure.batch_id == 1
    assert log.failures[0].cls is FailureClass.STATE_DAMAGED


def test_other_failed_write_of_before_does_not_complete_it() -> None:
    write = "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/{}."
    lost = "26/11/21 12:00:00 WARN TaskSetManager: Lost task 0.0 in stage 2.0 (TID 3) (host executor 1): "
    log = read(
        f"{lost}{write.format('a')}\nCaused by: java.lang.OutOfMemoryError\n" + ended(ONE, TWO, write.format("b"))
    )
    assert log.failure is not None
    assert log.failure.rule == "cause_not_told"


def test_connect_client_tells_what_the_server_died_of() -> None:
    with (LOGS / "connect-4.2.0.log").open("rb") as stream:
        log = read_driver_log(stream)
    assert log.failure is not None
    assert (log.failure.cls.value, log.failure.message) == ("poison_data", "cannot parse record 17")
    assert (log.num_failures, log.failure.query_name, log.failure.checkpoint) == (1, "poison", "/data/chk/poison")
    assert log.failure.user_code is not None
    assert (log.failure.user_code.file, log.failure.user_code.line) == ("/app/app.py", 5)


def test_records_of_the_agent_read_as_a_log_does() -> None:
    cause = {"language": "java", "class_name": "x.E", "condition": "DIVIDE_BY_ZERO", "message": "m"}
    record = {"kind": "terminated", "recorded_at_ms": 1, "query_id": "q", "run_id": "r", "query_name": "orders"}
    failed = {**record, "checkpoint": "file:/chk", "batch_id": 4, "failure": {"causes": [cause]}}
    log = read(json.dumps({**record, "kind": "started"}) + "\n" + json.dumps(failed) + "\n" + json.dumps(record) + "\n")
    assert log.failure is not None
    assert (log.failure.cls.value, log.failure.batch_id, log.failure.lines) == ("poison_data", 4, (2, 2))
    assert log.facts.queries[0].name == "orders"


def test_failures_without_a_query_do_not_heap_up() -> None:
    log = read("Traceback (most recent call last):\nValueError: again\n" * 300)
    assert (log.num_failures, len(log.failures)) == (300, 100)


def test_json_of_a_log_holds_values_only() -> None:
    with (LOGS / "spark-4.2.0.log").open("rb") as stream:
        told = json.loads(json.dumps(read_driver_log(stream).to_json()))
    assert told["failure"]["class"] == "poison_data"
    assert len(told["failures"]) == told["num_failures"] == 19
    assert told["facts"]["spark_version"] == "4.2.0"


NOISE = st.sampled_from([
    "Traceback (most recent call last):",
    "During handling of the above exception, another exception occurred:",
    "Caused by: a.B: ",
    ": a.B: c",
    "\tat a.b.C(D:1)",
    "\tSuppressed: a.B",
    "=== Streaming Query ===",
    "ValueError: x",
    "[STREAM_FAILED] Query [id = x, runId = y] terminated with exception: a.B: Reason: ",
    "26/11/21 12:00:00 ERROR MicroBatchExecution: Query terminated with error",
    "26/11/21 12:00:00 INFO MicroBatchExecution: Streaming query made progress: {",
    '{"level":"ERROR","msg":"terminated with error","exception":{"class":1,"stacktrace":[1]},"context":[]}',
    '{"level":"ERROR","msg":"x","context":{"BATCH_ID":"²","QUERY_ID":null}}',
    '{"kind":"terminated","failure":{"causes":[{"language":"java"}]}}',
    '{"kind":"started","query_id":[]}',
    '{"log":1}',
    "Current Committed Offsets: {KafkaV2[Subscribe[a]]: {",
    "Resuming at batch 99999999999999999999 with committed offsets {} and available offsets {}",
    "Partition t-99999999999999999999 offset was changed from 1 to 2 Set(a-², -1) are gone.",
    '{"a":' * 5000,
])  # fmt: skip


@given(st.lists(st.one_of(NOISE, st.text(max_size=30)), max_size=30).map("\n".join))
def test_no_text_is_too_strange(text: str) -> None:
    log = read_driver_log(io.BytesIO(text.encode("utf-8", "surrogatepass")))
    json.dumps(log.to_json())
