"""Plans over the log of a file source that has lost entries, and of files that are gone: what is told of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput

COMMITTED = 4


def make_files(
    folder: Path, *, orphans: int, lost: tuple[int, ...] = (), gone: tuple[int, ...] = (), is_mirrored: bool = False
) -> Path:
    """A query that reads a file a batch: some entries of its source's log are lost, and some files are gone."""
    checkpoint, files = folder / "orders", folder / "in"
    files.mkdir()
    query = CheckpointBuilder(checkpoint, FileInput(f"file://{files}"))
    query.run(COMMITTED)
    for _ in range(orphans):
        query.plan()
    for number in range(COMMITTED + orphans):
        file, at = files / f"f{number:03d}.json", 1_790_000_000 + number
        file.write_text("x")
        os.utime(file, (at, at))
    if is_mirrored:
        location = parse_location(str(checkpoint))
        MirrorWriter(
            location,
            storage=LocalStorage(),
            folder=locate_mirror(location),
            target=LocalWriter(),
            writer="w",
            now_ms=lambda: STARTED_MS + 60_000,
        ).look()
    for number in lost:
        (checkpoint / f"sources/0/{number}").unlink()
    for number in gone:
        (files / f"f{number:03d}.json").unlink()
    return checkpoint


def plan(checkpoint: Path, goal: str) -> Plan:
    return make_plan(resolve_target(str(checkpoint)), PlanOptions(goal=goal))


def names(paths: tuple[str, ...]) -> list[str]:
    return [Path(path).name for path in paths]


@pytest.mark.parametrize(
    ("orphans", "lost", "entry"),
    [(1, (4,), "sources/0/4 named"), (2, (4,), "sources/0/4 named"), (2, (4, 5), "sources/0/4 to 5 named")],
)
def test_replan_says_that_nobody_knows_which_files_a_lost_entry_named(
    orphans: int, lost: tuple[int, ...], entry: str, tmp_path: Path
) -> None:
    found = plan(make_files(tmp_path, orphans=orphans, lost=lost), "replan")
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert any(line.startswith(f"the assumption that the files which {entry} are there") for line in found.rests_on)


def test_replan_names_the_files_of_a_lost_entry_that_the_mirror_has(tmp_path: Path) -> None:
    found = plan(make_files(tmp_path, orphans=1, lost=(4,), is_mirrored=True), "replan")
    assert names(found.sources[0].duplicated_files) == ["f004.json"]
    assert not any("nobody knows which files" in line for line in found.rests_on)
    assert "sources/0/4" not in {step.path for step in found.steps}  # to be found and planned again


def test_hole_below_the_commit_is_closed_and_what_is_planned_anew_does_not_come_back(tmp_path: Path) -> None:
    found = plan(make_files(tmp_path, orphans=1, lost=(2,), is_mirrored=True), "replan")
    assert {step.path for step in found.steps} == {"sources/0/2", "sources/0/4", "offsets/4"}


def test_replan_refuses_what_would_not_be_found_again_though_only_the_mirror_names_it(tmp_path: Path) -> None:
    """As where the log still names it."""
    checkpoint = make_files(tmp_path, orphans=1, lost=(4,), gone=(4,), is_mirrored=True)
    with pytest.raises(RepairRefusedError, match="cannot be taken out of its log") as refused:
        plan(checkpoint, "replan")
    assert "f004.json would not be found again" in str(refused.value.found)


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_file_that_is_gone_stands_in_the_price_as_lost(is_mirrored: bool, tmp_path: Path) -> None:
    checkpoint = make_files(tmp_path, orphans=1, lost=(4,) if is_mirrored else (), gone=(4,), is_mirrored=is_mirrored)
    found = plan(checkpoint, "resume")
    assert found.guarantee is Guarantee.LOSSY
    assert [names(price.lost_files) for price in found.sources] == [["f004.json"]]


def test_every_file_that_is_gone_is_counted(tmp_path: Path) -> None:
    checkpoint, files = tmp_path / "orders", tmp_path / "in"
    files.mkdir()
    query = CheckpointBuilder(checkpoint, FileInput(f"file://{files}", per_batch=3))
    query.run(COMMITTED)
    query.plan()
    found = plan(checkpoint, "resume")
    assert [names(price.lost_files) for price in found.sources] == [["f012.json", "f013.json", "f014.json"]]
    assert any(line.endswith("f012.json is missing, and so are 2 more") for line in found.rests_on)
