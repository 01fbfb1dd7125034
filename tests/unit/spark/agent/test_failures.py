"""Chains of causes through Python and Java. The Java side answers as py4j's objects do."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError

from lastgood.spark.agent import failures


class JavaException:
    """An exception in Java, as py4j shows it: a method that its class lacks is an error when it is called."""

    def __init__(
        self,
        name: str,
        message: str | None,
        cause: JavaException | None = None,
        condition: str | None = None,
        **parameters: str,
    ) -> None:
        self._name, self._message, self._cause = name, message, cause
        self._condition, self._parameters = condition, parameters

    def __getattr__(self, method: str) -> Any:
        answers: dict[str, Any] = {
            "getClass": self,
            "getName": self._name,
            "getMessage": self._message,
            "getCause": self._cause,
            "startOffset": '[{"poi":{"0":10}}]',
            "endOffset": '[{"poi":{"0":15}}]',
        }
        if self._condition is not None:
            answers |= {"getErrorClass": self._condition, "getMessageParameters": self._parameters}

        def call() -> Any:
            if method not in answers:
                raise Py4JError(f"Method {method}([]) does not exist")
            return answers[method]

        return call


STREAMING = "org.apache.spark.sql.streaming.StreamingQueryException"
TRACEBACK = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/app/worker.py", line 3, in parse
    raise ValueError(f"bad record {where}")
ValueError: bad record poi/a/1/13
 SQLSTATE: 38000"""


def names(failure: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(cause["class_name"], cause["condition"]) for cause in failure["causes"]]


