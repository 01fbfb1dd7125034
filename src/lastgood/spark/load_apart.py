"""Loads files into two tables: records that are not what the schema says go into one of their own, as they lie there.

Both get a batch under its number, so each passes over one that it has; Spark commits it once both have it.
"""

from __future__ import annotations

from functools import partial

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lastgood.spark.load_job import CORRUPT, Job, LoadRefusedError, count_rows, select_column


class ApartJob(Job):
    """One load that keeps corrupt records apart."""

    def write(self, schema: StructType) -> None:
        """Write what is not loaded yet."""
        self.follow(self.open_stream(schema).writeStream.foreachBatch(partial(self._write, schema)))

    def find_schema(self) -> StructType:
        """The columns that the load has, none of them for corrupt records."""
        schema = super().find_schema()
        if len(self.drop_corrupt(schema)) < len(schema):
            raise LoadRefusedError("apart", "both")
        return schema

    def _write(self, schema: StructType, records: DataFrame, number: int) -> None:
        rows, is_corrupt = self.take_batch(records, schema, number)
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)  # it is read up to three times
        ((count, corrupt),) = rows.agg(*count_rows(is_corrupt)).collect()
        whole = rows.where(~is_corrupt).select(*map(select_column, schema.fieldNames()))
        self.write_marked(whole, self.question["sink"], number)
        if corrupt:
            chunk = sf.lit(number).cast("bigint").alias("chunk")
            apart = rows.where(is_corrupt)
            apart = apart.select(sf.col(CORRUPT).alias("record"), sf.lit(self.query_id).alias("query_id"), chunk)
            self.write_marked(apart, self.question["quarantine"], number)
        rows.unpersist()
        self.keep_columns()
        self.keep(number, count, corrupt)
