"""Loads what the versions of a Delta table added: Delta's own source reads them, and its offsets tell how far it is."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lastgood.load.position import LoadPosition
from lastgood.spark.load_job import LoadRefusedError, select_column
from lastgood.spark.load_table import TableInput


class VersionsJob(TableInput):
    """One load of the versions of a table, from one on."""

    def begin(self) -> StructType:
        """The columns that the load has.

        Raises:
            LoadRefusedError: the columns are others.
        """
        schema = self.find_schema()
        self.take_columns(schema)
        self.tell({"began": {"columns": schema.simpleString(), "size": self.spec.size}})
        return schema

    def open_stream(self, schema: StructType) -> DataFrame:
        """The rows that are not loaded yet."""
        (table,) = self.spec.files
        reader = self.spark.readStream.format("delta").option("startingVersion", table.begins)
        rows = reader.option("maxBytesPerTrigger", self.question["chunk"]).load(table.location)
        return rows.select(*map(select_column, schema.fieldNames()))

    def read_range(self, start: LoadPosition, end: LoadPosition, schema: StructType) -> DataFrame:
        """What versions added, as Delta's source gives nothing of a table in which others were removed."""
        if start.upto is not None or end.upto is not None:
            raise LoadRefusedError("compare", "the load stands within a version")
        added = self._read_version(end.position - 1, schema)
        if start.position:
            added = added.exceptAll(self._read_version(start.position - 1, schema))
        return added

    def _read_version(self, version: int, schema: StructType) -> DataFrame:
        rows = self.spark.read.format("delta").option("versionAsOf", version).load(self.spec.files[0].location)
        return rows.select(*map(select_column, schema.fieldNames()))

    def count_anew(self, schema: StructType, number: int) -> int:
        """Nobody can: a chunk may end within a version."""
        del schema
        raise LoadRefusedError("count", f"chunk {number}, whose version in the log of the table is gone")
