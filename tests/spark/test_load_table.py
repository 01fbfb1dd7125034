"""Tables that are loaded by an ordered column: each row once, whatever the column is and whoever comes in between."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from conformance.sparks import Sparks
from deltalake import DeltaTable, write_deltalake
from spark.test_load import LASTGOOD, SEED, kill_and_load, run_load
from typed import call

from lastgood.lab.ports import find_free_port

pytestmark = pytest.mark.spark
APP = Path(__file__).with_name("load_table_app.py")
SECRET = "geh3im"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def add_rows(table: Path, ids: list[int]) -> None:
    names = [f"name {each}" for each in ids]
    write_deltalake(table, pa.table({"id": pa.array(ids, pa.int64()), "name": names}), mode="append")


def read_ids(table: Path, column: str = "id") -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()[column].to_pylist())


def refuse(words: list[str]) -> dict[str, Any]:
    done = subprocess.run([LASTGOOD, *words], capture_output=True, text=True)
    assert done.returncode, done.stdout
    told: dict[str, Any] = json.loads(done.stdout or done.stderr.splitlines()[-1])["error"]
    return told


def test_rows_that_came_behind_are_loaded_and_others_end_it(sparks: Sparks, tmp_path: Path) -> None:
    table, to = tmp_path / "raw", tmp_path / "table"
    ids = [each * 7 // 3 for each in range(100) for _ in range(each % 3 + 1)]
    add_rows(table, ids)

    def load(*sql: str, **more: Any) -> dict[str, Any]:
        asked = {"order_by": "ID", "chunk_rows": 80, **more}
        return sparks.of("4.2.0").call(APP, "load", table=str(table), to=str(to), more=asked, sql=list(sql))

    first = load()
    assert (first["loaded"]["is_new"], first["loaded"]["rows"], first["loaded"]["bytes"]) == (True, len(ids), None)
    assert first["loaded"]["chunks"] > 1
    assert read_ids(to) == sorted(ids)
    again = load()
    assert (again["loaded"]["is_new"], again["loaded"]["chunks"]) == (False, first["loaded"]["chunks"])
    add_rows(table, [2000, 2000, 3000])
    more = load()
    assert (more["loaded"]["resumed_at"], more["loaded"]["is_new"]) == (len(ids), True)
    assert read_ids(to) == sorted([*ids, 2000, 2000, 3000])

    add_rows(table, [2500])
    late = load()["error"]
    assert (late["condition"], late["found"].partition(": ")[2]) == (
        "INPUT_CHANGED",
        f"{len(ids) + 4:,} rows up to id 3000, where {len(ids) + 3:,} were read",
    )
    gone = load(f"DELETE FROM delta.`{table}` WHERE id IN (2500, 0)")["error"]
    assert gone["condition"] == "INPUT_CHANGED"
    assert read_ids(to) == sorted([*ids, 2000, 2000, 3000])
    assert load(order_by="name")["error"]["condition"] == "LOAD_DIFFERS"


@pytest.mark.proof
def test_columns_have_to_stay_and_to_be_ordered(sparks: Sparks, tmp_path: Path) -> None:
    table, to = tmp_path / "raw", tmp_path / "table"
    write_deltalake(table, pa.table({"id": [1, None, 3], "price": [1.5, 2.5, 3.5]}))

    def load(*sql: str, **more: Any) -> dict[str, Any]:
        asked = {"order_by": "id", **more}
        return sparks.of("4.2.0").call(APP, "load", table=str(table), to=str(to), more=asked, sql=list(sql))

    for column, found in (
        ("id", "1 rows that have no value in id"),
        ("price", "the column price of type double, whose values are not ordered"),
        ("at", "no column at among id, price"),
    ):
        error = load(order_by=column)["error"]
        assert (error["sentence"], error["found"].rpartition("raw: ")[2]) == (
            "the table cannot be read by this column",
            found,
        )
    assert not to.exists()
    assert load(f"DELETE FROM delta.`{table}` WHERE id IS NULL")["rows"] == [[1, 1.5], [3, 3.5]]
    added = load(
        f"ALTER TABLE delta.`{table}` ADD COLUMNS (note STRING)", f"INSERT INTO delta.`{table}` VALUES (4,5,'x')"
    )
    assert added["error"]["sentence"] == "the table that is read has other columns than the load"
    assert load(evolve=True)["rows"] == [[1, 1.5, None], [3, 3.5, None], [4, 5.0, "x"]]


@pytest.mark.proof
def test_row_that_came_where_a_chunk_was_not_committed_ends_it(sparks: Sparks, tmp_path: Path) -> None:
    table, to, checkpoint = tmp_path / "raw", tmp_path / "table", tmp_path / "chk"
    add_rows(table, list(range(0, 200, 2)))

    def load() -> dict[str, Any]:
        asked = {"order_by": "id", "chunk_rows": 40, "checkpoint": str(checkpoint)}
        return sparks.of("4.2.0").call(APP, "load", table=str(table), to=str(to), more=asked)

    def forget(batch: int) -> None:
        for name in (f"commits/{batch}", f"commits/.{batch}.crc", f"../chk.lastgood/load/{batch}"):
            (checkpoint / name).unlink(missing_ok=True)

    last = load()["loaded"]["chunks"] - 1
    forget(last)
    assert load()["loaded"]["rows"] == 100  # the table has that chunk, and passes over it
    forget(last)
    add_rows(table, [197])
    error = load()["error"]
    assert error["condition"] == "INPUT_CHANGED", error
    assert read_ids(to) == list(range(0, 200, 2))


def test_what_versions_added_is_loaded_from_one_on(sparks: Sparks, tmp_path: Path) -> None:
    table, to = tmp_path / "raw", tmp_path / "table"
    for begin in (0, 100, 200):
        add_rows(table, list(range(begin, begin + 10)))

    def load(*sql: str, **more: Any) -> dict[str, Any]:
        asked = {"starting_version": 1, "chunk_size": 1, **more}
        return sparks.of("4.2.0").call(APP, "load", table=str(table), to=str(to), more=asked, sql=list(sql))

    first = load()["loaded"]
    assert (first["rows"], first["chunks"], first["is_new"], first["bytes"]) == (20, 2, True, None)
    again = load(f"OPTIMIZE delta.`{table}`")["loaded"]
    assert (again["rows"], again["is_new"]) == (20, False)
    added = (
        f"ALTER TABLE delta.`{table}` ADD COLUMNS (note STRING)",
        f"INSERT INTO delta.`{table}` VALUES (7, 'x', 'y')",
    )
    assert load(*added)["error"]["sentence"] == "the table that is read has other columns than the load"
    evolved = load(evolve=True)
    assert (evolved["loaded"]["rows"], evolved["rows"][0]) == (21, [7, "x", "y"])
    (checkpoint,) = (each for each in (tmp_path / "table.lastgood/loads").iterdir() if each.suffix != ".lastgood")
    told = call("status", checkpoint).stdout
    assert "100 %: 5 of 5 versions of a table, 21 records" in told
    words = ["load", str(table), "--starting-version", "1", "--to", f"delta:{to}", "--format", "json"]
    removed = load(f"DELETE FROM delta.`{table}` WHERE id = 100")["error"]
    assert removed["condition"] == "LOAD_FAILED"
    assert call(*words, "--undo").returncode == 0
    assert DeltaTable(to).to_pyarrow_table().num_rows == 0


@pytest.mark.proof
def test_any_type_that_has_an_order_gives_each_row_once(sparks: Sparks, tmp_path: Path) -> None:
    found = sparks.of("4.2.0").call(APP, "load_each_type", folder=str(tmp_path))
    assert {(each["lost"], each["surplus"]) for each in found.values()} == {(0, 0)}
    assert min(each["chunks"] for each in found.values()) > 2
    assert {kind: each["rows"] for kind, each in found.items()}["string"] == 250


@pytest.mark.proof
def test_chunks_of_a_dataframe_are_handed_once_or_again_as_they_were(sparks: Sparks, tmp_path: Path) -> None:
    found = sparks.of("4.2.0").call(APP, "take_frame", checkpoint=str(tmp_path / "job"), table=str(tmp_path / "t"))
    left, again = found["left"][1], found["rest"][0]
    assert {**again, "is_again": False} == left
    taken = [*found["left"][:1], *found["rest"]]
    assert [id_ for each in taken for id_ in each["ids"]] == [each for each in range(100) for _ in range(2)]
    assert found["none"] == []
    assert [each["ids"] for each in found["more"]] == [[100, 101]]
    assert (found["error"]["condition"], found["meanwhile"]) == ("INPUT_CHANGED", "INPUT_CHANGED")


@pytest.fixture
def orders(database: tuple[str, psycopg.Connection[Any]], tmp_path: Path) -> list[str]:
    """What loads a table of 5,000 rows of PostgreSQL, each value twice, if the password is known."""
    url, connection = database
    connection.execute(f"CREATE ROLE app LOGIN PASSWORD '{SECRET}'")
    connection.execute('CREATE TABLE orders ("Id" bigint, amount numeric(10,2), at timestamptz)')
    connection.execute("GRANT SELECT ON orders TO app")
    connection.execute("INSERT INTO orders SELECT i / 2 * 3, i / 8.0, now() FROM generate_series(1, 5000) i")
    words = ["load", url, "--option", "dbtable=orders", "--order-by", "id", "--chunk-rows", "2000"]
    return [*words, "--to", f"delta:{tmp_path / 'table'}", "--format", "json"]


@pytest.mark.proof
def test_table_of_postgresql_is_loaded(orders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_JDBC_PASSWORD", SECRET)
    loaded = run_load(orders)
    assert (loaded["rows"], loaded["is_new"]) == (5000, True)
    assert read_ids(tmp_path / "table", "Id") == sorted(each // 2 * 3 for each in range(1, 5001))
    written = (each for each in tmp_path.rglob("*") if each.is_file())
    assert [each for each in written if SECRET.encode() in each.read_bytes()] == []


@pytest.mark.proof
def test_table_of_postgresql_is_loaded_as_it_grows(
    orders: list[str],
    database: tuple[str, psycopg.Connection[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, connection = database
    gone = orders.copy()
    gone[1] = f"jdbc:postgresql://127.0.0.1:{find_free_port()}/shop"
    assert refuse(gone)["condition"] == "LOAD_INTERRUPTED"
    denied = refuse(orders)
    assert denied["condition"] == "LOAD_FAILED"
    assert "no password was provided" in denied["found"]
    monkeypatch.setenv("LASTGOOD_JDBC_PASSWORD", SECRET)
    assert run_load(orders)["rows"] == 5000
    connection.execute("INSERT INTO orders SELECT 8000 + i, 1, now() FROM generate_series(1, 3000) i")
    assert (run_load(orders)["rows"], run_load([*orders, "--verify"])["rows"]) == (8000, 8000)
    connection.execute("INSERT INTO orders VALUES (1, 1, now())")
    assert refuse(orders)["condition"] == "INPUT_CHANGED"
    assert DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 8000


@pytest.mark.proof
@pytest.mark.parametrize("way", ["order-by", "starting-version"])
@pytest.mark.parametrize("whom", ["lastgood", "driver", "both"])
def test_whoever_is_killed_each_row_is_there_once(tmp_path: Path, whom: str, way: str) -> None:
    chance = random.Random(f"{SEED}-{whom}-{way}")
    ids = [each * 7 // 3 for each in range(20_000)]
    for begin in range(0, len(ids), 1500):
        add_rows(tmp_path / "raw", ids[begin : begin + 1500])
    words = ["load", str(tmp_path / "raw"), "--order-by", "id", "--chunk-rows", "1500"]
    if way == "starting-version":
        words = ["load", str(tmp_path / "raw"), "--starting-version", "0", "--chunk-size", "1"]
    words += ["--to", f"delta:{tmp_path / 'table'}", "--format", "json"]
    loaded = kill_and_load(tmp_path, words, whom, chance, 3)
    assert loaded["rows"] == len(ids)
    assert read_ids(tmp_path / "table") == ids
