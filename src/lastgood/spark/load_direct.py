"""Loads files into a Delta table whose data files its tasks write themselves, of records that they can read.

The others they hand on as lines, of which Spark makes rows as ever. Both are committed in one version of the table, by
Delta's own transaction, under the number of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lastgood.notes import read_json
from lastgood.spark.delta_version import PROVEN, DeltaVersion, find_release
from lastgood.spark.load_columns import LINE
from lastgood.spark.load_job import Job
from lastgood.spark.load_source import NAME
from lastgood.spark.piece_files import CODECS, FILE
from lastgood.storage.reading import parse_location

_CODEC = "spark.sql.parquet.compression.codec"
_ENCRYPTION = "parquet.crypto.factory.class"
"""Set where Spark is to write encrypted files."""
_STATISTICS = "spark.databricks.delta.stats.collect"
"""Whether Delta counts the rows of the files that it writes."""


class DirectJob(Job):
    """One load of files into a Delta table."""

    _own: int | None = None
    """The version of the table that has the newest batch, once this process has committed one."""

    def write(self, schema: StructType) -> None:
        """Write what is not loaded yet; where the table, or the files, ask for more, Spark writes all of it."""
        if self._can_write(schema):
            self.follow(self._open_written(schema).writeStream.foreachBatch(partial(self._write, schema)))
        else:
            super().write(schema)

    def _can_write(self, schema: StructType) -> bool:
        """Whether tasks can write what they read."""
        are_readable = "columns" in self.make_options(schema)
        is_encrypted = self._hadoop.get(_ENCRYPTION) or self.spark.conf.get(_ENCRYPTION, "")
        has_statistics = self.spark.conf.get(_STATISTICS, "true") == "true"
        is_here = parse_location(self.question["sink"]["location"]).scheme == "file"
        if not are_readable or not is_here or is_encrypted or not has_statistics:
            return False
        if self._codec not in CODECS or find_release(self.spark) not in PROVEN:
            return False
        return self._open_version(self.spark, schema).find_obstacle() is None

    @property
    def _hadoop(self) -> Any:
        return self.spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001

    @property
    def _codec(self) -> str:
        return (self.spark.conf.get(_CODEC) or "").lower()

    def _open_written(self, schema: StructType) -> DataFrame:
        """The records that are not loaded yet: what tells of the files in which they are, and lines."""
        jvm: Any = self.spark._jvm  # noqa: SLF001
        umask = jvm.org.apache.hadoop.fs.permission.FsPermission.getUMask(self._hadoop).toShort()
        told = {"into": self.question["sink"]["location"], "codec": self._codec, "umask": str(umask)}
        return self.spark.readStream.format(NAME).options(**self.make_options(schema), **told).load()

    def _write(self, schema: StructType, records: DataFrame, number: int) -> None:
        """Write a batch; one that the table has is passed over, and counted at the end."""
        version = self._open_version(records.sparkSession, schema)
        obstacle = version.find_obstacle()
        if obstacle is not None:
            raise RuntimeError(f"the table was changed while it was loaded: {obstacle}")
        if not version.has_batch(self.query_id, number, own=self._own):
            found = self._add(version, schema, records)
            self.require_held()
            self._own = version.commit(self.query_id, number)
            self.keep(number, *found)
        self.keep_columns()

    def _add(self, version: DeltaVersion, schema: StructType, records: DataFrame) -> tuple[int, int, int]:
        """Put the rows of a batch into a version: how many there are, how many are corrupt, and were made by Spark."""
        version.make_folder()
        cached = records.persist(StorageLevel.MEMORY_AND_DISK)  # else its tasks would write once more for the lines
        try:
            return self._add_cached(version, schema, cached)
        finally:
            cached.unpersist()

    def _add_cached(self, version: DeltaVersion, schema: StructType, cached: DataFrame) -> tuple[int, int, int]:
        ((files, lines),) = cached.agg(sf.collect_list(FILE), sf.count(LINE)).collect()
        self._require_there(files)
        version.add_files(files)
        rows, corrupt = version.row_count, 0
        if lines:
            observation = Observation()
            others = cached.where(sf.col(LINE).isNotNull()).select(LINE)
            version.add_rows(self.make_rows(others, schema, observation))
            rows, corrupt = rows + observation.get["rows"], observation.get["corrupt"]
        return rows, corrupt, lines

    def _require_there(self, told: Sequence[str]) -> None:
        """See that the driver finds what tasks have written: a machine of theirs may have another folder there."""
        for each in told:
            add = read_json(each)["add"]
            file = Path(self.question["sink"]["location"]) / add["path"]
            if not file.exists() or file.stat().st_size != add["size"]:
                raise RuntimeError(f"{file} is not what a task has written there: its machine has another folder")

    def _open_version(self, spark: SparkSession, schema: StructType) -> DeltaVersion:
        return DeltaVersion(spark, self.question["sink"]["location"], schema)
