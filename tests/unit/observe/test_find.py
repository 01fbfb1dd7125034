from __future__ import annotations

from pathlib import Path

import pytest
from trips import fewest

from lastgood.observe import open_query as gathering
from lastgood.observe.find import FileFound, OffsetSearch, find_file_quickly, find_file_thoroughly
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import Storage
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput
from lastgood.testing.storage import SlowStorage


def look(folder: Path) -> OpenQuery:
    return gather(resolve_target(str(folder)), batches=2)


def quick(folder: Path, offset: int) -> int | None:
    return OffsetSearch("orders", 0, offset).find_quickly(look(folder))


def thorough(folder: Path, offset: int) -> int | None:
    return OffsetSearch("orders", 0, offset).find_thoroughly(look(folder))


@pytest.mark.parametrize("count", [1, 2, 40, 120])
def test_both_ways_find_the_batch_that_read_an_offset(count: int, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(count)  # batch N reads offsets 5 N to 5 N + 4
    for batch_id in {0, 1 % count, count // 2, count - 1}:
        for offset in (5 * batch_id, 5 * batch_id + 4):
            assert quick(tmp_path, offset) == thorough(tmp_path, offset) == batch_id
    assert quick(tmp_path, 5 * count) is thorough(tmp_path, 5 * count) is None


def test_batches_without_data_are_stepped_over(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    for amount in (5, 0, 0, 5, 0, 0):
        query.plan(amount)
        query.commit()
    assert [quick(tmp_path, offset) for offset in (4, 5, 9, 10)] == [0, 3, 3, None]


def test_an_offset_that_was_read_twice_is_that_of_the_newest_batch(tmp_path: Path) -> None:
    """The topic was deleted and created again."""
    query = CheckpointBuilder(tmp_path)
    query.run(100)
    query.plan(-500)
    query.commit()
    query.run(100)
    assert quick(tmp_path, 250) is None  # the log is not in order: better no answer than an old one
    assert thorough(tmp_path, 250) == 151


def test_damaged_batches_beside_the_one_that_is_sought_leave_it_to_the_thorough_way(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(40)
    (tmp_path / "offsets/19").write_bytes(b"")
    assert quick(tmp_path, 101) is None
    search = OffsetSearch("orders", 0, 101)
    assert search.find_thoroughly(look(tmp_path)) is None  # where batch 20 began stood in batch 19
    assert search.known == (0, 200)


def test_a_partition_or_topic_that_nobody_read_is_not_found(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(40)
    for topic, partition in (("orders", 7), ("clicks", 0)):
        search = OffsetSearch(topic, partition, 3)
        assert search.find_quickly(look(tmp_path)) is search.find_thoroughly(look(tmp_path)) is search.known is None


def test_few_round_trips_find_an_offset_in_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointBuilder(tmp_path).run(1000)

    def measure() -> int:
        slow = SlowStorage(seconds=0.02)

        def open_slow(location: object) -> Storage:
            return slow

        monkeypatch.setattr(gathering, "open_storage", open_slow)
        assert quick(tmp_path, 3777) == 755
        return slow.round_trips

    assert fewest(measure, enough=12) <= 12


def test_both_ways_find_the_batch_that_read_a_file(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path, FileInput(compact_interval=4))
    query.run(30)
    query.plan(0)
    query.commit()
    query.run(30)
    for number, batch_id in ((0, 0), (7, 7), (29, 29), (30, 31), (59, 60)):
        path = f"file:///data/input/f{number:03d}.json"
        found = FileFound(path, batch_id)
        assert find_file_quickly(look(tmp_path), f"f{number:03d}.json") == found
        assert find_file_thoroughly(look(tmp_path), f"f{number:03d}.json") == found
    assert find_file_quickly(look(tmp_path), "x.json") is None
    assert find_file_thoroughly(look(tmp_path), "x.json") is None


def test_a_file_whose_batch_was_purged_gives_way_to_one_whose_batch_is_known(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path, FileInput(compact_interval=4))
    query.run(30)
    query.purge(retain=5)  # the oldest batch that is left does not tell where it began
    assert find_file_quickly(look(tmp_path), ".json") is None
    assert find_file_thoroughly(look(tmp_path), ".json") == FileFound("file:///data/input/f025.json", 25)
