from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.operators import OperatorMetadata, StoreInfo
from lastgood.checkpoint.partitions import Pins
from lastgood.checkpoint.state import (
    Loading,
    Loads,
    Obstacle,
    StateFormat,
    StateOperator,
    StateStore,
    find_unique_ids,
    judge_state,
)
from lastgood.checkpoint.state_files import LineageItem, SnapshotMetadata, StateFile, parse_state_file_name

EMPTY = Damage(DamageKind.EMPTY)
UUIDS = {letter: f"{letter * 8}-0000-0000-0000-000000000000" for letter in "abcdef"}


def file(name: str, size: int = 9) -> StateFile:
    """`8.zip`, or `8_a.zip` with a letter for a unique id."""
    stem, _, kind = name.partition(".")
    version, _, letter = stem.partition("_")
    parsed = parse_state_file_name(f"{version}_{UUIDS[letter]}.{kind}" if letter else name, size)
    assert parsed
    return parsed


def store(
    names: str, empty: Iterable[str] = (), partition: int = 0, name: str = "default", operator: int = 0
) -> StateStore:
    files = tuple(file(each, 0 if each in empty else 9) for each in names.split())
    return StateStore(operator, partition, name, files)


def ids(**versions: str) -> dict[int, frozenset[str]]:
    """`ids(v8="ab")`: a commit names a and b for version 8."""
    return {int(key[1:]): frozenset(UUIDS[letter] for letter in letters) for key, letters in versions.items()}


def snapshot(**files: int) -> SnapshotMetadata:
    return SnapshotMetadata(1, {f"{name}.sst": size for name, size in files.items()}, 1, {})


HDFS = "1.delta 2.delta 3.delta 4.delta 5.delta 5.snapshot 6.delta 7.delta"
CHANGELOG = "1.changelog 2.changelog 3.changelog 3.zip 4.changelog 5.changelog"
V2 = "1_a.changelog 2_b.changelog 2_b.zip 3_c.changelog 4_d.changelog 4_f.changelog"
V2_IDS = ids(v1="a", v2="b", v3="c", v4="d")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", None),
        (HDFS, StateFormat.HDFS_BACKED),
        ("5.snapshot", StateFormat.HDFS_BACKED),
        ("6.zip 7.zip", StateFormat.ROCKSDB),
        (CHANGELOG, StateFormat.ROCKSDB_CHANGELOG),
        (V2, StateFormat.ROCKSDB_V2),
        ("6.delta 7.zip", StateFormat.ROCKSDB),  # the provider was changed when the state was rebuilt
        ("6.zip 7_a.changelog", StateFormat.ROCKSDB_V2),
    ],
)
def test_the_newest_file_tells_the_format(names: str, expected: StateFormat | None) -> None:
    assert store(names).format is expected


def test_a_store_knows_its_folder_and_its_versions() -> None:
    assert store("").folder == "state/0/0"
    assert store("", partition=3, name="left-x", operator=1).folder == "state/1/3/left-x"
    assert list(store("5.snapshot 7.delta 7.snapshot").versions) == [5, 7]


@pytest.mark.parametrize(
    ("names", "empty", "expected"),
    [
        (HDFS, (), [1, 2, 3, 4, 5, 6, 7]),
        ("5.snapshot 6.delta 7.delta", (), [5, 6, 7]),
        ("2.delta 3.delta", (), []),
        ("1.delta 3.delta 5.snapshot 7.delta", (), [1, 5]),
        (HDFS, ("6.delta",), [1, 2, 3, 4, 5]),
        (HDFS, ("5.snapshot",), [1, 2, 3, 4]),
        ("5.zip 6.zip 8.zip", (), [5, 6, 8]),
        (CHANGELOG, (), [1, 2, 3, 4, 5]),
        ("3.zip 4.changelog 5.changelog", (), [3, 4, 5]),
        ("1.changelog 2.changelog", (), [1, 2]),
        ("", (), []),
    ],
)
def test_a_version_loads_from_its_newest_snapshot_and_the_changes_after_it(
    names: str, empty: tuple[str, ...], expected: list[int]
) -> None:
    assert list(Loads(store(names, empty)).loadable()) == expected


