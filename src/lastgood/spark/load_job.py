"""Loads files into a table, within a session: as a question says that `load_main` describes."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StringType, StructField, StructType

from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import LastgoodError, Retry
from lastgood.failures.causes import read_causes
from lastgood.failures.classify import classify_causes
from lastgood.failures.lack import TRANSIENT, explain_lack
from lastgood.journal.lease import is_newest
from lastgood.load.begun import read_begun, read_end, read_planned
from lastgood.load.encoding import ENCODING, find_encoding, has_two_bytes
from lastgood.load.kept import ChunkCount, keep_count, keep_spec, locate_kept, read_counts
from lastgood.load.others import find_other_load
from lastgood.load.position import LoadPosition
from lastgood.load.quoting import MULTI_LINE, are_multi_line
from lastgood.load.ranges import begin_of, find_end_of_chunk
from lastgood.load.row_groups import open_row_groups, read_footer
from lastgood.load.specification import InputFile, LoadFormat, LoadSpec, ParseMode
from lastgood.load.unpacking import open_input
from lastgood.notes import read_json
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.sources.files.folders import escape_pattern
from lastgood.spark.load_check import MissingColumnError, compare_rows, read_rows
from lastgood.spark.load_columns import LINE, find_plain_columns, is_plain
from lastgood.spark.load_header import find_false_header
from lastgood.spark.load_parquet import find_difference
from lastgood.spark.load_readers import NORMALIZED
from lastgood.spark.load_source import NAME, OVERTAKEN, LoadReader, LoadSource, tell_whole
from lastgood.storage.reading import open_storage, parse_location
from lastgood.storage.writing import open_writable

CORRUPT = "__lastgood_corrupt"
"""The column of a corrupt record, where the schema has none for it."""
_CORRUPT_DEFAULT = "_corrupt_record"
_CORRUPT_OPTION = "columnNameOfCorruptRecord"
_BLANK = {LoadFormat.CSV: r"^[\x00-\x20]*\z", LoadFormat.JSONL: r"^[\x09\x0A\x0D\x20]*\z"}
"""What Spark's readers pass over: for CSV what Java's `trim` makes empty, for JSON what its parser skips.

Not `$`: in Java that is also before U+2028 or U+0085 at the end.
"""
_ARRAY = r"^[\x09\x0A\x0D\x20]*\["
_ENDED = "load ended, since "
_OWN_REASON = re.compile(rf"\[USER_RAISED_EXCEPTION\] {_ENDED}(.*)")
"""Not wherever that stands: an error may quote the expression that raises it."""
_REASON = re.compile(r"^(?:: )?[\w.$]*(?:Error|Exception): (.+)$", re.MULTILINE)
"""A line of a Python traceback, or behind Py4J's own words, that names an error; the last one is the outermost."""
_STREAM_FAILED = " terminated with exception: "
_LINE_END = "\uffff"
"""What `from_csv` takes for the end of a line, and nothing else."""
_NORMALIZED = NORMALIZED.decode()
_IS_LINE_END = "a record has U+FFFF, at which Spark's from_csv ends it"
_IS_ARRAY = "a line is a JSON array, and not an object"
_NOT_UTF8 = "a line is not UTF-8"
_OF_DATABASE = "[FAILED_JDBC"
"""Stands in an error of Spark that does not say what the database, or its driver, has said."""
_OBSERVED = "load"
_LONGEST = 2**31 - 1
"""Characters of a text at most."""
_LOOKED_AT = 64 * 1024
"""Bytes of the beginning that are held against the schema before anything is written."""
_RECORDS_LEAST = 20
"""If fewer are corrupt at the beginning, it may be only they."""
_POLL_SECONDS = 0.2
_SESSION_CONF = {
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # They would read only the columns that are asked for, and another number of them may be corrupt then.
    "spark.sql.optimizer.enableCsvExpressionOptimization": "false",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    # As they are by default: what columns of Parquet are does not go by the session.
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.binaryAsString": "false",
}


class LoadRefusedError(Exception):
    """It cannot be loaded so."""

    def __init__(self, kind: str, found: str) -> None:
        super().__init__(kind, found)
        self.answer = {"kind": kind, "found": found}


