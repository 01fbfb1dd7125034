from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.errors import StorageError
from lastgood.storage.kept_listings import KeptListings
from lastgood.storage.reading import Location, open_storage, parse_location


class Lists:
    """Counts how often a folder is listed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._path = folder
        self.folder = parse_location(str(folder))
        self.storage = open_storage(self.folder)
        os.utime(folder, (1_700_000_000.25, 1_700_000_000.25))
        self.now = 1_700_000_001.5
        self.disk: str | None = "ext4"
        self.kept: KeptListings[list[str]] = KeptListings(
            self.storage, now=lambda: self.now, clock=lambda: self.now, find_disk=lambda _: self.disk
        )
        self.count = 0

    def add(self, name: str) -> None:
        """A file comes, at the time that it is."""
        (self._path / name).touch()
        os.utime(self._path, (self.now, self.now))

    def get(self) -> list[str]:
        return self.kept.get(self.folder, self._list)

    def _list(self, folder: Location) -> list[str]:
        self.count += 1
        return sorted(self.storage.names(folder) or ())


def test_a_folder_that_stays_as_it_is_is_listed_once(tmp_path: Path) -> None:
    lists = Lists(tmp_path / "log")
    first = lists.get()
    lists.now += 1
    assert lists.get() is first
    assert lists.count == 1


def test_a_folder_in_which_a_name_comes_or_goes_is_listed_again(tmp_path: Path) -> None:
    lists = Lists(tmp_path / "log")
    assert lists.get() == []
    lists.now += 1
    lists.add("0")
    assert lists.get() == ["0"]


def test_a_folder_that_changed_a_moment_ago_is_listed_again(tmp_path: Path) -> None:
    lists = Lists(tmp_path / "log")
    lists.add("0")
    lists.now += 0.01
    assert lists.get() == ["0"]
    (tmp_path / "log" / "1").touch()
    os.utime(tmp_path / "log", (lists.now - 0.01, lists.now - 0.01))  # within the same tick of the disk's clock
    assert lists.get() == ["0", "1"]


def test_a_folder_whose_time_never_changes_is_listed_after_a_while(tmp_path: Path) -> None:
    lists = Lists(tmp_path / "log")
    time = (tmp_path / "log").stat().st_mtime
    assert lists.get() == []
    (tmp_path / "log" / "0").touch()
    os.utime(tmp_path / "log", (time, time))
    assert lists.get() == []
    lists.now += 5
    assert lists.get() == ["0"]


def test_what_cannot_be_listed_is_not_remembered(tmp_path: Path) -> None:
    lists = Lists(tmp_path / "log")

    def refuse(folder: Location) -> list[str]:
        raise StorageError("the storage does not answer", subject=str(folder))

    with pytest.raises(StorageError):
        lists.kept.get(lists.folder, refuse)
    assert lists.get() == []


def test_a_folder_that_is_not_there_is_looked_for_each_time(tmp_path: Path) -> None:
    lists = Lists(tmp_path / "log")
    (tmp_path / "log").rmdir()
    assert lists.get() == []
    assert lists.get() == []
    assert lists.count == 2


def test_what_is_kept_can_be_forgotten(tmp_path: Path) -> None:
    lists = Lists(tmp_path / "log")
    lists.get()
    lists.kept.forget()
    lists.get()
    assert lists.count == 2


@pytest.mark.parametrize(("disk", "time"), [(None, 1_700_000_000.25), ("ext3", 1_700_000_000)])
def test_where_times_cannot_be_believed_a_folder_is_listed_each_time(
    disk: str | None, time: float, tmp_path: Path
) -> None:
    lists = Lists(tmp_path / "log")
    lists.disk = disk
    os.utime(tmp_path / "log", (time, time))
    lists.get()
    lists.get()
    assert lists.count == 2
