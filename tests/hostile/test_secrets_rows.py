"""The line that events, incidents and reports keep of a failure holds no secrets, and no rows of the data."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hostile.attacker import call
from spellings import SECRET, SPELLINGS, spelled

from lastgood.cli.main import main
from lastgood.failures.ending import find_cause, format_error
from lastgood.failures.failure_class import FailureClass
from lastgood.ledger.telling import make_telling
from lastgood.records.record import ChainedException, RecordedFailure, Terminated
from lastgood.redaction import redact_told
from lastgood.spark.record_sinks import AsTold
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

LINES = [
    # Spark
    '[CAST_INVALID_INPUT] The value \'alice@x\' of the type "STRING" cannot be cast to "INT" because it is malformed.',
    "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: [alice@x,5].",
    "[CANNOT_PARSE_TIMESTAMP] Text 'alice@x' could not be parsed at index 0",
    "[CANNOT_PARSE_JSON_FIELD] Cannot parse the field name `a` and the value `alice` of the JSON token type STRING.",
    "[MAP_KEY_DOES_NOT_EXIST] Key 'alice' does not exist.",
    "[DUPLICATED_MAP_KEY] Duplicate map key alice was found, please check the input data.",
    '[CAST_OVERFLOW] The value 77alice77L of the type "BIGINT" cannot be cast to "INT" due to an overflow.',
    "[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] 77alice77 cannot be represented as Decimal(3, 1).",
    "Malformed CSV record: alice,5",
    # Python, Arrow, Java, Jackson
    "no such field in Row(name='alice@x', age=5)",
    "no such field in Row('alice@x', 5)",
    "bad row {'name': 'alice@x'}",
    "invalid literal for int() with base 10: 'alice@x'",
    "could not convert string to float: 'alice@x'",
    "time data 'alice' does not match format '%Y'",
    "Could not convert 'alice' with type str: tried to convert to int64",
    'Unable to parse string "alice" at position 0',
    'For input string: "alice@x"',
    'Cannot deserialize value of type `int` from String "alice": not a valid `int` value',
    'Failed to parse JSON: {"name": "alice"}',
    'Unexpected end-of-input at [Source: (String)"{"name": "alice"; line: 1, column: 17]',
    'Unparseable date: "alice"',
    "key not found: alice",
    "alice (of class java.lang.String)",
    "(alice,5) (of class scala.Tuple2)",
    "No enum constant com.shop.Kind.alice",
    "Invalid UUID string: alice",
    "UUID string too large: alice",
    "'alice' is not a valid Kind",
    "'alice' is not in list",
    # Delta
    '[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] Value "alice" exceeds char/varchar type length limitation.',
    "Check or Invariant (age > 0) violated by value in row: [alice, -5]",
    # databases
    'ERROR: duplicate key value violates unique constraint "pk"  Detail: Key (mail, id)=(alice@x, 5) already exists.',
    "DETAIL:  Failing row contains (5, alice, null).",
    'ERROR: invalid input syntax for type integer: "alice"',
    'date/time field value out of range: "alice"',
    'CONTEXT:  COPY people, line 3, column name: "alice"',
    "Batch entry 0 INSERT INTO people (name, age) VALUES ('alice', 5) was aborted: ERROR",
    "update people set name = 'alice' where id = 5",
    "[parameters: {'name': 'alice'}]",
    "ORA-03301: (ORA-00001 details) row with column values (MAIL:'alice') already exists",
    "Duplicate entry 'alice' for key 'pk'",
    "The duplicate key value is (alice).",
]
TOKEN = "Unrecognized token 'alice': was expecting (JSON String, Number, Array, Object or token 'null')"
"""Of Jackson; hidden as a secret before anything else is looked at."""
SEVERAL = """\
[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (age > 0) violated by row with values:
 - age : -5
 - name : alice
\tat org.apache.spark.sql.delta.constraints.CheckDeltaInvariant"""


@pytest.mark.parametrize("line", [*LINES, TOKEN])
def test_rows_are_cut_from_the_line_of_a_failure(line: str) -> None:
    shown = format_error(
        RecordedFailure(causes=(ChainedException(language="python", class_name="ValueError", message=line),))
    )
    printed = find_cause(f"Traceback (most recent call last):\nValueError: {line}\n", None).line
    for each in (shown, printed):
        assert each is not None
        assert "alice" not in each
        assert "…" in each or "***" in each


@pytest.mark.parametrize("name", SPELLINGS)
def test_secrets_are_hidden_in_the_line_of_a_failure(name: str) -> None:
    line = f"could not connect: {spelled(name).splitlines()[0]}"
    assert SECRET not in (
        format_error(RecordedFailure(causes=(ChainedException(language="java", class_name="x.E", message=line),))) or ""
    )
    assert SECRET not in (find_cause(f"x.SQLException: {spelled(name)}\n", None).line or "")


def test_a_failure_is_classified_by_the_whole_text() -> None:
    text = 'ValueError: password=hunter2 in Row(a="x")\n'
    assert find_cause(text, None).cls is find_cause(text.replace("hunter2", "other"), None).cls
    assert isinstance(find_cause(text, None).cls, FailureClass)


KEPT = [
    "topic 'orders' is gone",
    "offsets/7 is missing",
    "batch 7 of table orders failed",
    'relation "orders" does not exist',
    'duplicate key value violates unique constraint "pk"',
    "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: age.",
    "Partition orders-0's offset was changed from 12345 to 0, some data may have been missed.",
    "Offsets out of range with no configured reset policy for partitions: {orders-0=5}",
    "Concurrent update to the log. Multiple streaming jobs detected for 7",
]


@pytest.mark.parametrize("line", KEPT)
def test_what_is_no_row_stays(line: str) -> None:
    shown = format_error(RecordedFailure(causes=(ChainedException(language="python", class_name="E", message=line),)))
    assert shown == f"E: {line}"


def test_rows_below_a_line_are_cut_as_well() -> None:
    told = redact_told(SEVERAL)
    assert "alice" not in told
    assert "-5" not in told
    assert told.endswith("\n\tat org.apache.spark.sql.delta.constraints.CheckDeltaInvariant")


@pytest.mark.parametrize("line", LINES)
def test_rows_are_left_where_somebody_has_asked_for_them(line: str) -> None:
    failure = RecordedFailure(
        causes=(ChainedException(language="python", class_name="ValueError", message=f"{line} password=hunter2"),)
    )
    shown = format_error(failure, show_data=True) or ""
    assert "alice" in shown
    assert "hunter2" not in shown


RUN_ID = "4f3b1d3d-4a49-4d4b-8e4b-3c4d5e6f7081"
LOG = f"""\
26/11/21 12:00:00 ERROR MicroBatchExecution: Query orders [id = {QUERY_ID}, runId = {RUN_ID}] terminated with error
org.apache.spark.SparkException: LINE
\tat org.apache.spark.sql.execution.streaming.X.y(X.scala:1)
"""


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize("line", LINES)
def test_diagnose_quotes_no_rows_of_a_log_unless_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, output_format: str
) -> None:
    CheckpointBuilder(tmp_path / "chk").run(2)
    (tmp_path / "log").write_text(LOG.replace("LINE", f"{line} password=hunter2"))
    words = ["diagnose", str(tmp_path / "chk"), "--log", str(tmp_path / "log"), "--format", output_format]
    for asked in (False, True):
        with pytest.raises(SystemExit):
            main([*words, *(["--show-data"] if asked else [])])
        said = "".join(capsys.readouterr())
        assert "FAILURE_" in said
        assert ("alice" in said) is asked
        assert "hunter2" not in said


@pytest.mark.parametrize("line", LINES)
def test_neither_ledger_nor_recorder_keeps_rows(line: str) -> None:
    secret = "password=hunter2"
    cause = ChainedException(
        language="java",
        message=f"{line}\n{SEVERAL}\n{secret}",
        message_parameters={"expression": "'alice'", "id": RUN_ID},
        traceback=f"ValueError: {line}\n{secret}",
    )
    record = Terminated(
        recorded_at_ms=1, query_id="q", failure=RecordedFailure(message=f"{line} {secret}", causes=(cause,))
    )
    (kept,) = make_telling([record]).failures
    taken: list[dict[str, Any]] = []

    class Kept:
        pause_seconds = 0.0

        def write(self, records: Sequence[dict[str, Any]]) -> None:
            taken.extend(records)

        def close(self) -> None:
            pass

    AsTold(Kept()).write([record.to_json()])
    for told in (dataclasses.asdict(kept), *taken):
        whole = json.dumps(told, default=str)
        assert "alice" not in whole
        assert "hunter2" not in whole
        assert RUN_ID in whole


@pytest.mark.parametrize("way", ["never", "option", "policy"])
def test_run_tells_and_writes_rows_only_where_somebody_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    CheckpointBuilder(tmp_path / "chk").run(2)
    (tmp_path / "app.py").write_text("raise ValueError(\"bad row {'name': 'alice'} password=hunter2\")\n")
    (tmp_path / "lastgood.toml").write_text(
        f"[pipeline.a]\ncommand = ['{sys.executable}', '{tmp_path / 'app.py'}']\ncheckpoint = '{tmp_path / 'chk'}'\n"
        f"[pipeline.a.policy]\nmax_attempts = 0\nshow_data = {str(way == 'policy').lower()}\n"
    )
    words = ["run", "a", "--config", tmp_path / "lastgood.toml", "--no-agent", "--format", "json"]
    told = call(*words, *(["--show-data"] if way == "option" else []))
    assert told.code == 71
    (incident,) = (tmp_path / "chk.lastgood/incidents").glob("*.json")
    for text in (told.out + told.err, incident.read_text()):
        assert "bad row" in text
        assert ("alice" in text) is (way != "never")
        assert "hunter2" not in text
