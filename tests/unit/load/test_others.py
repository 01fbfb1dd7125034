"""A file is loaded into a table by one load, in however many lists it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastgood.load.kept import keep_spec
from lastgood.load.others import find_other_load, locate_loads
from lastgood.load.specification import InputFile, LoadDiffersError, LoadFormat, LoadSpec, ParseMode
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import LocalWriter


def make_file(location: str) -> InputFile:
    return InputFile(location=location, size=1, modified_ms=1, head="", tail="", begins=0, is_ended=True)


def begin_load(table: Location, name: str, *files: str) -> Location:
    checkpoint = locate_loads(table) / name
    spec = LoadSpec(
        table=f"delta:{table}",
        form=LoadFormat.CSV,
        schema="id INT",
        infers=False,
        options={},
        mode=ParseMode.PERMISSIVE,
        files=tuple(map(make_file, files)),
    )
    keep_spec(LocalWriter(root=table), checkpoint, spec)
    return checkpoint


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return parse_location(str(tmp_path / "t"))


def test_a_file_that_another_load_has_is_found(table: Location) -> None:
    storage = LocalWriter(root=table)
    own, other = locate_loads(table) / "own", begin_load(table, "other", "/a.csv", "/b.csv")
    assert find_other_load(storage, table, own, ["/b.csv", "/c.csv"]) == f"/b.csv, by the load on {other}"
    assert find_other_load(storage, table, own, ["/c.csv"]) is None
    assert find_other_load(storage, table, own, []) is None
    assert find_other_load(storage, table, other, ["/a.csv"]) is None  # itself


def test_who_names_a_checkpoint_asks_for_the_files_once_more(table: Location, tmp_path: Path) -> None:
    begin_load(table, "other", "/a.csv")
    elsewhere = parse_location(str(tmp_path / "chk"))
    assert find_other_load(LocalWriter(root=table), table, elsewhere, ["/a.csv"]) is None


def test_before_the_first_load_there_is_none(table: Location) -> None:
    assert find_other_load(LocalWriter(root=table), table, locate_loads(table) / "own", ["/a.csv"]) is None


def test_where_a_load_cannot_be_read_nothing_is_loaded_beside_it(table: Location) -> None:
    other = begin_load(table, "other", "/a.csv")
    note = Path(f"{other.path}.lastgood/load.json")
    note.write_text(json.dumps({"table": 7}))
    with pytest.raises(LoadDiffersError) as error:
        find_other_load(LocalWriter(root=table), table, locate_loads(table) / "own", ["/a.csv"])
    assert error.value.subject == str(note)
