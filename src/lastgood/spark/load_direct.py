"""Loads files into a Delta table whose data files its tasks write themselves, of records that they can read.

The others they hand on as lines, of which Spark makes rows as ever. Both are committed in one version of the table, by
Delta's own transaction, under the number of the batch.
"""

from __future__ import annotations

from functools import partial

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lastgood.spark.delta_version import PROVEN, DeltaVersion, find_release
from lastgood.spark.load_columns import LINE
from lastgood.spark.load_job import Job
from lastgood.spark.load_source import NAME
from lastgood.spark.piece_files import CODECS, FILE

_CODEC = "spark.sql.parquet.compression.codec"
_ENCRYPTION = "parquet.crypto.factory.class"
"""Set where Spark is to write encrypted files."""


class DirectJob(Job):
    """One load of files into a Delta table."""

    def write(self, schema: StructType) -> None:
        """Write what is not loaded yet; where the table, or the files, ask for more, Spark writes all of it."""
        if self._can_write(schema):
            self.follow(self._open_written(schema).writeStream.foreachBatch(partial(self._write, schema)))
        else:
            super().write(schema)

    def _can_write(self, schema: StructType) -> bool:
        """Whether tasks can write what they read."""
        are_readable = "columns" in self.make_options(schema)
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        is_plain = self._codec in CODECS and not (hadoop.get(_ENCRYPTION) or self.spark.conf.get(_ENCRYPTION, ""))
        if not are_readable or not is_plain or find_release(self.spark) not in PROVEN:
            return False
        return self._open_version(self.spark, schema).find_obstacle() is None

    @property
    def _codec(self) -> str:
        return (self.spark.conf.get(_CODEC) or "").lower()

    def _open_written(self, schema: StructType) -> DataFrame:
        """The records that are not loaded yet: what tells of the files in which they are, and lines."""
        told = {"into": self.question["sink"]["location"], "codec": self._codec}
        return self.spark.readStream.format(NAME).options(**self.make_options(schema), **told).load()

    def _write(self, schema: StructType, records: DataFrame, number: int) -> None:
        """Write a batch; one that the table has is passed over, and counted at the end."""
        version = self._open_version(records.sparkSession, schema)
        obstacle = version.find_obstacle()
        if obstacle is not None:
            raise RuntimeError(f"the table was changed while it was loaded: {obstacle}")
        if not version.has_batch(self.query_id, number):
            rows, corrupt = self._add(version, schema, records)
            version.commit(self.query_id, number)
            self.keep(number, rows, corrupt)
        self.keep_columns()

    def _add(self, version: DeltaVersion, schema: StructType, records: DataFrame) -> tuple[int, int]:
        """Put the rows of a batch into a version: how many there are, and how many of them are corrupt."""
        cached = records.persist(StorageLevel.MEMORY_AND_DISK)  # else its tasks would write once more for the lines
        try:
            return self._add_cached(version, schema, cached)
        finally:
            cached.unpersist()

    def _add_cached(self, version: DeltaVersion, schema: StructType, cached: DataFrame) -> tuple[int, int]:
        ((files, lines),) = cached.agg(sf.collect_list(FILE), sf.count(LINE)).collect()
        version.add_files(files)
        rows, corrupt = version.row_count, 0
        if lines:
            observation = Observation()
            others = cached.where(sf.col(LINE).isNotNull()).select(LINE)
            version.add_rows(self.make_rows(others, schema, observation))
            rows, corrupt = rows + observation.get["rows"], observation.get["corrupt"]
        return rows, corrupt

    def _open_version(self, spark: SparkSession, schema: StructType) -> DeltaVersion:
        return DeltaVersion(spark, self.question["sink"]["location"], schema)
