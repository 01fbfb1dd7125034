"""Rows of Parquet files, which Arrow reads row group by row group, with the types that Spark's own reader gives them.

Only types are read of which it was shown that the values are Spark's (`tests/spark/test_load_parquet.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from lastgood.load.ranges import Piece
from lastgood.spark.load_columns import ROWS_MAX, name_column

_ZONE: Final = "UTC"
"""Of timestamps between Arrow and Spark, whatever that of the session is: they are instants."""
_WIDENED: Mapping[pa.DataType, pa.DataType] = MappingProxyType(
    {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.date64(): pa.date32(),
        pa.null(): pa.int32(),
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.binary_view(): pa.binary(),
    }
)
"""What Spark makes of types that it has not."""
_SAME = (
    pa.types.is_signed_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)
"""Kinds of types that both have."""
_NESTED: Mapping[Callable[[pa.DataType], bool], Sequence[Callable[[pa.DataType], bool]]] = MappingProxyType(
    {
        pa.types.is_list: (pa.types.is_list, pa.types.is_large_list),
        pa.types.is_map: (pa.types.is_map,),
        pa.types.is_struct: (pa.types.is_struct,),
    }
)
"""What Spark has of types that have others in them, and as what Arrow may find them."""


def name_columns(columns: StructType) -> StructType:
    """The same columns, by the names that the source gives them."""
    return StructType([StructField(name_column(at), each.dataType) for at, each in enumerate(columns.fields)])


def find_difference(found: pa.Schema, columns: StructType, least: int | None = None) -> str | None:
    """What of a file cannot be read as these columns, in a few words; None if all of it can.

    Args:
        found: The schema of the file, as Arrow reads it.
        columns: Those of the load.
        least: How many of them, from the first on, a file needs; None: all.
    """
    names = columns.fieldNames()
    have = sorted(found.names)
    if have != sorted({*have, *names[:least]}) or not set(have) <= set(names):
        return f"the columns {', '.join(found.names)}, and not {', '.join(names)}"
    try:
        wanted = to_arrow_schema(columns, timezone=_ZONE)
    except PySparkException as error:
        return str(error)
    for name in found.names:
        kind = found.field(name).type
        if not _is_readable(kind, wanted.field(name).type):
            return f"the column {name} as {kind}, to be read as {columns[name].dataType.simpleString()}"
    return None


def _is_readable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow makes of values of a type what Spark's reader makes of them."""
    if pa.types.is_dictionary(found):
        return _is_readable(found.value_type, wanted)
    if pa.types.is_nested(wanted):
        return _is_readable_within(found, wanted)
    if pa.types.is_timestamp(found):
        # Without a zone, but to be read as an instant: those of 96 bits.
        return pa.types.is_timestamp(wanted) and (found.tz is None or wanted.tz is not None)
    if pa.types.is_fixed_size_binary(found):
        return bool(pa.types.is_binary(wanted))
    is_same = found == wanted and any(is_kind(found) for is_kind in _SAME)
    return is_same or (found in _WIDENED and _WIDENED[found] == wanted)


def _is_readable_within(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether all that is within a type fits."""
    kind = next(each for each in _NESTED if each(wanted))
    if not any(is_kind(found) for is_kind in _NESTED[kind]):
        return False
    if found.num_fields != wanted.num_fields:
        return False
    pairs = [(found.field(at), wanted.field(at)) for at in range(wanted.num_fields)]
    return all(
        _is_readable(one.type, other.type) and (one.name == other.name or kind is not pa.types.is_struct)
        for one, other in pairs
    )


def read_rows(opened: Any, begins: Sequence[int], piece: Piece, columns: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups that begin within a piece.

    Args:
        opened: The file, as `load.row_groups.open_row_groups` gives it.
        begins: Where its row groups begin.
        piece: Which.
        columns: Those of the load.
    """
    groups = range(bisect_left(begins, piece.begin), bisect_left(begins, piece.end))
    names = columns.fieldNames()
    schema = to_arrow_schema(name_columns(columns), timezone=_ZONE)
    for batch in opened.iter_batches(batch_size=ROWS_MAX, row_groups=list(groups), use_threads=False):
        arrays = [_take_column(batch, name, kind) for name, kind in zip(names, schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _take_column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Its values; null where a file has none, of a load that has got columns since."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    values = batch.column(name)
    return values if values.type == kind else values.cast(kind)
