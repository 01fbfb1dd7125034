from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lastgood.errors import StorageError
from lastgood.storage import parse_location
from lastgood.testing.storage import RefusingStorage, SlowStorage


def test_a_slow_storage_counts_requests_and_those_that_waited_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    root = parse_location(str(tmp_path))
    slow = SlowStorage(seconds=0)
    assert list(slow.names(root) or ()) == ["a"]
    assert slow.read(root / "a", limit=3) == b"con"
    assert [entry.size for entry in slow.scan(root) or ()] == [7]
    assert [entry.name for entry in slow.walk(root) or ()] == ["a"]
    assert slow.names(root / "none") is slow.scan(root / "none") is slow.stat(root / "none") is None
    assert (slow.requests, slow.round_trips) == (7, 7)


def test_requests_at_the_same_time_are_one_round_trip(tmp_path: Path) -> None:
    slow = SlowStorage(seconds=0.2)
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: slow.stat(parse_location(str(tmp_path))), range(10)))
    assert (slow.requests, slow.round_trips) == (10, 1)


def test_a_refusing_storage_names_what_does_not_answer(tmp_path: Path) -> None:
    root = parse_location(str(tmp_path))
    (tmp_path / "open").mkdir()
    storage = RefusingStorage(root / "closed")
    assert list(storage.names(root) or ()) == ["open/"]
    asks = [storage.names, storage.scan, storage.stat, lambda place: storage.read(place, limit=1)]
    for ask in asks:
        with pytest.raises(StorageError) as refused:
            ask(root / "closed/below")
        assert refused.value.subject == f"{root}/closed/below"
