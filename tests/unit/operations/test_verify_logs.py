from __future__ import annotations

import shutil
from pathlib import Path

from lastgood.history import Seam
from lastgood.operations.verify_logs import verify_logs
from lastgood.recovery.mirror import MirrorWriter, mirror_folder
from lastgood.storage import LocalStorage, parse_location
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder
from lastgood.writing import LocalWriter

OTHER_ID = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


def mirror(checkpoint: Path, *, at_ms: int = STARTED_MS) -> None:
    location = parse_location(str(checkpoint))
    MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=mirror_folder(location),
        target=LocalWriter(),
        writer=f"w{at_ms}",
        now_ms=lambda: at_ms,
    ).look()


def test_a_log_of_batches_that_follow_each_other_is_contiguous(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(100)
    query.plan()
    told: list[tuple[int, int]] = []
    found = verify_logs(str(tmp_path / "chk"), progress=lambda *now: told.append(now))
    assert (found.is_contiguous, found.first, found.last, found.batches) == (True, 0, 99, 100)
    assert told[-1] == (101, 101)
    assert len(found.evidence.records()) < 5  # a log may be long


def test_what_is_read_twice_missing_or_damaged_is_told(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(40)
    query.plan(-7)
    query.commit()
    query.run(40)
    (tmp_path / "chk/offsets/60").write_bytes(b"v1\n{")
    (tmp_path / "chk/commits/70").write_bytes(b"")
    found = verify_logs(str(tmp_path / "chk"))
    assert found.seams == (
        Seam("OVERLAP", 40, "orders", 0, (193, 200)),
        Seam("OVERLAP", 40, "orders", 1, (193, 200)),
        Seam("UNKNOWN", 61),
    )
    assert set(found.to_json()["damaged"]) == {"offsets/60", "commits/70"}
    assert (found.batches, found.last) == (81, 80)


def test_a_query_that_began_anew_is_compared_with_the_one_before(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint, query_id=OTHER_ID).run(9)
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    CheckpointBuilder(checkpoint).run(2)
    mirror(checkpoint, at_ms=STARTED_MS + 1)
    found = verify_logs(str(checkpoint))
    assert found.queries == (OTHER_ID, QUERY_ID)
    assert [seam.condition for seam in found.seams] == ["OVERLAP", "OVERLAP"]


def test_a_checkpoint_without_a_commit_has_nothing_to_compare(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").plan()
    found = verify_logs(str(tmp_path / "chk"))
    assert (found.is_contiguous, found.first, found.last, found.batches) == (True, None, None, 0)
