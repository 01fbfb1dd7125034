"""A table of a database that a `foreachBatch` function writes in one transaction with its rows: the fence."""

from __future__ import annotations

import contextlib
import importlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from lastgood.errors import ExtraMissingError, StorageError, UsageError
from lastgood.redaction import hide_login, redact_error
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, make_silent_evidence
from lastgood.sinks.fence.kind import FENCE_SINK
from lastgood.storage.parallel import Deadline, ask_one

TIMEOUT_SECONDS = 10.0

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")
_SQLITE = "sqlite:///"
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}", "numeric_dollar": "${}"}


class FenceInvalidError(UsageError):
    """The description of a fence table cannot be meant so."""

    condition = "FENCE_INVALID"


class Cursor(Protocol):
    """As in PEP 249."""

    def execute(self, operation: str, parameters: Sequence[Any], /) -> Any:
        """Run a statement."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Every row of the result."""


class Connection(Protocol):
    """As in PEP 249."""

    def cursor(self) -> Cursor:
        """A cursor."""

    def close(self) -> None:
        """End it; what was not committed is dropped."""


@dataclass(frozen=True, slots=True)
class FenceTable:
    """Names of a fence table and of its columns; None where it has no such column."""

    name: str = "stream_fence"
    query_id: str = "query_id"
    batch_id: str = "batch_id"
    sink_name: str | None = "sink_name"
    input_digest: str | None = "input_digest"
    """Tells a batch that was planned anew from one that is run again: then nothing is skipped without a word."""
    epoch: str | None = "epoch"
    state: str | None = "state"
    """`live` or `undone`."""
    row_count: str | None = "row_count"

    def __post_init__(self) -> None:
        for name in (self.name, *self._columns):
            if name is not None and not _NAME.fullmatch(name):
                raise FenceInvalidError("this is no name of a table or column", found=name)

    @property
    def _columns(self) -> tuple[str | None, ...]:
        return self.query_id, self.batch_id, self.sink_name, self.input_digest, self.epoch, self.state, self.row_count

    def select(self, placeholder: str, *, by_sink: bool) -> str:
        """The statement that reads every batch, in the order in which they were written."""
        columns = [self.query_id, self.batch_id, *(name or "NULL" for name in (self.epoch, self.state, self.row_count))]
        if by_sink and self.sink_name:
            where = f" WHERE {self.sink_name} = {placeholder.format(1)}"
        else:
            where = ""
        order = ", ".join(name for name in (self.epoch, self.batch_id) if name)
        return f"SELECT {', '.join(columns)} FROM {self.name}{where} ORDER BY {order}"  # noqa: S608 - names are checked


class FenceSink:
    """A fence table in a database."""

    kind = FENCE_SINK.name

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        location: str,
        table: FenceTable | None = None,
        sink_name: str | None = None,
        paramstyle: str = "qmark",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Describe a fence; nothing is read yet.

        Args:
            connect: Gives a DB-API connection.
            location: What a person calls the place; without a password.
            table: Its names, if they are not those that lastgood gives.
            sink_name: Which of several sinks; None: whatever is there.
            paramstyle: That of the driver's module.
            timeout_seconds: How long reading may take.

        Raises:
            FenceInvalidError: the driver's parameters are of a kind that is not known.
        """
        if paramstyle not in _PLACEHOLDERS:
            raise FenceInvalidError("this style of parameters is not known", found=paramstyle)
        self._connect = connect
        self._location = location
        self._table = table or FenceTable()
        self._sink_name = sink_name
        self._placeholder = _PLACEHOLDERS[paramstyle]
        self._timeout_seconds = timeout_seconds

    @property
    def location(self) -> str:
        """Database and table."""
        return f"{self._location}#{self._table.name}"

    def evidence(self, query_id: str, *, now_ms: int) -> SinkEvidence:
        """What the fence says about a query; see `Sink.evidence`."""
        deadline = Deadline.after(self._timeout_seconds)
        try:
            rows = ask_one(self._read, deadline=deadline, subject=self.location) or []
        except StorageError as error:
            return make_silent_evidence(self.kind, self.location, DedupeKey.QUERY_ID, error)
        batches = tuple(_make_batch(row) for row in rows if row[0] == query_id)
        last = max((batch.batch_id for batch in batches if batch.is_live), default=None)
        others: dict[str, int] = {}
        for row in rows:
            if row[0] != query_id and row[3] in (None, "live"):
                others[row[0]] = max(row[1], others.get(row[0], row[1]))
        notes: tuple[str, ...] = ()
        if self._table.input_digest is None and last is not None:
            notes = ("the fence knows numbers only: a batch that is planned anew is skipped whatever it holds",)
        return SinkEvidence(
            kind=self.kind,
            location=self.location,
            dedupe_key=DedupeKey.QUERY_ID,
            last_batch=last,
            known=True,
            because=f"the newest live row of {self._table.name}",
            skips_up_to=last if self._table.input_digest is None else None,
            batches=batches,
            complete_from=0,
            others=others,
            notes=notes,
        )

    def _read(self) -> list[tuple[Any, ...]]:
        by_sink = self._sink_name is not None
        statement = self._table.select(self._placeholder, by_sink=by_sink)
        parameters = (self._sink_name,) if by_sink and self._table.sink_name else ()
        try:
            with contextlib.closing(self._connect()) as connection:
                cursor = connection.cursor()
                cursor.execute(statement, parameters)
                return cursor.fetchall()
        except ExtraMissingError:
            raise
        except Exception as error:  # each driver has its own tree of exceptions: here they all mean "no answer"
            reason = redact_error(error)
            raise StorageError(
                "the database does not answer", subject=self.location, found=f"{type(error).__name__}: {reason}"
            ) from error


def open_fence(
    url: str,
    *,
    table: FenceTable | None = None,
    sink_name: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> FenceSink:
    """The fence in the database that a URL names: `sqlite:///FILE`, or whatever SQLAlchemy can open.

    Raises:
        ExtraMissingError: SQLAlchemy or the driver of the database is not installed.
        UsageError: the URL is not understood.
    """
    if url.startswith(_SQLITE):
        file = url.removeprefix(_SQLITE)
        return FenceSink(
            lambda: sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True, timeout=timeout_seconds),
            location=url,
            table=table,
            sink_name=sink_name,
            paramstyle=sqlite3.paramstyle,
            timeout_seconds=timeout_seconds,
        )
    engine = _make_engine(url)
    return FenceSink(
        engine.raw_connection,
        location=hide_login(url, instead=":***"),
        table=table,
        sink_name=sink_name,
        paramstyle=engine.dialect.paramstyle,
        timeout_seconds=timeout_seconds,
    )


def _make_batch(row: Sequence[Any]) -> CommittedBatch:
    _, batch_id, epoch, state, row_count = row
    return CommittedBatch(int(batch_id), version=epoch, is_live=state in (None, "live"), row_count=row_count)


def _make_engine(url: str) -> Any:
    try:
        sqlalchemy = importlib.import_module("sqlalchemy")
    except ImportError as error:
        raise ExtraMissingError(extra="postgres", module="sqlalchemy", needed_for="a fence in a database") from error
    try:
        return sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    except ImportError as error:
        raise ExtraMissingError(extra="postgres", module=error.name or "", needed_for="this database") from error
    except sqlalchemy.exc.ArgumentError as error:
        raise FenceInvalidError("this is no URL of a database", expected="postgresql://USER@HOST/DATABASE") from error
