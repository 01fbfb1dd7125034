from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.errors import StorageError
from lastgood.sources.files.facts import (
    FileFacts,
    FileState,
    Then,
    WrittenAgain,
    describe_left_out,
    list_never_found_again,
    predict_file,
)
from lastgood.sources.files.folders import ask_files, find_written_again, locate_file
from lastgood.storage.reading import LocalStorage, Location, StorageDeniedError

DAY_MS = 86_400_000
AT_MS = 1_790_000_005_123


def make(folder: Path, name: str, modified_ms: int = AT_MS) -> SourceFile:
    file = folder / name
    file.write_text("x")
    os.utime(file, ns=(0, modified_ms * 1_000_000))
    return SourceFile(file.as_uri(), AT_MS, 5)


def states(*files: SourceFile) -> list[FileState]:
    return [found.state for found in ask_files(files)]


def test_files_that_are_there_as_they_were_can_be_read_again(tmp_path: Path) -> None:
    file = make(tmp_path, "a b%20ä.json")
    assert ask_files([file]) == (FileFacts(file, FileState.PRESENT, AT_MS),)


def test_files_that_are_gone_or_were_written_again_are_told_apart(tmp_path: Path) -> None:
    gone = SourceFile((tmp_path / "gone").as_uri(), AT_MS, 5)
    changed = make(tmp_path, "changed", AT_MS + 5000)
    (tmp_path / "folder").mkdir()
    folder = SourceFile((tmp_path / "folder").as_uri(), AT_MS, 5)
    found = [FileState.MISSING, FileState.CHANGED, FileState.PRESENT, FileState.MISSING]
    assert states(gone, changed, make(tmp_path, "same"), folder) == found