@pytest.mark.parametrize(
    ("names", "empty", "version", "expected"),
    [
        (HDFS, (), 7, None),
        (HDFS, (), 0, None),
        (HDFS, (), 8, Obstacle("8.delta", None)),
        ("5.snapshot 8.delta", (), 8, Obstacle("6.delta", None)),  # the first that Spark would miss
        (HDFS, ("6.delta",), 7, Obstacle("6.delta", EMPTY)),
        (HDFS, ("5.snapshot",), 7, Obstacle("5.snapshot", EMPTY)),
        ("2.delta", (), 2, Obstacle("1.delta", None)),
        ("6.zip", (), 7, Obstacle("7.changelog", None)),
        ("", (), 7, Obstacle("1.changelog", None)),
    ],
)
def test_the_first_obstacle_is_the_file_that_spark_names(
    names: str, empty: tuple[str, ...], version: int, expected: Obstacle | None
) -> None:
    assert Loads(store(names, empty)).obstacle(version) == expected


def test_an_empty_store_of_the_hdfs_backed_provider_misses_a_delta() -> None:
    assert Loads(store(""), hdfs_backed=True).obstacle(7) == Obstacle("1.delta", None)


def test_the_pinned_provider_sees_only_its_own_files() -> None:
    both = store("1.delta 2.delta 2.zip")
    assert list(Loads(both, hdfs_backed=True).loadable()) == [1, 2]
    assert list(Loads(both, hdfs_backed=False).loadable()) == [2]


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ({"a.sst": 5, "b.sst": 6, "c.sst": 1}, None),
        ({"a.sst": 5}, Damage(DamageKind.MISSING_PART, "b.sst, not there")),
        ({"a.sst": 5, "b.sst": 7}, Damage(DamageKind.MISSING_PART, "b.sst, 7 bytes")),
        ({"a.sst": 5, "b.sst": None}, None),  # nobody knows its size
    ],
)
def test_a_snapshot_needs_the_files_beside_it(there: Mapping[str, int | None], found: Damage | None) -> None:
    looked = StateStore(0, 0, "default", (file("6.zip"),), there, {file("6.zip"): snapshot(a=5, b=6)})
    assert Loads(looked).obstacle(6) == (found and Obstacle("6.zip", found))
    assert list(Loads(looked).loadable()) == ([] if found else [6])


def test_a_broken_snapshot_breaks_what_builds_on_it() -> None:
    broken = Damage(DamageKind.BAD_ARCHIVE)
    files = store(CHANGELOG).files
    looked = StateStore(0, 0, "default", files, {}, {file("3.zip"): broken})
    assert list(Loads(looked).loadable()) == [1, 2]
    assert Loads(looked).obstacle(5) == Obstacle("3.zip", broken)


def test_spark_4_1_goes_past_a_broken_snapshot_to_older_changes() -> None:
    looked = StateStore(0, 0, "default", store(CHANGELOG).files, {}, {file("3.zip"): Damage(DamageKind.BAD_ARCHIVE)})
    assert list(Loads(looked, loading=Loading(auto_repair=True)).loadable()) == [1, 2, 3, 4, 5]
    assert Loads(looked, loading=Loading(auto_repair=True)).obstacle(5) is None
    alone = StateStore(0, 0, "default", store("3.zip").files, {}, {file("3.zip"): Damage(DamageKind.BAD_ARCHIVE)})
    assert list(Loads(alone, loading=Loading(auto_repair=True)).loadable()) == []
    damage = Damage(DamageKind.BAD_ARCHIVE)  # it keeps no changes to begin with
    assert Loads(alone, loading=Loading(auto_repair=True)).obstacle(3) == Obstacle("3.zip", damage)


def test_a_snapshot_too_large_to_look_into_has_the_benefit_of_the_doubt() -> None:
    looked = StateStore(0, 0, "default", (file("6.zip"),), {}, {file("6.zip"): Damage(DamageKind.TOO_LARGE)})
    assert list(Loads(looked).loadable()) == [6]


