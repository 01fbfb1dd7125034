"""A ledger in SQLite."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from ledgers import LedgerClaims, kafka_end, plan, progress, small_disk, telling

from lastgood.errors import NoSpaceError
from lastgood.ledger import connecting
from lastgood.ledger.connecting import LedgerDamagedError, LedgerDeniedError, LedgerError, LedgerLockedError
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.schema import LedgerMissingError
from lastgood.ledger.url import LedgerPlace, parse_place


@pytest.fixture
def place(tmp_path: Path) -> LedgerPlace:
    return parse_place(str(tmp_path / "new folder" / "ledger %40.db"))


class TestSqlite(LedgerClaims):
    """All that is true of any ledger; what several processes do at once is in `tests/processes`."""

    test_processes_that_open_and_write_at_once_lose_nothing = None


@pytest.fixture
def file(place: LedgerPlace) -> Path:
    assert place.path is not None
    return place.path


def test_offset_is_looked_up_in_an_index(place: LedgerPlace, file: Path) -> None:
    with open_ledger(place) as ledger:
        ledger.add(telling(plan(0), plan(1)))
        statements: list[str] = []
        sa.event.listen(ledger._engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
        assert ledger.holding("orders", 0, 7) != []
    asked = next(each for each in statements if "lastgood_range" in each)
    with sqlite3.connect(file) as connection:
        steps = connection.execute(f"EXPLAIN QUERY PLAN {asked}", (1, "orders", 0, 7, 7)).fetchall()
    connection.close()
    assert "INDEX lastgood_range_place (query=? AND topic=? AND partition=? AND to_offset>?)" in steps[0][3]


def test_reader_goes_on_while_somebody_writes_and_a_writer_is_told(
    place: LedgerPlace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LOCK_SECONDS", 0.1)
    with open_ledger(place) as ledger:
        ledger.record([progress(1)])
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert len(ledger.queries()) == 1
        with open_ledger(place, create=False) as second:
            assert len(second.queries()) == 1
        with pytest.raises(LedgerLockedError) as refused:
            ledger.record([progress(2)])
        assert refused.value.found == "database is locked"
        other.execute("COMMIT")
        other.close()
        ledger.record([progress(2)])
        assert ledger.batch_ids(ledger.queries()[0]) == [1, 2]


@pytest.fixture
def powerless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Root may everything: be nobody, who may come this far, for a while."""
    if os.geteuid() == 0:
        for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
            folder.chmod(0o755)
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


def test_file_that_we_may_not_write_is_named(place: LedgerPlace, file: Path, request: pytest.FixtureRequest) -> None:
    open_ledger(place).close()
    file.chmod(0o400)
    file.parent.chmod(0o555)
    request.getfixturevalue("powerless")
    with pytest.raises(LedgerDeniedError) as refused:
        open_ledger(place)
    assert refused.value.subject == f"sqlite:///{file}"
    assert refused.value.found == os.strerror(errno.EACCES)


def test_file_that_is_no_database_is_refused(place: LedgerPlace, file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no database\n" * 1000)
    with pytest.raises(LedgerDamagedError):
        open_ledger(place)
    assert file.read_bytes() == b"no database\n" * 1000


def test_folder_in_the_place_of_the_file_is_refused(place: LedgerPlace, file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(LedgerError) as refused:
        open_ledger(place)
    assert refused.value.found == os.strerror(errno.EISDIR)


def test_full_disk_takes_nothing_half(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk, open_ledger(str(disk.folder / "ledger.db")) as ledger:
        ledger.record([progress(0)])
        before = ledger.queries()
        end = kafka_end(1).replace("}}", "".join(f',"{each}":{each}' for each in range(2, 200)) + "}}")
        with pytest.raises((NoSpaceError, LedgerError)):
            ledger.add(telling(*(plan(each, end=end) for each in range(1, 450)), query_id="another"))
        assert ledger.queries() == before
        ledger.record([progress(1)])
        assert ledger.batch_ids(before[0]) == [0, 1]


def test_file_that_is_taken_away_is_missed_and_made_again_when_it_is_opened(place: LedgerPlace, file: Path) -> None:
    with open_ledger(place) as ledger:
        for each in file.parent.iterdir():
            each.unlink()
        with pytest.raises(LedgerError):
            ledger.record([progress(1)])
    file.unlink()
    with pytest.raises(LedgerMissingError):
        open_ledger(place, create=False)
    assert not file.exists()
    with open_ledger(place) as ledger:
        ledger.record([progress(1)])


def test_ledger_is_for_its_owner_and_shows_where_it_is(place: LedgerPlace, file: Path) -> None:
    with open_ledger(place) as ledger:
        assert repr(ledger) == f"Ledger(sqlite:///{file})"
        assert ledger.place == place
    assert file.stat().st_mode & 0o777 == 0o600
