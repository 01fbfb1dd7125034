"""Records beside a checkpoint, which any writer to the lake can make up: long, deep, many, and of the wrong types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hostile.bounded import RESIDENT_KIB, arguments, bounded
from rotated import ALL, rotated

from lastgood.ledger.opening import open_ledger
from lastgood.observe import ledger as module
from lastgood.observe.ledger import fill_from_records
from lastgood.observe.recorded import read_tail
from lastgood.records.files import parse_records
from lastgood.records.record import Progress, RecordedOperator, RecordedSource
from lastgood.spark.record_sinks import locate_records
from lastgood.storage.reading import FsspecStorage, open_storage, parse_location
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

NAME = "1795220516284-77.000001.jsonl"
RECORD = Progress(
    recorded_at_ms=1_795_220_516_284,
    query_id=QUERY_ID,
    run_id="r",
    batch_id=7,
    duration_ms={"addBatch": 5},
    sources=(RecordedSource(description="d", topic_ids={"orders": "x"}, metrics={"m": "1"}),),
    state_operators=(RecordedOperator(operator_name="o", num_rows_total=3),),
)
VERBS = [["status"], ["diagnose"], ["plan"], ["verify"]]
MEGABYTE = 1024 * 1024
LINES = {
    "deep": b"[" * (64 * MEGABYTE),
    "long": b'{"kind":"progress","x":[' + b"1," * (32 * MEGABYTE) + b"1]}\n",
    "many": b"[]\n" * (20 * MEGABYTE),
    "empty": b"\n" * (64 * MEGABYTE),
    "digits": b'{"kind":"progress","recorded_at_ms":' + b"9" * MEGABYTE + b"}\n",
}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    folder = tmp_path / "chk.lastgood/records"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("kind", "verbs"),
    [
        *rotated(LINES, VERBS, 2),
        *(pytest.param(*each, marks=pytest.mark.proof) for each in rotated(LINES, VERBS, ALL)),
    ],
)
def test_no_record_file_takes_more_than_its_end(
    records: Path, tmp_path: Path, kind: str, verbs: list[list[str]]
) -> None:
    (records / NAME).write_bytes(LINES[kind])
    for verb in verbs:
        said = bounded(arguments(verb, tmp_path / "chk"), tmp_path)
        assert not said.is_bug, (verb, said.err)
        assert said.resident_kib < RESIDENT_KIB, (verb, said.resident_kib)


def edits() -> list[Any]:
    return ["x", 1.5, True, [], {}, None, -1, 10**17, 10**400, [[]], {"a": {}}, "\ud800"]


def places(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def put(told: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    key, *rest = place
    copy = dict(told) if isinstance(told, dict) else list(told)
    copy[key] = put(copy[key], tuple(rest), value)
    return copy


def test_no_type_in_a_record_is_a_bug_of_a_verb(records: Path, tmp_path: Path) -> None:
    """Each value in the place of each field, all in one file: whatever is taken for a record, the verbs can read."""
    told = json.loads(json.dumps(RECORD.to_json()))
    lines = [json.dumps(put(told, place, value)) for place in places(told) for value in edits()]
    (records / NAME).write_text("\n".join([*lines, ""]))
    read = parse_records((records / NAME).read_bytes())
    assert 0 < len(read.records) < len(lines)
    for verb in (*VERBS, ["report"]):
        said = bounded(arguments(verb, tmp_path / "chk"), tmp_path)
        assert not said.is_bug, (verb, said.err)
    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        location = parse_location(str(tmp_path / "chk"))
        assert fill_from_records(locate_records(location), ledger, open_storage(location)) == len(read.records)


@pytest.mark.parametrize("kind", ["local", "object"])
def test_a_line_that_is_too_long_does_not_hide_those_behind_it(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It would have the ledger wait there for ever; an object of a gigabyte was read from its beginning each time."""
    monkeypatch.setattr(module, "_RECORD_BYTES_AT_ONCE", 4000)
    line = json.dumps(RECORD.to_json()).encode() + b"\n"
    (records / NAME).write_bytes(line + b"x" * 20_000 + b"\n" + line)
    location = parse_location(str(tmp_path / "chk"))
    storage = open_storage(location) if kind == "local" else object_storage()
    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        assert fill_from_records(locate_records(location), ledger, storage) == 2
        assert fill_from_records(locate_records(location), ledger, storage) == 0


def test_of_an_object_that_is_too_large_the_end_is_read(records: Path, tmp_path: Path) -> None:
    line = json.dumps(RECORD.to_json()).encode() + b"\n"
    (records / NAME).write_bytes(b"x" * (5 * MEGABYTE) + b"\n" + line)
    folder = locate_records(parse_location(str(tmp_path / "chk")))
    assert read_tail(object_storage(), folder / NAME) == line


def object_storage() -> FsspecStorage:
    return FsspecStorage(fsspec.filesystem("file", use_listings_cache=False))
