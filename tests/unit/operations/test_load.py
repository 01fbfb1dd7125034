"""What cannot be loaded is refused before Spark is started, and nothing is written."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from foreign import Lines

from lastgood.errors import UsageError
from lastgood.ledger.connecting import LedgerLockedError
from lastgood.load.kept import ChunkCount, keep_count, keep_spec
from lastgood.load.specification import (
    Bound,
    InputChangedError,
    LoadDiffersError,
    LoadFormat,
    LoadNotComparableError,
    LoadSpec,
    ParseMode,
    name_load,
)
from lastgood.observe.load_options import LoadOptions
from lastgood.operations.load import Loaded, load, undo_load
from lastgood.operations.verify import verify_load
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter, open_writable
from lastgood.supervise.load_driver import LoadQuestion
from lastgood.testing.checkpoints import CheckpointBuilder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "in" / "a.csv"
    file.parent.mkdir()
    file.write_text("1\n")
    return file


@pytest.mark.parametrize(
    ("to", "options", "sentence"),
    [
        ("iceberg:t", LoadOptions(), "the table is not understood"),
        ("t", LoadOptions(), "the table is not understood"),
        ("delta:", LoadOptions(), "the table is not understood"),
        ("delta:gs://lake/t", LoadOptions(), "a load does not reach this storage by itself"),
        (
            "file:s3a://lake/t",
            LoadOptions(follows_growth=True),
            "what grows goes, on an object store, into a table that knows batches",
        ),
        ("delta:t", LoadOptions(checkpoint="gs://lake/chk"), "a load does not reach this storage by itself"),
        ("delta:t", LoadOptions(schema="a int", infers=True), "two options contradict each other"),
        (
            "file:t",
            LoadOptions(schema="a int", evolves=True),
            "a table of this kind has the columns with which it began",
        ),
        ("delta:t", LoadOptions(options={"lineSep": "x"}), "a load of csv knows no such option"),
        (
            "delta:t",
            LoadOptions(options={"multiLine": "true", "comment": "#"}),
            "where a record ends is not known with this option",
        ),
        ("delta:t", LoadOptions(form="parquet"), "a file is no Parquet"),
        ("delta:t", LoadOptions(form="delta"), "a table is read by an ordered column, which is not named"),
        ("delta:t", LoadOptions(chunk_rows=7), "a table is read by an ordered column, which is not named"),
        ("file:t", LoadOptions(order_by="id"), "rows of a table go into a table that knows batches"),
        ("delta:t", LoadOptions(order_by="id", chunk=7), "an option is not for tables"),
        ("delta:t", LoadOptions(order_by="id", schema="id INT"), "an option is not for tables"),
        ("file:t", LoadOptions(quarantine="delta:q"), "records go apart into tables that know batches"),
        ("delta:t", LoadOptions(quarantine="q"), "records go apart into tables that know batches"),
        ("delta:t", LoadOptions(quarantine="delta:gs://lake/q"), "a load does not reach this storage by itself"),
        ("delta:t", LoadOptions(quarantine="delta:t"), "records go apart into a table of their own"),
        ("delta:t", LoadOptions(quarantine="delta:q", mode=ParseMode.FAILFAST), "two options contradict each other"),
        ("delta:t", LoadOptions(quarantine="delta:q", form="text"), "files of this kind have no broken records"),
        ("delta:t", LoadOptions(quarantine="delta:q", order_by="id"), "an option is not for tables"),
        ("delta:t", LoadOptions(order_by="id", starting_version=1), "two options contradict each other"),
        ("delta:t", LoadOptions(starting_version=1, chunk_rows=7), "an option is not for tables"),
        ("delta:t", LoadOptions(starting_version=1, form="parquet"), "only Delta tables have versions"),
        ("delta:t", LoadOptions(starting_version=0), "there is no such Delta table"),
        ("file:t", LoadOptions(starting_version=0), "rows of a table go into a table that knows batches"),
        ("delta:t", LoadOptions(order_by="id", form="csv"), "how the table is kept is not known"),
        ("delta:t", LoadOptions(order_by="id", form="delta"), "there is no such Delta table"),
        ("delta:t", LoadOptions(order_by="id", options={"header": "true"}), "a load of parquet knows no such option"),
        ("delta:t", LoadOptions(form="parquet", schema="a int"), "an option is not for Parquet"),
        ("delta:t", LoadOptions(form="parquet", mode=ParseMode.FAILFAST), "an option is not for Parquet"),
    ],
)
def test_what_is_asked_for_has_to_be_known(file: Path, to: str, options: LoadOptions, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        load([str(file)], to, options)
    assert refused.value.sentence == sentence
    assert [each.name for each in file.parent.parent.iterdir()] == ["in"]


def test_files_are_named_once_and_their_columns_told_where_spark_cannot_find_them(file: Path) -> None:
    for files, sentence in (
        ([], "no file is named"),
        ([str(file), f"file://{file}"], "a file is named twice"),
        (["gs://lake/a.csv"], "a load does not reach this storage by itself"),
    ):
        with pytest.raises(UsageError) as refused:
            load(files, f"delta:{file.parent}/t")
        assert refused.value.sentence == sentence


@pytest.mark.parametrize(
    ("tables", "options", "sentence"),
    [
        (["jdbc:h2:mem"], LoadOptions(), "a table is read by an ordered column, which is not named"),
        (["jdbc:h2:mem"], LoadOptions(order_by="id"), "the table of the database is not named"),
        (["jdbc:h2:mem"], LoadOptions(order_by="id", form="delta"), "how the table is kept is told twice"),
        (["jdbc:h2:mem", "t"], LoadOptions(order_by="id"), "one table is loaded at a time"),
        (["gs://lake/t"], LoadOptions(order_by="id"), "a load does not reach this storage by itself"),
        (
            ["jdbc:postgresql://db/shop?password=geh3im"],
            LoadOptions(order_by="id", options={"dbtable": "t"}),
            "a secret stands in the URL of the database, which would be kept beside the table",
        ),
        (
            ["jdbc:postgresql://db/shop"],
            LoadOptions(order_by="id", options={"dbtable": "t", "password": "geh3im"}),
            "a load of jdbc knows no such option",
        ),
    ],
)
def test_a_table_is_named_without_a_secret(
    tmp_path: Path, tables: list[str], options: LoadOptions, sentence: str
) -> None:
    if options.form == "delta":
        options = replace(options, options={"dbtable": "t"})
    with pytest.raises(UsageError) as refused:
        load(tables, f"delta:{tmp_path}/t", options)
    assert refused.value.sentence == sentence
    assert "geh3im" not in str(refused.value.to_json())
    assert not list(tmp_path.iterdir())


def test_another_table_in_its_place_and_one_that_is_as_it_was(tmp_path: Path) -> None:
    """Without Spark: whether there is anything to ask it."""
    table, asked = tmp_path / "raw", list[LoadQuestion]()

    def ask(question: LoadQuestion, tell: object, say: object) -> None:
        asked.append(question)
        CheckpointBuilder(checkpoint, Lines(['{"lastgood_load":1,"file":0,"position":2,"upto":"2"}'])).run(1)
        looked = replace(question.spec, bounds=(Bound(2, "2"),), may_have_grown=False)
        looked = replace(looked, files=(replace(looked.files[0], size=2),))
        storage, location = open_writable(parse_location(str(checkpoint))), parse_location(str(checkpoint))
        keep_spec(storage, location, looked)
        keep_count(storage, location, 0, ChunkCount(2, 0))

    def load_table() -> Loaded:
        options = LoadOptions(order_by="id", chunk_rows=7, checkpoint=str(checkpoint))
        return load([str(table)], f"delta:{tmp_path}/t", options, run=ask)

    checkpoint = tmp_path / "chk"
    write_deltalake(table, pa.table({"id": [1, 2]}))
    loaded = load_table()
    assert (loaded.rows, loaded.bytes, loaded.is_new, asked[0].chunk) == (2, None, True, 7)
    assert not load_table().is_new
    assert len(asked) == 1
    write_deltalake(table, pa.table({"id": [3]}), mode="append")
    again = load_table()
    assert (again.is_new, len(asked), asked[1].spec.bounds) == (False, 2, (Bound(2, "2"),))
    with pytest.raises(UsageError, match="the Delta table has no such version"):
        load([str(table)], f"delta:{tmp_path}/u", LoadOptions(starting_version=3))
    table.rename(tmp_path / "old")
    write_deltalake(table, pa.table({"id": [1, 2]}))
    with pytest.raises(InputChangedError, match="the table that is loaded is not what it was"):
        load_table()


def test_checkpoint_is_the_one_of_this_load(file: Path) -> None:
    table, checkpoint = f"delta:{file.parent}/t", file.parent / "chk"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"x"}')
    with pytest.raises(LoadDiffersError, match="another query"):
        load([str(file)], table, LoadOptions(schema="a int", checkpoint=str(checkpoint)))
    assert not Path(f"{checkpoint}.lastgood/load.json").exists()


def test_load_whose_checkpoint_is_lost_does_not_begin_again(file: Path) -> None:
    table = f"delta:{file.parent}/t"
    location = parse_location(f"{file.parent}/t.lastgood/loads/{name_load([str(file)], table)}")
    spec = LoadSpec(
        table=table, form=LoadFormat.CSV, schema="a int", infers=False, options={}, mode=ParseMode.PERMISSIVE, files=()
    )
    storage = open_writable(location)
    keep_spec(storage, location, spec)
    keep_count(storage, location, 0, ChunkCount(1, 0))
    with pytest.raises(LoadDiffersError, match="is lost") as refused:
        load([str(file)], table, LoadOptions(schema="a int"))
    assert "lastgood backup restore" in (refused.value.next or "")


def test_what_gzip_has_packed_is_whole_before_anything_is_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = file.with_name("a.csv.gz")
    packed.write_bytes(gzip.compress(b"1,2\n" * 9_000)[:-9])
    with pytest.raises(UsageError) as refused:
        load([str(packed)], f"delta:{tmp_path}/t", LoadOptions(schema="a int, b int"))
    assert refused.value.found == "it ends within a member"
    assert not (tmp_path / "t").exists()
    assert not list(tmp_path.glob("t.lastgood/**/load.json"))


def test_ledger_that_does_not_answer_is_filled_by_the_same_command(file: Path, tmp_path: Path) -> None:
    """Without Spark: there is nothing to ask it but the first time."""
    ledger = tmp_path / "ledger.db"
    options = LoadOptions(schema="a int", checkpoint=str(tmp_path / "chk"), ledger=str(ledger))

    def load_chunk(question: LoadQuestion, tell: Callable[[Mapping[str, Any]], None], say: object) -> None:
        CheckpointBuilder(tmp_path / "chk", Lines(['{"lastgood_load":1,"file":0,"position":2}'])).run(1)
        location = parse_location(question.checkpoint)
        keep_spec(open_writable(location), location, question.spec)
        keep_count(open_writable(location), location, 0, ChunkCount(1, 0))
        tell({"began": {"size": 2}})
        tell({"chunk": {"batch": 0, "rows": 1}})

    with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerLockedError) as refused:
            load([str(file)], f"delta:{tmp_path}/t", options, run=load_chunk)
        assert refused.value.effect == "the ledger was not filled; everything is loaded"
        assert (refused.value.next or "").startswith("the same command")
    assert not load([str(file)], f"delta:{tmp_path}/t", options).is_new
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        assert connection.execute("SELECT batch_id, is_committed FROM lastgood_batch").fetchall() == [(0, 1)]


def test_a_ledger_can_be_asked_while_the_load_goes_on(file: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    options = LoadOptions(schema="a int", checkpoint=str(tmp_path / "chk"), ledger=str(ledger))
    found: list[tuple[int, int]] = []

    def load_chunk(question: LoadQuestion, tell: Callable[[Mapping[str, Any]], None], say: object) -> None:
        CheckpointBuilder(tmp_path / "chk", Lines(['{"lastgood_load":1,"file":0,"position":2}'])).run(1)
        location = parse_location(question.checkpoint)
        keep_spec(open_writable(location), location, question.spec)
        keep_count(open_writable(location), location, 0, ChunkCount(1, 0))
        tell({"began": {"size": 2}})
        assert not ledger.exists()
        tell({"chunk": {"batch": 0, "rows": 1}})
        with contextlib.closing(sqlite3.connect(ledger)) as connection:
            found.extend(connection.execute("SELECT batch_id, is_committed FROM lastgood_batch"))

    load([str(file)], f"delta:{tmp_path}/t", options, run=load_chunk)
    assert found == [(0, 1)]


def test_a_folder_is_loaded_alone_and_has_files(file: Path) -> None:
    table, folder = f"delta:{file.parent.parent}/t", file.parent
    for files, options, sentence in (
        ([folder, file], LoadOptions(), "a folder is loaded alone"),
        ([folder], LoadOptions(follows_growth=True), "two options contradict each other"),
        ([folder.parent], LoadOptions(), "a folder lies in the folder"),
    ):
        with pytest.raises(UsageError) as refused:
            load([str(each) for each in files], table, options)
        assert refused.value.sentence == sentence
    file.rename(file.with_name("_a.csv"))
    with pytest.raises(UsageError, match="no file in the folder"):
        load([str(folder)], table)


def test_files_that_came_since_follow_those_that_were_there(file: Path) -> None:
    """Without Spark: what it is asked, after a first chunk of the first file."""
    folder = file.parent
    asked: list[LoadQuestion] = []

    def ask(question: LoadQuestion, tell: object, say: object) -> None:
        asked.append(question)

    def look() -> list[str]:
        load([str(folder)], f"delta:{folder.parent}/t", LoadOptions(schema="a int"), run=ask)
        return [Path(each.location).name for each in asked[-1].spec.files]

    file.write_text("1\n2\n")
    file.with_name("b.csv").write_text("3\n")
    assert look() == ["a.csv", "b.csv"]
    where = parse_location(asked[-1].checkpoint)
    checkpoint = Path(where.path)
    keep_spec(open_writable(where), where, asked[-1].spec)

    def commit(batch: int, number: int, position: int) -> None:
        lines = [
            "v1",
            '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}',
            f'{{"file":{number},"position":{position}}}',
        ]
        for log, text in (("offsets", "\n".join(lines)), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
            (checkpoint / log).mkdir(parents=True, exist_ok=True)
            (checkpoint / log / str(batch)).write_text(text)
        (checkpoint / "metadata").write_text('{"id":"3c18e0d1-413a-49a6-8430-cd5566fb7fe8"}')

    commit(0, 0, 2)
    file.with_name("0.csv").write_text("4\n")
    assert look() == ["a.csv", "0.csv", "b.csv"], "nothing was read of those behind the first"
    keep_spec(open_writable(where), where, asked[-1].spec)
    file.with_name("b.csv").write_text("33\n")
    assert look() == ["a.csv", "0.csv", "b.csv"]
    commit(1, 1, 2)
    file.unlink()
    assert look() == ["a.csv", "0.csv", "b.csv"], "it was read whole, and may be gone"
    file.with_name("0.csv").write_text("5\n6\n")
    with pytest.raises(InputChangedError) as refused:
        look()
    assert refused.value.subject is not None
    assert refused.value.subject.endswith("0.csv")
    commit(1, 1, 1)
    file.with_name("0.csv").unlink()
    with pytest.raises(InputChangedError, match="not what it was") as refused:
        look()
    assert refused.value.found == "it is gone, and was not read whole"


@pytest.mark.parametrize(
    ("named", "again", "sentence"),
    [
        ("in/a.csv", "in/a.csv", "--reprocess is for a folder"),
        ("in", "in/b.csv", "a file does not lie in the folder"),
        ("in", "a.csv", "a file does not lie in the folder"),
    ],
)
def test_what_is_to_be_loaded_once_more_lies_in_the_folder(file: Path, named: str, again: str, sentence: str) -> None:
    above = file.parent.parent
    options = LoadOptions(schema="a int", reprocessed=(str(above / again),))
    with pytest.raises(UsageError) as refused:
        load([str(above / named)], f"delta:{above}/t", options)
    assert refused.value.sentence == sentence


class Folder:
    """A load of a folder without Spark: what it would be asked, and chunks as it would commit them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = f"delta:{folder.parent}/t"
        self.asked: list[LoadQuestion] = []
        self.batches = 0

    def look(self, *again: str) -> list[str]:
        """The files that would be read, each with its size; nothing more where all is loaded."""
        paths = tuple(str(self.folder / each) for each in again)
        before = len(self.asked)
        load([str(self.folder)], self.table, LoadOptions(schema="a int", reprocessed=paths), run=self._ask)
        return [f"{Path(each.location).name} {each.size}" for each in self.asked[-1].spec.files[: self._stop(before)]]

    def _stop(self, before: int) -> int | None:
        return None if len(self.asked) > before else 0

    def _ask(self, question: LoadQuestion, tell: object, say: object) -> None:
        self.asked.append(question)
        where = parse_location(question.checkpoint)
        keep_spec(open_writable(where), where, question.spec)

    def commit(self, number: int, position: int, *, is_done: bool = True) -> None:
        """A chunk up to a position of a file."""
        where = parse_location(self.asked[-1].checkpoint)
        checkpoint = Path(where.path)
        plan = ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}', json.dumps(offset(number, position))]
        logs = {"offsets": "\n".join(plan), "commits": 'v1\n{"nextBatchWatermarkMs":0}'}
        for log in ("offsets", "commits")[: 1 + is_done]:
            (checkpoint / log).mkdir(parents=True, exist_ok=True)
            (checkpoint / log / str(self.batches)).write_text(logs[log])
        (checkpoint / "metadata").write_text('{"id":"3c18e0d1-413a-49a6-8430-cd5566fb7fe8"}')
        keep_count(open_writable(where), where, self.batches, ChunkCount(1, 0))
        self.batches += is_done


