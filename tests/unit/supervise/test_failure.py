from __future__ import annotations

from lastgood.supervise.failure import last_error

STREAM_FAILED = """\
26/11/21 09:00:00 ERROR MicroBatchExecution: Query [id = 1, runId = 2] terminated with error
Traceback (most recent call last):
  File "app.py", line 9, in <module>
    query.awaitTermination()
pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] terminated \
with exception: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure
{more}
"""


def test_silence_has_no_error() -> None:
    assert last_error("") is None
    assert last_error("all is well\n") is None


def test_python_exception_is_its_last_line() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no such flight\n'
    assert last_error(text) == "ValueError: no such flight"


def test_innermost_java_cause_counts_before_the_python_around_it() -> None:
    more = "Caused by: org.example.Outer: wrapped\n\tat x.Y\nCaused by: java.io.IOException: disk gone\n\tat z"
    assert last_error(STREAM_FAILED.format(more=more)) == "java.io.IOException: disk gone"


def test_a_condition_counts_before_its_wrapper() -> None:
    more = "org.x.E: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error [CAST_INVALID_INPUT] The value 'x' of"
    assert last_error(STREAM_FAILED.format(more=more)) == "[CAST_INVALID_INPUT] The value 'x' of"


def test_wrapper_alone_is_better_than_nothing() -> None:
    found = last_error(STREAM_FAILED.format(more=""))
    assert found is not None
    assert found.startswith("pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED]")


def test_an_older_traceback_does_not_count() -> None:
    old = "Traceback (most recent call last):\nCaused by: old.Error: handled\nKeyError: 'a'\n"
    new = "Traceback (most recent call last):\nTypeError: the real one\n"
    assert last_error(old + new) == "TypeError: the real one"


def test_logged_error_serves_where_nothing_was_raised() -> None:
    assert last_error("26/11/21 09:00:00 ERROR Executor: out of luck\nbye\n") == "Executor: out of luck"


def test_a_line_is_kept_short() -> None:
    assert len(last_error("ValueError: " + "x" * 10_000) or "") == 500