@pytest.mark.parametrize(
    ("now_ms", "logged_ms", "state"),
    [
        (AT_MS, AT_MS // 1000 * 1000, FileState.PRESENT),
        (AT_MS // 1000 * 1000, AT_MS, FileState.PRESENT),
        (AT_MS, AT_MS + 1, FileState.CHANGED),
        (AT_MS + 1000, AT_MS // 1000 * 1000, FileState.CHANGED),
    ],
)
def test_clock_that_knows_whole_seconds_only_is_no_change(
    tmp_path: Path, now_ms: int, logged_ms: int, state: FileState
) -> None:
    file = make(tmp_path, "a", now_ms)
    assert states(SourceFile(file.path, logged_ms, 5)) == [state]


def test_no_file_is_no_question() -> None:
    assert ask_files([]) == ()


def test_storage_that_refuses_leaves_its_files_unknown_and_the_others_known(tmp_path: Path) -> None:
    here = make(tmp_path, "a")

    class Denied(LocalStorage):
        def stat(self, location: Location) -> None:
            raise StorageDeniedError("the storage does not let us look", subject=str(location))

    def open_at(location: Location) -> LocalStorage:
        if location.scheme == "hdfs":
            raise StorageError("no such host", subject=str(location))
        return Denied() if location.scheme == "s3a" else LocalStorage()

    files = [SourceFile(path, AT_MS, 5) for path in ("s3a://lake/a", "hdfs://name/b", "ftp://host/c")]
    found = ask_files([*files, here], open_at=open_at)
    assert [one.state for one in found] == [FileState.UNKNOWN] * 3 + [FileState.PRESENT]
    assert "does not let us look: s3a://lake/a" in (found[0].because or "")
    assert "no such host" in (found[1].because or "")


def test_storage_without_times_leaves_files_unknown(tmp_path: Path) -> None:
    class Timeless(LocalStorage):
        def stat(self, location: Location) -> object:
            entry = super().stat(location)
            return entry and entry._replace(modified_ms=None)

    found = ask_files([make(tmp_path, "a")], open_at=lambda _: Timeless())  # type: ignore[arg-type, return-value]
    assert found[0].state is FileState.UNKNOWN


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("file:///data/a%20b%25.json", "/data/a b%.json"),
        ("file:/data/x", "/data/x"),
        ("/data/x%23y", "/data/x#y"),
        ("s3a://lake/in/a%3Fb", "s3a://lake/in/a?b"),
        ("hdfs://name:8020/in/%C3%A4", "hdfs://name:8020/in/ä"),
    ],
)
def test_logged_paths_are_uris(uri: str, location: str) -> None:
    assert str(locate_file(uri)) == location


def aged(days: int) -> SourceFile:
    return SourceFile(f"/in/{days}", AT_MS - days * DAY_MS, days)


def test_dropped_files_that_are_too_old_are_never_found_again() -> None:
    dropped, kept = [aged(8), aged(7), aged(1)], [aged(0), aged(30)]
    assert list_never_found_again(dropped, kept) == (aged(8),)
    assert list_never_found_again(dropped, kept, max_file_age_ms=0) == tuple(dropped)


def test_nothing_is_too_old_for_a_log_that_is_empty() -> None:
    assert list_never_found_again([aged(100)], []) == ()


NEWEST_MS = 100 * DAY_MS


@pytest.mark.parametrize(
    ("read_days", "now_days", "fate"),
    [
        (100, 101, Then.IGNORED),
        (93, 200, Then.IGNORED),
        (93, 94, Then.IGNORED),
        (92.9, 200, Then.READ_AGAIN),
        (20, 93, Then.READ_AGAIN),
        (20, 92, Then.TOO_OLD),
    ],
)
def test_spark_forgets_what_is_older_than_the_newest_by_more_than_its_limit(
    read_days: float, now_days: float, fate: Then
) -> None:
    """As seen with Spark 4.2: see tests/repair/test_files_again.py."""
    file = SourceFile("file:/in/a", int(read_days * DAY_MS), 3)
    assert predict_file(FileFacts(file, FileState.CHANGED, int(now_days * DAY_MS)), NEWEST_MS) is fate
    assert predict_file(FileFacts(file, FileState.PRESENT, file.timestamp_ms), NEWEST_MS) is None
    assert predict_file(FileFacts(file, FileState.MISSING), NEWEST_MS) is None


def test_files_that_came_again_are_found_by_listing_their_folders(tmp_path: Path) -> None:
    read = []
    for number, name in enumerate(("a/x.json", "a/y z.json", "b/x.json", "b/gone.json")):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
        os.utime(file, (1000 + number, 1000 + number))
        read.append(SourceFile(file.as_uri(), (1000 + number) * 1000, number))
    (tmp_path / "b/gone.json").unlink()
    os.utime(tmp_path / "a/y z.json", (5000, 5000))
    found = find_written_again(read, 3)
    assert [each.file.log_id for each in found.files] == [1]
    assert (found.files[0].modified_ms, found.newest_ms) == (5_000_000, 1_003_000)
    assert (found.looked_at, found.of) == (3, 4)


def test_the_newest_entry_that_names_a_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("")
    os.utime(file, (9, 9))
    read = [SourceFile(file.as_uri(), 1000, 0), SourceFile(file.as_uri(), 9000, 4)]
    assert find_written_again(read, 4).files == ()
    assert len(find_written_again(read[:1], 4).files) == 1


def test_what_the_log_holds_for_a_later_batch_makes_a_name_forgotten_and_is_no_file_that_was_read(
    tmp_path: Path,
) -> None:
    for name in ("read", "waits"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (30 * 86_400, 30 * 86_400))
    waits = SourceFile((tmp_path / "waits").as_uri(), 20 * DAY_MS, 1)
    found = find_written_again([SourceFile((tmp_path / "read").as_uri(), DAY_MS, 0), waits], 0)
    assert [each.file.log_id for each in found.by_fate()[Then.READ_AGAIN]] == [0]
    assert (found.newest_ms, found.of) == (20 * DAY_MS, 1)


def test_file_that_came_too_late_to_be_taken_for_new_is_found(tmp_path: Path) -> None:
    ages = {"read.json": 20, "waits.json": 30, "late.json": 22, "new.json": 24, "late.csv": 1, "_late.json": 1}
    for name, days in ages.items():
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (days * 86_400, days * 86_400))
    read = [SourceFile((tmp_path / name).as_uri(), ages[name] * DAY_MS, n) for n, name in enumerate(list(ages)[:2])]
    late = (tmp_path / "late.json").as_uri()
    assert find_written_again(read, 0).left_out == (late,)
    assert find_written_again(read, 0, is_whole=False).left_out == ()
    assert describe_left_out("0", WrittenAgain((), 0, 0, 0)) is None


def test_only_the_folders_that_were_read_last_are_listed(tmp_path: Path) -> None:
    read = []
    for number in range(40):
        file = tmp_path / f"day={number}/f"
        file.parent.mkdir()
        file.write_text("")
        read.append(SourceFile(file.as_uri(), number * 1000, number))
    found = find_written_again(read, 39)
    assert (found.looked_at, found.of) == (32, 40)
    assert {each.file.log_id for each in found.files} == set(range(8, 40))
    assert found.by_fate().keys() == {Then.IGNORED}
