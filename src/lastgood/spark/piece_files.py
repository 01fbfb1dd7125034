"""Parquet files of a Delta table that the tasks of a load write themselves: imported by Spark's Pythons.

What a file has is told as an action of Delta's log, with statistics as Delta keeps them; who passes over files by them
must not miss a row, so a bound is given where it is exact, or known to lie outside, and else not.
"""

from __future__ import annotations

import datetime
import json
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark

from lastgood.spark.load_columns import LINE, is_plain

FILE: Final = "file"
"""The column of what tells of a file."""
CODECS: Final[Mapping[str, str]] = MappingProxyType(
    {"snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "none": "none", "uncompressed": "none"}
)
"""Of Spark's names of codecs those of Arrow."""
_CALENDAR = "org.apache.spark.version"
"""By it readers see that dates and times are those of the calendar that Spark has used since 3.0."""
_MODE = 0o666
_ENDINGS = {"snappy": ".snappy", "zstd": ".zstd", "gzip": ".gz", "none": ""}
_GROUP_BYTES = 64 * 2**20
"""Of rows as Arrow holds them, that make a row group: as much is held at a time."""
_INDEXED_MOST = 32
"""Columns of which Delta keeps statistics by default, from the first on."""
_PREFIX = 32
"""Characters of a text that statistics have at most."""
_BEHIND_ALL = "\U0010ffff"
_DIGITS_EXACT = 15
"""Of a decimal, which a float in JSON keeps."""
_MILLISECOND_US = 1000
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all it is added to
_WRITTEN = pa.schema([(FILE, pa.string()), (LINE, pa.string())])


class PieceFile:
    """One file, which gets the plain records of a piece."""

    def __init__(self, folder: Path, names: list[str], codec: str, umask: int) -> None:
        """Nothing is written yet.

        Args:
            folder: The table.
            names: Its columns, in the order in which batches have them.
            codec: As Spark names it.
            umask: Rights that its files do not have, as Hadoop gives them: that of this process may be another.
        """
        self._names = names
        self._mode = _MODE & ~umask
        self._codec = CODECS[codec]
        self._path = folder / f"part-00000-{uuid.uuid4()}-c000{_ENDINGS[self._codec]}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._stats = _Statistics(names)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; whatever columns are behind those that are named are left out."""
        if not batch.num_rows:
            return
        named = pa.RecordBatch.from_arrays(batch.columns[: len(self._names)], self._names)
        self._held.append(named)
        self._size += named.nbytes
        if self._size >= _GROUP_BYTES:
            self._write_group()

    def end(self) -> str | None:
        """Write what is held, and tell of the file, as an action in JSON; None if there were no rows."""
        if self._held:
            self._write_group()
        if self._writer is None:
            return None
        self._writer.add_key_value_metadata({_CALENDAR: pyspark.__version__})
        self._writer.close()
        self._path.chmod(self._mode)
        add = {
            "path": self._path.name,
            "partitionValues": {},
            "size": self._path.stat().st_size,
            "modificationTime": time.time_ns() // 1_000_000,
            "dataChange": True,
            "stats": json.dumps(self._stats.describe()),
        }
        return json.dumps({"add": add})

    def leave(self) -> None:
        """Remove what is written: nobody was told of it."""
        if self._writer is not None:
            try:
                self._writer.close()
            finally:
                self._path.unlink()  # Safe: its name is new, and stands nowhere before `end` has told it

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._held)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression=self._codec, store_schema=False, store_decimal_as_integer=True
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._stats.add(table)
        self._held, self._size = [], 0


