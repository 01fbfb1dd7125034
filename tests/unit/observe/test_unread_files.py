"""Which input files are looked up: those that are noted down and that no committed batch has read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from planning import SPARK, changes, delta, drafted, known

from lastgood.checkpoint.file_logs import SourceFile, make_source_log_entry
from lastgood.diagnosis.engine import diagnose
from lastgood.observe import unread_files as module
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.observe.unread_files import find_files_after, find_unread_files
from lastgood.planning.goals.values import ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.settings.target import resolve_target
from lastgood.sources.files.facts import FileState
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput


@pytest.fixture
def builder(tmp_path: Path) -> CheckpointBuilder:
    return CheckpointBuilder(tmp_path / "checkpoint", FileInput(folder=f"file://{tmp_path}/input", per_batch=2))


def put(folder: Path, number: int) -> None:
    """The file of that number, as its log names it."""
    file, time_s = folder / f"f{number:03d}.json", 1_790_000_000 + number
    file.touch()
    os.utime(file, (time_s, time_s))


def evidence(builder: CheckpointBuilder) -> OpenQuery:
    return gather(resolve_target(str(builder.folder)))


def note(builder: CheckpointBuilder, log_id: int, *files: Path) -> None:
    """The source notes files down, and no plan is written."""
    noted = [SourceFile(f"file://{file}", file.stat().st_mtime_ns // 1_000_000, log_id) for file in files]
    (builder.folder / f"sources/0/{log_id}").write_bytes(make_source_log_entry(noted).raw)


def states(builder: CheckpointBuilder) -> list[tuple[int, FileState]]:
    return [(each.file.log_id, each.state) for facts in find_unread_files(evidence(builder)).values() for each in facts]


def test_nothing_is_looked_up_where_every_file_was_read(builder: CheckpointBuilder) -> None:
    builder.run(3)
    assert find_unread_files(evidence(builder)) == {}


def test_files_of_a_planned_batch_are_looked_up(builder: CheckpointBuilder) -> None:
    builder.run(3)
    builder.plan()
    assert states(builder) == [(3, FileState.MISSING)] * 2


def test_files_above_the_newest_committed_plan_are_looked_up(builder: CheckpointBuilder, tmp_path: Path) -> None:
    builder.run(3)
    there = tmp_path / "there"
    there.touch()
    note(builder, 3, there)
    assert states(builder) == [(3, FileState.PRESENT)]
    there.unlink()
    assert states(builder) == [(3, FileState.MISSING)]


def test_files_of_every_plan_above_the_newest_commit_are_looked_up(builder: CheckpointBuilder) -> None:
    builder.run(1)
    builder.plan()
    builder.plan()
    assert states(builder) == [(1, FileState.MISSING)] * 2 + [(2, FileState.MISSING)] * 2


def test_plan_below_the_newest_that_runs_again_lacks_the_files_that_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    builder = CheckpointBuilder(tmp_path / "checkpoint", FileInput(folder=f"file://{folder}"))
    builder.run(1)
    builder.plan()
    builder.plan()
    put(folder, 2)
    observed = known(builder.folder, delta(0), files=find_unread_files(evidence(builder)))
    found = drafted(observed, ResumeGoal())
    assert changes(found) == {"offsets/2": "set aside"}
    assert found.guarantee is Guarantee.LOSSY
    assert f"source 0: file://{folder}/f001.json is missing" in found.rests_on
    gone = [each for each in diagnose(observed, SPARK).findings if each.condition.name == "SOURCE_FILES_GONE"]
    assert gone == []  # the newest plan reads another file, which is there


def test_plan_that_cannot_be_read_does_not_hide_them(builder: CheckpointBuilder) -> None:
    builder.run(3)
    builder.plan()
    (builder.folder / "offsets/3").write_bytes(b"")
    assert states(builder) == [(3, FileState.MISSING)] * 2


def test_files_of_a_first_batch_that_was_never_planned_are_looked_up(
    builder: CheckpointBuilder, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    note(builder, 0, file)
    assert states(builder) == [(0, FileState.PRESENT)]


def test_source_that_is_no_folder_of_files_has_none(tmp_path: Path) -> None:
    kafka = CheckpointBuilder(tmp_path / "checkpoint")
    kafka.plan()
    assert find_unread_files(evidence(kafka)) == {}


def test_one_stands_for_all_that_were_too_many(builder: CheckpointBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FILES_MAX", 3)
    builder.run(4)
    (facts,) = find_files_after(evidence(builder), 0).values()
    assert [(each.file.log_id, each.state.value) for each in facts] == [
        (2, "unknown"),
        (2, "missing"),
        (3, "missing"),
        (3, "missing"),
    ]
    assert facts[0].because == "of 6 files only the newest 3 were looked up"
