from __future__ import annotations

import pytest

from lastgood.failures.causes import Thrown
from lastgood.failures.classify import classify_causes
from lastgood.failures.of_running import RESOURCE_RULES, RUN_RULES
from lastgood.records.record import ChainedException

JAVA = [
    ("out_of_memory", "OutOfMemoryError", None, "Java heap space"),
    ("out_of_memory", "SparkException", "CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY", ""),
    ("killed_for_memory", "SparkException", None, "Reason: Container killed by YARN for exceeding memory limits."),
    ("no_space", "IOException", None, "No space left on device"),
    ("too_many_open_files", "FileSystemException", None, "/tmp/x: Too many open files"),
    ("result_too_large", "SparkException", None, "Total size (2 GiB) is bigger than spark.driver.maxResultSize"),
    ("slots", "SparkException", "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT", ""),
    ("stopped", "SparkException", "SPARK_JOB_CANCELLED", ""),
    ("context_stopped", "SparkException", None, "Job 4 cancelled because SparkContext was shut down"),
    ("interrupted", "InterruptedException", None, ""),
    ("python_gone", "Py4JException", None, "Error while obtaining a new communication channel"),
    ("access_refused", "TopicAuthorizationException", None, "Not authorized to access topics: [orders]"),
    ("kafka_silent", "TimeoutException", None, "Timed out waiting for a node assignment. Call: listNodes"),
    ("not_reached", "SocketTimeoutException", None, "Read timed out"),
    ("throttled", "S3Exception", None, "Please reduce your request rate. (Service: S3, Status Code: 503)"),
    ("executor_lost", "SparkException", None, "ExecutorLostFailure (executor 1 exited) Reason: code 137"),
    ("python_worker_lost", "SparkException", None, "Python worker exited unexpectedly (crashed)"),
    ("code_does_not_run", "ClassNotFoundException", None, "a.B"),
    ("bad_value", "SparkNumberFormatException", "CAST_INVALID_INPUT", ""),
    ("unreadable_file", "SparkException", "FAILED_READ_FILE.NO_HINT", ""),
    ("python_worker", "PythonException", None, "cut"),
    ("cause_not_told", "SparkException", "TASK_WRITE_FAILED", ""),
]  # fmt: skip
PYTHON = [
    ("stopped", "KeyboardInterrupt"),
    ("jvm_gone", "py4j.protocol.Py4JNetworkError"),
    ("not_reached", "urllib3.exceptions.NewConnectionError"),
    ("user_code_does_not_run", "NameError"),
    ("user_code", "decimal.InvalidOperation"),
]
OF_A_BATCH = ChainedException(language="java", class_name="py4j.Py4JException", message="…")


@pytest.mark.parametrize(("rule", "class_name", "condition", "message"), JAVA)
def test_java_failure_of_a_running_query_is_known(
    rule: str, class_name: str, condition: str | None, message: str
) -> None:
    cause = ChainedException(language="java", class_name=f"org.x.{class_name}", condition=condition, message=message)
    assert classify_causes([cause]).rule == rule


@pytest.mark.parametrize(("rule", "class_name"), PYTHON)
def test_python_failure_within_a_query_is_known(rule: str, class_name: str) -> None:
    assert classify_causes([OF_A_BATCH, ChainedException(language="python", class_name=class_name)]).rule == rule


REFUSED_BY_PYTHON = [
    Thrown(
        language="java", class_name="py4j.Py4JException", message="Error while obtaining a new communication channel"
    ),
    Thrown(language="java", class_name="java.net.ConnectException", message="Connection refused"),
]
REFUSED_BY_JAVA = [
    Thrown(language="python", class_name="py4j.protocol.Py4JNetworkError", message="no Java server at 127.0.0.1:33221"),
    Thrown(language="python", class_name="ConnectionRefusedError", message="[Errno 111] Connection refused"),
]


@pytest.mark.parametrize(("chain", "rule"), [(REFUSED_BY_PYTHON, "python_gone"), (REFUSED_BY_JAVA, "jvm_gone")])
def test_half_a_driver_that_was_killed_is_no_service_that_was_away(chain: list[ChainedException], rule: str) -> None:
    """The other half writes that its connection is refused, as real ones do after `kill -9`."""
    found = classify_causes(chain)
    assert (found.rule, found.is_aftermath) == (rule, True)


def test_what_ended_the_driver_counts_before_the_connection_that_it_lost_by_it() -> None:
    damaged = ChainedException(language="java", class_name="a.E", condition="KAFKA_DATA_LOSS.PARTITIONS_DELETED")
    assert classify_causes([REFUSED_BY_JAVA[0], damaged]).rule == "kafka_partitions_gone"


def test_a_service_that_user_code_called_was_away() -> None:
    raised = ChainedException(language="java", class_name="py4j.Py4JException", message="An exception was raised by …")
    away = ChainedException(language="python", class_name="ConnectionRefusedError", message="[Errno 111] refused")
    assert classify_causes([raised, away]).rule == "not_reached"


def test_every_rule_is_tried() -> None:
    tried = {rule for rule, *_ in JAVA} | {rule for rule, _ in PYTHON} | {"expression"}
    assert tried == {rule.name for rule in (*RESOURCE_RULES, *RUN_RULES)}


def test_expression_fails_on_data() -> None:
    frames = ("org.apache.spark.sql.catalyst.expressions.GeneratedClass$A.next",)
    assert classify_causes([Thrown(language="java", class_name="a.B", frames=frames)]).rule == "expression"


def test_user_function_in_scala_fails_on_data() -> None:
    outer = ChainedException(language="java", class_name="a.E", condition="FOREACH_BATCH_USER_FUNCTION_ERROR")
    assert (
        classify_causes([outer, ChainedException(language="java", class_name="com.shop.NoSuchOrder")]).rule
        == "user_code"
    )
    spark = ChainedException(language="java", class_name="org.apache.spark.SparkException", condition="SOMETHING_NEW")
    assert classify_causes([outer, spark]).rule is None


def test_interruption_does_not_count_before_what_it_interrupted() -> None:
    expired = ChainedException(language="java", class_name="a.E", condition="KAFKA_DATA_LOSS.PARTITIONS_DELETED")
    interrupted = ChainedException(language="java", class_name="java.lang.InterruptedException")
    assert classify_causes([expired, interrupted]).rule == "kafka_partitions_gone"
