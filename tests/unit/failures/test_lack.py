from __future__ import annotations

import pytest

from lastgood.failures.causes import read_causes
from lastgood.failures.classify import classify_causes
from lastgood.failures.lack import explain_lack

FULL = """org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030
\tat org.apache.spark.executor.Executor.run(Executor.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.io.FileOutputStream.writeBytes(Native Method)
"""
LOST = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache.spark.A.b(A.scala:1)\n"
ODD = "org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING] [1]\n\tat org.apache.spark.A.b(A.scala:1)\n"


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        (FULL, "resources", "a disk is full, or the quota used up: No space left on device"),
        (LOST, "transient", "a Python worker went away: Python worker failed to connect back."),
    ],
)
def test_what_was_lacking_is_told_however_deep_it_lies(text: str, kind: str, found: str) -> None:
    assert explain_lack(classify_causes(read_causes(text))) == {"kind": kind, "found": found}


def test_of_others_the_error_itself_tells_more() -> None:
    assert explain_lack(classify_causes(read_causes(ODD))) is None
    assert explain_lack(None) is None
