"""The lines of the files of a load, as a streaming source of Spark 4.2 and later: imported by its Pythons.

Its offset is a position in the files, on the begin of a line. What a batch reads is cut into pieces of equal size; a
task reads the lines that begin in its piece. Where its options tell columns, plain records come by their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from lastgood.load.input_files import find_line_end
from lastgood.load.ranges import (
    LoadPosition,
    Piece,
    begin_of,
    find_end_of_chunk,
    list_pieces,
    read_lines,
    read_position,
)
from lastgood.load.specification import InputFile
from lastgood.load.unpacking import open_input
from lastgood.notes import read_json
from lastgood.spark.load_columns import LINE, PlainColumns, find_plain_columns, make_line_batches, name_column
from lastgood.storage.reading import open_storage, parse_location

NAME = "lastgood"
_SEPARATORS = tuple(bytes([each]) for each in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 28, 29, 30, 31))
"""Bytes that a text has seldom: one that a block has not can stand for what separates columns."""
_BOM = b"\xef\xbb\xbf"
_LINES = pa.schema([(LINE, pa.string())])


class LoadPartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece


class LoadReader:
    """What both readers do."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.files = [InputFile.from_json(each) for each in read_json(options["files"])]
        self.chunk = int(options["chunk"])
        self.tasks = int(options["tasks"])
        self.columns = read_columns(options)

    def list_partitions(self, start: LoadPosition, end: LoadPosition) -> Sequence[LoadPartition]:
        """Those of a range."""
        return [LoadPartition(piece) for piece in list_pieces(self.files, start, end, self.tasks)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The lines of a piece, without their ends."""
        if not isinstance(partition, LoadPartition):
            return  # where there is none to read, Spark has one of its own read
        piece: Piece = partition.piece
        file = self.files[piece.file]
        location = parse_location(file.location)
        storage = open_storage(location)
        found = storage.stat(location)
        if found is None or (found.size, found.modified_ms) != (file.size, file.modified_ms):
            raise RuntimeError(f"{file.location} was changed while it was loaded")

        try:
            with open_input(file) as read:
                for lines in read_lines(piece, read):
                    yield from self._split(lines)
        except EOFError as error:
            raise RuntimeError(f"{file.location} was cut off while it was loaded") from error

    def _split(self, lines: bytes) -> Iterator[pa.RecordBatch]:
        plain = self.columns.read(lines) if self.columns is not None else None
        if plain is not None:
            yield from plain
            return
        schema = self.columns.schema if self.columns is not None else _LINES
        for some in split_lines(lines):
            yield from make_line_batches(some, schema)


class LoadStream(LoadReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads chunk after chunk."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark calls it so
        """Nothing: the files are those that were looked at before."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A chunk."""
        return ReadMaxBytes(self.chunk)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The first record."""
        return begin_of(self.files).to_json()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where a chunk ends that begins there."""
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return find_end_of_chunk(self.files, LoadPosition.from_json(start), most, find_end_of_line).to_json()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """What the tasks of a batch read."""
        return self.list_partitions(LoadPosition.from_json(start), LoadPosition.from_json(end))


class LoadRange(LoadReader, DataSourceReader):
    """Reads one range once more, to count it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.start, self.end = (read_position(options[name]) for name in ("start", "end"))

    def partitions(self) -> Sequence[InputPartition]:
        """What its tasks read."""
        return self.list_partitions(self.start, self.end)


class LoadSource(DataSource):
    """The source by its name; its options come from the job of the load."""

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return NAME

    def schema(self) -> StructType:
        """A record a row: its columns where it is plain, else its line."""
        told = StructType()
        if "columns" in self.options:
            told = StructType.fromJson(read_json(self.options["columns"]))
        fields = [StructField(name_column(at), field.dataType) for at, field in enumerate(told.fields)]
        return StructType([*fields, StructField(LINE, StringType())])

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """All of it, chunk by chunk."""
        del schema
        return LoadStream(self.options)

    def reader(self, schema: Any) -> DataSourceReader:
        """One range."""
        del schema
        return LoadRange(self.options)


def read_columns(options: Mapping[str, str]) -> PlainColumns | None:
    """The columns of plain records, as the options of the source tell them."""
    if "columns" not in options:
        return None
    schema = StructType.fromJson(read_json(options["columns"]))
    return find_plain_columns(schema, read_json(options["parsing"]), options["zone"])


def find_end_of_line(file: InputFile, position: int) -> int:
    """Where the line ends that has a position in it."""
    with open_input(file) as read:
        return find_line_end(read, position, file.length)


def split_lines(lines: bytes) -> Iterator[pa.StringArray]:
    """Many lines, each a row, without their ends: line feed, carriage return, or both.

    Bytes that are not UTF-8 stay: what is to become of them Spark decides, as its own readers do.
    """
    separator = next((each for each in _SEPARATORS if each not in lines), None)
    if separator is None or lines.startswith(_BOM):  # which Arrow would take away, also in the midst of a file
        yield pa.array(lines.splitlines(), pa.binary()).view(pa.string())
        return
    found = pyarrow.csv.read_csv(
        pa.BufferReader(lines),
        read_options=pyarrow.csv.ReadOptions(column_names=[LINE], use_threads=False, block_size=len(lines) + 1),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=separator.decode(), quote_char=False, escape_char=False, ignore_empty_lines=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={LINE: pa.binary()}, check_utf8=False, strings_can_be_null=False
        ),
    )
    for chunk in found[LINE].chunks:
        yield chunk.view(pa.string())
