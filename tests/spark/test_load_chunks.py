"""`lastgood.spark.chunks`: each chunk is handed until the program is done with it, and then never again."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conformance.sparks import DriverDiedError, Sparks
from spark.test_load import SEED
from typed import call

from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.java import Java

pytestmark = pytest.mark.spark
APP = Path(__file__).with_name("load_chunks_app.py")
KILLS = 4
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "ledger.md"


class Program:
    """Takes chunks of one file, in a session of its own each time."""

    def __init__(self, sparks: Sparks, folder: Path) -> None:
        self.sparks, self.folder = sparks, folder
        self.file = folder / "in.csv"
        self.file.write_text("".join(f"{each},a\n" for each in range(1000)))
        self.rows = [[each, "a"] for each in range(1000)]

    def take(self, **told: Any) -> dict[str, Any]:
        more = {
            "name": "to-erp",
            "schema": "id INT, name STRING",
            "chunk_size": 2000,
            "checkpoint": str(self.folder / "job"),
            **told.pop("more", {}),
        }
        return self.sparks.of("4.2.0").call(APP, "take", **{"files": str(self.file), **told}, more=more)


@pytest.fixture
def program(sparks: Sparks, tmp_path: Path) -> Program:
    return Program(sparks, tmp_path)


def gather_rows(*taken: dict[str, Any]) -> list[list[Any]]:
    """What a writer has that takes each key once."""
    return sorted(
        row for each in {one["key"]: one["rows"] for run in taken for one in run["seen"]}.values() for row in each
    )


def ask_for_progress(ledger: Path) -> list[tuple[Any, ...]]:
    """What the SQL of the docs finds in a ledger."""
    told = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (asked,) = (each for each in told if "orders-to-erp" in each)
    with sqlite3.connect(ledger) as connection:
        found = connection.execute(asked.replace("orders-to-erp", "to-erp")).fetchall()
    assert all(began <= done for *_, began, done in found)
    return [(job, chunk, json.loads(end)["position"], rows, status) for job, chunk, _, end, rows, status, *_ in found]


def test_each_chunk_is_handed_once_and_the_next_call_has_nothing_to_do(program: Program, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    taken = program.take(more={"ledger": f"sqlite:///{ledger}"})
    seen = taken["seen"]
    assert gather_rows(taken) == program.rows
    assert [each["number"] for each in seen] == list(range(len(seen)))
    assert [each["begin"] for each in seen] == [0, *(each["end"] for each in seen[:-1])]
    assert seen[-1]["end"] == seen[-1]["size"] == program.file.stat().st_size
    assert len({each["key"] for each in seen}) == len(seen) > 2
    assert all(each["count"] == each["counted"] == len(each["rows"]) and not each["is_again"] for each in seen)
    assert taken["is_as_before"]
    assert taken["is_idle"]
    assert ask_for_progress(ledger) == [("to-erp", each["number"], each["end"], each["count"], "done") for each in seen]
    again = program.take()
    assert (again["seen"], again["is_idle"]) == ([], True)
    program.file.write_text("another file")
    assert program.take()["error"]["condition"] == "INPUT_CHANGED"


def test_a_chunk_that_was_left_is_handed_again_with_the_same_rows_and_key(program: Program) -> None:
    first = program.take(leaves=2, how="raise")
    assert (first["left"], first["is_idle"], len(first["seen"])) == (True, True, 2)
    rest = program.take(more={"chunk_size": 3000})
    left, again = first["seen"][1], rest["seen"][0]
    assert {**again, "is_again": False} == left
    assert [each["is_again"] for each in rest["seen"]] == [True, *(False for _ in rest["seen"][1:])]
    assert gather_rows(first, rest) == program.rows
    assert sum(each["count"] for each in rest["seen"]) == 1000 - first["seen"][0]["count"]


@pytest.mark.proof
def test_killed_at_any_chunk_a_writer_that_knows_keys_has_each_row_once(program: Program, tmp_path: Path) -> None:
    out, again = tmp_path / "out", []
    out.mkdir()
    for _ in range(3):
        with pytest.raises(DriverDiedError):
            program.take(out=str(out), leaves=2, how="kill", more={"chunk_size": 800})
        program.sparks.close()
        again += list(out.iterdir())
    rest = program.take(out=str(out), more={"chunk_size": 800})
    assert (rest["seen"][0]["is_again"], len(again)) == (True, 2 + 3 + 4)
    rows = [row for each in out.iterdir() for row in json.loads(each.read_text())]
    assert sorted(rows) == program.rows


def test_what_cannot_be_meant_is_refused_before_anything_is_handed(program: Program) -> None:
    held = program.take(tries_twice=True)
    assert held["second"]["error"]["condition"] == "CHECKPOINT_HELD"
    assert gather_rows(held) == program.rows
    assert program.take(more={"schema": "id INT"})["error"]["condition"] == "LOAD_DIFFERS"
    assert program.take(more={"name": "a job"})["error"]["sentence"] == "the name is none for a job"
    assert program.take(more={"ledger": "/tmp/records"})["error"]["sentence"] == "the ledger is not understood"
    assert program.take(more={"mode": "strict"})["error"]["sentence"] == "the mode is not known"


def test_broken_records_are_counted_dropped_or_end_it(program: Program, tmp_path: Path) -> None:
    program.file.write_text("1,a\nx,b\n3,c\n")
    modes = {"permissive": [[1, "a"], [None, "b"], [3, "c"]], "dropmalformed": [[1, "a"], [3, "c"]]}
    for mode, rows in modes.items():
        (seen,) = program.take(more={"mode": mode, "checkpoint": str(tmp_path / mode), "name": mode})["seen"]
        assert (seen["corrupt"], seen["count"]) == (1, len(rows))
        assert seen["rows"] == sorted(rows, key=str)
    failed = program.take(more={"mode": "failfast", "checkpoint": str(tmp_path / "failfast")})
    assert (failed["seen"], failed["error"]["condition"]) == ([], "LOAD_FAILED")
    assert "Malformed records are detected" in failed["error"]["found"]


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_killed_at_any_instant_a_database_with_a_fence_table_has_each_row_once(
    database: tuple[str, psycopg.Connection[Any]], java: Java, tmp_path: Path
) -> None:
    chance = random.Random(f"fence {SEED}")
    file, job, rows = tmp_path / "in.csv", tmp_path / "job", 20_000
    file.write_text("".join(f"{each},a\n" for each in range(rows)))
    url, connection = database
    connection.execute("CREATE TABLE orders (id bigint, name text)")
    connection.execute(
        "CREATE TABLE stream_fence (query_id text, batch_id bigint, row_count bigint, PRIMARY KEY (query_id, batch_id))"
    )
    where = url.removeprefix("jdbc:").replace("?user=app", "?user=postgres")
    words = [str(file), str(job), where]
    killed, ending = 0, None
    while ending is None:
        with submit(APP.with_name("load_fence_app.py"), words, environment=find_default_spark(), java=java) as program:
            ending = program.wait(chance.uniform(8, 25) if killed < KILLS else 300)
            if ending is None:
                program.kill()
                killed += 1
    assert ending.is_success
    assert killed
    found = connection.execute("SELECT count(*), count(DISTINCT id), sum(id) FROM orders").fetchone()
    assert found == (rows, rows, rows * (rows - 1) // 2)
    done = call("diagnose", str(job), "--sink", where, "--format", "json")
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)
    assert told["last_good"] == told["last_committed"] > 2
