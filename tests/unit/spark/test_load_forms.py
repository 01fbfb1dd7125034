"""A column is taken at once only if each value of it has the plain form, and then it is what each would be parsed to.

`LASTGOOD_SEED=N` repeats a run.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import types as st

from lastgood.spark.load_forms import PlainForm, find_form

SEED = os.environ.get("LASTGOOD_SEED", "1")
PLAIN = {
    "bigint": (st.LongType(), ["", "0", "-0", "7", "-99", "007", "12345678901234567"]),
    "tinyint": (st.ByteType(), ["", "0", "7", "-9", "99"]),
    "double": (st.DoubleType(), ["", "0", "-0.0", "1.5", "123456789012345", "0.12345678901234", "-7", "-1.0"]),
    "decimal(10,2)": (st.DecimalType(10, 2), ["", "0", "10.25", "-0.5", "12345678", "-1.1", "00.10"]),
    "decimal(9,0)": (st.DecimalType(9, 0), ["", "0", "-7", "12345678"]),
    "boolean": (st.BooleanType(), ["", "true", "false"]),
    "date": (st.DateType(), ["", "2026-03-01", "2024-02-29", "2000-02-29", "1900-01-01", "2099-12-31", "2026-11-30"]),
    "timestamp": (
        st.TimestampType(),
        ["", "2026-03-01T10:00:00Z", "1999-12-31 23:59:59.999999Z", "2024-02-29 00:00:00Z"],
    ),
    "string": (st.StringType(), ["", "a", " a ", "é", "日本", "x" * 300, "1,2"]),
}
ODD = {
    "bigint": ["+1", "-", "1-", "--1", "1.0", "1/2", "0x1F", " 1", "1 ", "9" * 19, "1e3", "\u0661", "1_0"],
    "tinyint": ["128", "-129", "100"],
    "double": [
        ".5",
        "5.",
        ".",
        "-.5",
        "-",
        "1.2.3",
        "1e5",
        "nan",
        "-inf",
        "+1.5",
        "1" * 16,
        "1." + "1" * 16,
        " 1",
        "1,5",
    ],
    "decimal(10,2)": ["10.", ".25", "1.100", "10.255", "123456789", "0000000001", "-.5", "1e2", "-", "+1", "1/2"],
    "decimal(9,0)": ["1.", "1.0", "1234567890", "-"],
    "boolean": ["True", "t", "1", "0", "yes", " true", "false "],
    "date": [
        *("2026-3-1", "2026-02-29", "1900-02-29", "1899-12-31", "2100-01-01", "0001-01-01", "2026-13-01", "2026-11-31"),
        *("2026/03/01", "20260301", "202603-011", "2026-03-1 ", "+026-03-01", "-026-03-01", "2026-03-01Z"),
    ],
    "timestamp": [
        *("2026-03-01 10:00:00", "2026-03-01T10:00:00ZZ", "2026-03-01T10:00:00.Z", "2026-03-01T10:00:00.1234567Z"),
        *("2026-03-01T24:00:00Z", "2026-03-01T10:00:60Z", "2026-03-01T10:00:00+02:00", "2026-03-01T10:00:00-02:00"),
        *("2026-03-01T10:00-02:00Z", "2026-02-29T10:00:00Z", "1899-12-31T23:59:59Z", "2100-01-01T00:00:00Z", "Z"),
        *("2026-03-01", "2026-03-01 10:00", "2026-03-01 10:00Z", "2026-03-01T100000.123456Z", "2026-03-01t10:00:00z"),
        *("2026-03-01  10:00:00Z", "2026-03-01T10:00:00 Z", " 2026-03-01T10:00:00Z", "2026-03-01T10:00:00.5 Z", "ZZ"),
    ],
    "string": ['"', '"a"', "a\\", 'a"b'],
}
SIGNS = '0123456789-+.:TZ eE/x\x00"\\'
ZONES = ("UTC", "Europe/Berlin")


def find(kind: st.DataType, zone: str) -> PlainForm:
    form = find_form(kind, zone)
    assert form is not None
    return form


def change(value: str, chance: random.Random) -> str:
    """With one sign more, less, or another one."""
    at = chance.randrange(len(value) + 1)
    return value[:at] + chance.choice(["", chance.choice(SIGNS)]) + value[at + chance.randrange(2) :]


def require_each_plain(form: PlainForm, texts: list[str]) -> None:
    column = pa.array(texts, pa.string())
    taken = form.take_at_once(column)
    if taken is not None:
        assert pc.all(form.find_fitting(column)).as_py() in (True, None), texts
        assert taken.equals(form.parse(column)), texts
        assert taken.type == form.kind


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("name", PLAIN)
def test_plain_columns_are_taken_at_once(name: str, zone: str) -> None:
    kind, values = PLAIN[name]
    form = find(kind, zone)
    for texts in (values, [""], [], values[1:]):
        assert form.take_at_once(pa.array(texts, pa.string())) is not None
        require_each_plain(form, texts)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("name", PLAIN)
def test_one_odd_value_has_each_looked_at(name: str, zone: str) -> None:
    kind, values = PLAIN[name]
    for odd in ODD[name]:
        require_each_plain(find(kind, zone), [odd])
        require_each_plain(find(kind, zone), [*values, odd])


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("name", PLAIN)
def test_so_it_is_whatever_is_changed(name: str, zone: str) -> None:
    kind, values = PLAIN[name]
    chance = random.Random(f"{SEED} {name} {zone}")
    form = find(kind, zone)
    for _ in range(200):
        texts = chance.choices(values, k=chance.randrange(1, 4))
        at = chance.randrange(len(texts))
        texts[at] = change(chance.choice([texts[at], chance.choice(ODD[name])]), chance)
        require_each_plain(form, texts)


def test_a_slice_is_taken_as_what_it_has() -> None:
    column = pa.array(["x", "1", "2", "y"], pa.string()).slice(1, 2)
    taken = find(st.LongType(), "UTC").take_at_once(column)
    assert taken is not None
    assert taken.to_pylist() == [1, 2]
