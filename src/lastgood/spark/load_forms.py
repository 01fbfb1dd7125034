"""The plain forms of values in CSV: so narrow that Arrow and Spark's own reader cannot but read the same.

`tests/spark/test_load_plain.py` shows that they do, and `tests/unit/spark/test_load_forms.py` that of a column that is
taken at once each value has the plain form.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

from lastgood.frozen import dataclass

_NUMBER_SIGNS = range(ord("-"), ord("9") + 1)
"""Digits, minus, point, and a slash, with which no text is a value."""
_LEAP_YEAR = r"(?:19(?:0[48]|[2468][048]|[13579][26])|20(?:[02468][048]|[13579][26]))"
_DATE = (
    r"(?:(?:19|20)[0-9]{2}-"
    r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    rf"|{_LEAP_YEAR}-02-29)"
)
_DATE_SIZE = len("2026-03-01")
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_TIME_SIZES = range(len("2026-03-01 10:00:00"), len("2026-03-01 10:00:00.123456") + 1)
_FIRST_DAY = datetime.date(1900, 1, 1)
_LAST_DAY = datetime.date(2099, 12, 31)
_UTC = frozenset({"UTC", "Etc/UTC", "GMT"})
_MARKS = ('"', "\\")
"""What quotes or escapes: a text with one is not plain."""


@dataclass(frozen=True, slots=True)
class PlainForm:
    """How the values of a type are written plainly; an empty one, which is null, always is."""

    pattern: str | None
    """A regular expression that fits all of it; None: as it likes, but for quotes and escapes."""
    kind: pa.DataType
    """What Arrow makes of it."""
    take: Callable[[PlainForm, pa.StringArray], pa.Array | None]
    """See `take_at_once`."""
    before: int = 0
    """Digits before the point, at most, of a number."""
    behind: int = 0
    """And behind it."""
    needs_zone: bool = True
    """Of a time."""

    def take_at_once(self, texts: pa.StringArray) -> pa.Array | None:
        """The values of a column, if it is sure that each has the plain form; None if each has to be looked at.

        What is sure is found out by a few looks at all of them, which takes a tenth of the time.
        """
        try:
            return self.take(self, texts)
        except pa.ArrowInvalid:  # one of them is no value of this type
            return None

    def find_fitting(self, texts: pa.StringArray) -> pa.BooleanArray:
        """Which texts have the plain form."""
        if self.pattern is not None:
            return pc.match_substring_regex(texts, f"^(?:{self.pattern})?$")
        has_quote, has_escape = (pc.match_substring(texts, mark) for mark in _MARKS)
        return pc.invert(pc.or_(has_quote, has_escape))

    def parse(self, texts: pa.StringArray) -> pa.Array:
        """The values of plain texts."""
        filled = fill_with_null(texts)
        if pa.types.is_timestamp(self.kind):
            return pc.assume_timezone(pc.utf8_rtrim(filled, "Z").cast(pa.timestamp("us")), "UTC")
        return filled.cast(self.kind)


def fill_with_null(texts: pa.StringArray) -> pa.StringArray:
    """Null where nothing is written."""
    sizes = pc.binary_length(texts)
    return texts if pc.index(sizes, 0).as_py() < 0 else pc.if_else(pc.equal(sizes, 0), None, texts)


def _join(texts: pa.StringArray) -> bytes:
    """All that is written, one behind the other."""
    _, ends, content = texts.buffers()
    if content is None or not len(texts):
        return b""
    at = memoryview(ends).cast("i")
    return memoryview(content)[at[texts.offset] : at[texts.offset + len(texts)]].tobytes()


def _has_number_signs_only(content: bytes) -> bool:
    found = pc.min_max(pa.Array.from_buffers(pa.uint8(), len(content), [None, pa.py_buffer(content)])).as_py()
    return not content or (found["min"] in _NUMBER_SIGNS and found["max"] in _NUMBER_SIGNS)


def _take_texts(form: PlainForm, texts: pa.StringArray) -> pa.Array | None:
    del form
    content = _join(texts)
    has_marks = any(mark.encode() in content for mark in _MARKS)
    return None if has_marks else fill_with_null(texts)


def _take_whole_numbers(form: PlainForm, texts: pa.StringArray) -> pa.Array | None:
    """A minus counts as a digit, which it may: it is seen that there are not too many."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    content = _join(texts)
    if longest > form.before or b"." in content or not _has_number_signs_only(content):
        return None
    return form.parse(texts)


