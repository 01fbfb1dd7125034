from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from trips import fewest

from lastgood.errors import StorageError
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.storage import FaultyWriter, MemoryWriter, RefusingStorage, SlowStorage


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
    def measure() -> int:
        slow = SlowStorage(seconds=0.1)
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda _: slow.stat(parse_location(str(tmp_path))), range(10)))
        assert slow.requests == 10
        return slow.round_trips

    assert fewest(measure, enough=1) == 1


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


class Killed(BaseException):
    """No handler of an error takes it."""


def work(storage: FaultyWriter, root: Location) -> None:
    storage.write(root / "a", b"1")
    storage.create(root / "b", b"2")
    storage.move(root / "a", root / "c")
    storage.remove(root / "b")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_change_is_counted_and_no_look(tmp_path: Path) -> None:
    root = parse_location(str(tmp_path))
    storage = FaultyWriter(LocalWriter())
    work(storage, root)
    assert [entry.name for entry in storage.scan(root) or ()] == list(storage.names(root) or ()) == ["c"]
    assert [entry.name for entry in storage.walk(root) or ()] == ["c"]
    assert (storage.read(root / "c", limit=9), storage.stat(root / "b")) == (b"1", None)
    assert storage.changes == [f"write {root}/a", f"create {root}/b", f"move {root}/a {root}/c", f"remove {root}/b"]
    assert storage.parallel == LocalWriter().parallel


STATES = [[], ["a"], ["a", "b"], ["b", "c"], ["c"]]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_process_leaves_what_was_there_then_and_does_nothing_more(
    number: int, moment: str, tmp_path: Path
) -> None:
    root = parse_location(str(tmp_path))
    storage = FaultyWriter(LocalWriter(), error=Killed(), **{moment: number})
    with pytest.raises(Killed):
        work(storage, root)
    assert names(tmp_path) == STATES[number if moment == "after" else number - 1]
    for act in (storage.names, storage.scan, storage.walk, storage.stat, storage.remove):
        with pytest.raises(Killed):
            act(root)
    with pytest.raises(Killed):
        storage.read(root / "a", limit=1)


def test_a_fault_may_pass(tmp_path: Path) -> None:
    root = parse_location(str(tmp_path))
    storage = FaultyWriter(LocalWriter(), before=1, lasts=False)
    with pytest.raises(StorageError) as failed:
        work(storage, root)
    assert failed.value.subject == f"{root}/a"
    work(storage, root)
    assert names(tmp_path) == ["c"]


def test_between_two_changes_somebody_may_look_around(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    storage = FaultyWriter(LocalWriter(), between=lambda number: seen.insert(number - 1, names(tmp_path)))
    work(storage, parse_location(str(tmp_path)))
    assert seen == STATES[:-1]


def test_memory_is_nobody_elses() -> None:
    place = parse_location("s3://bucket/a")
    storage = MemoryWriter()
    assert storage.create(place, b"1")
    assert not storage.create(place, b"2")
    assert storage.read(place, limit=9) == b"1"
    assert MemoryWriter().stat(place) is None
