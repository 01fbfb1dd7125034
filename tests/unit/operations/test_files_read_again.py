"""A file that Spark will read once more is counted by the word of a plan, as `diagnose` tells of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from planning import query

from lastgood.checkpoint.file_logs import SourceFile, make_source_log_entry
from lastgood.operations.diagnose import diagnose
from lastgood.recovery.plans import make_plan
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import FileInput

DAY_SECONDS = 24 * 60 * 60
BEGAN = 1_780_000_000


class Days(FileInput):
    """One file a batch, each four days after the one before."""

    def log(self, ends: Sequence[int]) -> tuple[str, bytes]:
        log_id = len(ends) - 1
        at_ms = 1000 * (BEGAN + 4 * log_id * DAY_SECONDS)
        return str(log_id), make_source_log_entry([SourceFile(f"{self.folder}/{log_id}.json", at_ms, log_id)]).raw


def put(folder: Path, name: str, day: float) -> None:
    """A file that was last changed on some day."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("{}")
    os.utime(folder / name, (BEGAN + day * DAY_SECONDS, BEGAN + day * DAY_SECONDS))


@pytest.mark.parametrize(("touched", "is_read_again"), [("0.json", True), ("2.json", False)])
def test_plan_counts_a_file_whose_name_is_forgotten(tmp_path: Path, touched: str, is_read_again: bool) -> None:
    for number in range(3):
        put(tmp_path / "in", f"{number}.json", day=4 * number)
    query(tmp_path / "chk", 3, source=Days(folder=(tmp_path / "in").as_uri()))

    def told() -> tuple[bool, bool]:
        lines = make_plan(resolve_target(str(tmp_path / "chk"))).rests_on
        found = {each.condition.name for each in diagnose(resolve_target(str(tmp_path / "chk"))).findings}
        return any("SOURCE_FILES_CHANGED" in line for line in lines), "SOURCE_FILES_CHANGED" in found

    assert told() == (False, False)
    put(tmp_path / "in", touched, day=9)
    assert told() == (is_read_again, is_read_again)