def offset(number: int, position: int) -> dict[str, int]:
    return {"lastgood_load": 1, "file": number, "position": position}


def test_file_that_was_written_again_is_loaded_once_more_where_that_is_asked_for(file: Path) -> None:
    folder = Folder(file.parent)
    file.write_text("1\n")
    file.with_name("b.csv").write_text("2\n")
    assert folder.look() == ["a.csv 2", "b.csv 2"]
    folder.commit(1, 2)
    assert folder.look("a.csv") == [], "it is as it was read"
    file.write_text("11\n")
    with pytest.raises(InputChangedError) as refused:
        folder.look()
    assert refused.value.next is not None
    assert refused.value.next.startswith("--reprocess FILE added to the same command")
    assert folder.look("a.csv") == ["a.csv 2", "b.csv 2", "a.csv 3"]
    with pytest.raises(InputChangedError):
        folder.look()  # nothing was planned of it: it has to be asked for again
    assert folder.look("a.csv") == ["a.csv 2", "b.csv 2", "a.csv 3"]
    folder.commit(2, 1, is_done=False)
    assert folder.look() == ["a.csv 2", "b.csv 2", "a.csv 3"], "what was begun goes on by the same command"
    folder.commit(2, 3)
    assert folder.look() == folder.look("a.csv") == [], "once"
    file.with_name("0.csv").write_text("3\n")
    assert folder.look("a.csv") == ["a.csv 2", "b.csv 2", "a.csv 3", "0.csv 2"]
    file.write_text("111\n")
    file.with_name("b.csv").unlink()
    assert folder.look("a.csv") == ["a.csv 2", "b.csv 2", "a.csv 3", "a.csv 4", "0.csv 2"]