def test_commits_name_the_files_that_count() -> None:
    loads = Loads(store(V2), V2_IDS)
    assert list(loads.loadable()) == [1, 2, 3, 4]
    assert [each.name for each in loads.path(4)] == [
        file(n).name for n in ("2_b.zip", "3_c.changelog", "4_d.changelog")
    ]
    assert list(Loads(store(V2), ids(v4="e")).loadable()) == []


def test_without_commits_nothing_with_an_id_counts() -> None:
    assert list(Loads(store(V2)).loadable()) == []


def test_ids_of_the_other_stores_of_a_partition_do_no_harm() -> None:
    assert list(Loads(store(V2), ids(v1="ae", v2="be", v3="ce", v4="de")).loadable()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("names", "named", "version", "expected"),
    [
        (V2, V2_IDS, 4, None),
        (V2, ids(v4="e"), 4, "4_e.changelog"),
        (V2, ids(v4="df", v3="c", v2="b"), 4, None),  # both are there: one of them is another store's
        ("1_a.changelog", ids(v1="a", v2="bc"), 2, "2_*.changelog"),
        ("3_c.changelog 4_d.changelog", ids(v3="c", v4="d"), 4, "2_*.changelog"),
        ("4_d.changelog", ids(v2="b", v3="c", v4="d"), 4, "2_b.changelog"),
        ("2_b.zip 4_d.changelog", ids(v2="b", v3="c", v4="d"), 4, "3_c.changelog"),
        (V2, V2_IDS, 5, "5_*.changelog"),  # no commit names version 5
        ("5.changelog 6_a.changelog", ids(v6="a"), 6, "5_*.changelog"),
    ],
)
def test_what_a_named_version_lacks_is_told_by_name(
    names: str, named: dict[int, frozenset[str]], version: int, expected: str | None
) -> None:
    obstacle = Loads(store(names), named).obstacle(version)
    is_file = expected is not None and "*" not in expected
    name = file(expected).name if is_file and expected else expected
    assert obstacle == (None if name is None else Obstacle(name, None))


def test_a_changelog_tells_what_it_builds_on_where_commits_are_purged() -> None:
    lineage = (LineageItem(2, UUIDS["b"]), LineageItem(3, UUIDS["c"]))
    looked = StateStore(0, 0, "default", store(V2).files, lineages={file("4_d.changelog"): lineage})
    loads = Loads(looked, ids(v4="d"))
    assert list(loads.loadable()) == [2, 3, 4]
    assert loads.obstacle(4) is None


def test_a_changelog_that_cannot_be_read_tells_nothing() -> None:
    looked = StateStore(
        0, 0, "default", store(V2).files, lineages={file("4_d.changelog"): Damage(DamageKind.UNKNOWN_CODEC)}
    )
    assert list(Loads(looked, ids(v4="d")).loadable()) == []


def test_the_lineage_of_a_changelog_that_does_not_count_puts_nothing_in_force() -> None:
    lineage = (LineageItem(2, UUIDS["b"]), LineageItem(3, UUIDS["c"]))
    looked = StateStore(0, 0, "default", store(V2).files, lineages={file("4_f.changelog"): lineage})
    assert list(Loads(looked, ids(v4="d")).loadable()) == []


@pytest.mark.parametrize(
    "lineage",
    [
        (LineageItem(4, UUIDS["f"]), LineageItem(5, UUIDS["a"])),  # leads up
        (LineageItem(4, UUIDS["d"]), LineageItem(9, UUIDS["c"])),  # leads to itself
        (LineageItem(2, UUIDS["b"]),),  # leaves out a version
        (LineageItem(-7, UUIDS["a"]), LineageItem(3, UUIDS["c"])),
    ],
)
def test_a_lineage_that_makes_no_sense_leads_nowhere(lineage: tuple[LineageItem, ...]) -> None:
    looked = StateStore(0, 0, "default", store(V2).files, lineages={file("4_d.changelog"): lineage})
    loads = Loads(looked, ids(v4="d"))
    assert 4 not in loads.loadable()
    assert loads.obstacle(4) is not None


V2_LONG = "1_a.changelog 2_b.changelog 2_b.zip 3_c.changelog 4_d.changelog 4_d.zip 5_e.changelog"
V2_LINEAGES = {
    file("5_e.changelog"): (LineageItem(4, UUIDS["d"]),),
    file("4_d.changelog"): (LineageItem(2, UUIDS["b"]), LineageItem(3, UUIDS["c"])),
    file("2_b.changelog"): (LineageItem(1, UUIDS["a"]),),
}