class _Statistics:
    """What Delta keeps of a file."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._rows = 0
        self._nulls: dict[str, int] = {}
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}
        self._unknown: set[str] = set()
        """Columns with a value that has no place in an order, or of a type of which no bounds are kept."""

    def add(self, table: pa.Table) -> None:
        """Count rows, and look for their bounds."""
        self._rows += table.num_rows
        leaves = 0
        for name, column in zip(self._names, table.columns, strict=True):
            leaves += count_leaves(column.type)
            if leaves > _INDEXED_MOST:
                return
            if pa.types.is_nested(column.type):
                continue
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            self._widen(name, column)

    def describe(self) -> dict[str, Any]:
        """As it stands in the log."""
        return {
            "numRecords": self._rows,
            "minValues": _write_bounds(self._least, write_least),
            "maxValues": _write_bounds(self._most, write_most),
            "nullCount": self._nulls,
        }

    def _widen(self, name: str, column: pa.ChunkedArray) -> None:
        if name in self._unknown or column.null_count == len(column):
            return
        found = find_bounds(column)
        if found is None:
            self._unknown.add(name)
            self._least.pop(name, None)
            self._most.pop(name, None)
            return
        least, most = found
        self._least[name] = min(self._least.get(name, least), least, key=_make_order_key)
        self._most[name] = max(self._most.get(name, most), most, key=_make_order_key)


def _write_bounds(bounds: Mapping[str, Any], write: Callable[[Any], Any]) -> dict[str, Any]:
    """Those of which one is told."""
    found = {}
    for name, value in bounds.items():
        told = write(value)
        if told is not None:
            found[name] = told
    return found


def write_piece(batches: Iterator[pa.RecordBatch], file: PieceFile) -> Iterator[pa.RecordBatch]:
    """Write plain records into a file.

    Args:
        batches: As a `PieceReader` gives them: of each the records are plain, or lines.
        file: Which.

    Yields:
        The lines, and last what tells of the file.
    """
    is_whole = False
    try:
        for batch in batches:
            if is_plain(batch):
                file.add(batch)
            else:
                lines = batch[LINE]
                yield pa.RecordBatch.from_arrays([pa.nulls(len(lines), pa.string()), lines], schema=_WRITTEN)
        told = file.end()
        is_whole = True
    finally:
        if not is_whole:
            file.leave()
    if told is not None:
        yield pa.RecordBatch.from_arrays([pa.array([told]), pa.nulls(1, pa.string())], schema=_WRITTEN)


def count_leaves(kind: pa.DataType) -> int:
    """As how many columns one of this type counts: of a structure each column within."""
    if pa.types.is_struct(kind):
        return sum(count_leaves(kind.field(at).type) for at in range(kind.num_fields))
    return 1


def find_bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column that has some; None if they are not sure or not kept.

    Of a time microseconds since 1970.
    """
    kind = column.type
    if not _has_order(column):
        return None
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    found = pc.min_max(column)
    try:
        least, most = (found[end].as_py() for end in ("min", "max"))
    except (UnicodeDecodeError, OverflowError, ValueError):  # Python has no such text or day
        return None
    if pa.types.is_timestamp(kind):
        return Instant(least), Instant(most)
    if pa.types.is_floating(kind) and 0 in (least, most):
        return _sign_zeros(column, least, most)
    return least, most


def _sign_zeros(column: pa.ChunkedArray, least: float, most: float) -> tuple[float, float]:
    """The bounds of real numbers, of which one at least is zero: -0.0 lies before 0.0, as some readers compare them."""
    signs = pc.min_max(pc.divide(1.0, column.filter(pc.equal(column, 0.0))))
    if least == 0:
        least = math.copysign(0.0, signs["min"].as_py())
    if most == 0:
        most = math.copysign(0.0, signs["max"].as_py())
    return least, most


def _make_order_key(value: Any) -> Any:
    """By what bounds are compared: real numbers by their sign as well."""
    return (value, math.copysign(1, value)) if isinstance(value, float) else value


def _has_order(column: pa.ChunkedArray) -> bool:
    """Whether Delta keeps bounds of a type, and JSON can tell the values: of decimals those that a float keeps."""
    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(column)).as_py())
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _DIGITS_EXACT)
    return not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))


class Instant(int):
    """Microseconds since 1970."""


def write_least(value: Any) -> Any:
    """A value that is not above any, as it stands in the log; None: none is told."""
    if isinstance(value, str):
        return value[:_PREFIX]
    if isinstance(value, Instant):
        return _write_time(value // _MILLISECOND_US)
    return _write(value)


def write_most(value: Any) -> Any:
    """One that is not below any."""
    if isinstance(value, Instant):
        return _write_time(-(-value // _MILLISECOND_US))
    if not isinstance(value, str) or len(value) <= _PREFIX:
        return _write(value)
    if value[_PREFIX] == _BEHIND_ALL:
        return None
    return value[:_PREFIX] + _BEHIND_ALL


def _write_time(milliseconds: int) -> str | None:
    try:
        told = _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return f"{told.isoformat(timespec='milliseconds')}Z"


def _write(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, datetime.date) else value