def test_file_that_is_half_read_is_not_begun_anew(file: Path) -> None:
    folder = Folder(file.parent)
    file.write_text("1\n2\n")
    assert folder.look() == ["a.csv 4"]
    folder.commit(0, 2)
    file.write_text("11\n2\n")
    with pytest.raises(InputChangedError) as refused:
        folder.look("a.csv")
    assert "--reprocess" not in str(refused.value.next)


def test_what_cannot_be_compared_is_told(file: Path) -> None:
    folder = Folder(file.parent)
    file.write_text("1\n")
    file.with_name("b.csv").write_text("2\n")

    def find_obstacle() -> str | None:
        with pytest.raises(LoadNotComparableError) as refused:
            verify_load([str(folder.folder)], folder.table, LoadOptions(schema="a int"), run=folder._ask)
        return refused.value.found

    assert find_obstacle() == "nothing of it is loaded"
    folder.look()
    folder.commit(0, 2)
    folder.commit(1, 2, is_done=False)
    assert find_obstacle() == "a chunk of it is not committed"
    folder.commit(1, 2)
    assert find_obstacle() == "there is no table"
    file.unlink()
    assert find_obstacle() == f"{file} is gone, or no longer what was loaded"


class KilledError(BaseException):
    """As if the process were gone."""


