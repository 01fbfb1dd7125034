"""A ledger that is open: what is told is added, what was told is asked."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from lastgood.errors import LastgoodError, NoSpaceError
from lastgood.frozen import dataclass
from lastgood.ledger import tables
from lastgood.ledger.connecting import (
    LedgerDeniedError,
    LedgerError,
    make_engine,
    make_refusal,
    open_for_reading,
    open_for_writing,
    switch_to_wal,
)
from lastgood.ledger.facts import BatchFacts, FailureSeen, QueryFacts, RunSeen, TopicSeen
from lastgood.ledger.joining import choose_known, join_facts
from lastgood.ledger.rows import fit_row, list_kafka_ranges, load_batches, store_batches
from lastgood.ledger.schema import LedgerMissingError, migrate
from lastgood.ledger.telling import Telling, make_telling
from lastgood.ledger.url import LedgerPlace
from lastgood.records.record import Record
from lastgood.storage.rights import make_private

BATCHES_AT_ONCE = 500
"""In one transaction: others who write wait for no more."""

_T = TypeVar("_T", TopicSeen, RunSeen, FailureSeen)


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A query that the ledger knows."""

    id: int
    """Its number in this ledger."""
    query_id: str
    checkpoint: str
    """As `Location.identity`; empty where nobody told."""
    name: str | None
    first_seen_ms: int | None
    last_seen_ms: int | None


@dataclass(frozen=True, slots=True)
class Holding:
    """A batch that read an offset."""

    query: QueryRow
    batch_id: int
    source_id: str
    from_offset: int
    to_offset: int
    """The first that it did not read."""


