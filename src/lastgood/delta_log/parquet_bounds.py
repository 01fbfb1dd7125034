"""What a Parquet file would take once it is unpacked, told by the headers of its pages before anything is. Pure.

What the footer says is not enough: pyarrow makes room for what the header of each page tells, a page of one text and a
million references to it is a million texts, and a row may hold a list of any length.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from lastgood.frozen import dataclass

VALUES_FREE = 1_000_000
BYTES_FREE = 256 * 1024 * 1024
"""So many values of a column, and bytes of what is read, may any file have; a larger one as many as it has bytes."""
_PAGE_TYPE, _UNPACKED, _PACKED = 1, 2, 3
_OF_KIND = {5: 2, 7: None, 8: 4}
"""The headers of data pages, dictionary pages and data pages of version 2: in which field their encoding stands."""
_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7
_DEPTH_MAX = 16
_FIXED_BYTES = {3: 1, 7: 8}
_TRUE, _FALSE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 8, 9, 10, 12


class PageError(ValueError):
    """The headers of pages are not as Parquet has them."""


class Page(NamedTuple):
    """What the header of a page tells."""

    is_dictionary: bool
    unpacked_bytes: int
    values: int
    repeats: bool
    """Whether a few bytes of it may stand for a long text: its texts go on where the one before it began alike."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reading some columns may take at most."""

    excess: str | None
    """What there is too much of; None if nothing is."""
    rows_at_once: int
    """With so many rows, what is read at once stays within the bounds."""
    bytes_max: int


def measure_bounds(raw: bytes, metadata: Any, columns: AbstractSet[str]) -> Bounds:
    """How much of a file may be read, and how.

    Args:
        raw: The file.
        metadata: Its footer, as pyarrow has it.
        columns: Names of the columns that are to be read; of a part of one its path, such as `add.path`.

    Raises:
        PageError: pages are not where, or what, the footer says.
    """
    bytes_max, values_max = max(BYTES_FREE, len(raw)), max(VALUES_FREE, len(raw))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [
        (group.num_rows, group.column(number), metadata.schema.column(number))
        for group in groups
        for number in range(group.num_columns)
        if not columns.isdisjoint(_make_names(group.column(number).path_in_schema))
    ]
    unpacked, widest = 0, 0
    values: dict[str, int] = {}
    for rows, chunk, column in chunks:
        pages = list(_read_pages(raw, chunk))
        name = chunk.path_in_schema
        unpacked += sum(page.unpacked_bytes for page in pages)
        held = sum(page.values for page in pages if not page.is_dictionary)
        values[name] = values.get(name, 0) + held
        repeated = [page.unpacked_bytes for page in pages if page.is_dictionary or page.repeats]
        width = max(repeated, default=0)
        widest = max(widest, width)
        more = held - rows
        if column.max_repetition_level and max(0, more) * width > bytes_max:
            return Bounds(f"{name}: {more} values in lists, of up to {width} bytes", 0, bytes_max)
    most = max(values, key=lambda name: values[name], default=None)
    if most is not None and values[most] > values_max:
        return Bounds(f"{most}: {values[most]} values in {len(raw)} bytes", 0, bytes_max)
    if unpacked > bytes_max:
        return Bounds(f"{unpacked} bytes unpacked", 0, bytes_max)
    return Bounds(None, max(1, bytes_max // max(1, widest)), bytes_max)


def _make_names(path: str) -> tuple[str, str]:
    return path, path.partition(".")[0]


def _read_pages(raw: bytes, chunk: Any) -> Iterator[Page]:
    """The pages of a column, as far as a reader goes."""
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    at, end, left = begin, begin + chunk.total_compressed_size, chunk.num_values
    if not 0 <= begin <= end <= len(raw):
        raise PageError(f"{chunk.path_in_schema}: not in the file")
    while at < end and left > 0:
        header = _Header(raw, at, end)
        fields = header.struct(_DEPTH_MAX)
        page = _parse_page(fields)
        packed = fields.get(_PACKED)
        if not isinstance(packed, int) or not 0 <= packed <= end - header.at:
            raise PageError(f"{chunk.path_in_schema}: a page that ends behind its column")
        yield page
        left -= 0 if page.is_dictionary else page.values
        at = header.at + packed


def _parse_page(fields: dict[int, Any]) -> Page:
    kinds = [number for number in _OF_KIND if isinstance(fields.get(number), dict)]
    kind = None
    if kinds:
        kind = kinds[0]
    unpacked = fields.get(_UNPACKED)
    if kind is None or not isinstance(unpacked, int) or unpacked < 0:
        raise PageError("a page of no known kind")
    values, encoding = fields[kind].get(1), fields[kind].get(_OF_KIND[kind] or 0)
    if not isinstance(values, int) or values < 0:
        raise PageError("a page of less than no values")
    return Page(fields.get(_PAGE_TYPE) == _DICTIONARY_PAGE, unpacked, values, encoding == _DELTA_BYTE_ARRAY)


class _Header:
    """Reads a struct of Thrift's compact protocol, in which the header of a page is written."""

    def __init__(self, raw: bytes, at: int, end: int) -> None:
        """Read from `at` on, up to `end` at most."""
        self._raw = raw
        self._end = end
        self.at = at
        """Where the next byte is."""

    def struct(self, depth: int) -> dict[int, Any]:
        """The fields that are numbers, truths or structs; others are skipped.

        Raises:
            PageError: it is none.
        """
        if depth == 0:
            raise PageError("a header that is too deep")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            if head >> 4:
                number = number + (head >> 4)
            else:
                number = self._number()
            fields[number] = self._value(head & 0xF, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (4, 5, 6):
            return self._number()
        if kind == _STRUCT:
            return self.struct(depth - 1)
        self._skip(kind, depth)
        return None

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _FIXED_BYTES:
            self._go_on(_FIXED_BYTES[kind])
        elif kind == _BINARY:
            self._go_on(self._varint())
        elif kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 0xF else head >> 4):
                self._element(head & 0xF, depth)
        else:
            raise PageError("a header with a field of no known type")

    def _element(self, kind: int, depth: int) -> None:
        if kind in (_TRUE, _FALSE):  # in a list they have a byte of their own
            self._go_on(1)
        else:
            self._value(kind, depth)

    def _number(self) -> int:
        told = self._varint()
        return (told >> 1) ^ -(told & 1)

    def _varint(self) -> int:
        told = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            told |= (byte & 0x7F) << shift
            if byte < 0x80:
                return told
        raise PageError("a header with a number that has no end")

    def _byte(self) -> int:
        self._go_on(1)
        return self._raw[self.at - 1]

    def _go_on(self, count: int) -> None:
        if count > self._end - self.at:
            raise PageError("a header that ends behind its column")
        self.at += count
