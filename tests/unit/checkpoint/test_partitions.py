"""Which partitions the state of an operator is to have, from every kind of evidence; `docs/why/partitions.md`."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from reading import read

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.operators import ColumnFamilySchema, OperatorMetadata, StateSchema, StoreInfo
from lastgood.checkpoint.partitions import (
    Partitions,
    Pins,
    Spread,
    collect_pins,
    derive_partitions,
    derive_stores,
    find_spread,
    find_spread_by_name,
)

KNOWN = True
KEYED_OF_PYSPARK = {
    "applyInPandasWithState",
    "dedupe",
    "dedupeWithinWatermark",
    "flatMapGroupsWithState",
    "sessionWindowStateStoreSaveExec",
    "symmetricHashJoin",
    "transformWithStateExec",
    "transformWithStateInPySparkExec",
}
"""As the metadata that the installed Spark writes calls its operators with a key."""


def schema(*key: tuple[str, str], value: tuple[str, str] = ("value", "long")) -> StateSchema:
    def struct(*fields: tuple[str, str]) -> str:
        listed = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
        return json.dumps({"type": "struct", "fields": listed})

    return StateSchema(2, (ColumnFamilySchema("default", struct(*key), struct(value)),), b"")


NO_KEY, BY_K, LIMIT = schema(), schema(("k", "string")), schema(("key", "void"))


def metadata(partitions: int | None = None, name: str = "stateStoreSave", *stores: str) -> OperatorMetadata:
    listed = [] if partitions is None else [StoreInfo(each, 0, partitions) for each in stores or ("default",)]
    return OperatorMetadata(1, 0, name, tuple(listed), {}, b"")


@pytest.mark.parametrize(
    ("name", "found", "seen", "ids", "expected"),
    [
        ("globalLimit", None, {0}, None, Spread.SINGLE),
        ("globalLimit", None, {0, 1}, None, Spread.SINGLE),
        ("dedupe", None, {0}, None, Spread.BY_KEY),
        ("symmetricHashJoin", None, set(), None, Spread.BY_KEY),
        ("transformWithStateInPySparkExec", None, {0}, None, Spread.BY_KEY),
        ("stateStoreSave", NO_KEY, {0}, None, Spread.SINGLE),
        ("stateStoreSave", BY_K, {0}, None, Spread.BY_KEY),
        ("stateStoreSave", LIMIT, {0}, None, Spread.BY_KEY),  # grouped by a column of nothing but nulls
        ("StatefulStreamlineAggregate", NO_KEY, {0}, None, Spread.SINGLE),
        ("StatefulStreamlineAggregate", BY_K, {0}, None, Spread.BY_KEY),
        ("stateStoreSave", None, {0, 2}, None, Spread.BY_KEY),
        ("stateStoreSave", None, {0}, None, Spread.UNKNOWN),
        ("stateStoreSave", None, {0}, 1, Spread.SINGLE),
        ("stateStoreSave", None, {0}, 4, Spread.BY_KEY),
        (None, NO_KEY, {0}, None, Spread.SINGLE),
        (None, LIMIT, {0}, None, Spread.SINGLE),
        (None, schema(("key", "null")), {0}, None, Spread.SINGLE),
        (None, schema(("key", "void"), value=("count", "long")), {0}, None, Spread.BY_KEY),
        (None, schema(("key", "string")), {0}, None, Spread.BY_KEY),
        (None, BY_K, {0}, None, Spread.BY_KEY),
        (None, None, {3}, None, Spread.BY_KEY),
        (None, None, {0}, None, Spread.UNKNOWN),
        (None, None, set(), None, Spread.UNKNOWN),
        ("ofALaterSpark", NO_KEY, {0}, None, Spread.SINGLE),
        ("ofALaterSpark", BY_K, {0}, None, Spread.UNKNOWN),
        ("ofALaterSpark", BY_K, {1}, None, Spread.BY_KEY),
        (None, StateSchema(3, (), b""), {0}, None, Spread.UNKNOWN),
        (None, StateSchema(1, (ColumnFamilySchema("default", '"string"', "{}"),), b""), {0}, None, Spread.UNKNOWN),
    ],
)
def test_name_schema_folders_and_ids_tell_how_rows_are_spread(
    name: str | None, found: StateSchema | None, seen: Collection[int], ids: int | None, expected: Spread
) -> None:
    assert find_spread(name, found, seen, ids) is expected


def at(*partitions: int, version: int = 8) -> dict[int, int]:
    return dict.fromkeys(partitions, version)


@pytest.mark.parametrize(
    ("spread", "found", "seen", "pins", "expected"),
    [
        (Spread.SINGLE, metadata(200), at(0), Pins(200), Partitions(1, KNOWN)),
        (Spread.SINGLE, None, at(0, 1, 2), Pins(3), Partitions(1, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0), Pins(4), Partitions(4, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0), Pins(), Partitions(4, KNOWN)),
        (Spread.BY_KEY, None, at(1), Pins(4), Partitions(4, KNOWN)),
        (Spread.BY_KEY, Damage(DamageKind.EMPTY), at(1), Pins(4), Partitions(4, KNOWN)),
        (Spread.BY_KEY, metadata(), at(1), Pins(4), Partitions(4, KNOWN)),
        (Spread.BY_KEY, None, at(0, 1), Pins(), Partitions(2, not KNOWN)),
        (Spread.BY_KEY, None, at(0, 1), Pins(None, 4), Partitions(4, KNOWN)),
        (Spread.BY_KEY, None, at(), Pins(), Partitions(1, not KNOWN)),
        # The newest plan was changed by hand, to fewer or more than the state has.
        (Spread.BY_KEY, None, at(0, 4), Pins(3), Partitions(5, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0, 1, 2, 3), Pins(2, 4), Partitions(4, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0, 1, 2, 3), Pins(6, 4), Partitions(4, KNOWN)),
        (Spread.BY_KEY, None, at(0, 1, 2, 3), Pins(6, 4), Partitions(4, KNOWN)),
        # Repartitioned: what is beyond stays at the version of then, and so does the metadata.
        (Spread.BY_KEY, metadata(4), at(0, 1) | at(2, 3, version=5), Pins(2), Partitions(2, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0, 1, version=5) | at(2, 3), Pins(2, 4, True), Partitions(2, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0, 1, 2, 3, 4, 5), Pins(6, 4), Partitions(6, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0, 1, 2, 3), Pins(6, 4, is_repartitioned=True), Partitions(6, KNOWN)),
        (Spread.BY_KEY, metadata(6), at(0, 1, 2, 3), Pins(6, 4), Partitions(6, KNOWN)),
        (Spread.BY_KEY, metadata(4), at(0, 1) | at(2, 3, version=5), Pins(2, 4, True, True), Partitions(4, KNOWN)),
        (Spread.UNKNOWN, None, at(0), Pins(4), Partitions(1, not KNOWN)),
        (Spread.UNKNOWN, None, at(0), Pins(1), Partitions(1, KNOWN)),
        (Spread.UNKNOWN, None, at(0), Pins(), Partitions(1, not KNOWN)),
        (Spread.UNKNOWN, metadata(4), at(0), Pins(4), Partitions(1, not KNOWN)),
        (Spread.UNKNOWN, metadata(1), at(0), Pins(4), Partitions(1, KNOWN)),
        (Spread.BY_KEY, metadata(2**60), at(0), Pins(), Partitions(10_000, KNOWN)),
        (Spread.BY_KEY, None, at(2**60), Pins(), Partitions(10_000, not KNOWN)),
    ],
)
def test_metadata_plans_and_folders_tell_how_many_partitions_there_are_to_be(
    spread: Spread, found: OperatorMetadata | Damage | None, seen: dict[int, int], pins: Pins, expected: Partitions
) -> None:
    assert derive_partitions(spread, found, seen, pins) == expected


def plan(pinned: int | None, timestamp: int, offset: str, *, metadata: bool = True) -> OffsetEntry:
    conf = {} if pinned is None else {"spark.sql.shuffle.partitions": str(pinned)}
    told = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": timestamp, "conf": conf}) if metadata else ""
    entry = parse_offset_entry(f"v1\n{told}\n{offset}".encode())
    assert isinstance(entry, OffsetEntry)
    return entry


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ({}, Pins()),
        ({0: Damage(DamageKind.EMPTY)}, Pins()),
        ({0: plan(None, 1, "0")}, Pins()),
        ({0: plan(4, 1, "0"), 1: plan(4, 2, "1")}, Pins(4)),
        ({0: plan(4, 1, "0"), 1: plan(None, 2, "1")}, Pins(None, 4)),
        ({0: plan(4, 1, "0"), 1: plan(2, 2, "1")}, Pins(2, 4)),
        ({0: plan(4, 1, "0"), 1: plan(2, 2, "0")}, Pins(2, 4)),
        ({0: plan(4, 1, "0"), 1: plan(2, 1, "0")}, Pins(2, 4, is_repartitioned=True, is_unfinished=True)),
        ({0: plan(4, 1, "0"), 1: plan(2, 1, "0"), 2: plan(2, 3, "1")}, Pins(2, 4, is_repartitioned=True)),
        ({0: plan(4, 1, "0"), 1: plan(2, 1, "0"), 2: plan(4, 3, "1")}, Pins(4, 2)),
        ({0: plan(4, 1, "0"), 2: plan(2, 1, "0")}, Pins(2, 4)),
        ({0: plan(4, 1, "0"), 1: plan(None, 0, "0", metadata=False)}, Pins(None, 4)),
    ],
)
def test_plans_tell_what_they_pin_and_who_has_changed_it(
    plans: dict[int, OffsetEntry | Damage], expected: Pins
) -> None:
    assert collect_pins(plans, committed=0 if 2 not in plans else 2) == expected


def test_names_of_stores_are_those_of_the_metadata_or_of_a_join_or_those_that_are_there() -> None:
    assert derive_stores(metadata(2, "dedupe", "a", "b"), {"a"}) == {"a", "b"}
    assert len(derive_stores(None, {"left-keyToNumValues"})) == 4
    assert derive_stores(None, {"other"}) == {"other"}
    assert derive_stores(None, set()) == {"default"}


HDFS, CHANGELOG, BY_ID = (
    "3.5-agg-hdfs-healthy",
    "4.0-agg-rocksdb-changelog-healthy",
    "4.3-agg-rocksdb-ckptv2-healthy",
)


@pytest.mark.parametrize("name", [HDFS, CHANGELOG, BY_ID])
def test_partition_of_keys_that_is_gone_is_missed(name: str, case: Callable[[str], Path]) -> None:
    root = case(name)
    shutil.rmtree(root / "state/0/1")
    found = read(root)
    assert found.last_loadable is None
    (path,) = found.absent
    assert path.startswith("state/0/1/")


@pytest.mark.parametrize("name", [HDFS, CHANGELOG])
def test_nobody_knows_whether_partitions_are_missed_of_an_operator_without_schema(
    name: str, case: Callable[[str], Path]
) -> None:
    root = case(name)
    shutil.rmtree(root / "state/0/1")
    shutil.rmtree(root / "state/0/0/_metadata")
    found = read(root)
    assert (found.last_loadable, found.absent) == (7, ())
    assert found.state
    assert found.state.partitions(found.state.operators[0]) == Partitions(1, not KNOWN)


def test_ids_of_the_newest_commit_tell_where_the_schema_does_not(case: Callable[[str], Path]) -> None:
    root = case(BY_ID)
    shutil.rmtree(root / "state/0/1")
    shutil.rmtree(root / "state/0/0/_metadata")
    shutil.rmtree(root / "state/0/_metadata")
    (path,) = read(root).absent
    assert path.startswith("state/0/1/")


@pytest.mark.parametrize("name", [HDFS, CHANGELOG])
def test_operator_before_another_is_missed_where_its_folder_is_gone(name: str, case: Callable[[str], Path]) -> None:
    root = case(name)
    (root / "state/0").rename(root / "state/1")
    found = read(root)
    kind = "delta" if name == HDFS else "changelog"
    assert (found.last_loadable, found.absent) == (None, (f"state/0/0/1.{kind}",))


def test_operator_that_the_newest_commit_names_is_missed(case: Callable[[str], Path]) -> None:
    root = case(BY_ID)
    newest = root / "commits/7"
    version, line = newest.read_text().split("\n")
    told = json.loads(line)
    told["stateUniqueIds"]["1"] = [["a"]]
    newest.write_text(f"{version}\n{json.dumps(told)}")
    assert read(root).absent == ("state/1/0/8_a.changelog",)


def test_store_of_a_join_that_is_gone_in_every_partition_is_missed(case: Callable[[str], Path]) -> None:
    root = case("3.5-join-hdfs")
    whole = read(root)
    assert whole.absent == ()
    for partition in (root / "state/0").iterdir():
        shutil.rmtree(partition / "left-keyToNumValues", ignore_errors=True)
    assert [path.rpartition("/")[0] for path in read(root).absent] == [
        "state/0/0/left-keyToNumValues",
        "state/0/1/left-keyToNumValues",
    ]


def test_partition_of_a_join_without_any_store_lacks_those_that_the_others_have(case: Callable[[str], Path]) -> None:
    root = case("3.5-join-hdfs")
    shutil.rmtree(root / "state/0/1")
    (root / "state/0/1").mkdir()
    assert len(read(root).absent) == 4


def test_folder_with_a_number_that_no_operator_has_brings_no_others(case: Callable[[str], Path]) -> None:
    root = case(HDFS)
    (root / "state/5000/0").mkdir(parents=True)
    found = read(root)
    assert found.state
    assert [operator.operator for operator in found.state.operators] == [0, 5000]


PAGE = Path(__file__).resolve().parents[3] / "docs/why/partitions.md"
_CLASS = re.compile(r"org/apache/spark/sql/execution/(?:python|streaming)/.*?([\w$]+)\.class")
_KEEPS_NONE = re.compile(r"Base\w+|\w+RestoreExec|UpdatingSessionsExec")
"""What several operators have in common; what only reads state that the operator after it writes; what merges rows."""


@pytest.fixture(scope="module")
def classes() -> dict[str, bytes]:
    """The classes of the installed Spark around streaming queries, as they are in its jar."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    (jar,) = (Path(found.origin).parent / "jars").glob("spark-sql_*.jar")
    with zipfile.ZipFile(jar) as archive:
        return {match[1]: archive.read(name) for name in archive.namelist() if (match := _CLASS.fullmatch(name))}


def keeping_state(classes: dict[str, bytes]) -> dict[str, bytes]:
    operators = {name: code for name, code in classes.items() if name.endswith("Exec") and b"StatefulOperator" in code}
    return {name: code for name, code in operators.items() if not _KEEPS_NONE.fullmatch(name)}


def test_every_operator_of_spark_that_keeps_state_is_told_of_and_known_by_its_name(classes: dict[str, bytes]) -> None:
    operators = keeping_state(classes)
    assert len(operators) >= 10
    text = PAGE.read_text()
    assert sorted(name for name in operators if f"`{name}`" not in text) == []
    code = b"".join(classes.values())
    known = {"globalLimit", "stateStoreSave", *KEYED_OF_PYSPARK}
    assert sorted(name for name in known if name.encode() not in code) == []
    assert {find_spread_by_name(name) for name in KEYED_OF_PYSPARK} == {Spread.BY_KEY}


def test_only_a_limit_and_an_aggregation_ask_spark_for_a_single_partition(classes: dict[str, bytes]) -> None:
    asking = {name for name, code in keeping_state(classes).items() if b"AllTuples" in code}
    assert asking == {"StateStoreSaveExec", "StreamingGlobalLimitExec"}
