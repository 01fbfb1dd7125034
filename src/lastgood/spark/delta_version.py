"""One version of a Delta table, of files that the tasks of a load have written themselves: Delta's own transaction.

Of Delta it needs what is no public API, so only with those releases that its tests have shown.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from py4j.java_gateway import JavaPackage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.notes import read_json
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import open_storage, parse_location

PROVEN: Final = frozenset({"4.4.0"})
"""Releases of Delta whose transaction was shown to do what is said here."""
_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "generatedColumns",
        "inCommitTimestamp",
        "invariants",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Features of tables that ask nothing of a file that is added, if no column and no property tells that they do."""
_WRITER_MOST = 4
"""The newest version of the writer's protocol that has all of these features and no others."""
_WRITER_WITH_FEATURES = 7
_PROPERTIES = (
    "delta.appendOnly",
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableInCommitTimestamps",
    "delta.feature.",
    "delta.inCommitTimestampEnablement",
    "delta.logRetentionDuration",
    "delta.setTransactionRetentionDuration",
)
"""What properties begin with that matter to no file that is added."""
_HARMLESS = tuple(name.lower() for name in _PROPERTIES)
_SECONDS = 60.0
"""Within which the log of the table has to be read."""
_ASKING = ("delta.", "parquet.", "fs.", "spark.")
"""What properties begin with that Delta, or what it writes with, may heed."""


