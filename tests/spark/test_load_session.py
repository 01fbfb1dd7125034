"""`lastgood.spark.load` in a session that goes on afterwards."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import Sparks
from deltalake import DeltaTable
from typed import call

pytestmark = pytest.mark.spark
APP = Path(__file__).with_name("load_session_app.py")


@pytest.mark.proof
def test_of_a_folder_each_file_is_loaded_once(sparks: Sparks, tmp_path: Path) -> None:
    folder, to = tmp_path / "in", f"file:{tmp_path / 'table'}"
    folder.mkdir()

    def load() -> dict[str, Any]:
        asked = {"schema": "id INT, name STRING", "chunk_size": 500, "options": {"header": "true"}}
        return sparks.of("4.2.0").call(APP, "load", file=str(folder), to=to, more=asked)

    def write(name: str, count: int) -> None:
        lines = "".join(f"{each},{name}\n" for each in range(count))
        (folder / name).write_text(f"id,name\n{lines}")

    write("b.csv", 100)
    write("_hidden.csv", 100)
    assert load()["rows"] == 100
    write("a.csv", 30)
    write("c.csv", 40)
    more = load()
    assert (more["rows"], more["loaded"]["rows"]) == (170, 170)
    assert [Path(each).name for each in more["loaded"]["files"]] == ["b.csv", "a.csv", "c.csv"]
    (folder / "b.csv").unlink()
    again = load()
    assert (again["rows"], again["loaded"]["is_new"]) == (170, False)
    write("a.csv", 31)
    changed = load()["error"]
    assert (changed["condition"], Path(changed["subject"]).name) == ("INPUT_CHANGED", "a.csv")


def test_the_same_call_goes_on_and_leaves_the_session_as_it_was(sparks: Sparks, tmp_path: Path) -> None:
    file, to = tmp_path / "in.csv", f"file:{tmp_path / 'table'}"
    file.write_text("".join(f"{each},a\n" for each in range(1000)))

    def load(table: str = to, **more: Any) -> dict[str, Any]:
        asked = {"schema": "id INT, name STRING", **more}
        return sparks.of("4.2.0").call(APP, "load", file=str(file), to=table, more=asked)

    first = load(chunk_size=2000)
    size = file.stat().st_size
    assert first["is_as_before"]
    assert (first["loaded"]["rows"], first["loaded"]["is_new"], first["rows"]) == (1000, True, 1000)
    assert (len(first["seen"]), first["seen"][-1]) == (first["loaded"]["chunks"], size)
    again = load(ledger=str(tmp_path / "ledger.db"))
    assert (again["loaded"]["is_new"], again["rows"], again["seen"]) == (False, 1000, [])
    assert read_ends(tmp_path / "ledger.db") == first["seen"]
    with file.open("a") as stream:
        stream.write("1000,b\n")
    assert load()["error"]["condition"] == "INPUT_CHANGED"
    grown = load(follow_growth=True)
    assert (grown["loaded"]["resumed_at"], grown["rows"]) == (size, 1001)
    assert load(checkpoint=str(tmp_path / "chk"))["error"]["condition"] == "TABLE_TAKEN"
    other = tmp_path / "other"
    assert load(f"file:{other}", schema="id NOTHING")["error"]["sentence"] == "Spark does not take the schema"
    assert not other.exists()
    assert load(mode="strict")["error"]["sentence"] == "the mode is not known"


def read_ends(ledger: Path) -> list[int]:
    """Where the chunks end that are committed, as a ledger tells."""
    asked = "SELECT s.end_offset FROM lastgood_batch b JOIN lastgood_source s USING (query, batch_id)"
    with sqlite3.connect(ledger) as connection:
        told = connection.execute(f"{asked} WHERE b.is_committed ORDER BY batch_id").fetchall()
    return [json.loads(offset)["position"] for (offset,) in told]


def test_what_would_lose_a_record_or_break_all_of_them_is_refused_before_anything_is_written(
    sparks: Sparks, tmp_path: Path
) -> None:
    file, table = tmp_path / "in.csv", tmp_path / "table"
    file.write_text("".join(f"{each},a\n" for each in range(30)))

    def load(schema: str, **more: Any) -> dict[str, Any]:
        asked = {"schema": schema, **more}
        return sparks.of("4.2.0").call(APP, "load", file=str(file), to=f"file:{table}", more=asked)

    for options in ({"header": "true"}, {"header": "true", "multiLine": "true"}):
        error = load("id INT, name STRING", options=options)["error"]
        assert (error["sentence"], error["found"]) == (
            "the first line of a file is no header, but a record",
            f"{file}: 0,a",
        )
    for schema in ("id INT", "id INT, at DATE", "id INT, name STRING, more STRING"):
        for mode in ("permissive", "dropmalformed"):
            error = load(schema, mode=mode)["error"]
            assert (error["sentence"], error["found"]) == (
                "the records are not what the schema says",
                "none of the first 30 records",
            )
    assert not table.exists()
    assert load("id INT, _corrupt_record STRING")["loaded"]["corrupt"] == 30


def test_corrupt_records_go_apart_and_with_them_it_is_taken_back(sparks: Sparks, tmp_path: Path) -> None:
    file, table, apart = tmp_path / "in.csv", tmp_path / "table", tmp_path / "apart"
    lines = [f"{each},a" if each % 7 else f"x{each},b,c" for each in range(400)]
    file.write_text("\n".join(lines))

    def load(**more: Any) -> dict[str, Any]:
        asked = {"schema": "id INT, name STRING", "chunk_size": 1000, "quarantine": f"delta:{apart}", **more}
        return sparks.of("4.2.0").call(APP, "load", file=str(file), to=f"delta:{table}", more=asked)

    loaded = load()["loaded"]
    corrupt = [each for each in lines if each.startswith("x")]
    assert (loaded["rows"], loaded["corrupt"], loaded["chunks"]) == (400 - len(corrupt), len(corrupt), 3)
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == [each for each in range(400) if each % 7]
    found = DeltaTable(apart).to_pyarrow_table()
    assert sorted(found["record"].to_pylist()) == sorted(corrupt)
    assert set(found["chunk"].to_pylist()) == {0, 1, 2}
    assert not load()["loaded"]["is_new"]
    assert load(quarantine=None)["error"]["condition"] == "LOAD_DIFFERS"
    words = ["load", str(file), "--to", f"delta:{table}"]
    assert call(*words, "--undo").returncode == 91
    assert call(*words, "--quarantine", f"delta:{apart}", "--undo").returncode == 0
    assert [DeltaTable(each).to_pyarrow_table().num_rows for each in (table, apart)] == [0, 0]
    both = load(schema="id INT, name STRING, _corrupt_record STRING")["error"]
    assert both["sentence"] == "a column for corrupt records and a table for them contradict each other"