def kill_at(step: int, when: str, patch: pytest.MonkeyPatch) -> None:
    """Have the process die before or after it changes something for the n-th time."""
    left = step

    def make_dying(change: Any) -> Any:
        def die(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and when == "before":
                raise KilledError
            answer = change(*args)
            if left == 0:
                raise KilledError
            return answer

        return die

    for name in ("write", "create", "move", "move_folder"):
        patch.setattr(LocalWriter, name, make_dying(getattr(LocalWriter, name)))


def begin_with_rows(folder: Path) -> Folder:
    """A load of two chunks into a table that has a row of somebody else as well."""
    begun = Folder(folder)
    (folder / "a.csv").write_text("1\n2\n")
    begun.look()
    table = begun.table.partition(":")[2]
    write_deltalake(table, pa.table({"a": [7]}))
    for batch, position in enumerate((2, 4)):
        begun.commit(0, position)
        marks = CommitProperties(app_transactions=[Transaction("3c18e0d1-413a-49a6-8430-cd5566fb7fe8", batch)])
        write_deltalake(table, pa.table({"a": [batch + 1]}), mode="append", commit_properties=marks)
    return begun


def read_rows(begun: Folder) -> list[int]:
    return sorted(DeltaTable(begun.table.partition(":")[2]).to_pyarrow_table()["a"].to_pylist())


CLOCK = itertools.count(1_795_220_516_284)


def undo(begun: Folder) -> None:
    undo_load([str(begun.folder)], begun.table, LoadOptions(), now_ms=lambda: next(CLOCK))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_load_is_taken_back_wherever_that_is_killed(tmp_path: Path, when: str) -> None:
    step, is_killed = 0, True
    while is_killed:
        step += 1
        place = tmp_path / str(step) / "in"
        place.mkdir(parents=True)
        begun = begin_with_rows(place)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(step, when, patch)
            try:
                undo(begun)
                is_killed = False
            except KilledError:
                pass
        (place / "a.csv").write_text("another file meanwhile\n")
        if is_killed:
            if (step, when) != (1, "before"):
                assert look_meanwhile(begun) in ("the load is being taken back", ["a.csv 23"])
            undo(begun)
        assert read_rows(begun) == [7]
        assert begun.look() == ["a.csv 23"], "as if it had never begun"
    assert step > 6


def look_meanwhile(begun: Folder) -> str | list[str]:
    """Until it is taken back nothing is loaded; after that all is loaded from its beginning on."""
    try:
        found = begun.look()
    except LoadDiffersError as refused:
        return refused.sentence
    assert read_rows(begun) == [7]
    return found


def test_only_a_load_that_has_begun_is_taken_back(file: Path) -> None:
    folder = Folder(file.parent)
    with pytest.raises(LoadDiffersError, match="there is no such load") as refused:
        undo(folder)
    assert refused.value.found == "none"
    folder.look()
    undo(folder)
    with pytest.raises(LoadDiffersError, match="there is no such load"):
        undo(folder)


@pytest.mark.parametrize("undone_by", ["../../../x", "", "20261121-160058-7f3a/.."])
def test_the_place_of_what_is_undone_is_not_told_by_the_lake(tmp_path: Path, undone_by: str) -> None:
    place = tmp_path / "in"
    place.mkdir()
    begun = begin_with_rows(place)
    note = Path(f"{begun.asked[-1].checkpoint}.lastgood/undo.json")
    note.write_text(json.dumps({"id": undone_by, "at_ms": 1, "query_id": None}))
    with pytest.raises(LoadDiffersError, match="is not understood") as refused:
        undo(begun)
    assert refused.value.subject == str(note)
    assert read_rows(begun) == [1, 2, 7]