class Job:
    """One load."""

    def __init__(
        self, spark: SparkSession, question: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]
    ) -> None:
        self.spark, self.question, self.tell = spark, question, tell
        self.spec = LoadSpec.from_json(question["spec"])
        self.checkpoint = parse_location(question["checkpoint"])
        self.storage = open_writable(self.checkpoint)
        self._lease: int | None = question.get("lease")
        self.is_kept = False
        """Whether what the load is lies beside its checkpoint."""

    def run(self) -> None:
        """All of it.

        Raises:
            LoadRefusedError: Spark does not take the schema or the options.
            PySparkException: the query has failed.
        """
        with set_up(self.spark):
            if "own" in self.question:
                self._compare()
            else:
                self.load()

    def _compare(self) -> None:
        """Hold what is committed against what is in the table."""
        add_source(self.spark)
        schema = self.find_schema()
        why = explain_incomparable(self.spec, schema)
        if why is not None:
            raise LoadRefusedError("compare", why)
        position = read_begun(self.storage, self.checkpoint).position
        assert position is not None  # else there is nothing to compare
        expected = self.make_rows(self.read_range(begin_of(self.spec.files), position, schema), schema)
        found = read_rows(self.spark, self.question["sink"], self.question["own"])
        try:
            self.tell({"compared": compare_rows(expected, found, schema)})
        except MissingColumnError as error:
            raise LoadRefusedError("compare", f"the table has no column {error} any more") from error

    def begin(self) -> StructType:
        """The columns that records make, which are kept from now on.

        Raises:
            LoadRefusedError: Spark does not take the schema or the options.
        """
        add_source(self.spark)
        schema = self.find_schema()
        self._require_sound_beginning(schema)
        self._reserve_table()
        self.take_columns(schema)
        self.tell({"began": {"columns": schema.simpleString(), "size": self.spec.size}})
        return schema

    def open_stream(self, schema: StructType) -> DataFrame:
        """The records that are not loaded yet.

        Args:
            schema: The columns that the load has.
        """
        return self.spark.readStream.format(NAME).options(**self.make_options(schema)).load()

    def require_held(self) -> None:
        """See that no other machine has gone on with the load, right before something is changed.

        Raises:
            LoadRefusedError: one has.
        """
        if self._lease is not None and not is_newest(self.storage, locate_kept(self.checkpoint), self._lease):
            raise LoadRefusedError("failed", OVERTAKEN)

    def finish(self) -> None:
        """What is to be seen once everything was read; of files nothing, of which each task sees whether they changed.

        Raises:
            LoadRefusedError: what was read is not what is there.
        """

    def take_batch(self, records: DataFrame, schema: StructType, number: int) -> tuple[DataFrame, Column]:
        """As `parse`, of one batch.

        Args:
            records: What the source gave for it.
            schema: The columns that the load has.
            number: Of the batch.
        """
        del number
        return self.parse(records, schema)

    def load(self) -> None:
        """Write what is not loaded yet, and count it."""
        schema = self.begin()
        self.write(schema)
        self.count_again(schema)
        self.finish()

    def write(self, schema: StructType) -> None:
        """Write what is not loaded yet.

        Args:
            schema: The columns that the load has.
        """
        sink = self.question["sink"]
        writer = self.make_rows(self.open_stream(schema), schema).writeStream.format(sink["format"])
        if self.spec.columns_at_first is not None:
            writer = writer.options(**sink["widening"])
        self.follow(writer.option("path", sink["location"]))

    def follow(self, writer: DataStreamWriter) -> None:
        """Start the query and tell of each chunk, until everything is loaded.

        Args:
            writer: Knows what is to be written where, or by which function.
        """
        self.require_held()
        query = writer.option("checkpointLocation", self.question["checkpoint"]).trigger(availableNow=True).start()
        told = -1
        try:
            while query.isActive:
                time.sleep(_POLL_SECONDS)
                told = self._tell_chunks(query, told)
            query.awaitTermination()
        finally:
            query.stop()  # in a session that goes on, whoever presses Ctrl-C means the query as well
        self._tell_chunks(query, told)

    def _require_sound_beginning(self, schema: StructType) -> None:
        """See that no record would be passed over as a header, and that not all of the first are corrupt."""
        spec = self.spec
        if spec.form is LoadFormat.CSV:
            zone = self.spark.conf.get("spark.sql.session.timeZone") or ""
            found = find_false_header(self._list_unread(), self.drop_corrupt(schema), spec.options, zone)
            if found is not None:
                raise LoadRefusedError("header", found)
        keeps_corrupt = len(self.drop_corrupt(schema)) < len(schema)
        is_begun = read_planned(self.storage, self.checkpoint) is not None
        is_asked = spec.schema is not None and spec.mode is not ParseMode.FAILFAST
        if is_begun or keeps_corrupt or not is_asked:
            return
        source = LoadReader(self.make_options(schema))
        begin = begin_of(spec.files)
        end = find_end_of_chunk(spec.files, begin, _LOOKED_AT, source.reader.find_end)
        try:
            if _has_plain(source, begin, end):
                return  # which is not corrupt
        except RuntimeError as error:  # what a task would say of it
            raise LoadRefusedError("failed", str(error)) from error
        rows, is_corrupt = self.parse(self.read_range(begin, end, schema), schema)
        ((looked, corrupt),) = rows.agg(*count_rows(is_corrupt)).collect()
        if corrupt == looked >= _RECORDS_LEAST:
            raise LoadRefusedError("mismatch", f"none of the first {looked:,} records")

    def _reserve_table(self) -> None:
        """See that its table is not that of another query, where it cannot be that of several."""
        if "sink" not in self.question:
            return
        reserve = SINK_KINDS[self.spec.table.partition(":")[0]].reserve
        if reserve is None:
            return
        place = parse_location(self.question["sink"]["location"])
        planned = read_checkpoint(self.storage, self.checkpoint).last_planned
        why = reserve(open_writable(place), place, self.checkpoint, planned)
        if why is not None:
            raise LoadRefusedError("taken", why)

    def take_columns(self, schema: StructType) -> None:
        """Have these from now on; what was loaded with fewer is counted before.

        More than before are kept once a chunk is committed with them: until then the table may still refuse them.
        """
        known = self.known
        self.is_kept = known is None or len(known) == len(schema)
        if known is not None and not self.is_kept:
            self.count_again(known)
            self.spec = replace(self.spec, columns_at_first=self.spec.columns_at_first or len(known))
        self.spec = replace(self.spec, columns=schema.json())
        if known is None:
            self._require_not_loaded()
        if self.is_kept:
            self._keep_spec()

    def _require_not_loaded(self) -> None:
        """See once more that no other load reads one of the files into the table: it may have begun meanwhile."""
        if "sink" not in self.question:
            return
        table = parse_location(self.question["sink"]["location"])
        files = [each.location for each in self.spec.files]
        found = find_other_load(self.storage, table, self.checkpoint, files)
        if found is not None:
            raise LoadRefusedError("loaded", found)

    def _keep_spec(self) -> None:
        self.require_held()
        keep_spec(self.storage, self.checkpoint, self.spec)

    @property
    def known(self) -> StructType | None:
        """The columns that it has so far."""
        return None if self.spec.columns is None else StructType.fromJson(read_json(self.spec.columns))

    def find_schema(self) -> StructType:
        """The columns that the load has; with those that came since, if these are taken."""
        spec, known = self.spec, self.known
        try:
            if spec.form is LoadFormat.TEXT:
                return StructType([StructField(LINE, StringType())])
            if spec.form is LoadFormat.PARQUET:
                return self._find_row_columns()
            if known is not None and self.question["evolves"]:
                are_in_order = spec.form is LoadFormat.CSV or spec.schema is not None
                return add_columns(known, self._look_for_columns(), are_in_order=are_in_order)
            if known is not None and spec.schema is None:
                return known
            return self._look_for_columns()
        except PySparkException as error:
            raise LoadRefusedError("schema", find_reason(error)) from error

    def _look_for_columns(self) -> StructType:
        """As they are said, or as Spark finds them in the files."""
        spec = self.spec
        if spec.schema is not None:
            return self.spark.createDataFrame([], spec.schema).schema  # as Spark reads DDL
        reader = self.spark.read.options(**spec.options).option("mode", spec.mode.value)
        if spec.infers:
            reader = reader.option("inferSchema", "true")
        if has_two_bytes(spec.options):
            return reader.csv(self._read_all_lines().rdd.map(itemgetter(0))).schema
        paths = [escape_pattern(each.location) for each in self._list_unread()]
        return reader.csv(paths).schema if spec.form is LoadFormat.CSV else reader.json(paths).schema

    def _read_all_lines(self) -> DataFrame:
        """Those of all files that are not read yet, with their headers."""
        files = [_take_header(each, self.spec.options) for each in self._list_unread()]
        span = {"start": begin_of(files), "end": LoadPosition(len(files) - 1, files[-1].length)}
        told = {name: json.dumps(position.to_json()) for name, position in span.items()}
        named = {"files": json.dumps([each.to_json() for each in files])}
        return self.spark.read.format(NAME).options(**self.make_options(StructType()), **told).options(**named).load()

    def _find_row_columns(self) -> StructType:
        """The columns of Parquet files, which all have to be those of the first of them, but for what came since."""
        known, unread = self.known, self._list_unread()
        columns = known or _read_columns_of_rows(self.spark, unread[0])
        least = self.spec.columns_at_first or len(columns)
        if known is not None and self.question["evolves"]:
            for file in unread:
                columns = add_columns(columns, _read_columns_of_rows(self.spark, file), are_in_order=False)
        for file in unread:
            difference = _find_difference_of_file(file, columns, least)
            if difference is not None:
                raise LoadRefusedError("columns", f"{file.location}: {difference}")
        return columns

    def _list_unread(self) -> Sequence[InputFile]:
        """The files of which not everything is read."""
        return self.spec.files[self._count_read() :]

    def _count_read(self) -> int:
        """Of how many files everything is read."""
        position = read_begun(self.storage, self.checkpoint).position
        return 0 if position is None else position.file

    def make_options(self, schema: StructType) -> dict[str, str]:
        """Those of our source, for the columns that the load has."""
        files = json.dumps([each.to_json() for each in self.spec.files])
        tasks = self.spark.sparkContext.defaultParallelism
        zone = self.spark.conf.get("spark.sql.session.timeZone") or ""
        own = {
            "files": files,
            "chunk": str(self.question["chunk"]),
            "tasks": str(tasks),
            "form": self.spec.form.value,
            "parsing": json.dumps(dict(self.spec.options)),
            "zone": zone,
            **self._tell_lease(),
        }
        if self.spec.form is LoadFormat.PARQUET:
            return {**own, "columns": schema.json()}
        columns = self.drop_corrupt(schema)
        is_csv = self.spec.form is LoadFormat.CSV
        if is_csv and find_plain_columns(columns, self.spec.options, zone) is not None:
            return {**own, "columns": columns.json()}
        return own

    def _tell_lease(self) -> dict[str, str]:
        """What our source is told, which plans the chunks."""
        if self._lease is None:
            return {}
        return {"lease": str(self._lease), "work": str(locate_kept(self.checkpoint))}

    def drop_corrupt(self, schema: StructType) -> StructType:
        """The columns of a record, without the one that keeps it where it is corrupt."""
        told = self.spec.options.get(_CORRUPT_OPTION, _CORRUPT_DEFAULT)
        return StructType([each for each in schema.fields if each.name != told])

    def parse(self, records: DataFrame, schema: StructType) -> tuple[DataFrame, Column]:
        """All rows that records make, and whether one is corrupt; with columns for that as well."""
        spec = self.spec
        if spec.form in (LoadFormat.TEXT, LoadFormat.PARQUET):
            return records.toDF(*schema.fieldNames()), sf.expr("false")
        told = spec.options.get(_CORRUPT_OPTION, _CORRUPT_DEFAULT)
        corrupt = told if told in schema.fieldNames() else CORRUPT
        marked = schema if corrupt == told else StructType([*schema.fields, StructField(CORRUPT, StringType())])
        mode = "FAILFAST" if spec.mode is ParseMode.FAILFAST else "PERMISSIVE"
        options = {**spec.options, _CORRUPT_OPTION: corrupt, "mode": mode}
        for told in ENCODING:
            options.pop(told, None)  # the source gives UTF-8
        parse = _parse_csv if spec.form is LoadFormat.CSV else _parse_json
        line = sf.col(LINE)
        wanted = ~line.rlike(_BLANK[spec.form])
        is_multi_line = are_multi_line(spec.options)
        if is_multi_line:
            wanted = line != ""
        comment = spec.options.get("comment")
        if spec.form is LoadFormat.CSV and comment:
            wanted &= ~line.startswith(comment)
        row = sf.when(line.isNotNull(), parse(marked, options)).alias("row")
        parsed = records.where(line.isNull() | wanted).select("*", row)
        # The source gives them in the order of the schema, if it gives columns.
        plain = dict(zip(self.drop_corrupt(schema).fieldNames(), records.columns[:-1], strict=False))
        chosen = {name: _choose(name, plain.get(name)) for name in marked.fieldNames()}
        if is_multi_line:
            chosen[corrupt] = _restore(chosen[corrupt])
        rows = parsed.select(*(column.alias(name) for name, column in chosen.items()))
        return rows, select_column(corrupt).isNotNull()

    def make_rows(self, records: DataFrame, schema: StructType, observed: str | Observation = _OBSERVED) -> DataFrame:
        """The rows that are written: those that Spark's own reader makes of a file with these records.

        Args:
            records: What the source gave.
            schema: The columns that the load has.
            observed: What is told how many there are, and how many are corrupt.
        """
        rows, is_corrupt = self.parse(records, schema)
        rows = rows.observe(observed, *count_rows(is_corrupt))
        if self.spec.drops_corrupt:
            rows = rows.where(~is_corrupt)
        return rows.select(*map(select_column, schema.fieldNames()))

    def count_again(self, schema: StructType) -> None:
        """Count what was committed by one who died before he could note it down: at most a chunk for each."""
        committed = read_begun(self.storage, self.checkpoint).chunks
        for batch in sorted(set(committed) - read_counts(self.storage, self.checkpoint, committed).keys()):
            start = self.read_end_of(batch - 1) if batch else begin_of(self.spec.files)
            records = self.read_range(start, self.read_end_of(batch), schema)
            rows, is_corrupt = self.parse(records, schema)
            ((rows_found, corrupt_found),) = rows.agg(*count_rows(is_corrupt)).collect()
            self.keep(batch, rows_found, corrupt_found)

    def read_range(self, start: LoadPosition, end: LoadPosition, schema: StructType) -> DataFrame:
        """What the source has between two positions."""
        span = {"start": json.dumps(start.to_json()), "end": json.dumps(end.to_json())}
        return self.spark.read.format(NAME).options(**self.make_options(schema), **span).load()

    def read_end_of(self, batch: int) -> LoadPosition:
        """Where a batch ends, by its plan."""
        return read_end(self.storage, self.checkpoint, batch)

    def write_marked(self, rows: DataFrame, sink: Mapping[str, Any], number: int) -> None:
        """Write rows of a batch; where the table has that batch nothing is written.

        Args:
            rows: All of it.
            sink: A `LoadSink` that knows batches.
            number: Of the batch.
        """
        self.require_held()
        application, version = sink["marking"]
        writer = rows.write.format(sink["format"]).mode("append")
        writer = writer.option(application, self.query_id).option(version, number)
        if self.spec.columns_at_first is not None:
            writer = writer.options(**sink["widening"])
        writer.save(sink["location"])

    @property
    def query_id(self) -> str:
        """Under which its rows are written."""
        query = read_checkpoint(self.storage, self.checkpoint).query
        assert isinstance(query, QueryMetadata)  # its query has begun
        return query.query_id

    def keep_columns(self) -> None:
        """Note down the columns with which a chunk is committed."""
        if not self.is_kept:
            self._keep_spec()
            self.is_kept = True

    def keep(self, batch: int, rows: int, corrupt: int, parsed: int | None = None) -> None:
        """Note down and tell what a chunk has, as `ChunkCount` says it."""
        keep_count(self.storage, self.checkpoint, batch, ChunkCount(rows, corrupt, parsed))
        self.tell({"chunk": {"batch": batch, "rows": rows, "corrupt": corrupt}})

    def _tell_chunks(self, query: StreamingQuery, told: int) -> int:
        """Say which chunks were committed since; the newest of them.

        Of one that the sink had already no row is seen, as it is not run again: it is counted at the end.
        """
        for progress in query.recentProgress:
            batch = progress["batchId"]
            observed = (progress["observedMetrics"] or {}).get(_OBSERVED)
            if batch > told and observed is not None and observed["rows"]:
                told = batch
                self.keep_columns()
                self.keep(batch, observed["rows"], observed["corrupt"])
        return told


