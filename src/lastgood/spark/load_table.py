"""Loads a table by an ordered column: a chunk has the rows of a range of its values, which stands in its plan.

Spark's own readers read the rows, within a function of the query, which writes them under the number of the batch. The
query's source tells where a chunk ends, and has no rows.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from functools import cached_property, partial

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lastgood.load.begun import read_begun, read_planned
from lastgood.load.kept import read_counts
from lastgood.load.position import LoadPosition
from lastgood.load.ranges import begin_of
from lastgood.load.specification import PASSWORD_VARIABLE, Bound, LoadFormat
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.spark.load_job import Job, LoadRefusedError, add_columns, add_source, select_column
from lastgood.spark.load_source import NAME
from lastgood.storage.reading import open_storage, parse_location

_FETCH_SIZE = "10000"
"""Rows of a database that are held at a time; PostgreSQL's driver would hold all."""
_WHOLE_NUMBERS = (ByteType, ShortType, IntegerType, LongType)
_ORDERED = (*_WHOLE_NUMBERS, DecimalType, DateType, TimestampType, TimestampNTZType, StringType)
_VALUE = "value"


class TableInput(Job):
    """What is read of a table: its rows as they are."""

    def find_schema(self) -> StructType:
        """The columns of the table, as the load has them; with those that came since, if these are taken."""
        found, known = self.table.schema, self.known
        if known is None:
            return found
        gone = set(known.fieldNames()) - set(found.fieldNames())
        if gone:
            raise LoadRefusedError("evolve", f"no column {min(gone)} any more")
        widened = add_columns(known, found, are_in_order=False)
        if len(widened) > len(known) and not self.question["evolves"]:
            new = widened.fieldNames()[len(known)]
            raise LoadRefusedError("widened", f"{self.spec.files[0].location}: the column {new}, which it had not")
        return widened

    def parse(self, records: DataFrame, schema: StructType) -> tuple[DataFrame, Column]:
        """The rows as they are."""
        del schema
        return records, sf.expr("false")

    @property
    def table(self) -> DataFrame:
        """All of it; a Delta table in the version that it had when it was looked at."""
        (file,) = self.spec.files
        return self.spark.read.format("delta").option("versionAsOf", file.tail).load(file.location)

    def count_again(self, schema: StructType) -> None:
        """Count what the table has of a chunk whose count is lost."""
        committed = read_begun(self.storage, self.checkpoint).chunks
        for number in sorted(set(committed) - read_counts(self.storage, self.checkpoint, committed).keys()):
            self.keep(number, self.count_written(schema, number), 0)

    def count_written(self, schema: StructType, number: int) -> int:
        """How many rows a batch has in the table; where that does not tell it any more, how many it reads now."""
        sink = self.question["sink"]
        place = parse_location(sink["location"])
        count = SINK_KINDS[sink["kind"]].count_rows
        assert count is not None  # else no table is loaded into it
        found = count(open_storage(place), place, self.query_id, number)
        if found is not None:
            return found
        return self.count_anew(schema, number)

    def count_anew(self, schema: StructType, number: int) -> int:
        """How many rows a batch reads now."""
        return self.take_batch(self.spark.range(0).toDF(), schema, number)[0].count()


