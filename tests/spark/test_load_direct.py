"""Delta tables into which the tasks of a load write themselves: what readers find there, and when Spark writes instead.

`LASTGOOD_SEED=N` repeats a run.
"""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance.sparks import Sparks
from deltalake import DeltaTable
from spark.load_direct_app import COLUMNS
from spark.test_load import SEED
from typed import call

pytestmark = pytest.mark.spark
APP = Path(__file__).with_name("load_direct_app.py")
TEXTS = ["", "a", "é" * 31 + "z", "x" * 32, "x" * 33, "x" * 32 + "\U0010ffffz", "\U0010ffff" * 40, "日本" * 20, "Z"]
ROWS = 60
# Not `amount = 0`: of a file with -0.0, by its dictionary, Spark's reader of Parquet misses rows, whoever wrote it.
CONDITIONS = [
    *(f"{name} IS NULL" for name in ("at", "name", "amount", "code")),
    *(f"name {compared} '{text}'" for text in TEXTS[1:8] for compared in ("=", ">")),
    *(f"name > '{'x' * 32}{end}'" for end in ("", "\U0010ffff")),
    *(f"amount {compared} {value}" for value in ("0.1D", "1e-99D", "1e15D") for compared in ("=", "<=", ">")),
    *(f"second(at) = 0 AND at > timestamp'{year}-03-05 10:00:00.0005Z'" for year in (1905, 1999, 2090)),
    *(f"day {compared} date'2026-12-31'" for compared in ("=", "<", ">")),
    *(f"price {compared} 0" for compared in ("<", ">")),
    *(f"code {compared} 0" for compared in ("<", ">")),
    "id IN (0, 7, 59)",
]


def make_row(number: int, chance: random.Random) -> str:
    clock = f"{chance.randrange(24):02}:00:00{chance.choice(['', '.000001', '.999999', '.5'])}"
    values = [
        str(number),
        f"{chance.randrange(1900, 2100)}-03-{chance.randrange(1, 29):02}T{clock}Z",
        chance.choice(TEXTS) + chance.choice(["", str(number)]),
        chance.choice(["-0.0", "0.0", "0.1", "1e-99", str(round(chance.random(), 9)), "123456789012345.5"]),
        f"{chance.randrange(1900, 2100)}-12-31",
        f"{chance.randrange(-(10**7), 10**7)}.{chance.randrange(100):02}",
        str(chance.randrange(-(10**29), 10**29)),
    ]
    return ",".join(value if at == 0 or chance.random() < 0.8 else "" for at, value in enumerate(values))


def write_rows(file: Path, rows: int = ROWS) -> None:
    chance = random.Random(f"direct {SEED}")
    file.write_text("".join(f"{make_row(number, chance)}\n" for number in range(rows)))


def load(sparks: Sparks, file: Path, to: Path, **told: Any) -> dict[str, Any]:
    return sparks.of("4.2.0").call(APP, "load", file=str(file), to=str(to), **told)


def list_written(to: Path, files: list[str]) -> list[str]:
    """Files of the table that Spark has written: beside each lies one with its checksum."""
    return [each for each in files if (to / f".{each}.crc").exists()]


def test_statistics_hide_no_row(sparks: Sparks, tmp_path: Path) -> None:
    file, to = tmp_path / "in.csv", tmp_path / "table"
    write_rows(file)
    found = load(sparks, file, to, more={"chunk_size": 600})
    assert (found["ids"], list_written(to, found["files"])) == (list(range(ROWS)), [])
    assert len(found["files"]) >= found["loaded"]["chunks"] > 3
    asked = sparks.of("4.2.0").call(APP, "ask_each", file=str(file), to=str(to), conditions=CONDITIONS)
    assert asked["differing"] == []
    assert DeltaTable(to).to_pyarrow_table().num_rows == ROWS


CREATE = "CREATE TABLE delta.`{to}` ({columns}{more}) USING delta "
ASKING = {
    "a partition": (CREATE + "PARTITIONED BY (day)", ""),
    "names of columns": (CREATE + "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", ""),
    "a generated column": (CREATE, ", twice bigint GENERATED ALWAYS AS (id * 2)"),
    "ids of rows": (CREATE + "TBLPROPERTIES ('delta.enableRowTracking' = 'true')", ""),
    "clusters": (CREATE + "CLUSTER BY (id)", ""),
    "another column": (CREATE, ", more string"),
    "encryption": (CREATE + "TBLPROPERTIES ('parquet.encryption.footer.key' = 'x')", ""),
    "a constraint as somebody wrote it": (CREATE + "TBLPROPERTIES ('Delta.Constraints.few' = 'id < 1000')", ""),
    "a constraint": (CREATE + "TBLPROPERTIES ('delta.constraints.few' = 'id < 1000')", ""),
}


