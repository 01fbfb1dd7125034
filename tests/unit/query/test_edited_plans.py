"""Plans that were edited by hand, told by the checksum that is missing, as every verb is told."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from planning import broker, delta, drafted, known, mirror_of
from typed import call

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.planning.goals.values import RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.edited_plans import find_unchecked_plans
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

CONDITION = "PLAN_EDITED"
KEPT = broker((0, 60), (0, 60))


def run(folder: Path, batches: int, *, checksums: bool = True) -> Path:
    """A query on a local disk: Hadoop writes a checksum beside each file."""
    checkpoint = folder / "orders"
    CheckpointBuilder(checkpoint, checksums=checksums).run(batches)
    return checkpoint


def edit(checkpoint: Path, batch: int, by: int) -> None:
    """What somebody does with an editor, and then with the checksum on which Spark has failed."""
    plan = checkpoint / f"offsets/{batch}"
    *lines, ends = plan.read_text().split("\n")
    moved = {topic: {part: at + by for part, at in parts.items()} for topic, parts in json.loads(ends).items()}
    plan.write_text("\n".join([*lines, json.dumps(moved)]))
    (checkpoint / f"offsets/.{batch}.crc").unlink(missing_ok=True)


def find_unchecked(checkpoint: Path) -> frozenset[int]:
    return find_unchecked_plans(read_checkpoint(LocalStorage(), parse_location(str(checkpoint))))


def test_newest_plan_without_its_checksum_is_told_by_every_verb(tmp_path: Path) -> None:
    """The next batch begins where it ends: 4 offsets of each partition are read by none."""
    checkpoint = run(tmp_path, 4)
    edit(checkpoint, 3, 4)
    plan = json.loads(call("plan", checkpoint, "--format", "json", "--output", tmp_path / "plan.json").stdout)
    assert plan["guarantee"] == "lossy"
    assert any("offsets/3 lacks the checksum" in line for line in plan["rests_on"])
    assert CONDITION in call("diagnose", checkpoint).stdout
    assert "doubtful" in call("status", checkpoint).stdout
    assert call("recover", checkpoint, "--output", tmp_path / "plan.json").returncode == 3


@pytest.mark.parametrize("checksums", [True, False])
def test_query_whose_plans_all_have_one_or_none_was_not_edited(checksums: bool, tmp_path: Path) -> None:
    assert find_unchecked(run(tmp_path, 4, checksums=checksums)) == frozenset()


def test_plan_is_not_looked_for_below_the_newest_that_is_committed(tmp_path: Path) -> None:
    """What it reads is told by the one after it."""
    checkpoint = run(tmp_path, 4)
    edit(checkpoint, 2, 0)
    assert find_unchecked(checkpoint) == frozenset()


@pytest.mark.parametrize("is_committed", [True, False])
def test_driver_that_was_killed_before_the_checksum_had_its_name_edited_nothing(
    is_committed: bool, tmp_path: Path
) -> None:
    """Hadoop renames the file, and then its checksum."""
    checkpoint = run(tmp_path, 4)
    (checkpoint / "offsets/.3.crc").rename(checkpoint / f"offsets/..3.{uuid.uuid4()}.tmp.crc")
    if not is_committed:
        for name in ("3", ".3.crc"):
            (checkpoint / "commits" / name).unlink()
    assert find_unchecked(checkpoint) == frozenset()


def test_checkpoint_that_came_from_where_no_checksums_are_was_not_edited(tmp_path: Path) -> None:
    checkpoint = run(tmp_path, 4)
    for file in checkpoint.rglob(".*.crc"):
        file.unlink()
    assert find_unchecked(checkpoint) == frozenset()


def test_plan_that_a_recovery_wrote_has_no_checksum_and_was_not_edited(tmp_path: Path) -> None:
    checkpoint = run(tmp_path, 6)
    plan = tmp_path / "plan.json"
    goal = ("--goal", "reposition", "--stable-lag", "2", "--accept", "duplicates,loss")
    assert call("plan", checkpoint, *goal, "--output", plan).returncode == 0
    assert call("apply", plan, "--driver-is-dead").returncode == 0
    assert find_unchecked(checkpoint) == {5}
    told = json.loads(call("diagnose", checkpoint, "--format", "json").stdout)
    assert CONDITION not in [each["condition"] for each in told["findings"]]


@pytest.mark.parametrize(("by", "word"), [(0, Guarantee.EXACTLY_ONCE), (4, Guarantee.LOSSY)])
def test_mirror_settles_whether_a_plan_without_a_checksum_was_edited(by: int, word: Guarantee, tmp_path: Path) -> None:
    checkpoint = run(tmp_path, 4)
    mirror = mirror_of(checkpoint)
    edit(checkpoint, 3, by)
    found = known(checkpoint, delta(3), kafka=KEPT, mirror=mirror, unchecked=frozenset({3}))
    assert drafted(found, ResumeGoal()).guarantee is word


@pytest.mark.parametrize("by", [0, 4])
def test_plan_that_the_mirror_saw_otherwise_is_told_where_there_are_no_checksums(by: int, tmp_path: Path) -> None:
    """As on an object store."""
    checkpoint = run(tmp_path, 4, checksums=False)
    assert call("backup", "create", checkpoint).returncode == 0
    edit(checkpoint, 3, by)
    plan = json.loads(call("plan", checkpoint, "--format", "json", "--output", tmp_path / "plan.json").stdout)
    assert (plan["guarantee"] == "lossy") == bool(by)
    assert (CONDITION in call("diagnose", checkpoint).stdout) == bool(by)
    assert ("doubtful" in call("status", checkpoint).stdout) == bool(by)


def test_where_a_query_goes_back_to_before_an_edited_plan_nothing_is_lost_by_it(tmp_path: Path) -> None:
    checkpoint = run(tmp_path, 4)
    edit(checkpoint, 3, 4)
    found = known(checkpoint, delta(3), kafka=KEPT, unchecked=frozenset({3}))
    back = RepositionGoal({"0": {"orders": {0: 10, 1: 10}}}, "10")
    assert drafted(found, back).guarantee is Guarantee.AT_LEAST_ONCE
    assert drafted(found, RepositionGoal({}, "it stands")).guarantee is Guarantee.LOSSY
