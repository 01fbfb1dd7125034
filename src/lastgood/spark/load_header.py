"""Files of CSV whose first line is passed over as a header, and is none: their first record would be lost."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from lastgood.load.encoding import find_encoding
from lastgood.load.quoting import find_separator
from lastgood.load.specification import InputFile
from lastgood.load.unpacking import open_input
from lastgood.spark.load_forms import PlainForm, find_form
from lastgood.storage.reading import parse_location

_LONGEST = 1024 * 1024
_SHOWN = 60


def find_false_header(
    files: Iterable[InputFile], columns: StructType, options: Mapping[str, str], zone: str
) -> str | None:
    """Which file has a record where its header should be, and which; None if that is seen of none.

    It is one if each value in a column that is no text has the plain form of that column's type, and is not its name.
    Of texts alone nobody can tell.

    Args:
        files: Those of which the header was not passed over yet.
        columns: Of a record.
        options: Those of Spark's reader.
        zone: The time zone of the session.
    """
    separator = find_separator(options)
    if options.get("header", "").lower() != "true" or not separator:
        return None
    forms = {}
    for at, field in enumerate(columns):
        form = find_form(field.dataType, zone)
        if form is not None and field.dataType != StringType():
            forms[at] = form
    for file in files if forms else ():
        line = _read_header(file, options)
        values = _cut(line, separator)
        if len(values) == len(columns) and _is_record(values, forms, columns.fieldNames()):
            return f"{file.location}: {line[:_SHOWN]}"
    return None


def _cut(line: str, separator: str) -> list[str]:
    if len(separator) > 1:
        return line.split(separator)
    return next(csv.reader([line], delimiter=separator), [])


def _is_record(values: list[str], forms: Mapping[int, PlainForm], names: list[str]) -> bool:
    told = {at: values[at] for at in forms if values[at]}
    are_names = all(value.lower() == names[at].lower() for at, value in told.items())
    return bool(told) and not are_names and all(_is_plain(value, forms[at]) for at, value in told.items())


def _is_plain(value: str, form: PlainForm) -> bool:
    return bool(form.find_fitting(pa.array([value]))[0].as_py())


def _read_header(file: InputFile, options: Mapping[str, str]) -> str:
    """The last line before the first record: blank ones and comments may stand before it."""
    with open_input(file) as read:
        passed = read(max(0, file.begins - _LONGEST), min(file.begins, _LONGEST))
        encoding = find_encoding(options, read, parse_location(file.location))
    text = passed.decode(encoding.codec, errors="replace")
    return text.removeprefix("\ufeff").rstrip("\r\n").replace("\r", "\n").rpartition("\n")[2]
