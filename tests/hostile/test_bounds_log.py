"""What stands in a driver's log, rows of the data among it, costs no more steps than it has characters."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.bounded import bounded

from lastgood.testing.checkpoints import CheckpointBuilder

LINE = 900_000
PYTHON = 'Traceback (most recent call last):\n  File "app.py", line 1, in <module>\nValueError: x{}!\n'
JAVA = "26/11/21 12:39:26 ERROR A: it failed\norg.apache.spark.SparkException: x{}!\n\tat a.b(c.java:1)\n"


@pytest.mark.parametrize("frame", [PYTHON, JAVA], ids=["python", "java"])
def test_no_row_in_a_log_costs_more_than_its_length(frame: str, tmp_path: Path) -> None:
    """With the square of it, each of these would take more steps than a verb has here."""
    CheckpointBuilder(tmp_path / "chk").run(2)
    pieces = (" ", "\t ", " SQLSTATE: 12345", "a.", "Caused by: ", "[A", ": ", "org.x.AException: ")
    log = tmp_path / "driver.log"
    log.write_text("".join(frame.format(piece * (LINE // len(piece))) for piece in pieces))
    said = bounded(["diagnose", str(tmp_path / "chk"), "--log", str(log)], tmp_path)
    assert not said.is_bug, said.err[-2000:]
    assert said.code in (0, 1), (said.code, said.err[-2000:])