class Ledger:
    """Safe to use from several threads and processes at once. Every method raises what its database does.

    That is LedgerError or one of its subclasses, or NoSpaceError; what was not written then is not there at all.
    Use `open_ledger` to get one.
    """

    def __init__(self, place: LedgerPlace, *, create: bool = True) -> None:
        """Open the ledger at a place; see `open_ledger`."""
        self._place = place
        if place.path is not None:
            _find_file(place, place.path, create=create)
        self._engine = make_engine(place)
        try:
            if place.path is not None:
                switch_to_wal(self._engine, place)
            migrate(self._engine, place, create=create)
        except BaseException:  # also Ctrl-C: nobody holds it yet who could close it
            self.close()
            raise

    @property
    def place(self) -> LedgerPlace:
        """Where it is."""
        return self._place

    def __repr__(self) -> str:
        """Where it is, without a password."""
        return f"Ledger({self._place})"

    def close(self) -> None:
        """Let the connections go."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def record(self, records: Iterable[Record]) -> None:
        """Add what recorders have told; what is known already is not added again."""
        self.add(make_telling(records))

    def add(self, telling: Telling) -> None:
        """Add facts; what is known already, or better, stays as it is."""
        # In one order, so that two who write the same queries never wait for each other in a circle.
        for facts in sorted(telling.queries, key=lambda each: each.key):
            batches = sorted(facts.batches.items())
            for begin in range(0, max(1, len(batches)), BATCHES_AT_ONCE):
                some = dict(batches[begin : begin + BATCHES_AT_ONCE])
                if begin == 0:
                    first = facts
                else:
                    first = dataclasses.replace(facts, topics=(), runs=())
                self._add_query(dataclasses.replace(first, batches=some))
        if telling.failures:
            with open_for_writing(self._engine, self._place) as connection:
                for failure in sorted(telling.failures, key=lambda each: each.failure_id):
                    _put(connection, tables.failure, {"failure_id": failure.failure_id}, failure)

    def _add_query(self, facts: QueryFacts) -> None:
        with open_for_writing(self._engine, self._place) as connection:
            query, initial, is_begun = _put_query(connection, facts)
            _put_batches(connection, query, facts.batches, initial, is_begun=is_begun)
            for topic in facts.topics:
                key = {"query": query, "topic": topic.topic, "topic_id": topic.topic_id}
                _put(connection, tables.topic, key, topic)
            for run in facts.runs:
                _put(connection, tables.run, {"query": query, "run_id": run.run_id}, run)

    def queries(self, checkpoint: str | None = None) -> list[QueryRow]:
        """Every query, or those that a checkpoint has had: oldest first.

        Args:
            checkpoint: `Location.identity`.
        """
        columns = [tables.query.c[field.name] for field in dataclasses.fields(QueryRow)]
        wanted = sa.select(*columns).order_by(tables.query.c.first_seen_ms, tables.query.c.id)
        if checkpoint is not None:
            wanted = wanted.where(tables.query.c.checkpoint == checkpoint)
        with open_for_reading(self._engine, self._place) as connection:
            return [QueryRow(*row) for row in connection.execute(wanted)]

    def batch_ids(self, query: QueryRow) -> list[int]:
        """The batches of a query that are known, ascending."""
        wanted = sa.select(tables.batch.c.batch_id).where(tables.batch.c.query == query.id)
        with open_for_reading(self._engine, self._place) as connection:
            return sorted(connection.execute(wanted).scalars())

    def batches(self, query: QueryRow, batch_ids: Collection[int]) -> dict[int, BatchFacts]:
        """Those of these batches that are known."""
        with open_for_reading(self._engine, self._place) as connection:
            return load_batches(connection, query.id, batch_ids)

    def bounds(self, query: QueryRow) -> tuple[int, int] | None:
        """The oldest and the newest batch of a query; None if no batch is known."""
        ids = tables.batch.c.batch_id
        with open_for_reading(self._engine, self._place) as connection:
            oldest, newest = connection.execute(
                sa.select(sa.func.min(ids), sa.func.max(ids)).where(tables.batch.c.query == query.id)
            ).one()
        if oldest is None:
            return None
        return (oldest, newest)

    def planned_at(self, query: QueryRow, time_ms: int, *, is_committed: bool = False) -> int | None:
        """The newest batch planned at or before a time and not taken back since; None if there is none.

        A batch that only a recorder told of counts from the beginning of its trigger.

        Args:
            query: Of `queries`.
            time_ms: Milliseconds since 1970.
            is_committed: Only of those that were committed.
        """
        below = None
        with open_for_reading(self._engine, self._place) as connection:
            while (
                found := _find_planned_at(connection, query.id, time_ms, below, is_committed=is_committed)
            ) is not None:
                below = _find_taken_back_by(connection, query.id, found)
                if below is None:
                    return int(found.batch_id)
        return None

    def holding(
        self, topic: str, partition: int, offset: int, *, queries: Sequence[QueryRow] | None = None
    ) -> list[Holding]:
        """The batches that read an offset of Kafka, query by query, newest first."""
        held = tables.offset_range.c
        found = []
        for query in self.queries() if queries is None else queries:
            wanted = (
                sa.select(held.batch_id, held.source_id, held.from_offset, held.to_offset)
                .where(held.query == query.id, held.topic == topic, held.partition == partition)
                .where(held.to_offset > offset, held.from_offset <= offset)
                .order_by(held.batch_id.desc())
            )
            with open_for_reading(self._engine, self._place) as connection:
                found += [Holding(query, *row) for row in connection.execute(wanted)]
        return found

    def topics(self, query: QueryRow) -> list[TopicSeen]:
        """The topics of a query with their ids, oldest first."""
        return self._all(tables.topic, TopicSeen, "first_seen_ms", tables.topic.c.query == query.id)

    def runs(self, query: QueryRow) -> list[RunSeen]:
        """The runs of a query that recorders told of, oldest first."""
        return self._all(tables.run, RunSeen, "started_at_ms", tables.run.c.query == query.id)

    def failures(self, checkpoint: str | None = None) -> list[FailureSeen]:
        """Every failure, or those at a checkpoint (`Location.identity`): oldest first."""
        of_checkpoint = sa.true() if checkpoint is None else tables.failure.c.checkpoint == checkpoint
        return self._all(tables.failure, FailureSeen, "recorded_at_ms", of_checkpoint)

    def filled(self, folder: str) -> dict[str, int]:
        """How far the files of a folder were read into the ledger: name → what `set_filled` was told."""
        table = tables.filled
        with open_for_reading(self._engine, self._place) as connection:
            wanted = sa.select(table.c.name, table.c.position).where(table.c.folder == folder)
            return {row.name: row.position for row in connection.execute(wanted)}

    def set_filled(self, folder: str, positions: Mapping[str, int]) -> None:
        """Remember how far its files were read, in the place of what was remembered."""
        table = tables.filled
        with open_for_writing(self._engine, self._place) as connection:
            # Safe: the same transaction puts the new positions in their place. Where it fails, files are read once
            # more, and what they tell is known already.
            connection.execute(sa.delete(table).where(table.c.folder == folder))
            if positions:
                rows = [{"folder": folder, "name": name, "position": at} for name, at in positions.items()]
                connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)

    def _all(self, table: sa.Table, kind: type[_T], order: str, where: sa.ColumnElement[bool]) -> list[_T]:
        columns = [table.c[field.name] for field in dataclasses.fields(kind)]
        with open_for_reading(self._engine, self._place) as connection:
            rows = connection.execute(sa.select(*columns).where(where).order_by(table.c[order])).mappings()
            return [kind(**row) for row in rows]


def _find_planned_at(
    connection: sa.Connection, query: int, time_ms: int, below: int | None, *, is_committed: bool
) -> Any:
    batch = tables.batch.c
    found: list[Any] = []
    for at_ms, also in ((batch.planned_at_ms, sa.true()), (batch.trigger_at_ms, batch.planned_at_ms.is_(None))):
        wanted = sa.select(batch.batch_id, batch.planned_at_ms, batch.plan_last_seen_ms, at_ms.label("at_ms")).where(
            batch.query == query, at_ms <= time_ms, also
        )
        if below is not None:
            wanted = wanted.where(batch.batch_id < below)
        if is_committed:
            wanted = wanted.where(batch.is_committed)
        found += connection.execute(wanted.order_by(at_ms.desc(), batch.batch_id.desc()).limit(1)).all()
    return max(found, key=lambda row: (row.at_ms, row.batch_id), default=None)


def _find_taken_back_by(connection: sa.Connection, query: int, found: Any) -> int | None:
    """The first earlier batch that was planned anew after this one had been: whatever stood above it was taken back."""
    batch = tables.batch.c
    if found.planned_at_ms is None:
        return None
    wanted = sa.select(sa.func.min(batch.batch_id)).where(
        batch.query == query,
        batch.batch_id < found.batch_id,
        batch.planned_at_ms > found.planned_at_ms,
        batch.plan_first_seen_ms > found.plan_last_seen_ms,
    )
    return connection.execute(wanted).scalar()


def _find_file(place: LedgerPlace, path: Path, *, create: bool) -> None:
    """Have the file of a ledger there, and be told by the system, not by SQLite, why it cannot be."""
    if create:
        flags = os.O_RDWR | os.O_CREAT
    else:
        flags = os.O_RDONLY
    try:
        if create:
            make_private(path.parent)
        os.close(os.open(path, flags | os.O_CLOEXEC, 0o600))  # what failed may quote data
    except FileNotFoundError as error:
        raise LedgerMissingError("there is no ledger", subject=str(place), found="no such file") from error
    except OSError as error:
        denied, full = {errno.EACCES, errno.EPERM, errno.EROFS}, {errno.ENOSPC, errno.EDQUOT}
        if error.errno in denied:
            kind: type[LastgoodError] = LedgerDeniedError
        else:
            kind = NoSpaceError if error.errno in full else LedgerError
        raise make_refusal(kind, place, error.strerror) from error


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT that can leave alone what is there."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _hold_row(connection: sa.Connection, table: sa.Table, key: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    """The row with this key, which nobody else changes until we are done; if there is none, it is made."""
    wanted = sa.select(table).where(*(table.c[name] == value for name, value in key.items())).with_for_update()
    there = connection.execute(wanted).mappings().one_or_none()
    if there is None:
        connection.execute(_insert(connection, table).values(**fit_row(table, {**new, **key})).on_conflict_do_nothing())
        there = connection.execute(wanted).mappings().one()
    return there


def _put(connection: sa.Connection, table: sa.Table, key: Mapping[str, Any], told: _T) -> None:
    names = [field.name for field in dataclasses.fields(told)]
    new = fit_row(table, {**{name: getattr(told, name) for name in names}, **key})
    there = _hold_row(connection, table, key, new)
    before = type(told)(**{name: there[name] for name in names})
    both = join_facts(before, type(told)(**{name: new[name] for name in names}))
    if both != before:
        where = (table.c[name] == value for name, value in key.items())
        connection.execute(sa.update(table).where(*where).values({name: getattr(both, name) for name in names}))


def _put_query(connection: sa.Connection, facts: QueryFacts) -> tuple[int, Mapping[str, str], bool]:
    """Its number, where its sources began, and whether that is news."""
    table = tables.query
    if facts.named is None:
        name, named_at_ms = (None, None)
    else:
        name, named_at_ms = facts.named[::-1]
    new = {
        "name": name,
        "named_at_ms": named_at_ms,
        "first_seen_ms": facts.first_seen_ms,
        "last_seen_ms": facts.last_seen_ms,
        "initial_offsets": dict(facts.initial) or None,
    }
    key = {"query_id": facts.query_id, "checkpoint": facts.checkpoint}
    there = _hold_row(connection, table, key, {**new, "initial_offsets": None})
    begun = there["initial_offsets"] or {}
    initial = {
        source: choose_known(begun.get(source), facts.initial.get(source)) for source in {**begun, **facts.initial}
    }
    is_newer = (named_at_ms or -1, name or "") > (there["named_at_ms"] or -1, there["name"] or "")
    if not is_newer:
        name, named_at_ms = there["name"], there["named_at_ms"]
    both = {
        "name": name,
        "named_at_ms": named_at_ms,
        "first_seen_ms": _choose_extreme(min, there["first_seen_ms"], facts.first_seen_ms),
        "last_seen_ms": _choose_extreme(max, there["last_seen_ms"], facts.last_seen_ms),
        "initial_offsets": initial or None,
    }
    if any(there[name] != value for name, value in both.items()):
        connection.execute(sa.update(table).where(table.c.id == there["id"]).values(both))
    return there["id"], initial, initial != begun


def _choose_extreme(choose: Callable[[list[int]], int], *times_ms: int | None) -> int | None:
    given = [each for each in times_ms if each is not None]
    if not given:
        return None
    return choose(given)


def _put_batches(
    connection: sa.Connection,
    query: int,
    batches: Mapping[int, BatchFacts],
    initial: Mapping[str, str],
    *,
    is_begun: bool,
) -> None:
    """Merge them with what is known, and derive anew what they and the batches after them read."""
    if is_begun:
        begun = {0}
    else:
        begun = set()
    near = {batch_id + step for batch_id in batches for step in (-1, 0, 1)} | begun
    if not near:
        return
    there = load_batches(connection, query, near)
    told = {}
    for at, facts in batches.items():
        if at in there:
            told[at] = there[at].with_other(facts)
        else:
            told[at] = facts.settle()
    changed = {at: facts for at, facts in told.items() if facts != there.get(at)}
    now = {**there, **changed}
    stale = ({at + step for at in changed for step in (0, 1)} | begun) & now.keys()
    ranges = {at: list(list_kafka_ranges(now[at], now.get(at - 1), initial)) for at in stale}
    store_batches(connection, query, changed, ranges)