@pytest.mark.parametrize(
    ("gone", "begins", "begins_repaired"),
    [
        ("", "4_d.zip", "4_d.zip"),
        ("4_d.zip", None, "2_b.zip"),
        ("4_d.zip 1_a.changelog", None, "2_b.zip"),  # no lineage has to be read of the oldest version
        ("4_d.zip 2_b.changelog", None, None),
        ("4_d.zip 4_d.changelog", None, None),
        ("4_d.zip 3_c.changelog", None, None),
        ("4_d.zip 2_b.zip", None, None),  # with no snapshot that it knows Spark has begun at version 0 and failed
        ("1_a.changelog 2_b.changelog 3_c.changelog", "4_d.zip", "4_d.zip"),
    ],
)
@pytest.mark.parametrize("is_broken", [False, True])
def test_spark_goes_back_from_lineage_to_lineage_and_only_to_repair(
    gone: str, begins: str | None, begins_repaired: str | None, *, is_broken: bool
) -> None:
    """As Spark 4.0.5, 4.1.4, 4.2.0 and 4.3.0 were seen to do."""
    files = [file(name) for name in V2_LONG.split() if name not in gone.split()]
    lineages = {each: lineage for each, lineage in V2_LINEAGES.items() if each in files}
    broken = {}
    if is_broken and file("4_d.zip") not in files:
        files.append(file("4_d.zip"))
        broken = {file("4_d.zip"): Damage(DamageKind.BAD_ARCHIVE)}
        if gone == "4_d.zip 2_b.zip":
            begins_repaired = "1_a.changelog"
    files.sort(key=lambda each: each.version)
    looked = StateStore(0, 0, "default", tuple(files), {}, broken, lineages)
    for is_repaired, begin in ((False, begins), (True, begins_repaired)):
        loads = Loads(looked, ids(v5="e"), loading=Loading(auto_repair=is_repaired))
        assert (5 in loads.loadable()) is (loads.obstacle(5) is None) is (begin is not None)
        if begin is not None:
            assert loads.path(5)[0].name == file(begin).name


def test_a_snapshot_of_another_version_is_one_that_cannot_be_read() -> None:
    """Spark 4.0 wrote 2 in format v2; 4.1.4 was seen to fail at it, and 4.2.0 and 4.3.0 to go past it."""
    of_4_0 = SnapshotMetadata(2, {}, -1, {})
    files = tuple(file(name) for name in V2_LONG.split())
    looked = StateStore(0, 0, "default", files, {}, {file("4_d.zip"): of_4_0, file("2_b.zip"): of_4_0}, V2_LINEAGES)
    of_4_1, of_4_2 = Loading(metadata_version=1), Loading(auto_repair=True, metadata_version=1)
    damage = Damage(DamageKind.OTHER_VERSION, "v2")
    assert Loads(looked, ids(v5="e"), loading=of_4_1).obstacle(5) == Obstacle(file("4_d.zip").name, damage)
    assert Loads(looked, ids(v5="e"), loading=of_4_2).path(5)[0].name == file("1_a.changelog").name
    assert Loads(looked, ids(v5="e"), loading=Loading(metadata_version=2)).obstacle(5) is None


def test_spark_goes_back_no_more_than_500_versions() -> None:
    files = [file("600_e.changelog"), file("599_d.changelog"), file("99_c.zip"), file("50_b.zip")]
    lineages = {
        file("600_e.changelog"): (LineageItem(599, UUIDS["d"]),),
        file("599_d.changelog"): tuple(LineageItem(version, UUIDS["c"]) for version in range(99, 599)),
    }
    looked = StateStore(0, 0, "default", tuple(files), lineages=lineages)
    assert Loads(looked, ids(v600="e"), loading=Loading(auto_repair=True)).path(600)[0].name == file("599_d.zip").name