def test_chain_of_a_query_is_told_to_its_innermost_cause_with_its_offsets() -> None:
    reset = JavaException("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "out of range")
    lost = JavaException(
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
        "lost",
        reset,
        "KAFKA_DATA_LOSS.X",
        topicPartition="poi-0",
    )
    told = failures.make_failure_of_query(
        JavaException(STREAMING, "failed", lost, "STREAM_FAILED", id="q", runId="r"), "q", None
    )
    assert names(told) == [
        (STREAMING, "STREAM_FAILED"),
        ("org.apache.spark.sql.kafka010.KafkaIllegalStateException", "KAFKA_DATA_LOSS.X"),
        ("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", None),
    ]
    assert (told["condition"], told["message"]) == ("KAFKA_DATA_LOSS.X", "failed")
    assert (told["start_offsets"], told["end_offsets"]) == ([{"poi": {"0": 10}}], [{"poi": {"0": 15}}])
    assert told["causes"][1]["message_parameters"] == {"topicPartition": "poi-0"}
    assert failures.find_run(told) == ("q", "r")


def test_condition_that_the_event_names_counts_before_those_of_the_causes() -> None:
    inner = JavaException("A", "a", None, "INNER")
    told = failures.make_failure_of_query(
        JavaException(STREAMING, "x", inner, "STREAM_FAILED"), "q", "FOREACH_BATCH_USER_FUNCTION_ERROR"
    )
    assert told["condition"] == "FOREACH_BATCH_USER_FUNCTION_ERROR"


def test_python_exception_of_a_worker_is_read_from_its_traceback() -> None:
    worker = JavaException("org.apache.spark.api.python.PythonException", TRACEBACK)
    inner = failures.make_failure_of_query(JavaException(STREAMING, "x", worker), "q", None)["causes"][-1]
    assert (inner["language"], inner["class_name"], inner["message"]) == (
        "python",
        "ValueError",
        "bad record poi/a/1/13",
    )
    assert "line 3, in parse" in inner["traceback"]


@pytest.mark.parametrize(
    ("last", "name", "message"),
    [
        ("KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("mine.errors.BadRecord: two\nlines", "mine.errors.BadRecord", "two\nlines"),
    ],
)
def test_last_lines_of_a_traceback(last: str, name: str, message: str) -> None:
    text = f'Traceback (most recent call last):\n  File "a", line 1\n{last}'
    told = failures.make_failure_as_told(text, None)
    assert (told["causes"][-1]["class_name"], told["causes"][-1]["message"]) == (name, message)


def test_text_with_half_a_traceback_is_kept_as_it_is() -> None:
    told = failures.make_failure_as_told('Traceback (most recent call last):\n  File "a"', "X")
    assert len(told["causes"]) == 1
    assert (told["condition"], failures.find_run(told)) == ("X", (None, None))


def test_what_a_function_of_foreach_batch_raised_takes_the_place_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class CapturedError(Exception):
        _origin = JavaException(
            "org.apache.spark.SparkException", "aborted", JavaException("Lost", "gone", None, "KAFKA_DATA_LOSS.X")
        )

    class Query:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: "q" if name == "getLocalProperty" else self

    def user_function(function: object, frame: object, batch_id: int) -> None:
        raise CapturedError("aborted")

    monkeypatch.setattr(failures, "_foreach_batch_errors", {})
    with pytest.raises(CapturedError):
        failures._keep_errors(user_function)(None, Query(), 3)
    exception = JavaException(STREAMING, "x", JavaException("py4j.Py4JException", TRACEBACK), "STREAM_FAILED")
    for _ in range(2):  # a recorder and another one
        told = failures.make_failure_of_query(exception, "q", None)
        assert [each[0].rpartition(".")[2] for each in names(told)] == [
            "StreamingQueryException",
            "Py4JException",
            "CapturedError",
            "SparkException",
            "Lost",
        ]
        assert told["condition"] == "KAFKA_DATA_LOSS.X"


def test_error_kept_of_foreach_batch_is_bounded_and_never_a_second_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {str(number): [] for number in range(100)}
    monkeypatch.setattr(failures, "_foreach_batch_errors", kept)

    class Frame:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: "new" if name == "getLocalProperty" else self

    failures._keep(Frame(), ValueError("x"))
    assert len(kept) == 100
    assert list(kept)[-1] == "new"
    failures._keep(None, ValueError("x"))


def test_python_exceptions_are_told_with_what_they_were_raised_from() -> None:
    error = RuntimeError("no such table")
    error.__cause__ = KeyError("orders")
    told = failures.make_failure_of_error(error)
    assert names(told) == [("RuntimeError", None), ("KeyError", None)]
    assert told["causes"][0]["traceback"] == "RuntimeError: no such table\n"


@pytest.mark.parametrize(("is_suppressed", "count"), [(True, 1), (False, 2)])
def test_what_was_handled_before_counts_unless_it_was_ruled_out(is_suppressed: bool, count: int) -> None:
    error = RuntimeError("no such table")
    error.__context__ = KeyError("orders")
    error.__suppress_context__ = is_suppressed
    assert len(failures.make_failure_of_error(error)["causes"]) == count


def test_exception_without_words_is_told_too() -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert failures.make_failure_of_error(WordlessError())["message"] == "(ValueError in its __str__)"


def test_messages_are_whole_up_to_64_kb_and_parameters_are_values() -> None:
    long = "x" * 70_000
    cause = JavaException("A", long, None, "X", text=long, topic="poi")
    told = failures.make_failure_of_query(cause, "q", None)
    assert told["message"] == "x" * 65_536
    assert told["causes"][0]["message_parameters"] == {"topic": "poi"}


def connect_error(stack: str | None, text: str) -> Exception:
    kind = type("StreamingQueryException", (Exception,), {"__module__": "pyspark.errors.exceptions.connect"})
    error: Exception = kind(text)
    error._stacktrace = stack  # type: ignore[attr-defined]
    error.getCondition = lambda: "STREAM_FAILED"  # type: ignore[attr-defined]
    error.getMessageParameters = lambda: {"id": "q", "runId": "r"}  # type: ignore[attr-defined]
    return error


STACK = f"""org.apache.spark.sql.streaming.StreamingQueryException
\tat org.apache.spark.A.b(A.scala:1)
Caused by: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] {TRACEBACK}
\tat org.apache.spark.C.d(C.scala:2)
Caused by: java.io.EOFException
\t... 3 more
"""


@pytest.mark.parametrize(
    "error", [connect_error(STACK, "failed"), connect_error(None, f"failed\n\nJVM stacktrace:\n{STACK}")]
)
def test_chain_of_a_connect_server_is_read_from_its_stack_trace(error: Exception) -> None:
    told = failures.make_failure_of_error(error)
    assert names(told) == [
        ("pyspark.errors.exceptions.connect.StreamingQueryException", "STREAM_FAILED"),
        ("org.apache.spark.sql.streaming.StreamingQueryException", None),
        ("org.apache.spark.api.python.PythonException", "PYTHON_EXCEPTION"),
        ("java.io.EOFException", None),
    ]
    assert (told["condition"], failures.find_run(told)) == ("PYTHON_EXCEPTION", ("q", "r"))
    assert told["causes"][2]["message"].endswith("SQLSTATE: 38000")