class TableRows(TableInput):
    """What is read by an ordered column."""

    frame: DataFrame | None = None
    """What a program has handed over to be read; None: the table that is named."""

    def begin(self) -> StructType:
        """The columns that the load has; where chunks end is known from now on.

        Raises:
            LoadRefusedError: the table cannot be read so, or has not the rows any more that were read.
        """
        add_source(self.spark)
        schema = self.find_schema()
        self._require_as_it_was()
        if self.spec.may_have_grown:
            self._find_bounds()
        self.take_columns(schema)
        self.tell({"began": {"columns": schema.simpleString(), "size": self.spec.size}})
        return schema

    def open_stream(self, schema: StructType) -> DataFrame:
        """A source that tells where chunks end."""
        del schema
        bounds = json.dumps([each.to_json() for each in self.spec.bounds])
        return self.spark.readStream.format(NAME).option("bounds", bounds).load()

    def read_range(self, start: LoadPosition, end: LoadPosition, schema: StructType) -> DataFrame:
        """The rows behind one position, up to another."""
        column, kind = self._ordered, self._order.dataType
        table = self.table
        if start.upto is not None and end.upto is not None and self._is_split(kind):
            table = self._read_database(int(start.upto), int(end.upto))
        if start.upto is not None:
            table = table.where(column > self._hide(_decode(start.upto, kind)))
        if end.upto is not None:
            table = table.where(column <= self._hide(_decode(end.upto, kind)))
        return table.select(*map(select_column, schema.fieldNames()))

    def take_batch(self, records: DataFrame, schema: StructType, number: int) -> tuple[DataFrame, Column]:
        """The rows of a batch, by its plan."""
        del records  # the source has none
        start = self.read_end_of(number - 1) if number else begin_of(self.spec.files)
        return self.parse(self.read_range(start, self.read_end_of(number), schema), schema)

    def finish(self) -> None:
        """See that no row came meanwhile where rows were read.

        Also of a Delta table, which one run reads in one version: a chunk that it passes over was read in an older one.
        """
        self._require_as_it_was()

    def _require_as_it_was(self) -> None:
        """See that up to where the table was read it has as many rows as were read there, and that each has a value.

        Raises:
            LoadRefusedError: it has others.
        """
        named = self.spec.files[0].location
        empty = self.table.where(select_column(self._order.name).isNull()).count()
        if empty:
            raise LoadRefusedError("order", f"{named}: {empty:,} rows that have no value in {self._order.name}")
        begun = read_begun(self.storage, self.checkpoint)
        counts = read_counts(self.storage, self.checkpoint, begun.chunks)
        if begun.position is None or len(counts) < len(begun.chunks):
            return
        read = sum(each.rows for each in counts.values())
        there = self.read_range(begin_of(self.spec.files), begun.position, StructType([self._order])).count()
        if there != read:
            upto = _show(begun.position.upto, self._order)
            raise LoadRefusedError("rows", f"{named}: {there:,} rows up to {upto}, where {read:,} were read")

    @cached_property
    def table(self) -> DataFrame:
        """All of it; a Delta table in the version that it had when it was looked at."""
        if self.frame is not None:
            return self.frame
        if self.spec.form is LoadFormat.JDBC:
            return self._read_database()
        if self.spec.form is LoadFormat.PARQUET:
            return self.spark.read.parquet(self.spec.files[0].location)
        return super().table

    def _read_database(self, begin: int | None = None, end: int | None = None) -> DataFrame:
        """Its table; between two values of the ordered column by several connections."""
        told = dict(self.spec.options)
        told["url"] = self.spec.files[0].location.removesuffix(f"#{told['dbtable']}")
        password = os.environ.get(PASSWORD_VARIABLE)
        if password is not None:
            told["password"] = password
        reader = self.spark.read.format("jdbc").option("fetchsize", _FETCH_SIZE).options(**told)
        if begin is not None and end is not None:
            reader = reader.option("partitionColumn", self._order.name)
            reader = reader.option("lowerBound", begin).option("upperBound", end)
            reader = reader.option("numPartitions", self.spark.sparkContext.defaultParallelism)
        return reader.load()

    def _is_split(self, kind: DataType) -> bool:
        return self.spec.form is LoadFormat.JDBC and isinstance(kind, _WHOLE_NUMBERS)

    @cached_property
    def _order(self) -> StructField:
        """The ordered column."""
        wanted = self.spec.order_by or ""
        fields = self.table.schema.fields
        named = {each.name.lower(): each for each in fields}
        found = named.get(wanted.lower())
        if found is None:
            raise LoadRefusedError("order", f"no column {wanted} among {', '.join(each.name for each in fields)}")
        why = self._explain_unordered(found.dataType)
        if why is not None:
            raise LoadRefusedError("order", f"the column {wanted} of type {found.dataType.simpleString()}, {why}")
        return found

    def _explain_unordered(self, kind: DataType) -> str | None:
        """Why a column of this type gives no order that Spark and who keeps the table agree on; None if it does."""
        if not isinstance(kind, _ORDERED):
            return "whose values are not ordered"
        if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
            return "which has a collation"
        if self.spec.form is not LoadFormat.JDBC:
            return None
        if isinstance(kind, StringType | TimestampType | TimestampNTZType):
            return "which a database may compare otherwise than Spark"
        if isinstance(kind, DecimalType) and kind.scale:
            return "which Spark may have rounded"
        return None

    @property
    def _ordered(self) -> Column:
        return self._hide(select_column(self._order.name))

    def _hide(self, value: Column) -> Column:
        """What is compared, so that Spark itself does it where it is not known who keeps what a program hands over.

        A database below it may compare texts and times otherwise; Spark hands it no comparison of structs.
        """
        is_alike = isinstance(self._order.dataType, (*_WHOLE_NUMBERS, DateType))
        return value if self.frame is None or is_alike else sf.struct(value.alias(_VALUE))

    def _find_bounds(self) -> None:
        """Where chunks end behind those that are known, of about equal size; rows of one value are in one chunk."""
        bounds = list(self.spec.bounds)
        planned = read_planned(self.storage, self.checkpoint)
        if planned is not None and planned.upto is not None and (not bounds or bounds[-1].position < planned.position):
            bounds.append(Bound(planned.position, planned.upto))
        last = LoadPosition(0, bounds[-1].position, bounds[-1].upto) if bounds else begin_of(self.spec.files)
        rows = self.read_range(last, LoadPosition(0, last.position), StructType([self._order])).toDF(_VALUE)
        if self.spec.form in (LoadFormat.JDBC, LoadFormat.FRAME):
            rows = rows.persist(StorageLevel.MEMORY_AND_DISK)  # what gives it may take long, and it is read thrice
        parts = max(1, math.ceil(rows.count() / self.question["chunk"]))
        of_part = rows.repartitionByRange(parts, _VALUE).groupBy(sf.spark_partition_id())
        found = of_part.agg(sf.max(_VALUE).alias(_VALUE), sf.count(sf.lit(1)).alias("rows")).orderBy(_VALUE)
        told = found.select(_encode(sf.col(_VALUE), self._order.dataType), "rows").collect()
        rows.unpersist()
        position = last.position
        for upto, count in told:
            position += count
            bounds.append(Bound(position, upto))
        (table,) = self.spec.files
        table = replace(table, size=position)
        self.spec = replace(self.spec, files=(table,), bounds=tuple(bounds), may_have_grown=False)


