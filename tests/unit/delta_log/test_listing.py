from __future__ import annotations

from lastgood.delta_log.listing import (
    CheckpointFiles,
    list_delta_log,
    list_staged_versions,
    name_checksum,
    name_commit,
)

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def checkpoint(version: int, suffix: str = "parquet") -> str:
    return f"{version:020d}.checkpoint.{suffix}"


def test_only_the_logs_own_files_count() -> None:
    listing = list_delta_log(
        [
            *(name_commit(0), name_checksum(0), f".{name_commit(0)}.crc", "_last_checkpoint", "_commits/", "1.json"),
            *(f"{0:020d}.{5:020d}.compacted.json", f"{checkpoint(0)}.tmp"),
        ]
    )
    assert list(listing.commits) == [0]
    assert list(listing.checksums) == [0]
    assert listing.checkpoints == ()


def test_checkpoint_of_several_parts_counts_when_all_are_there() -> None:
    parts = [checkpoint(9, f"{part:010d}.{3:010d}.parquet") for part in (1, 2, 3)]
    assert list_delta_log(parts[:2]).checkpoints == ()
    assert list_delta_log(reversed(parts)).checkpoints == (CheckpointFiles(9, tuple(parts)),)


def test_parts_count_by_their_numbers_not_how_many_there_are() -> None:
    parts = [checkpoint(9, f"{part:010d}.{3:010d}.parquet") for part in (1, 2, 4)]
    assert list_delta_log(parts).checkpoints == ()


def test_version_leaves_its_trace_whatever_is_left_of_it() -> None:
    part = checkpoint(7, f"{1:010d}.{2:010d}.parquet")
    for name, newest in ((part, 7), (name_checksum(8), 8), (f"{2:020d}.{9:020d}.compacted.json", 9)):
        assert list_delta_log([name_commit(1), name]).newest_trace == newest
    assert list_delta_log(["_last_checkpoint", f".{name_commit(3)}.crc", "_sidecars/"]).newest_trace is None


def test_staged_commits_are_told_by_their_names() -> None:
    names = [f"{8:020d}.{UUID}.json", f"{10:020d}.{UUID}.json", f"{11:020d}.{UUID}.json.tmp", name_commit(12), "x"]
    assert list(list_staged_versions(names)) == [8, 10]


def test_checkpoint_with_a_name_of_its_own_is_told() -> None:
    names = [checkpoint(1), checkpoint(2, f"{UUID}.parquet"), checkpoint(3, f"{1:010d}.{1:010d}.parquet")]
    assert [found.has_own_name for found in list_delta_log(names).checkpoints] == [False, True, False]


def test_every_kind_of_checkpoint_is_known() -> None:
    names = [checkpoint(1), checkpoint(2, f"{UUID}.parquet"), checkpoint(3, f"{UUID}.json")]
    assert [found.names for found in list_delta_log(names).checkpoints] == [(name,) for name in names]


def test_one_checkpoint_a_version_is_enough() -> None:
    parts = [checkpoint(9, f"{part:010d}.{2:010d}.parquet") for part in (1, 2)]
    assert list_delta_log([*parts, checkpoint(9)]).checkpoints == (CheckpointFiles(9, (checkpoint(9),)),)


def test_versions_count_from_the_last_gap_on() -> None:
    listing = list_delta_log(map(name_commit, (0, 1, 3, 4, 5)))
    assert listing.newest == 5
    assert listing.unbroken == range(3, 6)


def test_newest_version_may_be_left_in_a_checkpoint_only() -> None:
    listing = list_delta_log([name_commit(3), name_commit(4), checkpoint(6)])
    assert listing.newest == 6
    assert not listing.unbroken


def test_empty_log_has_no_version() -> None:
    listing = list_delta_log([])
    assert (listing.newest, listing.unbroken) == (None, range(0))
