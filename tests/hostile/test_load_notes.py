"""What lies in a lake beside the checkpoint of a load, edited: no other file is read, and none is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile.attacker import call, tree

from lastgood.load.input_files import look_at_file
from lastgood.load.kept import keep_spec
from lastgood.load.specification import LoadFormat, LoadSpec, ParseMode, name_load
from lastgood.storage.reading import open_storage, parse_location
from lastgood.storage.writing import open_writable

SCHEMA = "id INT"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("files", "victim", 91),
        ("table", "delta:/elsewhere", 91),
        ("schema", "id INT, secret STRING", 91),
        ("options", {"header": "true"}, 91),
        ("mode", "failfast", 91),
        ("form", "text", 91),
        ("size", 1, 92),
        ("head", "0" * 64, 92),
    ],
)
def test_a_load_reads_and_writes_what_is_named_here(tmp_path: Path, field: str, value: Any, code: int) -> None:
    file, victim, table = tmp_path / "in.csv", tmp_path / "victim.csv", tmp_path / "lake/t"
    for each in (file, victim):
        each.write_text("1\n")
    location = parse_location(str(file))
    looked = look_at_file(open_storage(location), location, LoadFormat.CSV, {})
    spec = LoadSpec(
        table=f"delta:{table}",
        form=LoadFormat.CSV,
        schema=SCHEMA,
        infers=False,
        options={},
        mode=ParseMode.PERMISSIVE,
        files=(looked,),
    )
    checkpoint = parse_location(str(tmp_path / f"lake/t.lastgood/loads/{name_load([str(location)], spec.table)}"))
    keep_spec(open_writable(checkpoint), checkpoint, spec)
    note = Path(f"{checkpoint.path}.lastgood/load.json")
    told = json.loads(note.read_text())
    if field == "files":
        told["files"][0]["location"] = str(victim)
    elif field in told:
        told[field] = value
    else:
        told["files"][0][field] = value
    note.write_text(json.dumps(told))
    before = tree(tmp_path)
    answer = call("load", file, "--to", f"delta:{table}", "--schema", SCHEMA)
    assert answer.code == code, answer
    after = {path: what for path, what in tree(tmp_path).items() if not path.endswith(".lock")}
    assert after == {path: what for path, what in before.items() if not path.endswith(".lock")}
