"""What the reader tells of state: which versions load, in every partition."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from reading import A, batches, read, write

from lastgood.checkpoint.damage import Damage, DamageKind


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("3.5-agg-hdfs-healthy", "8.delta"),
        ("3.5-agg-rocksdb-healthy", "8.changelog"),
        ("4.0-agg-rocksdb-changelog-healthy", "8.changelog"),
        ("4.3-agg-rocksdb-ckptv2-healthy", "8_fc465c63-f7a6-4600-9f86-87110b94d5f2.changelog"),
    ],
)
def test_a_state_version_must_load_in_every_partition(name: str, file: str, case: Callable[[str], Path]) -> None:
    root = case(name)
    whole = read(root)
    assert (whole.last_loadable, whole.absent) == (7, ())
    for found in [*(root / "state/0/0").glob("8.*"), *(root / "state/0/0").glob("8_*")]:
        found.unlink()
    cut = read(root)
    assert (cut.last_loadable, cut.absent) == (6, (f"state/0/0/{file}",))


@pytest.mark.parametrize(
    "name", ["3.5-agg-rocksdb-healthy", "4.0-agg-rocksdb-changelog-healthy", "4.3-agg-rocksdb-ckptv2-healthy"]
)
def test_a_rocksdb_snapshot_without_its_files_is_broken(name: str, case: Callable[[str], Path]) -> None:
    root = case(name)
    shutil.rmtree(root / "state/0/1/SSTs")
    found = read(root)
    assert found.state
    assert found.last_loadable != 7
    (path, damage), *rest = found.damage.items()
    assert (rest, damage.kind) == ([], DamageKind.MISSING_PART)
    assert path.startswith("state/0/1/")
    assert path.endswith(".zip")


def test_a_rocksdb_snapshot_that_is_no_archive_is_broken(case: Callable[[str], Path]) -> None:
    root = case("3.5-agg-rocksdb-healthy")
    (root / "state/0/0/8.zip").write_bytes(b"no zip")
    assert read(root).damage == {"state/0/0/8.zip": Damage(DamageKind.BAD_ARCHIVE, "no zip")}


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("3.5-agg-hdfs-healthy", "8.delta"), ("4.3-agg-rocksdb-ckptv2-healthy", "8_*.changelog")],
)
def test_an_empty_state_file_is_broken(name: str, pattern: str, case: Callable[[str], Path]) -> None:
    root = case(name)
    (file,) = (root / "state/0/0").glob(pattern)
    file.write_bytes(b"")
    found = read(root)
    assert found.last_loadable == 6
    assert found.damage == {f"state/0/0/{file.name}": Damage(DamageKind.EMPTY)}


def test_format_v2_is_followed_through_the_changelog_where_commits_are_purged(case: Callable[[str], Path]) -> None:
    root = case("4.3-agg-rocksdb-ckptv2-healthy")
    for n in range(7):
        (root / f"commits/{n}").unlink()
    found = read(root)
    assert (found.last_loadable, found.absent) == (7, ())
    assert found.state
    assert [len(store.lineages) for store in found.state.operators[0].stores] == [2, 2]  # back to version 1
    for snapshot in (root / "state/0/0").glob("6_*.zip"):
        snapshot.unlink()
    (path,) = read(root).absent
    assert path.startswith("state/0/0/6_") or path == "state/0/0/5_*.changelog"


def test_format_v2_reads_the_commits_back_to_the_snapshot(case: Callable[[str], Path]) -> None:
    root = case("4.3-agg-rocksdb-ckptv2-healthy")
    found = read(root, batches=1)
    assert (sorted(found.commits.entries), found.last_loadable) == ([6, 7], 7)
    for snapshot in (root / "state/0").glob("*/*.zip"):
        snapshot.unlink()
    without = read(root, batches=1)
    assert (sorted(without.commits.entries), without.last_loadable) == ([6, 7], 6)
    assert without.state
    assert [obstacle.name.startswith("state/0/0/6_") for obstacle in without.state.obstacles] == [True, False]
    assert all(obstacle.name.endswith(".zip") for obstacle in without.state.obstacles)


def test_a_version_with_several_ids_is_the_one_that_the_commit_names(case: Callable[[str], Path]) -> None:
    root = case("4.3-agg-rocksdb-ckptv2-healthy")
    (file,) = (root / "state/0/0").glob("8_*.changelog")
    shutil.copy(file, root / f"state/0/0/8_{A}.changelog")
    assert read(root).last_loadable == 7
    file.unlink()
    assert read(root).absent == (f"state/0/0/{file.name}",)


def test_a_lost_partition_folder_keeps_all_versions_from_loading(case: Callable[[str], Path]) -> None:
    root = case("4.0-agg-rocksdb-changelog-healthy")
    shutil.rmtree(root / "state/0/0")
    found = read(root)
    assert (found.last_loadable, found.absent) == (None, ("state/0/0/1.changelog",))


def test_lost_state_shows_where_commits_name_it(case: Callable[[str], Path]) -> None:
    root = case("4.3-agg-rocksdb-ckptv2-healthy")
    shutil.rmtree(root / "state")
    found = read(root)
    assert (found.state, found.is_stateful, found.last_loadable) == (None, True, None)


def test_state_of_a_query_that_never_committed_is_listed(case: Callable[[str], Path]) -> None:
    root = case("4.3-agg-rocksdb-ckptv2-healthy")
    shutil.rmtree(root / "commits")
    found = read(root)
    assert found.state
    assert found.state.obstacles == ()
    assert len(found.state.operators[0].stores) == 2


def test_the_newest_operator_metadata_counts_and_damage_in_it_is_named(case: Callable[[str], Path]) -> None:
    root = case("4.0-transform-with-state")
    assert read(root).damage == {}
    (root / "state/0/_metadata/v2/5").write_bytes(b"v2\n{")
    (root / "state/0/_metadata/v2/x").write_bytes(b"")
    found = read(root)
    assert found.damage == {"state/0/_metadata/v2/5": Damage(DamageKind.TRUNCATED, "{", 2)}
    assert found.last_loadable == 3  # the folders tell how many partitions there are


def test_an_empty_partition_folder_is_a_store_without_a_version(tmp_path: Path) -> None:
    write(tmp_path, batches(1) | {"state/0/0/1.delta": b"x"})
    (tmp_path / "state/0/1").mkdir()
    (tmp_path / "state/lost+found").mkdir()
    found = read(tmp_path)
    assert found.absent == ("state/0/1/1.delta",)


def test_a_folder_of_state_without_operators_is_of_a_query_that_has_lost_its_state(tmp_path: Path) -> None:
    write(tmp_path, batches(1))
    (tmp_path / "state").mkdir()
    found = read(tmp_path)
    assert found.state
    assert (found.is_stateful, found.last_loadable) == (True, None)
