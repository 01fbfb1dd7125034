from __future__ import annotations

import pytest

from lastgood.failures.causes import Thrown, continue_chain, read_causes, take_first_line, take_simple_name
from lastgood.records.record import ChainedException


def told(causes: tuple[Thrown, ...]) -> list[tuple[str, str | None, str]]:
    return [(each.language, each.class_name, each.first_line) for each in causes]


JAVA = """\
org.x.Outer: wrapped
\tat org.x.A.run(A.java:1)
\tSuppressed: org.x.Closing: not closed
\t\tat org.x.B.close(B.java:2)
\t\t... 3 more
\tCaused by: org.x.Hidden: of the suppressed one
\t\tat org.x.B.close(B.java:3)
Caused by: org.x.Inner$Kind: two
lines of it
\tat java.base/org.x.C.read(C.java:4)
\t... 7 more
"""


def test_java_chain_is_read_without_what_was_suppressed() -> None:
    causes = read_causes(JAVA)
    assert told(causes) == [("java", "org.x.Outer", "wrapped"), ("java", "org.x.Inner$Kind", "two")]
    assert causes[1].message == "two\nlines of it"
    assert [each.frames for each in causes] == [("org.x.A.run",), ("org.x.C.read",)]


def test_what_was_suppressed_ends_where_the_text_around_it_goes_on() -> None:
    inner = "x.A: a\n\tat b.C(D:1)\n\tSuppressed: x.B: b\n\t\tat b.C(D:1)\n"
    text = f"Traceback (most recent call last):\npy4j.protocol.Py4JJavaError: called\n: {inner}\n"
    then = "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    names = [each.class_name for each in read_causes(text + then + "KeyError: 'k'\n")]
    assert names == ["KeyError", "py4j.protocol.Py4JJavaError", "x.A"]


def test_windows_line_ends_make_no_difference() -> None:
    assert read_causes(JAVA.replace("\n", "\r\n")) == read_causes(JAVA)


PYTHON_CHAINED = """\
Traceback (most recent call last):
  File "/app/app.py", line 3, in f
    int("x")
ValueError: not a number

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/app.py", line 5, in g
    raise KeyError("k") from error
KeyError: 'k'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/app.py", line 9, in <module>
    g()
app.errors.MyError: all is lost
"""


def test_python_prints_the_cause_first_and_it_is_the_innermost() -> None:
    causes = read_causes(PYTHON_CHAINED)
    assert [each.class_name for each in causes] == ["app.errors.MyError", "KeyError", "ValueError"]
    assert causes[2].traceback is not None
    assert 'line 3, in f\n    int("x")' in causes[2].traceback


NESTED = """\
org.apache.spark.sql.execution.streaming.sources.ForeachBatchUserFuncException: [FOREACH_BATCH_USER_FUNCTION_ERROR] \
An error occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python \
Proxy. Return Message: Traceback (most recent call last):
  File "/opt/lib/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/app/app.py", line 7, in write
    frame.collect()
py4j.protocol.Py4JJavaError: An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.
\tat org.apache.spark.sql.execution.streaming.state.StateStore.get(StateStore.scala:1)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:1)
\t... 3 more

 SQLSTATE: 39000
\tat py4j.Protocol.getReturnValue(Protocol.java:476)
\tat org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink.addBatch(ForeachBatchSink.scala:42)
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent \
call last):
  File "/app/app.py", line 7, in write
    frame.collect()
py4j.protocol.Py4JJavaError: An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.
\tat org.apache.spark.sql.execution.streaming.state.StateStore.get(StateStore.scala:1)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:1)
\t... 3 more


\tat py4j.Protocol.getReturnValue(Protocol.java:476)
\t... 30 more
"""


