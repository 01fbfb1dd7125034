"""A ledger while queries run."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ledgers import progress

from lastgood.ledger import connecting
from lastgood.ledger.connecting import LedgerLockedError
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.url import LedgerPlace, parse_place
from lastgood.spark.agent.files import RecordFileWriter
from lastgood.storage.reading import Location, parse_location
from lastgood.supervise import filling as module
from lastgood.supervise import mirroring as mirrors
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.filling import Filling, keep_filled
from lastgood.supervise.mirroring import keep_mirrored
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

DEADLINE_SECONDS = 60


@pytest.fixture
def place(tmp_path: Path) -> LedgerPlace:
    return parse_place(str(tmp_path / "folder" / "ledger.db"))


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return parse_location(str(tmp_path / "checkpoint"))


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    return CheckpointBuilder(tmp_path / "checkpoint")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.05,))
    monkeypatch.setattr(mirrors, "_LOCAL_SECONDS", 0.05)
    monkeypatch.setattr(connecting, "LOCK_SECONDS", 0.1)


def ids(place: LedgerPlace) -> list[int]:
    with contextlib.suppress(LedgerLockedError), open_ledger(place) as ledger:  # `quick` lets nobody wait for a lock
        return [batch_id for query in ledger.queries() for batch_id in ledger.batch_ids(query)]
    return []


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ledger_follows_the_mirror_and_has_all_at_the_end(
    place: LedgerPlace, location: Location, query: CheckpointBuilder
) -> None:
    told: list[Event] = []
    query.run(2)
    with keep_filled(place, told.append) as filled, keep_mirrored([location], told.append, filled):
        wait_until(lambda: ids(place) == [0, 1])
        query.run(2)
        wait_until(lambda: ids(place) == [0, 1, 2, 3])
        query.plan()
    assert ids(place) == [0, 1, 2, 3, 4]
    assert told == []


def test_nothing_is_filled_without_a_ledger(location: Location, query: CheckpointBuilder) -> None:
    query.run(1)
    with keep_filled(None, print) as filled, keep_mirrored([location], print, filled):
        assert filled is None


def test_ledger_that_is_locked_is_told_once_and_gets_all_later(
    place: LedgerPlace, location: Location, query: CheckpointBuilder
) -> None:
    told: list[Event] = []
    open_ledger(place).close()
    assert place.path is not None
    other = sqlite3.connect(place.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with keep_filled(place, told.append) as filled, keep_mirrored([location], told.append, filled):
        query.run(3)
        wait_until(lambda: told != [])
        query.run(3)
        other.execute("COMMIT")
        other.close()
    assert ids(place) == [0, 1, 2, 3, 4, 5]
    (notice,) = told
    assert isinstance(notice, Noticed)
    assert notice.condition == "LEDGER_NOT_WRITTEN"
    assert notice.sentence == (
        f"the ledger {place} is behind: others write to the ledger (database is locked); it is tried again"
    )


def test_ledger_that_cannot_be_had_until_the_end_is_filled_by_the_next_run(
    tmp_path: Path, place: LedgerPlace, location: Location, query: CheckpointBuilder
) -> None:
    told: list[Event] = []
    (tmp_path / "folder").touch()
    with keep_filled(place, told.append) as filled, keep_mirrored([location], told.append, filled):
        query.run(3)
    assert [event.name for event in told] == ["noticed"]
    (tmp_path / "folder").unlink()
    with keep_filled(place, told.append) as filled, keep_mirrored([location], told.append, filled):
        pass
    assert ids(place) == [0, 1, 2]
    assert len(told) == 1


def test_of_too_much_that_waits_the_mirror_is_read_instead(
    place: LedgerPlace, location: Location, query: CheckpointBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_MAX", 3)
    with keep_filled(place, print) as filled, keep_mirrored([location], print, filled):
        query.run(1)
        wait_until(lambda: place.path is not None and place.path.exists() and ids(place) == [0])
        query.run(5)
    assert ids(place) == list(range(6))


def test_records_of_agents_and_of_the_application_are_filled_in(
    tmp_path: Path, place: LedgerPlace, location: Location, query: CheckpointBuilder
) -> None:
    query.run(1)

    def told(batch_id: int) -> dict[str, object]:
        return progress(batch_id, query_id=QUERY_ID, checkpoint=str(tmp_path / "checkpoint")).to_json()

    RecordFileWriter(tmp_path / "agent" / "run-1").write([told(7)])
    now = RecordFileWriter(tmp_path / "agent" / "run-2")
    RecordFileWriter(tmp_path / "checkpoint.lastgood" / "records").write([told(9)])
    with keep_filled(place, print, agents=tmp_path / "agent") as filled, keep_mirrored([location], print, filled):
        wait_until(lambda: place.path is not None and place.path.exists() and ids(place) == [0, 7, 9])
        now.write([told(8)])
        wait_until(lambda: ids(place) == [0, 7, 8, 9])


def test_end_does_not_wait_for_a_ledger_that_hangs(
    place: LedgerPlace, location: Location, query: CheckpointBuilder
) -> None:
    open_ledger(place).close()
    assert place.path is not None
    other = sqlite3.connect(place.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    query.run(1)
    filled = Filling(place, tell=lambda _: None)
    filled.add(location)
    filled.begin()
    filled.end(seconds=0.1)
    other.close()
    wait_until(lambda: not filled._thread.is_alive())


def test_library_that_is_missing_is_told_and_stops_nothing(
    place: LedgerPlace, location: Location, query: CheckpointBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "alembic", None)  # as if it were not installed
    told: list[Event] = []
    query.run(1)
    with keep_filled(place, told.append) as filled, keep_mirrored([location], told.append, filled):
        wait_until(lambda: told != [])
    (notice,) = told
    assert isinstance(notice, Noticed)
    assert "a ledger needs the extra 'ledger'" in notice.sentence
