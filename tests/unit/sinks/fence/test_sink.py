from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path

import pytest

from lastgood.errors import ExtraMissingError
from lastgood.redaction import hide_login
from lastgood.sinks.evidence import DedupeKey
from lastgood.sinks.fence.sink import FenceInvalidError, FenceSink, FenceTable, open_fence

SCHEMA = """
CREATE TABLE stream_fence (
  sink_name text NOT NULL, query_id text NOT NULL, batch_id bigint NOT NULL, input_digest text NOT NULL,
  epoch integer NOT NULL, state text NOT NULL CHECK (state IN ('live','undone')), row_count bigint,
  PRIMARY KEY (sink_name, query_id, batch_id, epoch));
"""
ROWS = [
    ("orders", "q", 0, "d0", 1, "live", 10),
    ("orders", "q", 1, "d1", 1, "live", 10),
    ("orders", "q", 2, "d2", 1, "undone", 10),
    ("orders", "old", 7, "d7", 1, "live", 5),
    ("orders", "gone", 9, "d9", 1, "undone", 5),
    ("other", "q", 5, "d5", 1, "live", None),
]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "a % b.db"
    connection = sqlite3.connect(file)
    connection.executescript(SCHEMA)
    connection.executemany("INSERT INTO stream_fence VALUES (?, ?, ?, ?, ?, ?, ?)", ROWS)
    connection.commit()
    connection.close()
    return file


def test_fence_shows_its_newest_live_batch(database: Path) -> None:
    found = open_fence(f"sqlite:///{database}", sink_name="orders").evidence("q", now_ms=0)
    assert (found.kind, found.last_batch, found.known) == ("fence", 1, True)
    assert found.dedupe_key is DedupeKey.QUERY_ID
    assert [(batch.batch_id, batch.version, batch.is_live, batch.row_count) for batch in found.batches] == [
        (0, 1, True, 10),
        (1, 1, True, 10),
        (2, 1, False, 10),
    ]
    assert found.others == {"old": 7}
    assert found.complete_from == 0
    assert {batch.is_streaming for batch in found.batches} == {False}, "a function writes it, perhaps elsewhere as well"


def test_fence_with_a_digest_skips_nothing_without_a_word(database: Path) -> None:
    found = open_fence(f"sqlite:///{database}", sink_name="orders").evidence("q", now_ms=0)
    assert (found.skips_up_to, found.notes) == (None, ())


def add(database: Path, *rows: tuple[object, ...]) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.executemany("INSERT INTO stream_fence VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.commit()


def test_sinks_of_one_query_that_are_apart_show_no_common_batch_unless_one_is_named(database: Path) -> None:
    found = open_fence(f"sqlite:///{database}").evidence("q", now_ms=0)
    assert (found.known, found.last_batch, found.batches) == (False, None, ())
    assert "orders shows 1, other shows 5" in found.because
    assert found.others == {"old": 7}


def test_sinks_of_one_query_at_the_same_batch_show_what_both_have(database: Path) -> None:
    add(database, *(("other", "q", n, f"d{n}", 1, "live", 3) for n in (0, 3)))
    add(database, *(("orders", "q", n, f"d{n}", 1, "live", 3) for n in (3, 4, 5)))
    found = open_fence(f"sqlite:///{database}").evidence("q", now_ms=0)
    assert (found.known, found.last_batch) == (True, 5)
    assert [batch.batch_id for batch in found.batches if batch.is_live] == [0, 3, 5]


def test_fence_without_a_digest_is_seen_to_know_numbers_only(tmp_path: Path) -> None:
    file = tmp_path / "sink.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE stream_fence (query_id text, batch_id int, epoch int)")
        connection.execute("INSERT INTO stream_fence VALUES ('q', 4, 1)")
        connection.commit()
    found = open_fence(f"sqlite:///{file}").evidence("q", now_ms=0)
    assert (found.last_batch, found.skips_up_to, len(found.notes)) == (4, 4, 1)


def test_table_that_lacks_a_column_that_is_needed_is_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "sink.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE stream_fence (batch_id int, epoch int)")
        connection.execute("INSERT INTO stream_fence VALUES (4, 1)")
        connection.commit()
    assert "query_id" in open_fence(f"sqlite:///{file}").evidence("q", now_ms=0).because


def test_query_without_a_row_has_written_nothing(database: Path) -> None:
    found = open_fence(f"sqlite:///{database}", sink_name="other").evidence("nobody", now_ms=0)
    assert (found.last_batch, found.known, found.batches) == (None, True, ())


