"""What the source of a load raises where a storage does not answer, or refuses: all that Spark passes on."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from lastgood.errors import StorageError
from lastgood.failures.causes import read_causes
from lastgood.failures.classify import classify_causes
from lastgood.failures.lack import explain_lack
from lastgood.load.input_files import look_at_file
from lastgood.load.ranges import Piece
from lastgood.load.specification import LoadFormat
from lastgood.spark.load_source import LoadReader, name_storage
from lastgood.storage.reading import StorageDeniedError, open_storage, parse_location


class ServerDisconnectedError(Exception):
    """As a library has one that no rule knows."""


def raise_within(kind: type[StorageError]) -> None:
    error = kind("it did not work", subject="s3a://lake/in.csv", found="Server disconnected")
    raise error from ServerDisconnectedError()


def test_a_storage_that_does_not_answer_is_one_to_ask_later() -> None:
    with pytest.raises(ConnectionError) as told, name_storage():
        raise_within(StorageError)
    text = "".join(traceback.format_exception(told.value))
    java = f"org.apache.spark.SparkException: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] latestOffset: {text}"
    lack = explain_lack(classify_causes(read_causes(java)))
    assert lack is not None
    assert lack["kind"] == "transient"
    assert lack["found"].endswith(": it did not work: s3a://lake/in.csv: Server disconnected")


def test_a_storage_that_refuses_is_named_and_not_asked_again() -> None:
    with pytest.raises(RuntimeError, match=r"it did not work: s3a://lake/in\.csv: Serv"), name_storage():
        raise_within(StorageDeniedError)


def read_file(file: Path, **parsing: str) -> tuple[LoadReader, Piece]:
    """What reads a file, and the piece that all of it is."""
    location = parse_location(str(file))
    looked = look_at_file(open_storage(location), location, LoadFormat.CSV, parsing)
    told = {"files": json.dumps([looked.to_json()]), "parsing": json.dumps(parsing)}
    options = {**told, "chunk": "1", "tasks": "1", "form": "csv", "zone": "UTC"}
    return LoadReader(options), Piece(0, looked.begins, looked.length, looked.begins, looked.length)


def test_a_file_that_changes_while_its_last_part_is_read_ends_the_load(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("1,a\n2,b\n")
    reader, piece = read_file(file)
    batches = reader.read_piece(piece)
    next(batches)
    file.write_text("3,c\n4,d\n")
    with pytest.raises(RuntimeError, match="was changed while it was loaded"):
        list(batches)


def test_what_is_no_character_is_told_with_what_is_before_it(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes("1,ä\n2,".encode("utf-16-le") + b"\x3d\xd8" + "b\n".encode("utf-16-le"))
    reader, piece = read_file(file, encoding="UTF-16LE")
    with pytest.raises(RuntimeError, match=r"3dd8 is no character of its encoding, behind '1,ä\\n2,'"):
        list(reader.read_piece(piece))
