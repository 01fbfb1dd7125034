from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.checkpoint.copies import Copy
from lastgood.ids import make_id
from lastgood.mirror.backups import (
    Backup,
    BackupMissingError,
    find_backup,
    find_newest_in,
    keep_backup,
    list_backups,
    locate_backups,
    make_backup,
    read_backup,
    remove_older,
    restore_order,
    write_backup,
)
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import LocalWriter

AT_MS = 1_795_220_516_284
PATHS = ["commits/0", "commits/1", "offsets/0", "offsets/10", "offsets/9", "sources/0/9.compact", "metadata"]
STORAGE = LocalWriter()


def copies(*paths: str) -> list[Copy]:
    return [Copy("9818c18b", path, AT_MS, AT_MS, f"\0content of {path}\xff".encode()) for path in paths or PATHS]


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    return locate_backups(parse_location(str(tmp_path / "checkpoint")))


def id_at(at_ms: int, mark: str = "7f3a") -> str:
    return f"{make_id(at_ms)[:-4]}{mark}"


def made(folder: Location, *, at_ms: int = AT_MS, mark: str = "7f3a") -> Backup:
    backup, content = make_backup(copies(), at_ms=at_ms, backup_id=id_at(at_ms, mark))
    write_backup(STORAGE, folder, backup, content)
    return backup


def test_a_backup_tells_what_it_holds(folder: Location) -> None:
    backup = made(folder)
    assert replace(backup, sha256="a9") == Backup(
        id="20261121-002156-7f3a",
        at_ms=AT_MS,
        query_id="9818c18b",
        last_planned=10,
        last_committed=1,
        files=7,
        size=sum(copy.size for copy in copies()),
        sha256="a9",
    )
    assert list_backups(STORAGE, folder) == [backup]
    assert set(STORAGE.names(folder) or ()) == {f"{backup.id}.json", f"{backup.id}.jsonl.gz"}


def test_a_backup_comes_back_in_the_order_in_which_it_is_restored(folder: Location) -> None:
    found = read_backup(STORAGE, folder, made(folder))
    assert [copy.path for copy in found] == [
        "metadata",
        "sources/0/9.compact",
        "offsets/0",
        "offsets/9",
        "offsets/10",
        "commits/0",
        "commits/1",
    ]
    assert sorted(found, key=lambda copy: copy.path) == sorted(copies(), key=lambda copy: copy.path)
    assert restore_order(copies("sources/1/0")[0]) < restore_order(copies("offsets/0")[0])


def test_backups_are_listed_oldest_first_also_within_a_second(folder: Location) -> None:
    ids = [made(folder, at_ms=AT_MS + n, mark=mark).id for n, mark in enumerate(["ffff", "0000", "aaaa"])]
    assert [backup.id for backup in list_backups(STORAGE, folder)] == ids
    assert find_backup(STORAGE, folder, "last").id == ids[-1]
    assert find_backup(STORAGE, folder, ids[0]).id == ids[0]


def test_a_backup_that_is_not_there_names_those_that_are(folder: Location) -> None:
    for backup_id in ("last", "20200101-000000-0000"):
        with pytest.raises(BackupMissingError) as missing:
            find_backup(STORAGE, folder, backup_id)
        assert missing.value.found == "no backup"
    known = made(folder)
    with pytest.raises(BackupMissingError) as missing:
        find_backup(STORAGE, folder, "20200101-000000-0000")
    assert missing.value.found == known.id


def test_what_is_none_of_ours_is_not_listed(folder: Location, tmp_path: Path) -> None:
    backup = made(folder)
    root = tmp_path / "checkpoint.lastgood/backups"
    for name, content in {"a.json": b"", "b.json": b"[]", "c.json": b'{"id":"c"}', "notes.txt": b""}.items():
        (root / name).write_bytes(content)
    assert list_backups(STORAGE, folder) == [backup]


@pytest.mark.parametrize("cut", [1, 30, 10_000])
def test_a_torn_backup_is_none(cut: int, folder: Location, tmp_path: Path) -> None:
    backup = made(folder)
    file = tmp_path / f"checkpoint.lastgood/backups/{backup.id}.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-cut])
    raw = file.read_bytes()
    if cut == 1:  # only the length at the end of the member is cut: all its content is there
        assert read_backup(STORAGE, folder, backup)
        return
    with pytest.raises(BackupMissingError) as torn:
        read_backup(STORAGE, folder, backup)
    assert torn.value.expected == f"7 files, {backup.size} bytes"
    file.unlink()
    with pytest.raises(BackupMissingError) as gone:
        read_backup(STORAGE, folder, backup)
    assert gone.value.found == "no such file"
    assert raw is not None


def test_a_backup_that_does_not_come_back_as_it_was_written_is_an_error(folder: Location) -> None:
    class Lossy(LocalWriter):
        def read(self, file: Location, *, limit: int) -> bytes | None:
            found = super().read(file, limit=limit)
            return found and found[:-1]

    backup, content = make_backup(copies(), at_ms=AT_MS, backup_id=id_at(AT_MS))
    with pytest.raises(BackupMissingError):
        write_backup(Lossy(), folder, backup, content)
    assert list(STORAGE.names(folder) or ()) == []


def test_age_removes_what_is_not_kept(folder: Location) -> None:
    first, second, third = (made(folder, at_ms=AT_MS + n) for n in (0, 5000, 10_000))
    marked = keep_backup(STORAGE, folder, first, kept=True)
    assert marked == replace(first, kept=True)
    assert remove_older(STORAGE, folder, before_ms=AT_MS + 10_000) == [second]
    assert list_backups(STORAGE, folder) == [marked, third]
    assert f"{second.id}.jsonl.gz" not in list(STORAGE.names(folder) or ())
    keep_backup(STORAGE, folder, marked, kept=False)
    assert remove_older(STORAGE, folder, before_ms=AT_MS + 10_000) == [first]


def test_the_newest_batch_of_a_log_is_told_from_the_names() -> None:
    assert find_newest_in(copies(), "offsets") == 10
    assert find_newest_in(copies("metadata", "sources/0/7"), "offsets") is None


def test_a_backup_whose_content_was_exchanged_is_not_restored(folder: Location) -> None:
    backup = made(folder)
    other = [replace(copy, content=copy.content[::-1]) for copy in copies()]
    STORAGE.write(folder / f"{backup.id}.jsonl.gz", make_backup(other, at_ms=AT_MS, backup_id=id_at(AT_MS))[1])
    with pytest.raises(BackupMissingError, match="not as it was made"):
        read_backup(STORAGE, folder, backup)