def test_java_in_python_in_java_is_read_to_its_ground_and_only_once() -> None:
    causes = read_causes(NESTED)
    assert [(each.language, take_simple_name(each.class_name), each.condition) for each in causes] == [
        ("java", "ForeachBatchUserFuncException", "FOREACH_BATCH_USER_FUNCTION_ERROR"),
        ("java", "Py4JException", None),
        ("python", "Py4JJavaError", None),
        ("java", "SparkException", "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED"),
        ("java", "EOFException", None),
    ]
    assert causes[3].frames == ("org.apache.spark.sql.execution.streaming.state.StateStore.get",)


def test_a_chain_within_python_within_java_keeps_its_order() -> None:
    text = (
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
        + PYTHON_CHAINED
        + "\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)\nCaused by: org.x.Last: none of Python's\n"
    )
    names = [each.class_name for each in read_causes(text)]
    assert names == ["py4j.Py4JException", "app.errors.MyError", "KeyError", "ValueError", "org.x.Last"]


def test_text_of_a_failed_query_tells_its_cause_without_a_class() -> None:
    causes = read_causes(
        "pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] "
        "terminated with exception: batch 6 doesn't exist SQLSTATE: XXKST\n=== Streaming Query ===\n"
        "Identifier: [id = 1, runId = 2]\n\nLogical Plan:\nCaused by: no exception but a column's name\n",
    )
    assert [each.class_name for each in causes[:2]] == [
        "pyspark.errors.exceptions.captured.StreamingQueryException",
        None,
    ]
    assert (causes[0].condition, causes[1].first_line) == ("STREAM_FAILED", "batch 6 doesn't exist")


def test_failed_task_names_its_exception_within_a_line() -> None:
    causes = read_causes(
        "Lost task 0.0 in stage 2.0 (TID 3) (host.x executor 1): org.apache.spark.SparkException: [TASK_WRITE_FAILED] "
        "Task failed while writing rows to s3a://lake/t. SQLSTATE: 58030\n\tat org.x.A.a(A.scala:1)\n"
        "Caused by: org.x.Inner\n\tat org.x.B.b(B.scala:1)\n",
    )
    assert [each.class_name for each in causes] == ["org.apache.spark.SparkException", "org.x.Inner"]
    assert causes[0].first_line == "[TASK_WRITE_FAILED] Task failed while writing rows to s3a://lake/t."


@pytest.mark.parametrize("text", ["", "all is well", "Traceback", "Caused by: an unknown power", "\tat a.b.C(D:1)"])
def test_other_text_tells_of_none(text: str) -> None:
    assert read_causes(text) == ()


def test_traceback_that_is_cut_is_still_one() -> None:
    (cause,) = read_causes('Traceback (most recent call last):\n  File "/app/a.py", line 1, in f\n    g(')
    assert (cause.language, cause.class_name, cause.message) == ("python", None, "")


def test_what_never_ends_stays_bounded() -> None:
    text = "org.x.E: " + "x" * 100_000 + "".join(f"\nCaused by: org.x.E{n}: {n}" for n in range(1000))
    causes = read_causes(text)
    assert len(causes) == 100
    assert (causes[0].class_name, causes[-1].class_name) == ("org.x.E", "org.x.E999")
    assert max(len(each.message) for each in causes) == 65_536


def test_chain_goes_on_where_another_one_has_the_same_exception() -> None:
    outer = ChainedException(language="java", class_name="org.x.Write", message="failed at t SQLSTATE: 58030")
    again = ChainedException(language="java", class_name="org.x.Write", message="failed at t")
    inner = ChainedException(language="java", class_name="org.x.Cause", message="why")
    assert continue_chain([outer], [[inner], [again], [inner, again, inner]]) == (outer, inner)
    assert continue_chain(
        [outer], [[ChainedException(language="java", class_name="org.x.Write", message="at u"), inner]]
    ) == (outer,)
    assert continue_chain([], [[inner]]) == ()


def test_names_and_lines_are_told_short() -> None:
    assert take_simple_name("org.x.Table$Part$") == "Part"
    assert take_simple_name(None) == ""
    assert take_first_line("  one SQLSTATE: 38000 SQLSTATE: XXKST\ntwo") == "one"
