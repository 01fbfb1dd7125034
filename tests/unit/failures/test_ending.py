from __future__ import annotations

import pytest

from lastgood.failures import ending as failure
from lastgood.failures.ending import find_cause, find_decisive_failure, format_error, has_failed
from lastgood.failures.failure_class import FailureClass
from lastgood.records.record import (
    ChainedException,
    Crashed,
    QueryStarted,
    Record,
    RecordedFailure,
    StartFailed,
    Terminated,
)

STREAM_FAILED = """\
26/11/21 09:00:00 ERROR MicroBatchExecution: Query [id = 1, runId = 2] terminated with error
Traceback (most recent call last):
  File "app.py", line 9, in <module>
    query.awaitTermination()
pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] terminated \
with exception: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure
{more}
"""


JOB_ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", None),
        ("all is well\n", None),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no such\n',
            "ValueError: no such",
        ),
        (STREAM_FAILED.format(more=""), JOB_ABORTED),
        (
            STREAM_FAILED.format(
                more="Caused by: org.x.Outer: wrapped\n\tat x.Y\nCaused by: java.io.IOException: disk gone"
            ),
            "java.io.IOException: disk gone",
        ),
        (
            "Traceback (most recent call last):\nKeyError: 1\nTraceback (most recent call last):\nTypeError: 2\n",
            "TypeError: 2",
        ),
        (
            'Exception in thread "main" java.net.BindException: Address already in use\n\tat a.b(c.java:1)\n',
            "java.net.BindException: Address already in use",
        ),
        ("26/11/21 09:00:00 ERROR Executor: out of luck\nbye\n", "Executor: out of luck"),
        ("ValueError: " + "x" * 10_000, "ValueError: " + "x" * 488),
    ],
)
def test_output_in_a_line(output: str, line: str | None) -> None:
    assert find_cause(output, None).line == line


def cause(name: str, message: str = "", condition: str | None = None, *, python: bool = False) -> ChainedException:
    return ChainedException(
        language="python" if python else "java", class_name=name, message=message, condition=condition
    )


STREAM = cause("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED] Query", "STREAM_FAILED")


def test_application_that_fails_before_it_starts_a_query_has_not_failed_of_a_batch() -> None:
    failed = RecordedFailure(causes=(cause("ModuleNotFoundError", "No module named 'orders'", python=True),))
    early = find_cause("", failed, has_started=False)
    assert (early.cls, early.line) == (
        FailureClass.CODE_INCOMPATIBLE,
        "ModuleNotFoundError: No module named 'orders'",
    )
    assert early.because == "the application failed before it started a query"
    assert find_cause("", failed, has_started=True).cls is FailureClass.UNKNOWN
    of_a_server = RecordedFailure(
        causes=(cause("Py4JJavaError", python=True), cause("java.io.IOException", "disk gone"))
    )
    assert find_cause("", of_a_server, has_started=False).cls is FailureClass.UNKNOWN


@pytest.mark.parametrize(
    ("causes", "line"),
    [
        ([STREAM, cause("X", "Traceback"), cause("ValueError", "bad\nsecond line", python=True)], "ValueError: bad"),
        ([STREAM, cause("KeyboardInterrupt", python=True)], "KeyboardInterrupt"),
        (
            [
                STREAM,
                cause("Kafka", "Some data may have been lost;\neither", "KAFKA_DATA_LOSS.X"),
                cause("Reset", "out"),
            ],
            "[KAFKA_DATA_LOSS.X] Some data may have been lost;",
        ),
        (
            [STREAM, cause("Number", "[CAST_INVALID_INPUT] The value", "CAST_INVALID_INPUT")],
            "[CAST_INVALID_INPUT] The value",
        ),
        (
            [STREAM, cause("W", "[TASK_WRITE_FAILED] x", "TASK_WRITE_FAILED"), cause("java.io.IOException", "full")],
            "java.io.IOException: full",
        ),
        ([STREAM], "[STREAM_FAILED] Query"),
        ([cause("E", "x" * 900)], "E: " + "x" * 497),
    ],
)
def test_failure_in_a_line_is_its_innermost_cause_that_says_something(
    causes: list[ChainedException], line: str
) -> None:
    assert format_error(RecordedFailure(message="outermost", causes=tuple(causes))) == line


def test_failure_without_causes_is_its_message() -> None:
    assert format_error(RecordedFailure(message="all\nthere is")) == "all"
    assert format_error(RecordedFailure()) is None


