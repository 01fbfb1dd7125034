"""Which records of CSV are plain, and what Arrow makes of them; all others come as lines, each once."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from pyspark.sql import types as st

from lastgood.spark.load_columns import LINE, PlainColumns, find_plain_columns

TYPES = [st.LongType(), st.TimestampType(), st.StringType(), st.DecimalType(10, 2)]
SCHEMA = st.StructType([st.StructField(f"a {at}", kind) for at, kind in enumerate(TYPES)])
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def find(**options: str) -> PlainColumns:
    found = find_plain_columns(SCHEMA, options, "UTC")
    assert found is not None
    return found


def read(columns: PlainColumns, lines: bytes) -> tuple[list[tuple[object, ...]], list[str]]:
    """The plain records, and the lines of the others."""
    batches = columns.read(lines)
    assert batches is not None
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all((row[LINE] is None) or set(row.values()) == {None, row[LINE]} for row in rows)
    plain = [tuple(row.values())[:-1] for row in rows if row[LINE] is None]
    return plain, sorted(row[LINE] for row in rows if row[LINE] is not None)


def test_plain_records_are_read() -> None:
    found = read(find(header="true"), b"1,2026-03-01T12:00:00Z,a b,1.5\r\n-2,2026-03-01 12:00:00.0, ,\n,,,\r")
    assert found == ([(1, NOON, "a b", Decimal("1.50")), (-2, NOON, " ", None), (None, None, None, None)], [])


@pytest.mark.parametrize(
    "line",
    ["+1,,,", "1,2026-02-30T12:00:00Z,,", "1,,,1.555", '1,,"a",', "1,,a\\,", "1,,", "1,,a,1,", " ", "1,2026-03-01,,"],
)
def test_every_other_record_comes_as_it_is_written(line: str) -> None:
    assert read(find(), f"1,,,\n{line}\n2,,,".encode()) == ([(1, None, None, None), (2, None, None, None)], [line])


def test_where_hardly_any_is_plain_all_come_as_they_are_written() -> None:
    assert find().read(b'1,,"a",\n' * 9 + b"1,,a,\n") is None
    assert find().read(b"1,2\n") is None


@pytest.mark.parametrize("lines", [b"\xef\xbb\xbf1,,,", b"1,,\xff,", b"1,,\x00,", b"1,,\x1f,"])
def test_nothing_is_plain_beside_bytes_that_are_rare(lines: bytes) -> None:
    assert find().read(lines) is None


def test_a_record_of_blanks_is_none_where_they_part_columns() -> None:
    assert read(find(sep="\t"), b"\t\t\t\n1\t\t\t\n \t\t\t") == ([(1, None, None, None)], ["\t\t\t", " \t\t\t"])


@pytest.mark.parametrize(
    ("options", "zone", "is_plain"),
    [
        ({"sep": ";", "header": "true"}, "UTC", True),
        ({"sep": "||"}, "UTC", False),
        ({"sep": ",", "delimiter": ","}, "UTC", False),
        ({"nullValue": "x"}, "UTC", False),
        ({"comment": "#"}, "UTC", False),
        ({"timestampFormat": "yyyy"}, "UTC", False),
    ],
)
def test_only_with_options_that_leave_a_plain_record_what_it_is(
    options: dict[str, str], zone: str, is_plain: bool
) -> None:
    assert (find_plain_columns(SCHEMA, options, zone) is not None) == is_plain


@pytest.mark.parametrize("kind", [st.BinaryType(), st.TimestampNTZType(), st.VarcharType(3), st.DecimalType(2, 2)])
def test_only_with_types_of_which_it_is_shown(kind: st.DataType) -> None:
    schema = st.StructType([st.StructField("a", kind), st.StructField("b", st.LongType())])
    assert find_plain_columns(schema, {}, "UTC") is None


def test_a_time_without_a_zone_is_left_to_spark_but_in_utc() -> None:
    elsewhere = find_plain_columns(SCHEMA, {}, "Europe/Berlin")
    assert elsewhere is not None
    line = "1,2026-03-01 12:00:00,,"
    assert read(elsewhere, f"{line}\n1,2026-03-01 12:00:00Z,,".encode()) == ([(1, NOON, None, None)], [line])
