"""CSV with line ends within quotes: what a load writes is what Spark's own reader makes of the same files.

`LASTGOOD_SEED=N` repeats a run.
"""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import Sparks
from spark.test_load_equality import compare_load

from lastgood.load.specification import ParseMode

pytestmark = pytest.mark.spark
SEED = os.environ.get("LASTGOOD_SEED", "1")
RECORDS = (400, 30_000)
"""The second makes a file that several tasks read at once."""
SCHEMA = "id int, a string, b double, at timestamp, c string"
BARE = {
    "id": ["1", "", "x", " 2", "99999999999"],
    "a": ["a", "", " ", " a ", "\\", "a\\", "日本", "\u2028", "\x85", "\x00", "NULL", "'", "#x", "\ufeff", "\x0b"],
    "b": ["1.5", "", "NaN", "1e400", " 1"],
    "at": ["2026-03-01T10:00:00Z", "2026-03-01", "", "no"],
}
BARE["c"] = BARE["a"]
INNER = ["a", " ", "\n", "\r", "\r\n", "\n\n", ",", ";", "\\ ", "\\\\ ", "é", "", "1"]


def make_record(chance: random.Random, options: dict[str, str]) -> str:
    quote, escape, separator = options.get("quote", '"'), options.get("escape", "\\"), options.get("sep", ",")
    values = []
    for choices in BARE.values():
        bare = chance.choice(choices)
        if chance.random() < 0.6:
            values.append(bare.replace(quote, "").replace(separator, ""))
            continue
        pieces = [chance.choice([*INNER, escape + quote]) for _ in range(chance.randint(0, 5))]
        plain = "".join(each for each in bare if each not in {quote, "\\", "\0"})
        values.append(quote + (plain if chance.random() < 0.3 else "".join(pieces)) + quote)
    if chance.random() < 0.05:
        values = chance.choice([values[:2], [*values, "more"], [" "], [""], [""] * 5])
    return separator.join(values)


def require_same_rows(sparks: Sparks, folder: Path, seed: str, mode: ParseMode, way: str = "file") -> None:
    chance = random.Random(seed)
    options = {
        "multiLine": "true",
        **chance.choice([{"escape": '"'}, {}, {"quote": "'", "escape": "'"}, {"escape": "~"}]),
        **chance.choice([{}, {"sep": ";"}, {"sep": "\t"}, {"sep": "§"}]),
        **chance.choice([{}, {"header": "true"}]),
        **chance.choice([{}, {"nullValue": "NULL"}, {"emptyValue": "e"}]),
    }
    schema = SCHEMA + chance.choice(["", ", _corrupt_record string"])
    files, size = [], 0
    for number in range(2):
        line_end = chance.choice(["\n", "\r\n"])
        first = ["id,a", *[""] * 2]  # so that the first line end is that of all records
        lines = first + [make_record(chance, options) for _ in range(chance.choice(RECORDS))]
        content = chance.choice(["", "\ufeff"]) + line_end.join(lines) + chance.choice(["", line_end])
        is_packed = chance.random() < 0.3
        file = folder / f"{number}.csv{'.gz' * is_packed}"
        file.write_bytes(gzip.compress(content.encode()) if is_packed else content.encode())
        files.append(file)
        size += len(content)
    asked: dict[str, Any] = {"form": "csv", "schema": schema, "options": options, "infers": False}
    chunk = chance.choice([1 << 30, size // 7])
    told, found = compare_load(sparks, folder, files, mode, chunk, way=way, **asked)
    assert (told["error"], found["error"]) == (None, None), seed
    differing = sorted(set(found["loaded"]) ^ set(found["expected"]))
    assert found["loaded"] == found["expected"], (seed, options, schema, differing[:6])


@pytest.mark.proof
@pytest.mark.parametrize("mode", [ParseMode.PERMISSIVE, ParseMode.DROPMALFORMED])
@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("way", ["file", "Spark 4.3"])
def test_records_over_lines_are_read_as_spark_reads_them(
    sparks: Sparks, tmp_path: Path, way: str, number: int, mode: ParseMode
) -> None:
    require_same_rows(sparks, tmp_path, f"over lines {SEED} {number} {mode}", mode, way)


def test_several_tasks_read_each_record_once(sparks: Sparks, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("id,a\n" + "".join(f'{each},"a ""note""\n of {each}"\n' for each in range(120_000)))
    options = {"multiLine": "true", "escape": '"', "header": "true"}
    asked: dict[str, Any] = {"form": "csv", "schema": "id int, a string", "options": options, "infers": False}
    told, found = compare_load(sparks, tmp_path, [file], ParseMode.FAILFAST, 1_500_000, **asked)
    assert (told["error"], found["error"]) == (None, None)
    assert len(found["loaded"]) == 120_001
    assert found["loaded"] == found["expected"]


@pytest.mark.proof
@pytest.mark.parametrize("content", [b'1,"a"b"\n', b'1,a"b\n2,"\n', b"1,a\n2,b\r\n", b'1,"a\n'])
def test_load_ends_where_a_record_is_not_regular(sparks: Sparks, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(content)
    asked: dict[str, Any] = {"form": "csv", "schema": "a int, b string", "options": {"multiLine": "true"}}
    told, found = compare_load(sparks, tmp_path, [file], ParseMode.PERMISSIVE, 1 << 20, infers=False, **asked)
    assert "not regular" in told["error"]
    assert found["loaded"] in (None, found["expected"][:1])
