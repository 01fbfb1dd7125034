from __future__ import annotations

from pathlib import Path

import pytest
from trips import fewest

from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.search import SearchEnd, search_log
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import StorageError
from lastgood.storage.reading import LocalStorage, Storage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.storage import RefusingStorage, SlowStorage


def end(entry: OffsetEntry) -> int | None:
    offset = entry.sources[0].offset
    return offset.topics["orders"][0] if isinstance(offset, KafkaOffset) else None


def search(folder: Path, bound: int, *, ids: BatchIds | None = None, storage: Storage | None = None) -> SearchEnd:
    location = parse_location(str(folder))
    listed = BatchIds.of(int(path.name) for path in (folder / "offsets").iterdir())
    return search_log(storage or LocalStorage(), location, ids or listed, end, bound)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 300])
def test_the_newest_batch_within_the_bound_is_found(count: int, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(count)  # batch N ends at 5 (N + 1)
    for batch_id in {0, count // 3, count - 1}:
        assert search(tmp_path, 5 * (batch_id + 1)) == SearchEnd(batch_id, is_ordered=True)
        assert search(tmp_path, 5 * (batch_id + 1) + 4) == SearchEnd(batch_id, is_ordered=True)
    assert search(tmp_path, 4) == SearchEnd(None, is_ordered=True)


def test_an_empty_log_holds_nothing(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path)
    assert search(tmp_path, 4) == SearchEnd(None, is_ordered=True)


def test_what_cannot_be_measured_is_passed_over(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(60)
    for batch_id in set(range(60)) - {3, 20, 41}:
        (tmp_path / f"offsets/{batch_id}").write_bytes(b"")
    assert search(tmp_path, 5 * 30) == SearchEnd(20, is_ordered=True)
    (tmp_path / "offsets/20").unlink()  # purged since it was listed
    assert search(tmp_path, 5 * 30, ids=BatchIds.of(range(60))) == SearchEnd(3, is_ordered=True)


def test_a_log_that_goes_back_is_not_searched_but_told(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(100)
    query.plan(-400)
    query.commit()
    query.run(100)
    assert not search(tmp_path, 250).is_ordered


def test_a_long_log_takes_few_round_trips(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(1000)

    def measure() -> int:
        slow = SlowStorage(seconds=0.02)
        assert search(tmp_path, 5 * 623, storage=slow).batch_id == 622
        return slow.round_trips

    assert fewest(measure, enough=6) <= 6


def test_no_answer_is_an_error(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(3)
    with pytest.raises(StorageError):
        search(tmp_path, 7, storage=RefusingStorage(parse_location(str(tmp_path / "offsets/1"))))
