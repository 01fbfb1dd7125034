"""Files that tasks write: what is told of them, and that nothing is left of one that was not ended."""

from __future__ import annotations

import datetime
import json
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from lastgood.spark.load_columns import LINE
from lastgood.spark.piece_files import FILE, PieceFile, count_leaves, write_piece

UTC = datetime.UTC
LAST = "\U0010ffff"


def write(folder: Path, kind: pa.DataType, *values: Any) -> dict[str, Any]:
    """The statistics of a column with these values, in two row groups."""
    file = PieceFile(folder, ["a"], "snappy", 0o027)
    for value in values:
        file.add(pa.record_batch([pa.array([value], kind)], ["a"]))
    told: dict[str, Any] = json.loads(json.loads(file.end() or "")["add"]["stats"])
    return told


@pytest.mark.parametrize(
    ("kind", "values", "least", "most"),
    [
        (pa.int64(), [3, None, -(2**63)], -(2**63), 3),
        (pa.string(), ["x" * 32, "x" * 40], "x" * 32, "x" * 32 + LAST),
        (pa.string(), ["a", "x" * 32 + LAST], "a", None),
        (pa.string(), ["", "é"], "", "é"),
        (pa.date32(), [datetime.date(1500, 1, 1), datetime.date(9999, 12, 31)], "1500-01-01", "9999-12-31"),
        (
            pa.timestamp("us", tz="UTC"),
            [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime.datetime(2026, 3, 1, 1, 0, 0, 1, UTC)],
            "1969-12-31T23:59:59.999Z",
            "2026-03-01T01:00:00.001Z",
        ),
        (pa.timestamp("us", tz="UTC"), [datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)], ..., None),
        (pa.decimal128(10, 2), [Decimal("-1.10"), Decimal("99999999.99")], -1.1, 99999999.99),
        (pa.decimal128(16, 2), [Decimal("1.10")], None, None),
        (pa.float64(), [1.5, float("nan")], None, None),
        (pa.float64(), [1.5, float("inf")], None, None),
        (pa.float64(), [0.1, None], 0.1, 0.1),
        (pa.float32(), [0.0, -0.0, 0.0], -0.0, 0.0),
        (pa.float64(), [-0.0, -1.0], -1.0, -0.0),
        (pa.bool_(), [True], None, None),
        (pa.binary(), [b"a"], None, None),
        (pa.int32(), [None], None, None),
    ],
)
def test_bounds_lie_at_the_values_or_outside(
    tmp_path: Path, kind: pa.DataType, values: list[Any], least: Any, most: Any
) -> None:
    told = write(tmp_path, kind, *values)
    assert (told["numRecords"], told["nullCount"]) == (len(values), {"a": values.count(None)})
    if least is not ...:
        assert repr(told["minValues"].get("a")) == repr(least)
    assert repr(told["maxValues"].get("a")) == repr(most)


def test_statistics_are_of_the_first_columns() -> None:
    nested = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.list_(pa.int32())), ("d", pa.int32())]))])
    assert [count_leaves(each) for each in (nested, pa.int32(), pa.list_(pa.int32()))] == [3, 1, 1]


def test_only_those_have_any(tmp_path: Path) -> None:
    names = [f"c{each}" for each in range(40)]
    file = PieceFile(tmp_path, names, "zstd", 0)
    file.add(pa.record_batch([pa.array([1])] * 40, names))
    told = json.loads(json.loads(file.end() or "")["add"]["stats"])
    assert list(told["nullCount"]) == list(told["maxValues"]) == names[:32]


def make_batches() -> Any:
    schema = pa.schema([("c0", pa.int64()), (LINE, pa.string())])
    yield pa.record_batch([pa.array([1, 2]), pa.nulls(2, pa.string())], schema=schema)
    yield pa.record_batch([pa.nulls(1, pa.int64()), pa.array(["odd"])], schema=schema)


def test_plain_records_are_written_and_others_handed_on(tmp_path: Path) -> None:
    lines, told = list(write_piece(make_batches(), PieceFile(tmp_path, ["id"], "gzip", 0o027)))
    assert (lines[LINE].to_pylist(), lines[FILE].to_pylist(), told[LINE].to_pylist()) == (["odd"], [None], [None])
    add = json.loads(told[FILE][0].as_py())["add"]
    file = tmp_path / add["path"]
    assert file.name.endswith(".gz.parquet")
    assert (pq.read_table(file).to_pydict(), file.stat().st_size) == ({"id": [1, 2]}, add["size"])
    assert pq.read_metadata(file).metadata == {b"org.apache.spark.version": pyspark.__version__.encode()}
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_file_that_is_not_ended_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastgood.spark.piece_files._GROUP_BYTES", 1)
    written = write_piece(make_batches(), PieceFile(tmp_path, ["id"], "none", 0))
    next(written)
    assert len(list(tmp_path.iterdir())) == 1
    written.close()
    assert list(tmp_path.iterdir()) == []
    empty = pa.record_batch([pa.array([], pa.int64())], ["id"])
    assert list(write_piece(iter([empty]), PieceFile(tmp_path, ["id"], "none", 0))) == []
    assert list(write_piece(iter(()), PieceFile(tmp_path, ["id"], "none", 0))) == []
