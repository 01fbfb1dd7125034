"""Connections to a ledger's database, which never wait for long, and what a database refuses, as our errors."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, ResourceClosedError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import NullPool

from lastgood.errors import LastgoodError, NoSpaceError, Retry
from lastgood.ledger.url import LedgerPlace, LedgerUrlError
from lastgood.redaction import redact_told

LOCK_SECONDS = 2.0
"""How long a statement waits for others who write."""
_CONNECT_SECONDS = 5
_NO_ANSWER_MS = 20_000
_BEGIN = "lastgood_begin"


class LedgerError(LastgoodError):
    """The ledger's database cannot be reached, or does not do what it is asked."""

    condition = "LEDGER_UNAVAILABLE"
    exit_code = 43
    retry = Retry.LATER


class LedgerLockedError(LedgerError):
    """Others write to the ledger for longer than we wait."""

    condition = "LEDGER_LOCKED"
    exit_code = 44


class LedgerDeniedError(LedgerError):
    """We may not read or write the ledger."""

    condition = "LEDGER_DENIED"
    exit_code = 45
    retry = Retry.AFTER_CHANGE


class LedgerDamagedError(LedgerError):
    """The file is no ledger, or not whole."""

    condition = "LEDGER_DAMAGED"
    exit_code = 48
    retry = Retry.AFTER_CHANGE


def make_engine(place: LedgerPlace) -> sa.Engine:
    """Connections to this place, made when they are needed.

    Raises:
        LedgerUrlError: the library does not understand the URL.
    """
    if place.path is None:
        return _connect_postgresql(place)
    return _connect_sqlite(place)


def _connect_sqlite(place: LedgerPlace) -> sa.Engine:
    # A new connection each time: one that is kept would go on writing to a file that was moved away.
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(place.path)),
        poolclass=NullPool,
        connect_args={"timeout": LOCK_SECONDS},
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: object) -> None:
        connection.isolation_level = None  # we begin ourselves: sqlite3 would leave DDL out of the transaction
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error:
            connection.close()
            raise

    @sa.event.listens_for(engine, "begin")
    def _begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))

    return engine


def _connect_postgresql(place: LedgerPlace) -> sa.Engine:
    try:
        url = make_url(place.url).set(drivername="postgresql+psycopg")
    except (SQLAlchemyError, ValueError):
        # Without its cause, which may quote the URL and with it the password.
        raise LedgerUrlError("the URL of the ledger is not understood", found=str(place)) from None
    settings = {
        "connect_timeout": _CONNECT_SECONDS,
        "tcp_user_timeout": _NO_ANSWER_MS,
        "application_name": "lastgood",
    }
    engine = sa.create_engine(
        url,
        pool_size=1,
        pool_pre_ping=True,
        connect_args={key: value for key, value in settings.items() if key not in url.query},
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {int(LOCK_SECONDS * 1000)}")
        connection.commit()

    return engine


def switch_to_wal(engine: sa.Engine, place: LedgerPlace) -> None:
    """Let SQLite's readers go on while somebody writes; said once, a file remembers it."""
    with _translate_errors(place), engine.connect() as connection:
        raw = connection.connection.driver_connection
        if raw is not None and raw.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            with contextlib.suppress(sqlite3.OperationalError):  # somebody is in it now: he who comes next will do it
                raw.execute("PRAGMA journal_mode = WAL")


@contextlib.contextmanager
def open_for_reading(engine: sa.Engine, place: LedgerPlace) -> Iterator[sa.Connection]:
    """A transaction that only reads.

    Raises:
        LedgerError: the database refuses (subclasses).
    """
    with _translate_errors(place), engine.begin() as connection:
        yield connection


@contextlib.contextmanager
def open_for_writing(engine: sa.Engine, place: LedgerPlace) -> Iterator[sa.Connection]:
    """A transaction that writes: all of the block, or nothing of it.

    Raises:
        LedgerError: the database refuses (subclasses).
        NoSpaceError: there is no room for it.
    """
    # SQLite: whoever writes says so first; one who began to read could no longer wait for another.
    begun = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
    with _translate_errors(place), begun.begin() as connection:
        yield connection


@contextlib.contextmanager
def _translate_errors(place: LedgerPlace) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        told = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(told, sqlite3.Error):
            kind = _classify_sqlite(told)
        else:
            kind = _classify_postgresql(told)
        raise make_refusal(kind, place, told) from error
    except (PoolTimeoutError, ResourceClosedError) as error:
        raise make_refusal(LedgerError, place, error) from error


def _classify_sqlite(error: sqlite3.Error) -> type[LastgoodError]:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    kinds: dict[int, type[LastgoodError]] = {
        sqlite3.SQLITE_BUSY: LedgerLockedError,
        sqlite3.SQLITE_LOCKED: LedgerLockedError,
        sqlite3.SQLITE_READONLY: LedgerDeniedError,
        sqlite3.SQLITE_PERM: LedgerDeniedError,
        sqlite3.SQLITE_FULL: NoSpaceError,
        sqlite3.SQLITE_CORRUPT: LedgerDamagedError,
        sqlite3.SQLITE_NOTADB: LedgerDamagedError,
    }
    return kinds.get(code, LedgerError)


def _classify_postgresql(error: BaseException | None) -> type[LastgoodError]:
    state = getattr(error, "sqlstate", None) or ""
    kinds: dict[str, type[LastgoodError]] = {
        "55P03": LedgerLockedError,  # lock_not_available
        "40P01": LedgerLockedError,  # deadlock_detected
        "53100": NoSpaceError,  # disk_full
        "42501": LedgerDeniedError,  # insufficient_privilege
        "25006": LedgerDeniedError,  # read_only_sql_transaction
    }
    return kinds.get(state, LedgerDeniedError if state.startswith("28") else LedgerError)


_SENTENCES: dict[type[LastgoodError], str] = {
    LedgerError: "the ledger cannot be reached",
    LedgerLockedError: "others write to the ledger",
    LedgerDeniedError: "the ledger may not be read or written",
    LedgerDamagedError: "the file is no ledger, or not whole",
    NoSpaceError: "there is no room left for the ledger",
}


def make_refusal(kind: type[LastgoodError], place: LedgerPlace, found: object) -> LastgoodError:
    """The error for what the database or the system found, without a password."""
    text = " ".join(redact_told(str(found or "")).split())
    for secret in place.secrets:
        text = text.replace(secret, "***")
    return kind(_SENTENCES[kind], subject=str(place), found=text[:500] or None)
