"""Parquet files: what a load writes is what Spark's own reader makes of them, row group by row group."""

from __future__ import annotations

import datetime
import decimal
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance.sparks import Sparks
from spark.test_load_equality import APP, WAYS, compare_load

from lastgood.errors import UsageError
from lastgood.load.specification import ParseMode

pytestmark = pytest.mark.spark
SEED = os.environ.get("LASTGOOD_SEED", "1")
UTC = datetime.UTC


def make_instants(zone: datetime.tzinfo | None) -> list[datetime.datetime | None]:
    years = [(2, 1, 1), (1582, 10, 4), (1582, 10, 15), (1799, 12, 31), (1969, 12, 31), (2026, 3, 29), (9999, 12, 31)]
    return [None, *(datetime.datetime(*each, 2, 30, 1, 999_999, tzinfo=zone) for each in years)]


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [None, -128, 127]),
    "int16": (pa.int16(), [None, -32768, 32767]),
    "int32": (pa.int32(), [None, -(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [None, -(2**63), 2**63 - 1]),
    "uint8": (pa.uint8(), [None, 255]),
    "uint16": (pa.uint16(), [None, 65535]),
    "uint32": (pa.uint32(), [None, 2**32 - 1]),
    "uint64": (pa.uint64(), [None, 2**64 - 1, 0]),
    "float": (pa.float32(), [None, -0.0, 1.5, float("inf"), float("nan")]),
    "double": (pa.float64(), [None, -0.0, 0.1, float("-inf"), float("nan"), 1e308]),
    "bool": (pa.bool_(), [None, True, False]),
    "string": (pa.string(), [None, "", "é", "a\nb", "\x00", "\ufeffx"]),
    "large string": (pa.large_string(), [None, "a"]),
    "view": (pa.string_view(), [None, "a", "a" * 30]),
    "binary": (pa.binary(), [None, b"", b"\xff\x00"]),
    "large binary": (pa.large_binary(), [None, b"a"]),
    "fixed": (pa.binary(3), [None, b"abc"]),
    "date": (pa.date32(), [None, *(each.date() for each in make_instants(None) if each)]),
    "date of milliseconds": (pa.date64(), [None, datetime.date(2026, 3, 1)]),
    "instant": (pa.timestamp("us", tz="UTC"), make_instants(UTC)),
    "instant elsewhere": (pa.timestamp("us", tz="Europe/Berlin"), make_instants(UTC)),
    "instant of milliseconds": (pa.timestamp("ms", tz="UTC"), [None, datetime.datetime(1900, 1, 1, tzinfo=UTC)]),
    "clock": (pa.timestamp("us"), make_instants(None)),
    "clock of seconds": (pa.timestamp("s"), [None, datetime.datetime(1900, 1, 1, 2, 30)]),  # noqa: DTZ001
    "decimal of 9": (pa.decimal128(9, 2), [None, decimal.Decimal("-1234567.89")]),
    "decimal of 18": (pa.decimal128(18, 0), [None, decimal.Decimal(10**17)]),
    "decimal of 38": (pa.decimal128(38, 5), [None, decimal.Decimal(10**32)]),
    "nothing": (pa.null(), [None]),
    "words": (pa.dictionary(pa.int32(), pa.string()), [None, "a", "b"]),
    "list": (pa.list_(pa.int32()), [None, [], [None, 1]]),
    "large list": (pa.large_list(pa.large_string()), [None, ["a", None]]),
    "list of lists": (pa.list_(pa.list_(pa.date32())), [None, [None, [], [datetime.date(1500, 1, 1)]]]),
    "map": (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1), ("b", None)]]),
    "struct": (
        pa.struct([("a", pa.uint8()), ("b-c", pa.list_(pa.struct([("d", pa.timestamp("us", tz="UTC"))])))]),
        [None, {"a": None, "b-c": None}, {"a": 1, "b-c": [None, {"d": None}, {"d": make_instants(UTC)[3]}]}],
    ),
}


def make_table(rows: int, names: list[str], chance: random.Random, name_column: str = "a {}.`") -> pa.Table:
    columns = {}
    for at, name in enumerate(names):
        kind, values = VALUES[name]
        chosen = chance.choices(values, k=rows)
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        made = pa.array(chosen, plain)
        columns[name_column.format(at)] = made.dictionary_encode() if pa.types.is_dictionary(kind) else made
    return pa.table(columns)


def require_same_rows(
    sparks: Sparks, folder: Path, files: list[Path], chunk: int, zone: str = "UTC", way: str = "file"
) -> None:
    asked: dict[str, Any] = {"form": "parquet", "schema": None, "options": {}, "infers": False}
    told, found = compare_load(sparks, folder, files, ParseMode.PERMISSIVE, chunk, zone, way, **asked)
    assert (told["error"], found["error"]) == (None, None)
    assert found["loaded"] == found["expected"], sorted(set(found["loaded"]) ^ set(found["expected"]))[:6]


