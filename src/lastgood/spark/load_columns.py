"""Plain records of CSV, read by Arrow, which is faster; every other record is handed on as a line, for Spark to read.

A record is plain where each value of it is empty, or written in the plain form of its type: a form so narrow that Arrow
and Spark's own reader cannot but read the same (`tests/spark/test_load_plain.py`). What is quoted or escaped never is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyspark.sql import types as st

from lastgood.frozen import dataclass
from lastgood.load.encoding import ENCODING
from lastgood.load.quoting import find_separator
from lastgood.spark.load_forms import PlainForm, find_form

ROWS_MAX: Final = 10_000
"""Rows of a batch of Arrow: it is held twice while Spark reads it."""
LINE: Final = "value"
"""The column of the records that are handed on as lines."""
_NAME = "c{}"
_SHARE_LEAST = 0.25
"""Where fewer are plain, to put the others together again takes longer than is won."""
_COLUMNS_LEAST = 2
"""Of one column a blank record cannot be told from a record that is blank."""
_COLUMNS_MOST = 2_000
_SEPARATORS = (",", ";", "|", "\t")
_OPTIONS = frozenset({"header", "sep", "delimiter", "columnNameOfCorruptRecord", "multiLine", *ENCODING})
"""Options with which a plain record is read as without."""
_QUOTING = frozenset({("quote", '"'), ("escape", '"'), ("escape", "\\")})
"""So are these, of signs that it has not."""
_RARE = bytes({*range(32), 127} - set(b"\t\n\r"))
"""Bytes of which nobody knows what a parser makes."""
_BOM = b"\xef\xbb\xbf"
_BLANK = r"^[\x00-\x20]*$"


@dataclass(frozen=True, slots=True)
class PlainColumns:
    """The columns of plain records."""

    forms: tuple[PlainForm, ...]
    separator: str

    @property
    def schema(self) -> pa.Schema:
        """Of what is read: the columns, and the line of a record that is not plain."""
        fields = [(name_column(at), form.kind) for at, form in enumerate(self.forms)]
        return pa.schema([*fields, (LINE, pa.string())])

    def read(self, lines: bytes) -> Iterator[pa.RecordBatch] | None:
        """The records of whole lines, those that are plain by their columns; None if none can be, or hardly any is."""
        if lines.startswith(_BOM) or len(lines.translate(None, _RARE)) < len(lines) or not _is_utf8(lines):
            return None
        odd: list[str] = []
        texts = self._split(lines, odd)
        values = [form.take_at_once(column) for form, column in zip(self.forms, texts.columns, strict=True)]
        plain = self._find_plain(texts, values)
        found = texts.num_rows if plain is None else pc.sum(plain).as_py() or 0
        if found < _SHARE_LEAST * (texts.num_rows + len(odd)):
            return None
        if plain is not None:
            others = texts.filter(pc.invert(plain))
            odd += pc.binary_join_element_wise(*others.columns, self.separator).to_pylist()
            texts = texts.filter(plain)
            values = [_select_plain(taken, plain) for taken in values]
        return self._list_batches(texts, values, odd)

    def _split(self, lines: bytes, odd: list[str]) -> pa.RecordBatch:
        """The values as texts; a record with another number of them goes to the odd ones."""

        def keep(row: pyarrow.csv.InvalidRow) -> str:
            odd.append(row.text)
            return "skip"

        names = [name_column(at) for at in range(len(self.forms))]
        found = pyarrow.csv.read_csv(
            pa.BufferReader(lines),
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(lines) + 1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.separator, quote_char=False, escape_char=False, invalid_row_handler=keep
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), check_utf8=False, strings_can_be_null=False
            ),
        )
        return pa.RecordBatch.from_arrays([column.combine_chunks() for column in found.columns], names)

    def _find_plain(self, texts: pa.RecordBatch, values: Sequence[pa.Array | None]) -> pa.BooleanArray | None:
        """Which records are plain, by the columns that were not taken at once; None if all are."""
        plain = None
        if self.separator.isspace():
            # A record of nothing else is blank, and none for Spark.
            plain = pc.invert(pc.match_substring_regex(texts.column(0), _BLANK))
        for form, column, taken in zip(self.forms, texts.columns, values, strict=True):
            if taken is None:
                fits = form.find_fitting(column)
                plain = fits if plain is None else pc.and_(plain, fits)
        return None if plain is None or pc.all(plain).as_py() else plain

    def _list_batches(
        self, texts: pa.RecordBatch, values: Sequence[pa.Array | None], odd: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        parts = zip(self.forms, texts.columns, values, strict=True)
        columns = [_parse_rest(form, column, taken) for form, column, taken in parts]
        columns.append(pa.nulls(texts.num_rows, pa.string()))
        plain = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        for begin in range(0, plain.num_rows, ROWS_MAX):
            yield plain.slice(begin, ROWS_MAX)
        yield from make_line_batches(pa.array(odd, pa.string()), self.schema)


def make_line_batches(lines: pa.Array, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Records that are handed on as lines: their columns are null, but for that."""
    kinds = schema.types[:-1]  # the line is the last one
    for begin in range(0, len(lines), ROWS_MAX):
        some = lines[begin : begin + ROWS_MAX]
        nulls = [pa.nulls(len(some), kind) for kind in kinds]
        yield pa.RecordBatch.from_arrays([*nulls, some], schema=schema)


def is_plain(batch: pa.RecordBatch) -> bool:
    """Whether its records are by their columns; else they are lines."""
    return LINE not in batch.schema.names or batch[LINE].null_count == batch.num_rows


def name_column(at: int) -> str:
    """What the source calls a column, whose own name may be anything."""
    return _NAME.format(at)


def find_plain_columns(schema: st.StructType, options: Mapping[str, str], zone: str) -> PlainColumns | None:
    """The columns as Arrow can read plain records of them; None where it is not shown that Spark reads the same.

    Args:
        schema: Of the records, without a column for those that are corrupt.
        options: Those of Spark's reader.
        zone: The time zone of the session.
    """
    forms = [find_form(field.dataType, zone) for field in schema.fields]
    found = [form for form in forms if form is not None]
    separator = find_separator(options)
    is_told_twice = options.keys() >= {"sep", "delimiter"}
    others = options.items() - _QUOTING
    is_plain = {name for name, _ in others} <= _OPTIONS and separator in _SEPARATORS and not is_told_twice
    if not is_plain or len(found) < len(forms) or not _COLUMNS_LEAST <= len(forms) <= _COLUMNS_MOST:
        return None
    return PlainColumns(tuple(found), separator)


def _select_plain(taken: pa.Array | None, plain: pa.BooleanArray) -> pa.Array | None:
    return None if taken is None else taken.filter(plain)


def _parse_rest(form: PlainForm, texts: pa.StringArray, taken: pa.Array | None) -> pa.Array:
    """The values of a column, unless it was taken at once."""
    return form.parse(texts) if taken is None else taken


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