class TableJob(TableRows):
    """One load of a table into a table that knows which batches it has."""

    def write(self, schema: StructType) -> None:
        """Write what is not loaded yet."""
        self.follow(self.open_stream(schema).writeStream.foreachBatch(partial(self._write, schema)))

    def _write(self, schema: StructType, records: DataFrame, number: int) -> None:
        """Write a batch; one that the table has is passed over, and counted as it is there."""
        rows, _ = self.take_batch(records, schema, number)
        self.write_marked(rows, self.question["sink"], number)
        self.keep_columns()
        self.keep(number, self.count_written(schema, number), 0)


def _encode(value: Column, kind: DataType) -> Column:
    """A value as a text, from which `_decode` makes it again."""
    if isinstance(kind, TimestampType):
        return sf.unix_micros(value).cast("string")
    return value.cast("string")


def _decode(text: str, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return sf.timestamp_micros(sf.lit(int(text)))
    return sf.lit(text).cast(kind)


def _show(text: str | None, order: StructField) -> str:
    """A value for a person; texts may be of those that an error does not show."""
    if isinstance(order.dataType, StringType):
        return f"the last {order.name} that was read"
    if isinstance(order.dataType, TimestampType):
        return f"{order.name} {text} µs since 1970"
    return f"{order.name} {text}"