@pytest.mark.proof
@pytest.mark.parametrize("name", ASKING)
def test_table_that_asks_for_more_is_written_by_spark(sparks: Sparks, tmp_path: Path, name: str) -> None:
    file, to = tmp_path / "in.csv", tmp_path / "table"
    write_rows(file)
    create, column = ASKING[name]
    create = create.format(to=to, columns=COLUMNS, more=column)
    found = load(sparks, file, to, sql=[create], more={"chunk_size": 3000})
    assert found["ids"] == list(range(ROWS)), found
    if name not in ("a partition", "names of columns"):  # whose files lie in folders
        assert list_written(to, found["files"]) == found["files"]


@pytest.mark.proof
def test_table_that_asks_for_nothing_more_is_not(sparks: Sparks, tmp_path: Path) -> None:
    file, to = tmp_path / "in.csv", tmp_path / "table"
    write_rows(file)
    harmless = ("appendOnly", "enableChangeDataFeed", "enableDeletionVectors", "enableInCommitTimestamps")
    told = ", ".join(f"'delta.{each}' = 'true'" for each in harmless)
    create = f"CREATE TABLE delta.`{to}` ({COLUMNS}) USING delta TBLPROPERTIES ({told}, 'mine' = 'x')"
    found = load(sparks, file, to, sql=[create], more={"chunk_size": 3000})
    assert (found["ids"], list_written(to, found["files"])) == (list(range(ROWS)), [])


@pytest.mark.proof
def test_constraint_that_comes_meanwhile_ends_it(sparks: Sparks, tmp_path: Path) -> None:
    file, to = tmp_path / "in.csv", tmp_path / "table"
    write_rows(file)
    constrain = f"ALTER TABLE delta.`{to}` ADD CONSTRAINT few CHECK (id < 1000)"
    found = load(sparks, file, to, meanwhile=[constrain], more={"chunk_size": 600})
    assert "the table was changed while it was loaded: it has the property" in found["error"]["found"]
    assert 0 < len(found["ids"]) < ROWS
    again = load(sparks, file, to, more={"chunk_size": 600})
    assert again["ids"] == list(range(ROWS))
    assert 0 < len(list_written(to, again["files"])) < len(again["files"])


@pytest.mark.proof
def test_chunk_that_the_table_has_and_spark_has_not_is_passed_over_and_counted(sparks: Sparks, tmp_path: Path) -> None:
    file, to, checkpoint = tmp_path / "in.csv", tmp_path / "table", tmp_path / "chk"
    write_rows(file)
    more = {"chunk_size": 600, "checkpoint": str(checkpoint)}
    last = load(sparks, file, to, more=more)["loaded"]["chunks"] - 1
    files = sorted(to.glob("*.parquet"))
    for name in (f"commits/{last}", f"commits/.{last}.crc", f"../chk.lastgood/load/{last}"):
        (checkpoint / name).unlink(missing_ok=True)
    found = load(sparks, file, to, more=more)
    assert (found["ids"], found["loaded"]["rows"]) == (list(range(ROWS)), ROWS)
    assert sorted(to.glob("*.parquet")) == files
    words = ["load", str(file), "--to", f"delta:{to}", "--schema", COLUMNS, "--checkpoint", str(checkpoint)]
    assert call(*words, "--verify").returncode == 0
    assert call(*words[:4], "--checkpoint", str(checkpoint), "--undo").returncode == 0
    assert DeltaTable(to).to_pyarrow_table().num_rows == 0


@pytest.mark.proof
def test_column_of_parquet_that_is_named_as_that_of_corrupt_records_is_kept(sparks: Sparks, tmp_path: Path) -> None:
    file, to = tmp_path / "in.parquet", tmp_path / "table"
    days = [datetime.date(1, 1, 1), datetime.date(2026, 3, 1)]
    pq.write_table(pa.table({"id": [1, 2], "_corrupt_record": ["precious", None], "day": days}), file)
    found = load(sparks, file, to, more={"schema": None})
    assert (found["ids"], list_written(to, found["files"])) == ([1, 2], [])
    assert DeltaTable(to).to_pyarrow_table().sort_by("id").to_pydict() == pq.read_table(file).to_pydict()
    read = sparks.of("3.5.9").call(APP, "read_days", files=[str(to / each) for each in found["files"]])
    assert read["days"] == list(map(str, days))
