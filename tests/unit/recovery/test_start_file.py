"""The step that writes the file by which an application is told where to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.planning.draft import StartEdit
from lastgood.planning.steps import digest
from lastgood.recovery.start_file import start_steps
from lastgood.sources.kafka.start_files import StartFile
from lastgood.storage.reading import parse_location

CONTENT = b'{"orders":{"0":7}}\n'


def edit(file: Path) -> StartEdit:
    return StartEdit(StartFile(str(file)), {"orders": {0: 7}}, "why")


def test_step_knows_what_the_file_was(tmp_path: Path) -> None:
    checkpoint = parse_location(str(tmp_path / "chk"))
    file = tmp_path / "start.json"
    (step,) = start_steps(edit(file), checkpoint)
    assert (step.path, step.before, step.after) == (str(file), None, CONTENT)
    file.write_bytes(b"earliest")
    (step,) = start_steps(edit(file), checkpoint)
    assert step.before == digest(b"earliest")


def test_file_that_says_so_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_bytes(CONTENT)
    assert start_steps(edit(tmp_path / "start.json"), parse_location(str(tmp_path / "chk"))) == ()


@pytest.mark.parametrize("path", ["chk/start.json", "chk.lastgood/start.json", "chk", "folder"])
def test_file_that_cannot_be_one_of_the_application_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError):
        start_steps(edit(tmp_path / path), parse_location(str(tmp_path / "chk")))
