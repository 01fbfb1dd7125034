"""The row groups of a Parquet file, which a load reads whole, one after the other.

A position of such a file is the byte at which a row group begins, or its end.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from lastgood.errors import ExtraMissingError, UsageError
from lastgood.load.seekable import SeekableFile
from lastgood.storage.reading import Location, Storage

PARQUET_MARK = b"PAR1"
"""The first and the last bytes of a file."""
_LENGTH_BYTES = 4
_BUFFER = 1024 * 1024
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK = b"org.apache.spark.version"


@contextlib.contextmanager
def open_row_groups(storage: Storage, location: Location, size: int) -> Iterator[Any]:
    """A Parquet file, as a `pyarrow.parquet.ParquetFile` that reads little at a time.

    Raises:
        UsageError: it is none, or is damaged.
        ExtraMissingError: a part is not installed.
        StorageError: it cannot be read (subclasses).
    """
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ExtraMissingError(extra="load", module="pyarrow", needed_for="Parquet files") from error
    file = SeekableFile(storage, location, size)
    try:
        opened = parquet.ParquetFile(
            file,
            buffer_size=_BUFFER,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )
    except (arrow.ArrowException, OSError, ValueError) as error:
        found = str(error).partition("\n")[0]
        raise UsageError("a file is no Parquet", subject=str(location), found=found, expected="Parquet") from error
    with opened:
        yield opened


def list_begins(opened: Any, location: Location) -> list[int]:
    """Where the row groups of an opened file begin.

    Raises:
        UsageError: they do not follow each other.
    """
    metadata = opened.metadata
    begins = [_find_begin(metadata.row_group(at)) for at in range(metadata.num_row_groups)]
    if any(after <= before for before, after in pairwise(begins)):
        raise UsageError(
            "the row groups of a file do not follow each other",
            subject=str(location),
            expected="row groups in the order in which they lie in the file",
        )
    return begins


def _find_begin(row_group: Any) -> int:
    columns = [row_group.column(at) for at in range(row_group.num_columns)]
    return min(_find_begin_of_column(each) for each in columns)


def _find_begin_of_column(column: Any) -> int:
    # Some writers say 0 where there is no dictionary.
    pages = [column.data_page_offset, column.dictionary_page_offset or column.data_page_offset]
    return int(min(pages))


def require_known_calendar(opened: Any, location: Location) -> None:
    """See that dates are written as the calendar of today has them, for all that the file says.

    Raises:
        UsageError: Spark before 3.0 has written it, or a later one as these did.
    """
    told = opened.metadata.metadata or {}
    old = next((each.decode() for each in _OLD_CALENDAR if each in told), None)
    version = told.get(_SPARK, b"").decode(errors="replace")
    if old is None and version.startswith(("1.", "2.", "3.0.")):
        old = f"Spark {version}"
    if old is not None:
        raise UsageError(
            "a file may have dates of the calendar before 1582",
            subject=str(location),
            found=old,
            expected="a file of Spark 3.1 or later, or of another writer",
            next="write it anew with Spark, and load that",
        )


def read_footer(storage: Storage, location: Location, size: int) -> bytes:
    """A Parquet file that has the footer of this one, and no rows: what tells its schema.

    Raises:
        StorageError: it cannot be read (subclasses).
    """
    file = SeekableFile(storage, location, size)
    file.seek(size - len(PARQUET_MARK) - _LENGTH_BYTES)
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    file.seek(size - len(PARQUET_MARK) - _LENGTH_BYTES - length)
    return PARQUET_MARK + file.read(length + _LENGTH_BYTES + len(PARQUET_MARK))
