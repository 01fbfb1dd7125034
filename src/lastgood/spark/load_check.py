"""Compares the rows that a load should have written with those that are there: each once, with the same values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

_SAMPLES_MAX = 3
_HASH, _COUNT = "lastgood_hash", "lastgood_count"


class MissingColumnError(Exception):
    """A column that rows were written with is no longer in the table."""


def read_rows(spark: SparkSession, sink: Mapping[str, Any], own: Mapping[str, Any]) -> DataFrame:
    """The rows of a load in its table.

    Args:
        spark: With what it takes to read the table.
        sink: Its `format` and `location`.
        own: An `OwnRows`.
    """
    reader = spark.read.format(sink["format"])
    if own["version"] is not None:
        reader = reader.option("versionAsOf", own["version"])
    rows = reader.load(sink["location"])
    if own["files"] is None:
        return rows
    names = [(unquote(path).rpartition("/")[2],) for path in own["files"]]
    ours = spark.createDataFrame(names, "lastgood_file string")
    return rows.withColumn("lastgood_file", sf.col("_metadata.file_name")).join(ours, "lastgood_file", "left_semi")


def compare_rows(expected: DataFrame, found: DataFrame, columns: StructType) -> dict[str, Any]:
    """How many rows are on each side, and on one alone.

    One pass over each tells whether both have the same: how many, and the sum of a hash of 64 bits over each row. Only
    if they have not, rows are counted by their hashes.

    Args:
        expected: Rows as they were to be written.
        found: Rows that are there, perhaps with other columns as well.
        columns: Those that are compared; the table's types count, to which a writer converts.

    Raises:
        MissingColumnError: the table has one no longer.
    """
    kinds = {each.name.lower(): each.dataType for each in found.schema.fields}
    names = columns.fieldNames()
    values = [f"`{name.replace('`', '``')}`" for name in names]
    missing = next((name for name in names if name.lower() not in kinds), None)
    if missing is not None:
        raise MissingColumnError(missing)
    pairs = zip(values, names, strict=True)
    wanted = expected.select(*(sf.col(value).cast(kinds[name.lower()]).alias(name) for value, name in pairs))
    there = found.select(*values)
    hashed = _make_hash([_make_plain(each.name, each.dataType) for each in there.schema.fields])
    (records, sum_expected), (rows, sum_found) = (_sum_up(side, hashed) for side in (wanted, there))
    told: dict[str, Any] = {"records": records, "rows": rows, "lost": 0, "surplus": 0}
    if (records, sum_expected) == (rows, sum_found):
        return {**told, "lost_samples": [], "surplus_samples": []}
    differing = _count_differing(wanted, there, hashed).cache()
    lost, surplus = (sf.sum(sf.when(sign * sf.col(_COUNT) > 0, sign * sf.col(_COUNT))) for sign in (1, -1))
    ((told["lost"], told["surplus"]),) = differing.select(
        sf.coalesce(lost, sf.lit(0)), sf.coalesce(surplus, sf.lit(0))
    ).collect()
    samples = [_take_samples(side, differing, hashed, sign) for side, sign in ((wanted, 1), (there, -1))]
    return {**told, "lost_samples": samples[0], "surplus_samples": samples[1]}


def _make_plain(name: str, kind: DataType) -> Column:
    """A column; of values that have others in them their JSON, as the hash passes over what is null within."""
    column = sf.col(f"`{name.replace('`', '``')}`")
    if isinstance(kind, ArrayType | MapType | StructType):
        return sf.to_json(column, {"ignoreNullFields": "false"})
    return column


def _make_hash(values: Sequence[Column]) -> Column:
    """Of a row; which values are null counts too, as the hash passes over them."""
    return sf.xxhash64(*values, *(value.isNull() for value in values))


def _sum_up(rows: DataFrame, hashed: Column) -> tuple[int, Any]:
    ((count, total),) = rows.agg(sf.count(sf.lit(1)), sf.sum(hashed.cast("decimal(20,0)"))).collect()
    return count, total


def _count_differing(wanted: DataFrame, there: DataFrame, hashed: Column) -> DataFrame:
    """Hashes that one side has more often: above 0 the wanted one, below 0 the other."""
    one, other = (
        rows.select(hashed.alias(_HASH), sf.lit(sign).alias(_COUNT)) for rows, sign in ((wanted, 1), (there, -1))
    )
    counted = one.unionAll(other).groupBy(_HASH).agg(sf.sum(_COUNT).alias(_COUNT))
    return counted.where(sf.col(_COUNT) != 0)


def _take_samples(rows: DataFrame, differing: DataFrame, hashed: Column, sign: int) -> list[str]:
    """A few rows that one side has too often, as JSON."""
    some = [row[0] for row in differing.where(sign * sf.col(_COUNT) > 0).select(_HASH).limit(_SAMPLES_MAX).collect()]
    told = rows.where(hashed.isin(some)).select(sf.to_json(sf.struct("*"))).distinct().limit(_SAMPLES_MAX)
    return [row[0] for row in told.collect()]