def test_batch_that_was_written_again_is_live_in_its_new_epoch(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("INSERT INTO stream_fence VALUES ('orders', 'q', 2, 'x', 2, 'live', 11)")
    connection.commit()
    connection.close()
    found = open_fence(f"sqlite:///{database}", sink_name="orders").evidence("q", now_ms=0)
    assert (found.last_batch, found.live_version(2), found.versions(2)) == (2, 2, (1, 2))


def test_fence_that_knows_numbers_only_skips_whatever_they_hold(tmp_path: Path) -> None:
    file = tmp_path / "sink.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE fence (q text, b int)")
    connection.executemany("INSERT INTO fence VALUES ('q', ?)", [(0,), (1,)])
    connection.commit()
    connection.close()
    table = FenceTable("fence", "q", "b", None, None, None, None, None)
    found = open_fence(f"sqlite:///{file}", table=table, sink_name="ignored").evidence("q", now_ms=0)
    assert (found.last_batch, found.skips_up_to, len(found.notes)) == (1, 1, 1)


def test_any_driver_will_do(database: Path) -> None:
    fence = FenceSink(lambda: sqlite3.connect(database), location="here", sink_name="orders", paramstyle="numeric")
    assert fence.evidence("q", now_ms=0).last_batch == 1
    assert fence.location == "here#stream_fence"


def test_database_that_is_not_there_is_an_answer_and_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    found = open_fence(f"sqlite:///{file}").evidence("q", now_ms=0)
    assert (found.known, found.would_skip(0)) == (False, None)
    assert "unable to open" in found.because
    assert not file.exists()


def test_table_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    sqlite3.connect(file).close()
    assert "no such table" in open_fence(f"sqlite:///{file}").evidence("q", now_ms=0).because


def test_reading_changes_nothing(database: Path) -> None:
    before = database.read_bytes()
    open_fence(f"sqlite:///{database}").evidence("q", now_ms=0)
    assert database.read_bytes() == before


@pytest.mark.parametrize("name", ["fence; DROP TABLE x", "", "a.b.c", "1st", 'a"b'])
def test_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(FenceInvalidError):
        FenceTable(name)
    with pytest.raises(FenceInvalidError):
        FenceTable(batch_id=name)


def test_schema_may_be_named() -> None:
    table = FenceTable("public.stream_fence")
    assert "FROM public.stream_fence" in table.select("%s", ["query_id", "batch_id", "sink_name"], by_sink=True)


def test_nothing_is_read_of_columns_that_are_not_of_the_fence(database: Path) -> None:
    """Somebody may keep in it what is long, or none of our business."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("ALTER TABLE stream_fence ADD COLUMN payload text")
        connection.execute("UPDATE stream_fence SET payload = 'x'")
        connection.commit()
    asked: list[str] = []

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(database)
        connection.set_trace_callback(asked.append)
        return connection

    fence = FenceSink(connect, location="here", sink_name="orders", paramstyle=sqlite3.paramstyle)
    assert fence.evidence("q", now_ms=0).last_batch == 1
    read = [statement for statement in asked if "1 = 0" not in statement]
    assert len(read) == 1
    assert "*" not in read[0]
    assert "payload" not in read[0]


def test_table_with_numbers_only_is_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "small.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE stream_fence (QUERY_ID text, BATCH_ID bigint)")
        connection.execute("INSERT INTO stream_fence VALUES ('q', 4)")
        connection.commit()
    found = open_fence(f"sqlite:///{file}").evidence("q", now_ms=0)
    assert (found.known, found.last_batch, found.skips_up_to) == (True, 4, 4)


def test_unknown_style_of_parameters_is_refused() -> None:
    with pytest.raises(FenceInvalidError):
        FenceSink(lambda: sqlite3.connect(":memory:"), location="x", paramstyle="named")


def test_other_databases_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ExtraMissingError) as raised:
        open_fence("postgresql://user:geheim@host/db")
    assert raised.value.next == "pip install 'lastgood[postgres]'"
    assert "geheim" not in str(raised.value.to_json())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@db/fences",
        "postgresql://me:s3c/ret@db/fences",
        "postgresql://me:s3c@ret@db/fences",
        "postgresql://me:s3c?ret@db/fences",
        "postgresql+psycopg://me@db/fences?password=s3cret",
    ],
)
def test_no_part_of_a_password_is_shown(url: str) -> None:
    for shown in (hide_login(url), hide_login(url, instead=":***")):
        assert "s3c" not in shown
        assert "ret" not in shown
        assert shown.endswith("@db/fences")


def test_what_is_no_secret_stays() -> None:
    for url in ("postgresql://me@db:5432/fences?sslmode=require", "sqlite:////lake/a:b@c.db"):
        assert hide_login(url) == url