@contextlib.contextmanager
def set_up(spark: SparkSession) -> Iterator[None]:
    """Have a session as a load needs it, and as it was afterwards."""
    before = {name: spark.conf.get(name) for name in _SESSION_CONF}
    try:
        for name, value in _SESSION_CONF.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            spark.conf.set(name, was or "")


def add_source(spark: SparkSession) -> None:
    """Make the source known to a session; one that has loaded before knows it."""
    spark.createDataFrame([], f"{LINE} string")  # so it is the active one, of which Spark asks whether it knows it
    try:
        spark.dataSource.register(LoadSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _has_plain(source: LoadReader, begin: LoadPosition, end: LoadPosition) -> bool:
    """Whether a record between two positions is plain."""
    batches = (source.read_piece(each.piece) for each in source.list_partitions(begin, end))
    return any(map(is_plain, itertools.chain.from_iterable(batches)))


def _take_header(file: InputFile, options: Mapping[str, str]) -> InputFile:
    """A file that is read from its first line on."""
    with open_input(file) as read:
        mark = find_encoding(options, read, parse_location(file.location)).mark
        return replace(file, begins=len(mark) if read(0, len(mark)) == mark else 0)


def _read_columns_of_rows(spark: SparkSession, file: InputFile) -> StructType:
    """The columns that Spark's reader finds in a Parquet file; it is given the footer alone, which tells them."""
    location = parse_location(file.location)
    with tempfile.TemporaryDirectory(prefix="lastgood-load-") as folder:
        footer = Path(folder) / "footer.parquet"
        footer.write_bytes(read_footer(open_storage(location), location, file.size))
        return spark.read.parquet(str(footer)).schema


def explain_incomparable(spec: LoadSpec, columns: StructType) -> str | None:
    """Why what was loaded cannot be read again as it was then; None if it can.

    A record of CSV that was loaded before there were more columns is one with too few values now, which is corrupt.
    """
    if spec.columns_at_first is None or spec.form is not LoadFormat.CSV:
        return None
    keeps_corrupt = spec.options.get(_CORRUPT_OPTION, _CORRUPT_DEFAULT) in columns.fieldNames()
    if spec.mode is ParseMode.PERMISSIVE and not keeps_corrupt and not spec.drops_corrupt:
        return None  # it has null there, as in the table
    return "it has got columns since it began, and its first records would count as corrupt now"


def add_columns(known: StructType, found: StructType, *, are_in_order: bool) -> StructType:
    """The columns of a load, and behind them those that came since.

    Args:
        known: Those that it has.
        found: Those that are there now.
        are_in_order: Whether those that it has are the first of them; else their names tell, and one may be absent.

    Raises:
        LoadRefusedError: one that it has is absent or of another type, or two differ by capitals alone.
    """
    there = {each.name: each.dataType for each in found.fields}
    first = found.fieldNames()[: len(known)]
    if are_in_order and first != known.fieldNames():
        raise LoadRefusedError(
            "evolve", f"first the columns {', '.join(first)}, and not {', '.join(known.fieldNames())}"
        )
    for each in known.fields:
        kind = there.pop(each.name, each.dataType)
        if kind != each.dataType:
            found_type, known_type = kind.simpleString(), each.dataType.simpleString()
            raise LoadRefusedError("evolve", f"the column {each.name} as {found_type}, which was {known_type}")
    names = {each.lower(): each for each in known.fieldNames()}
    alike = next((name for name in there if name.lower() in names), None)
    if alike is not None:
        raise LoadRefusedError("evolve", f"the column {alike} beside {names[alike.lower()]}")
    return StructType([*known.fields, *(StructField(name, kind) for name, kind in there.items())])


def _find_difference_of_file(file: InputFile, columns: StructType, least: int) -> str | None:
    location = parse_location(file.location)
    with open_row_groups(open_storage(location), location, file.size) as opened:
        return find_difference(opened.schema_arrow, columns, least)


def _parse_csv(schema: StructType, options: Mapping[str, str]) -> Column:
    """As Spark's reader does it; a load ends where `from_csv` does otherwise, for which U+FFFF is a line end."""
    line = sf.col(LINE)
    text = line
    if are_multi_line(options):
        text = sf.when(
            line.startswith(_NORMALIZED), sf.replace(_take_sign_away(line), sf.lit(_NORMALIZED), sf.lit("\n"))
        )
        text = text.otherwise(line)
    checked = sf.when(line.contains(_LINE_END), _stop_load(_IS_LINE_END)).otherwise(text)
    return sf.from_csv(checked, _write_ddl(schema), {**options, MULTI_LINE: "false"})


def _take_sign_away(line: Column) -> Column:
    """A record without the sign of those in which Spark's parser makes line feeds of other line ends."""
    return sf.substring(line, len(_NORMALIZED) + 1, _LONGEST)


def _restore(corrupt: Column) -> Column:
    """A corrupt record as it lies in the file."""
    line = sf.col(LINE)
    return sf.when(corrupt.isNotNull() & line.startswith(_NORMALIZED), _take_sign_away(line)).otherwise(corrupt)


def _parse_json(schema: StructType, options: Mapping[str, str]) -> Column:
    """As Spark's reader does it; a load ends where `from_json` does otherwise.

    Of an array the reader makes several rows; before bytes that are not UTF-8 it may keep what it has.
    """
    line = sf.col(LINE)
    checked = (
        sf.when(line.rlike(_ARRAY), _stop_load(_IS_ARRAY))
        .when(~sf.is_valid_utf8(line), _stop_load(_NOT_UTF8))
        .otherwise(line)
    )
    return sf.from_json(checked, schema, dict(options))


def _stop_load(why: str) -> Column:
    return sf.raise_error(sf.concat(sf.lit(f"{_ENDED}{why}: "), sf.substring(sf.make_valid_utf8(LINE), 1, 60)))


def _choose(name: str, plain: str | None) -> Column:
    """A column of a record: of one that is plain as it came, else of its line."""
    parsed = sf.col("row").getField(name)
    if plain is None:
        return parsed
    return sf.when(sf.col(LINE).isNull(), sf.col(plain)).otherwise(parsed)


def count_rows(is_corrupt: Column) -> tuple[Column, Column]:
    """How many rows there are, and how many of them are corrupt."""
    return sf.count(sf.lit(1)).alias("rows"), sf.count(sf.when(is_corrupt, 1)).alias("corrupt")


def select_column(column: str) -> Column:
    """One whose name may have any sign in it."""
    return sf.col(f"`{column.replace('`', '``')}`")


def _write_ddl(schema: StructType) -> str:
    return ", ".join(f"`{each.name.replace('`', '``')}` {each.dataType.simpleString()}" for each in schema.fields)


def find_reason(error: BaseException) -> str:
    """What an error says of its reason, in one line: what has ended the load, else the error of a worker or of Java."""
    told = str(error).strip()
    named = [*_REASON.findall(told), *_OWN_REASON.findall(told)]
    reason = named[-1] if named else told.partition("\n")[0].rpartition(_STREAM_FAILED)[2]
    return reason[:500]


def explain_failure(error: BaseException) -> dict[str, str]:
    """What the job tells of an error of Spark, or one of ours: its `kind`, and what was `found`."""
    if isinstance(error, LastgoodError):
        return _explain_own(error)
    told, found = str(error), find_reason(error)
    cause = vars(error).get("_cause")  # as PySpark has it of an error of Java; no method tells it
    if _OF_DATABASE in found and cause is not None:
        told = vars(error).get("_stackTrace") or told
        found = f"{found}: {find_reason(cause)}"
    return explain_lack(classify_causes(read_causes(told))) or {"kind": "failed", "found": found}


def _explain_own(error: LastgoodError) -> dict[str, str]:
    """As `explain_failure`, of an error that names its place and its cause itself."""
    kind = TRANSIENT if error.retry is Retry.LATER else "own"
    return {"kind": kind, "found": tell_whole(error)}
