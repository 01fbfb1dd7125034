"""Many batches at a time, of a log that may be long."""

from __future__ import annotations

from pathlib import Path

from trips import fewest

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.reader import read_batches
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.storage import SlowStorage


def test_a_long_log_on_a_slow_storage_is_read_by_many_at_once(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(700)

    def measure() -> int:
        slow = SlowStorage(seconds=0.005)
        found = list(read_batches(slow, parse_location(str(tmp_path)), range(700)))
        assert [batch.batch_id for batch in found] == list(range(700))
        assert all(isinstance(batch.offsets, OffsetEntry) and batch.commit is not None for batch in found)
        assert slow.requests == 1400
        return slow.round_trips

    assert fewest(measure, enough=200) <= 200


def test_a_long_log_is_read_in_the_order_that_was_asked_for_and_no_further(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(300)
    asked = iter(range(299, -1, -1))
    found = read_batches(LocalStorage(), parse_location(str(tmp_path)), asked)
    assert [next(found).batch_id for _ in range(100)] == list(range(299, 199, -1))
    assert next(asked) > 100  # a few ahead, not all
    found.close()
