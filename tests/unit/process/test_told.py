"""What a job tells in a file of its own comes line by line, whatever else is printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lastgood.errors import StorageError
from lastgood.process.child import Child
from lastgood.process.told import find_last_line, follow, place_log

JOB = """
import sys, time
with open(sys.argv[1], "a") as told:
    for number in range(3):
        told.write(f"{number}")
        told.flush()
        time.sleep(0.15)
        told.write("\\n")
        told.flush()
    told.write("torn")
print("said")
sys.exit(7)
"""


def test_whole_lines_are_passed_on_while_it_works(tmp_path: Path) -> None:
    told, log = tmp_path / "told", tmp_path / "log"
    told.touch()
    lines: list[str] = []
    with log.open("wb") as output:
        child = Child([sys.executable, "-c", JOB, str(told)], output=output)
    with child:
        ending = follow(child, told, lines.append)
    assert (lines, ending.exit_code) == (["0", "1", "2"], 7)
    assert find_last_line(log) == "said"


def test_the_last_line_is_none_of_a_stack_trace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n\xff last\n\tat java\n  more\n\n")
    assert find_last_line(log) == "\ufffd last"
    log.write_bytes(b"")
    assert find_last_line(log) == ""


def test_log_has_a_folder_and_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place_log("load.log").write_text("of the job before")
    assert place_log("load.log").read_text() == "of the job before"


def test_log_that_cannot_be_written_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(file))
    with pytest.raises(StorageError) as refused:
        place_log("load.log")
    assert (refused.value.subject or "").startswith(str(file))
    assert refused.value.found == "Not a directory"
