"""Who reads the files of a load, by how they are written: where a chunk ends, how it is cut, what a task reads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
from pyspark.sql.types import StringType, StructField, StructType

from lastgood.load.encoding import find_encoding
from lastgood.load.quoting import Quoting, are_multi_line, find_quoting
from lastgood.load.ranges import Piece, cut_anywhere, find_line_end, read_lines
from lastgood.load.row_groups import list_begins, open_row_groups
from lastgood.load.specification import InputFile
from lastgood.load.text import TextEncoding
from lastgood.load.unpacking import Read, open_input
from lastgood.notes import read_json
from lastgood.spark.load_columns import LINE, PlainColumns, find_plain_columns, make_line_batches
from lastgood.spark.load_parquet import name_columns, read_rows
from lastgood.storage.reading import open_storage, parse_location

_SEPARATORS = tuple(bytes([each]) for each in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 28, 29, 30, 31))
"""Bytes that a text has seldom: one that a block has not can stand for what separates columns."""
_BOM = b"\xef\xbb\xbf"
NORMALIZED = b"\r\n"
"""Where lines end so Spark's parser makes a line feed of it within quotes. A record that has it there comes with a
sign: one before its beginning, where no record has any."""
_LINES = pa.schema([(LINE, pa.string())])


class PieceReader(Protocol):
    """Reads files that are written in one way."""

    columns: StructType
    """Of the records."""

    def find_schema(self) -> StructType:
        """The columns of what it reads."""
        ...

    def find_end(self, file: InputFile, begin: int, position: int) -> int:
        """Where the record ends that has a position in it, from a position on where one begins."""
        ...

    def cut(self, file: InputFile, piece: Piece, size: int) -> Iterable[Piece]:
        """A piece, cut into some of about a size, in bytes."""
        ...

    def read(self, file: InputFile, piece: Piece) -> Iterator[pa.RecordBatch]:
        """What one has."""
        ...


class LineReader:
    """A record is a line: it comes by its columns where it is plain, else as a line."""

    def __init__(self, columns: StructType, plain: PlainColumns | None, options: Mapping[str, str]) -> None:
        self.columns, self.plain, self.options = columns, plain, options
        self.lines_schema = _LINES if plain is None else plain.schema

    def find_schema(self) -> StructType:
        """The columns, if they are any, and the line."""
        return StructType([*name_columns(self.columns).fields, StructField(LINE, StringType())])

    def find_end(self, file: InputFile, begin: int, position: int) -> int:
        """Where the line ends."""
        del begin
        with open_input(file) as read:
            return find_line_end(read, position, file.length, self._find_encoding(file, read))

    def cut(self, file: InputFile, piece: Piece, size: int) -> Iterable[Piece]:
        """Anywhere."""
        del file
        return cut_anywhere(piece, size)

    def read(self, file: InputFile, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The lines that begin in it."""
        with open_input(file) as read:
            encoding = self._find_encoding(file, read)
            for lines in read_lines(piece, read, encoding):
                yield from self.split(encoding.to_utf8(lines))

    def _find_encoding(self, file: InputFile, read: Read) -> TextEncoding:
        return find_encoding(self.options, read, parse_location(file.location))

    def split(self, lines: bytes) -> Iterator[pa.RecordBatch]:
        """Many lines."""
        plain = self.plain.read(lines) if self.plain is not None else None
        if plain is not None:
            yield from plain
            return
        for some in split_lines(lines):
            yield from make_line_batches(some, self.lines_schema)


class RecordReader(LineReader):
    """A record may have line ends within quotes."""

    def find_end(self, file: InputFile, begin: int, position: int) -> int:
        """Where the record ends, if all are regular."""
        with open_input(file) as read:
            return self._find_quoting(file, read).find_end(read, begin, position, file.length)

    def cut(self, file: InputFile, piece: Piece, size: int) -> Iterable[Piece]:
        """Between records."""
        with open_input(file) as read:
            yield from self._find_quoting(file, read).list_pieces(piece, read, size)

    def read(self, file: InputFile, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The records in it, each of which is regular."""
        with open_input(file) as read:
            found = self._find_quoting(file, read)
            give = add_sign if found.line_end == NORMALIZED else bytes
            for lines, records in found.read_piece(piece, read):
                if lines:
                    yield from self.split(lines)
                given = [give(each) for each in records]
                yield from make_line_batches(pa.array(given, pa.binary()).view(pa.string()), self.lines_schema)

    def _find_quoting(self, file: InputFile, read: Read) -> Quoting:
        return find_quoting(self.options, read, parse_location(file.location))


class RowReader:
    """A chunk has whole row groups of Parquet."""

    def __init__(self, columns: StructType) -> None:
        self.columns = columns

    def find_schema(self) -> StructType:
        """The columns."""
        return name_columns(self.columns)

    def find_end(self, file: InputFile, begin: int, position: int) -> int:
        """Where the next row group begins, or the file ends."""
        del begin
        location = parse_location(file.location)
        with open_row_groups(open_storage(location), location, file.size) as opened:
            begins = list_begins(opened, location)
        behind = bisect_right(begins, position)
        return begins[behind] if behind < len(begins) else file.size

    def cut(self, file: InputFile, piece: Piece, size: int) -> Iterable[Piece]:
        """Anywhere."""
        del file
        return cut_anywhere(piece, size)

    def read(self, file: InputFile, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of the row groups that begin in it."""
        location = parse_location(file.location)
        with open_row_groups(open_storage(location), location, file.size) as opened:
            yield from read_rows(opened, list_begins(opened, location), piece, self.columns)


def find_reader(options: Mapping[str, str]) -> PieceReader:
    """Who reads what the options of the source tell."""
    columns = StructType.fromJson(read_json(options["columns"])) if "columns" in options else StructType()
    if options["form"] == "parquet":
        return RowReader(columns)
    parsing = read_json(options["parsing"])
    plain = find_plain_columns(columns, parsing, options["zone"])
    if are_multi_line(parsing):
        return RecordReader(columns, plain, parsing)
    return LineReader(columns, plain, parsing)


def add_sign(record: bytes) -> bytes:
    """A record, with the sign before it if it has a line end within quotes that Spark's parser does not leave."""
    return NORMALIZED + record if NORMALIZED in record else record


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