def _take_numbers(form: PlainForm, texts: pa.StringArray) -> pa.Array | None:
    content = _join(texts)
    if not _has_number_signs_only(content) or b"-." in content:
        return None
    sizes = pc.binary_length(texts)
    points = pc.find_substring(texts, ".")
    before = pc.if_else(pc.less(points, 0), sizes, points)
    from_point = pc.subtract(sizes, before)
    begins_with_point, ends_with_point = pc.index(points, 0).as_py() >= 0, pc.index(from_point, 1).as_py() >= 0
    is_long = (pc.max(before).as_py() or 0) > form.before or (pc.max(from_point).as_py() or 0) > form.behind + 1
    return None if begins_with_point or ends_with_point or is_long else form.parse(texts)


def _take_booleans(form: PlainForm, texts: pa.StringArray) -> pa.Array | None:
    del form
    is_true, is_false, is_empty = (pc.equal(texts, word) for word in ("true", "false", ""))
    if not pc.all(pc.or_(pc.or_(is_true, is_false), is_empty), min_count=0).as_py():
        return None
    return pc.if_else(is_empty, None, is_true)


def _take_dates(form: PlainForm, texts: pa.StringArray) -> pa.Array | None:
    if not _has_number_signs_only(_join(texts)) or not _are_sizes_in(texts, range(_DATE_SIZE, _DATE_SIZE + 1)):
        return None
    return _keep_days(form.parse(texts))


def _take_times(form: PlainForm, texts: pa.StringArray) -> pa.Array | None:
    """All with Z, or none: without a plus, and with two minuses each, as its date has, none has another zone."""
    content = _join(texts)
    count = pc.sum(pc.not_equal(texts, "")).as_py() or 0
    zones = content.count(b"Z")
    if b"+" in content or content.count(b"-") != 2 * count:
        return None
    if zones and (zones != count or pc.sum(pc.ends_with(texts, "Z")).as_py() != count):
        return None
    if (form.needs_zone and zones != count) or not _are_sizes_in(pc.utf8_rtrim(texts, "Z"), _TIME_SIZES):
        return None
    return _keep_days(form.parse(texts))


def _are_sizes_in(texts: pa.StringArray, sizes: range) -> bool:
    """Of those that are not empty."""
    found = pc.min_max(pc.binary_length(fill_with_null(texts))).as_py()
    return found["min"] is None or (found["min"] in sizes and found["max"] in sizes)


def _keep_days(values: pa.Array) -> pa.Array | None:
    """Values of the years that are plain."""
    found = pc.min_max(values.cast(pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us"))).as_py()
    if found["min"] is None:
        return values
    first, last = found["min"].date(), found["max"].date()
    return values if first >= _FIRST_DAY and last <= _LAST_DAY else None


def _make_whole_numbers(before: int, kind: pa.DataType) -> PlainForm:
    return PlainForm(f"-?[0-9]{{1,{before}}}", kind, _take_whole_numbers, before)


def _make_numbers(before: int, behind: int, kind: pa.DataType, *, exponent: str = "") -> PlainForm:
    pattern = f"-?[0-9]{{1,{before}}}(?:\\.[0-9]{{1,{behind}}})?{exponent}"
    return PlainForm(pattern, kind, _take_numbers, before, behind)


_FORMS: Final[Mapping[type[st.DataType], PlainForm]] = MappingProxyType(
    {
        st.ByteType: _make_whole_numbers(2, pa.int8()),
        st.ShortType: _make_whole_numbers(4, pa.int16()),
        st.IntegerType: _make_whole_numbers(9, pa.int32()),
        st.LongType: _make_whole_numbers(18, pa.int64()),
        st.FloatType: _make_numbers(15, 15, pa.float32()),
        st.DoubleType: _make_numbers(15, 15, pa.float64(), exponent="(?:[eE]-?[0-9]{1,2})?"),
        st.BooleanType: PlainForm("true|false", pa.bool_(), _take_booleans),
        st.DateType: PlainForm(_DATE, pa.date32(), _take_dates),
    }
)


def find_form(kind: st.DataType, zone: str) -> PlainForm | None:
    """The plain form of a type; None if it has none.

    Args:
        kind: Of a column.
        zone: The time zone of the session, in which times without one are meant.
    """
    if kind == st.StringType():
        return PlainForm(None, pa.string(), _take_texts)
    if isinstance(kind, st.TimestampType):
        is_utc = zone in _UTC
        ending = "Z?" if is_utc else "Z"
        pattern = f"{_DATE}[ T]{_TIME}{ending}"
        return PlainForm(pattern, pa.timestamp("us", tz="UTC"), _take_times, needs_zone=not is_utc)
    if isinstance(kind, st.DecimalType) and kind.precision > kind.scale:
        digits, decimal = kind.precision - kind.scale, pa.decimal128(kind.precision, kind.scale)
        return _make_numbers(digits, kind.scale, decimal) if kind.scale else _make_whole_numbers(digits, decimal)
    return _FORMS.get(type(kind))
