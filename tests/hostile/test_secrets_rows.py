"""The line that events, incidents and reports keep of a failure holds no secrets, and no rows of the data."""

from __future__ import annotations

import pytest
from spellings import SECRET, SPELLINGS, spelled

from lastgood.diagnosis.failure_class import FailureClass
from lastgood.records.record import Cause, Failure
from lastgood.supervise.failure import cause_of, error_line

LINES = [
    '[CAST_INVALID_INPUT] The value \'alice@x\' of the type "STRING" cannot be cast to "INT" because it is malformed.',
    "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: [alice@x,5].",
    "[CANNOT_PARSE_TIMESTAMP] Text 'alice@x' could not be parsed at index 0",
    "no such field in Row(name='alice@x', age=5)",
    "bad row {'name': 'alice@x'}",
    "invalid literal for int() with base 10: 'alice@x'",
    "could not convert string to float: 'alice@x'",
    'For input string: "alice@x"',
]


@pytest.mark.parametrize("line", LINES)
def test_rows_are_cut_from_the_line_of_a_failure(line: str) -> None:
    shown = error_line(Failure(causes=(Cause(language="python", class_name="ValueError", message=line),)))
    printed = cause_of(f"Traceback (most recent call last):\nValueError: {line}\n", None).line
    for each in (shown, printed):
        assert each is not None
        assert "alice" not in each
        assert "…" in each


@pytest.mark.parametrize("name", SPELLINGS)
def test_secrets_are_hidden_in_the_line_of_a_failure(name: str) -> None:
    line = f"could not connect: {spelled(name).splitlines()[0]}"
    assert SECRET not in (error_line(Failure(causes=(Cause(language="java", class_name="x.E", message=line),))) or "")
    assert SECRET not in (cause_of(f"x.SQLException: {spelled(name)}\n", None).line or "")


def test_a_failure_is_classified_by_the_whole_text() -> None:
    text = 'ValueError: password=hunter2 in Row(a="x")\n'
    assert cause_of(text, None).cls is cause_of(text.replace("hunter2", "other"), None).cls
    assert isinstance(cause_of(text, None).cls, FailureClass)


@pytest.mark.parametrize("line", ["topic 'orders' is gone", "offsets/7 is missing", "batch 7 of table orders failed"])
def test_what_is_no_row_stays(line: str) -> None:
    shown = error_line(Failure(causes=(Cause(language="python", class_name="E", message=line),)))
    assert shown == f"E: {line}"