def write_random_files(folder: Path, chance: random.Random, names: list[str]) -> list[Path]:
    files = []
    for number in range(chance.randint(1, 3)):
        file = folder / f"{number}.parquet"
        pq.write_table(
            make_table(chance.choice([0, 1, 300, 3_000]), names, chance),
            file,
            row_group_size=chance.choice([100, 1_000]),
            compression=chance.choice(["none", "snappy", "gzip", "zstd", "lz4"]),
            data_page_version=chance.choice(["1.0", "2.0"]),
            version=chance.choice(["1.0", "2.4", "2.6"]),
            use_dictionary=chance.random() < 0.7,
            store_schema=chance.random() < 0.7,
            write_page_checksum=chance.random() < 0.5,
        )
        files.append(file)
    return files


@pytest.mark.proof
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("way", ["file", "Spark 4.3"])
def test_rows_of_arrows_files_are_those_of_sparks_reader(
    sparks: Sparks, tmp_path: Path, way: str, number: int, zone: str
) -> None:
    chance = random.Random(f"parquet {SEED} {number} {zone}")
    files = write_random_files(tmp_path, chance, chance.sample(sorted(VALUES), 8))
    require_same_rows(sparks, tmp_path, files, chance.choice([20_000, 1 << 30]), zone, way)


@pytest.mark.proof
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("way", WAYS)
def test_values_of_each_type_are_those_of_sparks_reader(
    sparks: Sparks, tmp_path: Path, way: str, name: str, zone: str
) -> None:
    table = make_table(50, [name], random.Random(SEED), "a {}.`" if way != "delta" else "a{}")
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    require_same_rows(sparks, tmp_path, [tmp_path / "a.parquet"], 1, zone, way)


def test_so_are_some_of_them(sparks: Sparks, tmp_path: Path) -> None:
    files = write_random_files(tmp_path, random.Random(SEED), ["int64", "string", "instant", "struct", "uint32"])
    require_same_rows(sparks, tmp_path, files, 20_000)


WRITTEN = """
    select id, timestamp'1900-01-01 00:00:00.000001Z' + make_interval(0, 0, 0, cast(id as int)) a,
           timestamp'0002-01-01 00:00:00Z' b, date'1500-01-01' c, cast('x' as char(5)) d, cast('y' as varchar(9)) e,
           cast(id as decimal(5, 2)) f, array(named_struct('g', id, 'h', map(id, 'i'))) g, timestamp_ntz'1800-01-01' h
    from range(100)
"""


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("way", ["file", "Spark 4.3"])
def test_rows_of_sparks_files_are_those_of_its_reader(
    sparks: Sparks, tmp_path: Path, way: str, kind: str, zone: str
) -> None:
    conf = {"spark.sql.parquet.outputTimestampType": kind, "spark.sql.session.timeZone": zone}
    files = write_with_spark(sparks, tmp_path, conf)
    require_same_rows(sparks, tmp_path, files, 1 << 30, zone, way)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "found"),
    [("int96RebaseModeInWrite", "legacyINT96"), ("datetimeRebaseModeInWrite", "legacyDateTime")],
)
def test_dates_of_the_old_calendar_are_not_read(sparks: Sparks, tmp_path: Path, name: str, found: str) -> None:
    files = write_with_spark(sparks, tmp_path, {f"spark.sql.parquet.{name}": "LEGACY"})
    with pytest.raises(UsageError, match="calendar") as refused:
        require_same_rows(sparks, tmp_path, files, 1 << 30)
    assert found in (refused.value.found or "")


def write_with_spark(sparks: Sparks, folder: Path, conf: dict[str, str]) -> list[Path]:
    written = folder / "written"
    sparks.of("4.2.0").call(APP, "write", query=WRITTEN, folder=str(written), conf=conf)
    return sorted(written.glob("*.parquet"))


@pytest.mark.proof
@pytest.mark.parametrize(
    ("second", "found"),
    [
        (pa.table({"b": [1]}), "the columns b, and not a"),
        (pa.table({"a": ["1"]}), "the column a as string"),
        (pa.table({"a": [1], "b": [1]}), "the columns a, b"),
        (pa.table({"a": pa.array([1], pa.int32())}), "the column a as int32"),
    ],
)
def test_files_have_the_same_columns(sparks: Sparks, tmp_path: Path, second: pa.Table, found: str) -> None:
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for file, table in zip(files, [pa.table({"a": [1]}), second], strict=True):
        pq.write_table(table, file)
    asked: dict[str, Any] = {"form": "parquet", "schema": None, "options": {}, "infers": False}
    told, _ = compare_load(sparks, tmp_path, files, ParseMode.PERMISSIVE, 1 << 30, **asked)
    assert told["error"]["kind"] == "columns"
    assert found in told["error"]["found"]
    assert list(tmp_path.glob("chk*")) == []


def test_several_tasks_read_each_row_group_once(sparks: Sparks, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    chance = random.Random(SEED)
    rows = [chance.getrandbits(62) for _ in range(300_000)]
    pq.write_table(pa.table({"a": rows}), file, row_group_size=40_000, use_dictionary=False, compression="none")
    assert file.stat().st_size > 2_000_000
    asked: dict[str, Any] = {"form": "parquet", "schema": None, "options": {}, "infers": False}
    told, found = compare_load(sparks, tmp_path, [file], ParseMode.PERMISSIVE, 1_300_000, **asked)
    assert (told["error"], found["error"]) == (None, None)
    assert found["loaded"] == found["expected"]
