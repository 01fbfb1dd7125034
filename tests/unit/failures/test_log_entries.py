from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from lastgood.failures.log_entries import LogEntry, read_entries
from lastgood.records.record import Terminated


def entries(log: str | bytes) -> list[LogEntry]:
    return list(read_entries(io.BytesIO(log.encode() if isinstance(log, str) else log)))


@pytest.mark.parametrize(
    ("line", "level", "logger", "text"),
    [
        ("26/11/21 12:39:26 INFO SparkContext: Running", "INFO", "SparkContext", "Running"),
        ("26/11/21 12:39:26 WARN Provider StoreId[ a=1 ]: gone", "WARN", "Provider", "StoreId[ a=1 ]: gone"),
        ("2026-11-21 12:39:26,123 ERROR org.x.Sink: no", "ERROR", "Sink", "no"),
        ("2026-11-21T12:39:26.123Z WARN org.x.Sink - no", "WARN", "Sink", "no"),
        ("2026-11-21 12:39:26,123 [main] INFO  org.x.Sink [thread]: no", "INFO", "Sink", "no"),
        ("[2026-11-21 12:39:26] CRITICAL app.jobs: no", "FATAL", "jobs", "no"),
        ("2026-11-21 12:39:26 - ERROR - all is lost", "ERROR", "", "all is lost"),
        ("WARNING:app.jobs:no", "WARN", "jobs", "no"),
        ("2026-11-21T12:39:26.1Z stderr F 26/11/21 12:39:26 ERROR Executor: no", "ERROR", "Executor", "no"),
        ("\x1b[31m26/11/21 12:39:26 ERROR\x1b[0m Executor: no\r", "ERROR", "Executor", "no"),
        ('{"log":"26/11/21 12:39:26 ERROR Executor: no\\n","stream":"stderr"}', "ERROR", "Executor", "no"),
        ('{"ts":"2026","level":"ERROR","msg":"no","logger":"org.x.Sink"}', "ERROR", "Sink", "no"),
    ],
)
def test_layouts_are_known(line: str, level: str, logger: str, text: str) -> None:
    (entry,) = entries(line + "\n")
    assert (entry.level, entry.logger, entry.text) == (level, logger, text)


LOG = """\
Setting default log level to "WARN".
26/11/21 12:39:26 ERROR A: broken
org.x.E: why
\tat x.Y.z(Y:1)
26/11/21 12:39:27 INFO B: fine
Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2, in f
KeyError: 'two'
26/11/21 12:39:28 INFO C: done
"""


def test_stack_belongs_to_its_message_and_a_traceback_stands_alone() -> None:
    seen = [(each.first_line, each.last_line, each.level) for each in entries(LOG)]
    assert seen == [(2, 4, "ERROR"), (5, 5, "INFO"), (6, 14, ""), (15, 15, "INFO")]
    assert entries(LOG)[0].text == "broken\norg.x.E: why\n\tat x.Y.z(Y:1)"


def test_traceback_that_python_logged_belongs_to_the_message() -> None:
    (entry,) = entries("ERROR:app:not written\nTraceback (most recent call last):\nValueError: x\n")
    assert entry.level == "ERROR"


def test_exception_is_read_where_no_logger_prints() -> None:
    seen = entries('26/11/21 12:39:27 INFO B: fine\nException in thread "main" org.x.E: why\n\tat x.Y.z(Y:1)\n')
    assert [each.level for each in seen] == ["INFO", ""]
    (pasted,) = entries("org.x.MyException: why\n\tat x.Y.z(Y:1)\n")
    assert pasted.text.startswith("org.x.MyException")
    seen = entries("26/11/21 12:39:27 INFO B: fine\njava.lang.OutOfMemoryError: Java heap space\n")
    assert [each.text for each in seen] == ["fine", "java.lang.OutOfMemoryError: Java heap space"]


def test_json_exception_reads_as_java_prints_it() -> None:
    frame = {"class": "x.Y", "method": "z", "file": "Y.java", "line": 1}
    told = {"class": "org.x.E", "msg": "why", "stacktrace": [frame]}
    line = {"level": "ERROR", "msg": "broken", "context": {"BATCH_ID": 7}, "exception": told, "logger": "A"}
    (entry,) = entries(json.dumps(line))
    assert entry.text == "broken\norg.x.E: why\n\tat x.Y.z(Y.java:1)"
    assert entry.context == {"BATCH_ID": "7"}
    (entry,) = entries(json.dumps({"level": "WARN", "message": "m", "logger_name": "a.B", "stack_trace": "a.C: d"}))
    assert (entry.logger, entry.text) == ("B", "m\na.C: d")


def test_record_of_the_agent_is_an_entry() -> None:
    (entry,) = entries('{"kind":"terminated","recorded_at_ms":1,"batch_id":3}\n')
    assert entry.record == Terminated(recorded_at_ms=1, batch_id=3)
    (unknown,) = entries('{"kind":"of tomorrow"}\n')
    assert unknown.record is None


@pytest.mark.parametrize("line", ["{", "{}", "[1]", '{"a":1}', "{not json}"])
def test_json_that_is_no_log_line_is_text(line: str) -> None:
    (entry,) = entries(f"26/11/21 12:39:27 INFO B: plan\n{line}\n")
    assert entry.text == f"plan\n{line}"


def test_bytes_that_are_no_text_do_no_harm() -> None:
    (entry,) = entries(b"26/11/21 12:39:27 ERROR B: \xff\xfe\x00 broken\n\x80\n")
    assert entry.text == "\ufffd\ufffd\x00 broken\n\ufffd"


class Endless(io.RawIOBase):
    """Lines that are made when they are read."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> bytes:
        line = self._rest or next(self._lines, b"")
        limit = len(line) if size is None or size < 0 else size
        self._rest = line[limit:]
        return line[:limit]


def test_huge_entry_keeps_its_beginning_and_its_end() -> None:
    def lines() -> Iterator[bytes]:
        yield b"26/11/21 12:39:27 ERROR B: begins\n"
        for number in range(100_000):
            yield b"\tat of.no.Interest(%d)\n" % number
        yield b"Caused by: org.x.E: the end\n"

    (entry,) = read_entries(Endless(lines()))  # type: ignore[arg-type]  # reads as one does
    assert entry.last_line == 100_002
    assert len(entry.text) < 600_000
    assert entry.text.startswith("begins\n")
    assert entry.text.endswith("\nCaused by: org.x.E: the end")


def test_endless_line_is_cut_and_counts_as_one() -> None:
    first, second = entries(b"26/11/21 12:39:27 INFO B: " + b"x" * 5_000_000 + b"\n26/11/21 12:39:27 INFO C: y\n")
    assert len(first.text) < 1_100_000
    assert (second.logger, second.first_line) == ("C", 2)


def test_empty_log_has_no_entry() -> None:
    assert entries("") == []