ONE, TWO = RecordedFailure(message="one"), RecordedFailure(message="two")
OF_A_QUERY = RecordedFailure(causes=(cause("pyspark.errors.exceptions.connect.StreamingQueryException", python=True),))
OF_THE_APPLICATION = RecordedFailure(causes=(cause("KeyError", python=True),))


def ended(query_id: str, failure: RecordedFailure | None) -> Terminated:
    return Terminated(recorded_at_ms=1, query_id=query_id, failure=failure)


def started(query_id: str) -> QueryStarted:
    return QueryStarted(recorded_at_ms=1, query_id=query_id)


def crashed(failure: RecordedFailure, query_id: str | None = None) -> Crashed:
    return Crashed(recorded_at_ms=1, query_id=query_id, failure=failure)


@pytest.mark.parametrize(
    ("records", "failure"),
    [
        ([], None),
        ([started("a"), ended("a", None)], None),
        ([started("a"), ended("a", ONE)], ONE),
        ([ended("a", ONE), ended("b", TWO)], TWO),
        ([ended("a", ONE), started("a")], None),
        ([ended("a", ONE), started("b")], ONE),
        ([StartFailed(recorded_at_ms=1, failure=ONE)], ONE),
        ([StartFailed(recorded_at_ms=1, failure=ONE), started("a")], None),
        ([ended("a", ONE), ended("b", TWO), crashed(OF_A_QUERY, "a")], ONE),
        ([ended("a", ONE), crashed(OF_A_QUERY)], ONE),
        ([crashed(OF_A_QUERY, "a")], OF_A_QUERY),
        ([crashed(OF_A_QUERY)], OF_A_QUERY),
        ([ended("a", ONE), crashed(OF_THE_APPLICATION)], OF_THE_APPLICATION),
    ],
)
def test_what_ended_a_driver(records: list[Record], failure: RecordedFailure | None) -> None:
    found = find_decisive_failure(records)
    assert (found and found.failure) == failure


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([], None),
        ([started("a")], None),
        ([started("a"), ended("a", ONE)], True),
        ([started("a"), ended("a", None)], False),
        ([ended("a", ONE), started("a")], None),
        ([ended("a", ONE), started("a"), ended("a", None)], False),
        ([StartFailed(recorded_at_ms=1, failure=ONE)], True),
        ([started("a"), crashed(OF_A_QUERY, "a")], True),
        ([started("a"), crashed(OF_A_QUERY)], None),
        ([started("a"), ended("b", ONE), crashed(OF_A_QUERY, "b")], None),
        ([ended("a", None), crashed(OF_THE_APPLICATION)], False),
    ],
)
def test_query_has_failed_only_where_it_was_itself(records: list[Record], *, told: bool | None) -> None:
    assert has_failed(records, "a") is told


def test_cause_is_what_the_agent_saw_where_a_rule_knows_it() -> None:
    thrown = ChainedException(
        language="java", class_name="org.apache.kafka.common.errors.TimeoutException", message="Timed out waiting"
    )
    cause = find_cause("", RecordedFailure(message="x", causes=(thrown,)))
    assert (cause.cls, cause.passes_by_itself) == (FailureClass.TRANSIENT, True)
    assert cause.line == "org.apache.kafka.common.errors.TimeoutException: Timed out waiting"


@pytest.mark.parametrize(
    ("message", "is_old"),
    [
        ("[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 3", True),
        ("[KAFKA_DATA_LOSS.TOPIC_DELETED] the topic was deleted", True),
        ("the broker hung up", False),
    ],
)
def test_what_was_read_before_the_first_query_may_be_at_fault(message: str, *, is_old: bool) -> None:
    name = message[1:].partition("]")[0] if message.startswith("[") else None
    cause = ChainedException(language="java", class_name="AnException", condition=name, message=message)
    seen = RecordedFailure(causes=(cause,))
    assert find_cause("", seen).is_of_old_plan == is_old


def test_cause_of_a_driver_that_told_nothing_is_unknown() -> None:
    assert find_cause("all is well\n", None) == failure.Cause()
    assert find_cause("Traceback (most recent call last):\nValueError: no such flight\n", None).line == (
        "ValueError: no such flight"
    )


def test_memory_that_does_not_suffice_does_not_pass_by_itself() -> None:
    output = 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat Main.main(Main.java:1)\n'
    cause = find_cause(output, None)
    assert (cause.cls, cause.passes_by_itself) == (FailureClass.RESOURCES, False)
