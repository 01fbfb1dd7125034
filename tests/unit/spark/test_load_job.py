"""What is told of an error that ends a load."""

from __future__ import annotations

import pytest

from lastgood.spark.load_job import find_reason

FAILED = "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: "
WORKER = f"""{FAILED}[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "ranges.py", line 71, in read
    raise EOFError
EOFError: 3 of 5 bytes

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "load_source.py", line 71, in read
    raise RuntimeError
RuntimeError: /in.csv was cut off while it was loaded
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = a, runId = b]"""
JAVA = """An error occurred while calling o192.start.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/tmp/t
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirs(RawLocalFileSystem.java:878)
"""
ENDED = f"{FAILED}[USER_RAISED_EXCEPTION] load ended, since a line is a JSON array: [1] SQLSTATE: P0001\nmore"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKER, "/in.csv was cut off while it was loaded"),
        (JAVA, "Parent path is not a directory: file:/tmp/t"),
        (ENDED, "a line is a JSON array: [1] SQLSTATE: P0001"),
        (f"{FAILED}[MALFORMED] a record\nmore", "[MALFORMED] a record"),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'.\n== SQL ==",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'.",
        ),
        ("", ""),
    ],
)
def test_the_reason_is_told_in_one_line(text: str, reason: str) -> None:
    assert find_reason(RuntimeError(text)) == reason
