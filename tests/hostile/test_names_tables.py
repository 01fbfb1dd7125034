"""A table whose log leads out of it, or to what is no file, is opened by nobody, and nobody waits for it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hostile.attacker import Told

from lastgood.audit.specification import require_own_sink
from lastgood.delta_log import own_files
from lastgood.delta_log.own_files import TableLeadsElsewhereError, may_lead_elsewhere, require_own_files
from lastgood.errors import StorageError
from lastgood.sinks.delta.offsets import read_offsets
from lastgood.sinks.offset_columns import OffsetColumns
from lastgood.spark.audit import SinkTable
from lastgood.storage.local_tree import LinkNotFollowedError
from lastgood.storage.parallel import Deadline, ask_while_it_goes_on
from lastgood.storage.reading import open_storage, parse_location

COLUMNS = OffsetColumns("partition", "offset")
CORPUS = Path(__file__).parents[1] / "corpus/delta"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two versions, each a file of rows, and the pipe of an attacker beside it."""
    folder = tmp_path / "lake/orders"
    for batch in range(2):
        rows = pa.table({"partition": pa.array([0], pa.int32()), "offset": pa.array([batch], pa.int64())})
        write_deltalake(folder, rows, mode="append")
    os.mkfifo(tmp_path / "pipe")
    return folder


def log(table: Path, version: int = 1) -> Path:
    return table / f"_delta_log/{version:020}.json"


def change(file: Path, do: Callable[[Told], None]) -> None:
    """Change the `add` of a version."""
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            do(action["add"])
    file.write_text("".join(json.dumps(each) + "\n" for each in actions))


def vectors(pipe: Path) -> Iterator[Told]:
    facts = {"offset": 1, "sizeInBytes": 36, "cardinality": 2}
    yield {"storageType": "p", "pathOrInlineDv": f"file://{pipe}", **facts}
    yield {"storageType": "p", "pathOrInlineDv": str(pipe), **facts}
    yield {"storageType": "u", "pathOrInlineDv": f"../../{'x' * 20}", **facts}
    yield {"storageType": "u", "pathOrInlineDv": "short", **facts}
    yield {"storageType": "q", "pathOrInlineDv": "x" * 20, **facts}


def opened(table: Path) -> None:
    """All that opens a table in the way that its log says."""
    for look in (
        lambda: read_offsets(parse_location(str(table)), COLUMNS),
        lambda: require_own_sink(SinkTable("delta", str(table))),
    ):
        with pytest.raises(TableLeadsElsewhereError) as raised:
            look()
        assert raised.value.exit_code == 24


@pytest.mark.parametrize("number", range(5))
def test_deletion_vector_elsewhere_is_not_opened(number: int, table: Path, tmp_path: Path) -> None:
    vector = list(vectors(tmp_path / "pipe"))[number]
    change(log(table), lambda add: add.update(deletionVector=vector))
    opened(table)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "file:///etc/passwd",
        "s3a://evil/part",
        "../victim/part",
        "a/..%2F..%2Fb",
        "%252e%252e/b",
        "a\\..\\b",
    ],
)
def test_file_elsewhere_is_not_opened(path: str, table: Path) -> None:
    assert may_lead_elsewhere(path)
    change(log(table), lambda add: add.update(path=path))
    opened(table)


@pytest.mark.parametrize("path", ["part-0.parquet", "date=2026-11-21/part 0.parquet", "a%20b/..c", "x%3Dy/%25"])
def test_file_of_the_table_is_one(path: str) -> None:
    assert not may_lead_elsewhere(path)


def test_shallow_clone_is_not_opened(table: Path) -> None:
    change(log(table, 0), lambda add: add.update(path=f"file:{table}-of/part-0.parquet"))
    opened(table)


@pytest.mark.parametrize("where", ["data", "log", "vector"])
def test_pipe_in_a_table_is_not_opened(where: str, table: Path) -> None:
    file = {"log": log(table, 2), "data": next(table.glob("*.parquet")), "vector": table / "deletion_vector_x.bin"}[
        where
    ]
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    opened(table)


@pytest.mark.parametrize("where", ["data", "log"])
def test_link_in_a_table_is_not_opened(where: str, table: Path, tmp_path: Path) -> None:
    file = log(table) if where == "log" else next(table.glob("*.parquet"))
    shutil.move(file, tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LinkNotFollowedError):
        read_offsets(parse_location(str(table)), COLUMNS)
    with pytest.raises(LinkNotFollowedError):
        require_own_sink(SinkTable("delta", str(table)))


def test_what_a_checkpoint_of_the_log_names_counts_as_well(table: Path, tmp_path: Path) -> None:
    for number, vector in enumerate(vectors(tmp_path / "pipe")):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(table, copy)
        DeltaTable(copy).create_checkpoint()
        change_checkpoint(copy, vector)
        for version in (0, 1):
            log(copy, version).unlink()
        opened(copy)


def change_checkpoint(table: Path, vector: Told) -> None:
    """Let a checkpoint in Parquet name this vector."""
    from pyarrow import parquet

    file = next((table / "_delta_log").glob("*.checkpoint.parquet"))
    rows = parquet.read_table(file).to_pylist()
    for row in rows:
        if row.get("add") is not None:
            row["add"] = {"path": row["add"]["path"], "deletionVector": vector}
    parquet.write_table(pa.Table.from_pylist([{"add": row["add"]} for row in rows if row.get("add")]), file)


@pytest.mark.parametrize("path", ["../../evil.parquet", "/etc/passwd", "a/b.parquet", "file:///x"])
def test_part_of_a_checkpoint_elsewhere_is_not_opened(path: str, table: Path) -> None:
    file = table / "_delta_log/00000000000000000001.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    file.write_text(json.dumps({"sidecar": {"path": path, "sizeInBytes": 1}}) + "\n")
    opened(table)


def test_name_that_is_no_checkpoint_for_others_hides_no_version(table: Path, tmp_path: Path) -> None:
    vector = next(vectors(tmp_path / "pipe"))
    change(log(table), lambda add: add.update(deletionVector=vector))
    (table / f"_delta_log/00000000000000000009.checkpoint.{'-' * 36}.json").write_text('{"txn":{}}\n')
    opened(table)


@pytest.mark.parametrize("name", [each.name for each in sorted(CORPUS.iterdir()) if (each / "_delta_log").is_dir()])
def test_no_table_of_the_corpus_leads_elsewhere(name: str) -> None:
    location = parse_location(str(CORPUS / name))
    require_own_files(open_storage(location), location, deadline=Deadline.after(60))


def test_what_gives_no_sign_is_not_waited_for_and_what_goes_on_is() -> None:
    with pytest.raises(StorageError, match="in time"):
        ask_while_it_goes_on(lambda _: hang(), silence_seconds=0.05, subject="a table")

    def slow(tell: Callable[[], None]) -> int:
        for _ in range(3):
            tell()
        return 7

    assert ask_while_it_goes_on(slow, silence_seconds=60, subject="a table") == 7
    with pytest.raises(KeyError):
        ask_while_it_goes_on(lambda _: {}[0], silence_seconds=60, subject="a table")


def hang() -> None:
    reader, _ = os.pipe()
    os.read(reader, 1)


def test_sound_tables_are_read_as_before(table: Path) -> None:
    assert read_offsets(parse_location(str(table)), COLUMNS, topic="orders").held == {"orders": {0: ((0, 2),)}}
    assert own_files.may_lead_elsewhere("part-0.parquet") is False
