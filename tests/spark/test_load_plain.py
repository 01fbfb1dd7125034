"""Plain records, which Arrow reads, and those that are nearly plain: what a load makes of them is what Spark makes.

`LASTGOOD_SEED=N` repeats a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import Sparks
from spark.test_load_equality import WAYS, compare_load

from lastgood.load.specification import ParseMode

pytestmark = pytest.mark.spark
SEED = os.environ.get("LASTGOOD_SEED", "1")
RECORDS = 3_000
PLAIN = {
    "tinyint": ["", "0", "-0", "7", "-99", "007"],
    "smallint": ["", "0", "1234", "-9999"],
    "int": ["", "0", "-1", "999999999", "-999999999", "00012"],
    "bigint": ["", "0", "-0", "999999999999999999", "-123456789012345678", "1"],
    "float": ["", "0", "1.5", "-0.0", "16777217", "0.1", "123456789012345", "3.14159265358979"],
    "double": ["", "0.1", "-0.0", "1e10", "1E-5", "123456789012345.123456789012345", "2.5e-99", "0.30000000000000"],
    "decimal(10,2)": ["", "10.25", "0.1", "-0.5", "12345678.12", "7", "-0", "00000001.10"],
    "decimal(38,0)": ["", "1", "-" + "9" * 38, "0"],
    "date": ["", "2026-03-01", "2024-02-29", "2000-02-29", "1999-12-31", "1900-01-30", "2099-08-31"],
    "timestamp": ["", "2026-03-01T10:00:00Z", "1999-12-31 23:59:59.999999Z", "1901-01-01T00:00:00.5Z"],
    "boolean": ["", "true", "false"],
    "string": ["", "a", "a b", " a ", "é", "日本", "'", "#x", "NULL", "null", "-", "x" * 300, "\xa0", "1"],
}
ODD = {
    "tinyint": ["128", "-129", "99999", "+1", " 1", "1 ", "0x1F", "1e3", "1.0"],
    "smallint": ["32768", "-32769", "1_0", "\u0661"],
    "int": ["2147483647", "2147483648", "-2147483649", "1L", "--1", "-"],
    "bigint": ["9223372036854775807", "9223372036854775808", "1" * 30, "1 000", "NaN"],
    "float": ["3.4028236e38", "1e39", "1e-50", "1f", ".5", "5.", "NaN", "Inf"],
    "double": ["nan", "-Infinity", "1d", "0x1p3", "1e400", "1e+5", "1,5", "+1.5", "1e-400", "1" * 40],
    "decimal(10,2)": ["10.255", "123456789.12", "1e2", "10.", "+1", ".25", "1 000", "x"],
    "decimal(38,0)": ["9" * 39, "1.5", "1e5"],
    "date": [
        "2026-3-1",
        "2026-02-29",
        "1900-02-29",
        "1899-01-01",
        "2026-13-01",
        "2026-11-31",
        "0001-01-01",
        "20260301",
    ],
    "timestamp": [
        "2026-03-01 10:00:00",
        "2026-03-29 02:30:00",
        "2026-10-25T02:30:00",
        "2026-03-01T10:00:00.1234567Z",
        "2026-03-01T24:00:00Z",
        "2026-03-01T10:00:60Z",
        "2026-03-01T10:00:00+02:00",
        "2026-02-30T10:00:00Z",
        "1583-01-01T00:00:00Z",
        "2026-03-01",
        "2026-03-01 10:00",
        "10:00:00",
        "2026-03-01T10:00:00 UTC",
        "2026-03-01t10:00:00z",
    ],
    "boolean": ["TRUE", "True", "t", "1", "0", "yes", "tru"],
    "string": ['""', '"a"', '"a,b|c"', 'a"b', "\\", '"a\\"b"', '"a" b', '"open', "\u2028", "\ufeff", "\x85", "a\\,b"],
}
DIGITS = {
    "tinyint": (2, 0),
    "int": (9, 0),
    "bigint": (18, 0),
    "float": (15, 15),
    "double": (15, 15),
    "decimal(10,2)": (8, 2),
    "decimal(38,0)": (38, 0),
}
"""How many digits before and behind the point are plain."""
SEPARATORS = (",", ";", "|", "\t")


def make_value(kind: str, chance: random.Random, odd: float) -> str:
    if chance.random() < odd:
        return chance.choice(ODD[kind])
    if kind not in DIGITS or chance.random() < 0.5:
        return chance.choice(PLAIN[kind])
    before, behind = DIGITS[kind]
    digits = [make_digits(chance, most) for most in (before, behind) if most]
    return chance.choice(["", "-"]) + ".".join(digits)


def make_digits(chance: random.Random, most: int) -> str:
    size = chance.randint(1, most)
    return f"{chance.randrange(10**size):0{size}}"


def write_file(file: Path, kinds: list[str], separator: str, chance: random.Random, odd: float) -> None:
    lines = []
    for _ in range(RECORDS):
        values = [make_value(kind, chance, odd) for kind in kinds]
        if chance.random() < odd:
            values = chance.choice([values[:-1], [*values, ""], [""] * len(values), [" "], []])
        lines.append(separator.join(values))
    if odd and chance.random() < 0.5:
        lines.insert(chance.randrange(len(lines)), separator.join(["\x0b", "\x00"]))
    content = chance.choice(["\n", "\r\n", "\r"]).join(lines)
    file.write_bytes(content.encode() + chance.choice([b"", b"\n"]))


def require_same_rows(
    sparks: Sparks, folder: Path, seed: str, zone: str, odd: float, mode: ParseMode, way: str = "file"
) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(sorted(PLAIN), chance.randint(2, 7))
    separator = chance.choice(SEPARATORS)
    file = folder / "records.csv"
    write_file(file, kinds, separator, chance, odd)
    name = "a {}" if way != "delta" else "a{}"
    schema = ", ".join(f"`{name.format(at)}` {kind}" for at, kind in enumerate(kinds))
    if chance.random() < 0.5:
        schema += ", _corrupt_record string"
    options = {} if separator == "," and chance.random() < 0.5 else {chance.choice(["sep", "delimiter"]): separator}
    chunk = chance.choice([1 << 30, file.stat().st_size // 3])
    asked: dict[str, Any] = {"form": "csv", "schema": schema, "options": options, "infers": False}
    told, found = compare_load(sparks, folder, [file], mode, chunk, zone, way, **asked)
    assert (told["error"], found["error"]) == (None, None), (seed, schema)
    differing = set(found["loaded"]) ^ set(found["expected"])
    assert found["loaded"] == found["expected"], (seed, schema, separator, sorted(differing)[:6])


@pytest.mark.proof
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("mode", [ParseMode.PERMISSIVE, ParseMode.DROPMALFORMED])
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("way", WAYS)
def test_nearly_plain_records_are_read_as_spark_reads_them(
    sparks: Sparks, tmp_path: Path, way: str, number: int, mode: ParseMode, zone: str
) -> None:
    require_same_rows(sparks, tmp_path, f"{SEED} {number} {mode} {zone}", zone, 0.05, mode, way)


@pytest.mark.proof
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_plain_records_are_read_as_spark_reads_them(
    sparks: Sparks, tmp_path: Path, way: str, number: int, zone: str
) -> None:
    require_same_rows(sparks, tmp_path, f"{SEED} {number} {zone}", zone, 0, ParseMode.FAILFAST, way)


def test_so_are_some_of_them(sparks: Sparks, tmp_path: Path) -> None:
    require_same_rows(sparks, tmp_path, SEED, "UTC", 0.05, ParseMode.PERMISSIVE, "delta")
