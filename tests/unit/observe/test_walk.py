from __future__ import annotations

from pathlib import Path

from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.open_query import MirrorUse, gather
from lastgood.observe.walk import Walk
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder


def mirror(checkpoint: Path) -> None:
    location = parse_location(str(checkpoint))
    writer = MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer="w",
        now_ms=lambda: STARTED_MS,
    )
    writer.look()
    writer.settle()


def walk(checkpoint: Path, **how: object) -> Walk:
    return Walk(gather(resolve_target(str(checkpoint)), batches=2, mirror=MirrorUse.ALWAYS), **how)


def test_a_walk_meets_what_a_look_at_everything_finds(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    query = CheckpointBuilder(checkpoint)
    query.run(120)
    mirror(checkpoint)
    query.run(80)
    query.plan()
    query.purge(retain=90)
    for batch_id, content in ((115, b""), (116, b"v1\n\n-"), (150, b"v1\n{")):
        (checkpoint / f"offsets/{batch_id}").write_bytes(content)
    (checkpoint / "commits/160").write_bytes(b"v9")
    (checkpoint / "commits/117").unlink()
    whole = gather(resolve_target(str(checkpoint)))
    way = walk(checkpoint)
    met = list(way)
    assert met == list(whole.records().values())
    assert [record.is_mirrored for record in met[113:118]] == [False, False, True, True, False]
    assert met[117].is_committed
    assert way.query.checkpoint.damage == whole.checkpoint.damage
    assert set(way.query.checkpoint.damage) == {"offsets/115", "offsets/116", "offsets/150", "commits/160"}
    assert len(way) == 201
    assert list(walk(checkpoint, newest_first=True)) == met[::-1]


def test_few_batches_are_held_at_a_time(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(300)
    way = walk(tmp_path)
    assert sum(1 for _ in way) == 300
    assert len(way.query.records()) == 2


def test_progress_is_told_from_nothing_to_all(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(520)
    told: list[tuple[int, int]] = []
    assert sum(1 for _ in walk(tmp_path, progress=lambda *now: told.append(now))) == 520
    assert told == [(0, 520), (500, 520), (520, 520)]


def test_a_batch_that_is_purged_while_we_walk_comes_from_the_mirror_or_not_at_all(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    query = CheckpointBuilder(checkpoint)
    query.run(3)
    mirror(checkpoint)
    query.run(3)
    way = walk(checkpoint)
    for batch_id in (1, 4):
        (checkpoint / f"offsets/{batch_id}").unlink()
        (checkpoint / f"commits/{batch_id}").unlink()
    met = {record.batch_id: record for record in way}
    assert list(met) == [0, 1, 2, 3, 5]
    assert met[1].is_mirrored


def test_an_entry_of_continuous_mode_is_whole_there_and_damaged_elsewhere(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(5)
    (tmp_path / "offsets/1").write_bytes(b'v1\n\n{"orders":{"0":7}}')
    way = walk(tmp_path)
    assert [record.batch_id for record in way if record.time_ms is None] == [1]
    assert list(way.query.checkpoint.damage) == ["offsets/1"]
