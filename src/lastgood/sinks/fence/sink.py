"""A table of a database that a `foreachBatch` function writes in one transaction with its rows: the fence."""

from __future__ import annotations

import contextlib
import importlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote

from lastgood.errors import ExtraMissingError, StorageError, UsageError
from lastgood.frozen import dataclass
from lastgood.redaction import hide_login, redact_error
from lastgood.sinks.evidence import (
    CommittedBatch,
    DedupeKey,
    SinkEvidence,
    make_silent_evidence,
    make_unknown_evidence,
)
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

    @property
    def description(self) -> Sequence[Sequence[Any]] | None:
        """Of each column of the result its name, and more."""

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

    def select_none(self) -> str:
        """The statement that tells which columns there are, and reads no row."""
        return f"SELECT * FROM {self.name} WHERE 1 = 0"  # noqa: S608 - names are checked

    def select(self, placeholder: str, present: Iterable[str], *, by_sink: bool) -> str:
        """The statement that reads every batch, in the order in which they were written.

        Args:
            placeholder: How a parameter stands in it.
            present: The columns that the table has, in lower case: of others of ours nothing is read, nor of what
                somebody else keeps in it.
            by_sink: Whether only one sink's batches are wanted.
        """
        there = {*present, self.query_id.lower(), self.batch_id.lower()}  # without these two it is no fence
        columns = ", ".join(name for name in self._columns if name is not None and name.lower() in there)
        if by_sink and self.sink_name:
            where = f" WHERE {self.sink_name} = {placeholder.format(1)}"
        else:
            where = ""
        order = ", ".join(name for name in (self.epoch, self.batch_id) if name is not None and name.lower() in there)
        return f"SELECT {columns} FROM {self.name}{where} ORDER BY {order}"  # noqa: S608 - names are checked


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a fence table; None where it has no such column."""

    query_id: str
    batch: CommittedBatch
    sink_name: str | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a fence table holds."""

    rows: tuple[_Row, ...]
    has_digest: bool
    """Whether it tells a batch that was planned anew from one that is run again."""


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
            found = ask_one(self._read, deadline=deadline, subject=self.location) or _Rows((), has_digest=False)
        except StorageError as error:
            return make_silent_evidence(self.kind, self.location, DedupeKey.QUERY_ID, error)
        by_sink: dict[str | None, list[CommittedBatch]] = {}
        others: dict[str, int] = {}
        for row in found.rows:
            if row.query_id == query_id:
                by_sink.setdefault(row.sink_name, []).append(row.batch)
            elif row.batch.is_live:
                others[row.query_id] = max(row.batch.batch_id, others.get(row.query_id, row.batch.batch_id))
        newest = {name: _find_newest(batches) for name, batches in by_sink.items()}
        last = max((batch for batch in newest.values() if batch is not None), default=None)
        skips_up_to = None if found.has_digest else last
        if len(set(newest.values())) > 1:
            stands = ", ".join(f"{name} shows {batch}" for name, batch in sorted(newest.items(), key=str))
            unknown = make_unknown_evidence(
                self.kind, self.location, DedupeKey.QUERY_ID, f"its sinks are not at one batch: {stands}"
            )
            return replace(unknown, skips_up_to=skips_up_to, others=others)
        notes: tuple[str, ...] = ()
        if not found.has_digest and last is not None:
            notes = ("the fence knows numbers only: a batch that is planned anew is skipped whatever it holds",)
        batches = _list_common(list(by_sink.values()))
        return SinkEvidence(
            kind=self.kind,
            location=self.location,
            dedupe_key=DedupeKey.QUERY_ID,
            last_batch=last,
            known=True,
            because=f"the newest live row of {self._table.name}",
            skips_up_to=skips_up_to,
            batches=batches,
            complete_from=min((batch.batch_id for batch in batches), default=0),  # older rows may be cleaned up
            others=others,
            notes=notes,
        )

    def _read(self) -> _Rows:
        table = self._table
        by_sink = self._sink_name is not None
        parameters = (self._sink_name,) if by_sink and table.sink_name else ()
        try:
            with contextlib.closing(self._connect()) as connection:
                cursor = connection.cursor()
                cursor.execute(table.select_none(), ())
                present = _list_columns(cursor)
                cursor.execute(table.select(self._placeholder, present, by_sink=by_sink), parameters)
                names = _list_columns(cursor)
                told = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
                rows = tuple(_make_row(table, each) for each in told)
        except ExtraMissingError:
            raise
        except Exception as error:  # each driver has its own tree of exceptions: here they all mean "no answer"
            reason = redact_error(error)
            raise StorageError(
                "the database does not answer", subject=self.location, found=f"{type(error).__name__}: {reason}"
            ) from error
        digest = table.input_digest
        return _Rows(rows, has_digest=digest is not None and digest.lower() in names)


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


def _list_columns(cursor: Cursor) -> list[str]:
    """The columns of a result, in lower case: databases spell them each in their own way."""
    return [str(column[0]).lower() for column in cursor.description or ()]


def _make_row(table: FenceTable, told: Mapping[str, Any]) -> _Row:
    def find(name: str | None) -> Any:
        return None if name is None else told.get(name.lower())

    batch = CommittedBatch(
        int(told[table.batch_id.lower()]),
        version=find(table.epoch),
        is_live=find(table.state) in (None, "live"),
        row_count=find(table.row_count),
        is_streaming=False,
    )
    return _Row(told[table.query_id.lower()], batch, find(table.sink_name))


def _find_newest(batches: Sequence[CommittedBatch]) -> int | None:
    return max((batch.batch_id for batch in batches if batch.is_live), default=None)


def _list_common(of_sinks: Sequence[Sequence[CommittedBatch]]) -> tuple[CommittedBatch, ...]:
    """What one sink has, where others that the same function writes show the same batches as well."""
    if not of_sinks:
        return ()
    live = [{batch.batch_id for batch in batches if batch.is_live} for batches in of_sinks]
    common = set.intersection(*live)
    either = set.union(*live)
    return tuple(batch for batch in of_sinks[0] if batch.batch_id in common or batch.batch_id not in either)


def _make_engine(url: str) -> Any:
    try:
        sqlalchemy = importlib.import_module("sqlalchemy")
    except ImportError as error:
        raise ExtraMissingError(extra="postgres", module="sqlalchemy", needed_for="a fence in a database") from error
    try:
        return sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    except ImportError as error:
        raise ExtraMissingError(extra="postgres", module=error.name or "", needed_for="this database") from error
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:  # what it takes for a port may be a password
        raise FenceInvalidError("this is no URL of a database", expected="postgresql://USER@HOST/DATABASE") from error