class DeltaVersion:
    """A version that is not committed yet."""

    def __init__(self, spark: SparkSession, table: str, columns: StructType) -> None:
        """Where there is no table, its first one.

        Args:
            spark: The session that writes.
            table: Its location.
            columns: Those of the rows.
        """
        self._spark, self._table = spark, table
        jvm: Any = spark._jvm  # noqa: SLF001 - Delta's transaction has no other way in
        self._jvm = jvm
        self._delta = jvm.org.apache.spark.sql.delta
        self._columns = StructType([StructField(each.name, each.dataType) for each in columns.fields])
        log = self._delta.DeltaLog.forTable(spark._jsparkSession, table)  # noqa: SLF001
        self._transaction = log.startTransaction()
        if not log.tableExists():
            self._transaction.updateMetadata(self._read_action(_describe_table(self._columns)), False)  # noqa: FBT003
        self._added: list[Mapping[str, Any]] = []

    def find_obstacle(self) -> str | None:
        """What of the table asks for a writer that knows more than this one, in a few words; None if nothing does."""
        metadata = read_json(self._transaction.metadata().json())["metaData"]
        protocol = read_json(self._transaction.protocol().json())["protocol"]
        if StructType.fromJson(read_json(metadata["schemaString"])).json() != self._columns.json():
            return "it has other columns, or some that ask for more than their type"
        if metadata["partitionColumns"]:
            return "it has partitions"
        features = {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}
        is_known = protocol["minWriterVersion"] in (*range(_WRITER_MOST + 1), _WRITER_WITH_FEATURES)
        if not is_known or features - _FEATURES:
            return "it has features that this writer does not know"
        for name in metadata["configuration"]:
            if _is_asking(name.lower()):
                return f"it has the property {name}"
        return None

    @property
    def row_count(self) -> int:
        """How many rows its files have."""
        return sum(read_json(each["stats"])["numRecords"] for each in self._added)

    def has_batch(self, application: str, number: int, *, own: int | None) -> bool:
        """Whether the table has a batch, or a later one.

        Args:
            application: The id of the query.
            number: Of its batch.
            own: The version that has the batch before, if this process has committed it.

        Raises:
            StorageError: the log of the table cannot be read (subclasses).
        """
        # As `txnVersion` does: with a version in between that tells of this query, this one cannot be committed.
        self._transaction.readTxn().addOne(application)
        read = self._transaction.readVersion()
        if read == own:
            return False
        # `txnVersion` would have a job of Spark tell, which takes seconds in one that has just begun.
        place = parse_location(self._table)
        log = read_table_log(open_storage(place), place, deadline=Deadline.after(_SECONDS), commits_max=1)
        if log is None and read < 0:
            return False  # there is no table
        if not isinstance(log, TableLog) or not _is_all_of(log, read):
            return bool(self._transaction.txnVersion(application) >= number)
        known = log.transactions.get(application)
        return known is not None and known.version >= number

    def make_folder(self) -> None:
        """Have a folder for its files, with the rights that Hadoop gives one."""
        context: Any = self._spark.sparkContext._jsc  # noqa: SLF001
        place = self._jvm.org.apache.hadoop.fs.Path(self._table)
        place.getFileSystem(context.hadoopConfiguration()).mkdirs(place)

    def add_files(self, told: Sequence[str]) -> None:
        """Take files that are written, as `piece_files` tells of them."""
        self._added += [read_json(each)["add"] for each in told]

    def add_rows(self, rows: DataFrame) -> None:
        """Let Delta write rows."""
        written = self._transaction.writeFiles(rows._jdf)  # noqa: SLF001
        self.add_files([written.apply(at).json() for at in range(written.size())])

    def commit(self, application: str, number: int) -> int:
        """Make it a version of the table, as Delta's own sink would; its number.

        Args:
            application: The id of the query.
            number: Of its batch.

        Raises:
            Py4JJavaError: somebody else has changed the table so that this is no version of it any more.
        """
        mark = {"txn": {"appId": application, "version": number, "lastUpdated": _read_clock()}}
        self._count()
        append = self._jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        update = getattr(self._delta, "DeltaOperations$StreamingUpdate")
        operation = update(append, application, number, self._jvm.scala.Option.empty())
        actions: list[Mapping[str, Any]] = [mark, *({"add": each} for each in self._added)]
        made = self._jvm.PythonUtils.toSeq([self._read_action(each) for each in actions])
        return int(self._transaction.commit(made, operation))

    def _count(self) -> None:
        """Tell the history of the table how much is added."""
        metrics = {
            "numAddedFiles": len(self._added),
            "numRemovedFiles": 0,
            "numOutputRows": self.row_count,
            "numOutputBytes": sum(each["size"] for each in self._added),
        }
        context = self._spark.sparkContext._jsc.sc()  # noqa: SLF001
        make = self._jvm.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric
        made = {name: make(context, name) for name in metrics}
        for name, value in metrics.items():
            made[name].set(value)
        session = self._spark._jsparkSession  # noqa: SLF001
        self._transaction.registerSQLMetrics(session, self._jvm.PythonUtils.toScalaMap(made))

    def _read_action(self, action: Mapping[str, Any]) -> Any:
        """As Delta has it; of JSON, since that is what its protocol says and its classes do not."""
        return getattr(getattr(self._delta.actions, "Action$"), "MODULE$").fromJson(json.dumps(action))


def _is_all_of(log: TableLog, version: int) -> bool:
    """Whether a log that was read tells of everything up to a version that Delta has read."""
    odd = (log.unknown, log.newer, log.contested)
    return log.newest_version >= version and not any(odd)


def find_release(spark: SparkSession) -> str | None:
    """The release of Delta that a session has; None if it has none."""
    jvm: Any = spark._jvm  # noqa: SLF001
    found = getattr(getattr(jvm.io.delta, "package$"), "MODULE$")
    return None if isinstance(found, JavaPackage) else str(found.VERSION())


def _describe_table(schema: StructType) -> Mapping[str, Any]:
    """What a new table is; a plain one, but for what the session says of all new ones."""
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.json(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": _read_clock(),
    }
    return {"metaData": metadata}


def _is_asking(name: str) -> bool:
    """Whether a property, in small letters, as Delta compares some of them, may ask something of a file."""
    return name.startswith(_ASKING) and not name.startswith(_HARMLESS)


def _read_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