def test_two_changelogs_of_one_version_may_be_looked_into() -> None:
    lineage = (LineageItem(2, UUIDS["b"]), LineageItem(3, UUIDS["c"]))
    both = {file("4_d.changelog"): lineage, file("4_f.changelog"): lineage}
    looked = StateStore(0, 0, "default", store(V2).files, lineages=both)
    assert list(Loads(looked, ids(v4="f")).loadable()) == [2, 3, 4]


def test_a_version_beyond_all_bounds_costs_no_time() -> None:
    assert Loads(store(HDFS)).obstacle(2**62) == Obstacle("8.delta", None)
    assert Loads(store("")).obstacle(2**62) == Obstacle("1.changelog", None)
    assert Loads(store(V2), V2_IDS).obstacle(2**62) == Obstacle(f"{2**62}_*.changelog", None)


def metadata(*stores: StoreInfo) -> OperatorMetadata:
    return OperatorMetadata(1, 0, "dedupe", stores, {}, b"")


@pytest.mark.parametrize(
    ("stores", "found", "pinned", "expected"),
    [
        ([store("", partition=0)], metadata(StoreInfo("default", 0, 3)), None, 3),
        ([store("", partition=0)], None, 200, 1),  # such as a global limit, which has one partition
        ([store("", partition=0), store("", partition=1)], None, 3, 3),
        ([store("", partition=0), store("", partition=4)], None, 3, 3),
        ([store("1.delta", partition=0), store("1.delta", partition=4)], None, 3, 5),
        ([store("", partition=1)], None, None, 2),
        ([], None, 5, 1),  # each has partition 0
        ([store("", partition=0)], metadata(StoreInfo("default", 0, 2**60)), None, 10_000),
        ([store("", partition=0)], metadata(), None, 1),
    ],
)
def test_the_operator_says_how_many_partitions_there_are_to_be(
    stores: list[StateStore], found: OperatorMetadata | None, pinned: int | None, expected: int
) -> None:
    operator = StateOperator(0, found, None, tuple(stores))
    assert len(operator.expected(Pins(pinned))) == expected


def test_every_store_of_every_partition_must_load_a_version() -> None:
    stores = (store("1.delta 2.delta"), store("1.delta", partition=1))
    state = judge_state([StateOperator(0, None, None, stores)], {}, restart_version=2, pins=Pins(2))
    assert list(state.loadable) == [1]
    assert (state.last_loadable_batch, state.obstacles) == (0, (Obstacle("state/0/1/2.delta", None),))


def test_a_partition_that_is_gone_keeps_everything_from_loading() -> None:
    operator = StateOperator(0, metadata(StoreInfo("default", 0, 2)), None, (store("1.delta 2.delta", partition=1),))
    state = judge_state([operator], {}, restart_version=2, pins=Pins())
    assert (state.loadable.newest, state.last_loadable_batch) == (None, None)
    assert state.obstacles == (Obstacle("state/0/0/1.delta", None),)


def test_a_store_that_the_operator_names_is_expected() -> None:
    operator = StateOperator(
        0, metadata(StoreInfo("left-x", 0, 1), StoreInfo("right-x", 0, 1)), None, (store("1.delta", name="left-x"),)
    )
    state = judge_state([operator], {}, restart_version=1, pins=Pins())
    assert state.obstacles == (Obstacle("state/0/0/right-x/1.delta", None),)


def test_all_operators_count() -> None:
    operators = [
        StateOperator(0, None, None, (store("1.zip 2.zip"),)),
        StateOperator(1, None, None, (store("2.zip 3.zip", operator=1),)),
    ]
    state = judge_state(operators, {}, restart_version=None, pins=Pins())
    assert (list(state.loadable), state.obstacles) == ([2], ())


def test_no_operator_can_load_nothing() -> None:
    state = judge_state([], {}, restart_version=5, pins=Pins(2))
    assert (state.loadable.newest, state.obstacles) == (None, ())


def test_ids_are_taken_from_the_commit_before() -> None:
    commits = {6: {0: (("x",), ("y", "z"))}, 7: None}
    assert find_unique_ids(store("", partition=1), commits) == {7: frozenset({"y", "z"})}
    assert find_unique_ids(store("", partition=2), commits) == {}
    assert find_unique_ids(store("", operator=1), commits) == {}
