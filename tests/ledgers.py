"""What ledgers are told in tests, what is in them then, and what has to be true of a ledger in any database."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from lastgood.ledger import tables
from lastgood.ledger.connecting import LedgerLockedError, make_engine
from lastgood.ledger.facts import BatchFacts, Commit, PlannedBatch, QueryFacts, Sighting, Teller
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.schema import OPTIONS, LedgerMissingError, LedgerNewerError
from lastgood.ledger.store import Ledger, QueryRow
from lastgood.ledger.telling import Telling
from lastgood.ledger.url import LedgerPlace
from lastgood.records.record import (
    ChainedException,
    Crashed,
    Progress,
    QueryStarted,
    Record,
    RecordedFailure,
    RecordedOperator,
    RecordedSink,
    RecordedSource,
    StartFailed,
    Subscription,
    Terminated,
)

_T = TypeVar("_T")

QUERY_ID = "0dcd0ea6-5866-4db8-bdb7-960f2e49c827"
RUN_ID = "5f0f14a7-1c3b-4f0e-9a55-4f6d7f9f1d11"
CHECKPOINT = "file:///lake/chk"
NOON_MS = 1_795_219_200_000
PER_BATCH = 5


def kafka_end(batch_id: int) -> str:
    """Where a batch ends, as the offset log has it: as many offsets in both partitions."""
    end = (batch_id + 1) * PER_BATCH
    return f'{{"orders":{{"0":{end},"1":{end}}}}}'


def offsets(end: int) -> dict[str, dict[str, int]]:
    return {"orders": {"0": end, "1": end}}


def progress(
    batch_id: int, *, query_id: str = QUERY_ID, checkpoint: str | None = "/lake/chk", **changed: Any
) -> Progress:
    """What a recorder tells of a batch."""
    planned_ms = NOON_MS + 1000 * batch_id
    source = RecordedSource(
        description="KafkaV2[Subscribe[orders]]",
        subscription=Subscription(kind="subscribe", value="orders"),
        start_offset=offsets(batch_id * PER_BATCH) if batch_id else None,
        end_offset=offsets((batch_id + 1) * PER_BATCH),
        latest_offset=offsets(1000),
        num_input_rows=2 * PER_BATCH,
        topic_ids={"orders": "Xv8iWZ3BQ5mH9Yd2V4bN0w"},
        topic_ids_at_ms=planned_ms + 700,
    )
    fields = {
        "recorded_at_ms": planned_ms + 800,
        "query_id": query_id,
        "run_id": RUN_ID,
        "query_name": "orders",
        "checkpoint": checkpoint,
        "batch_id": batch_id,
        "trigger_at_ms": planned_ms - 10,
        "batch_duration_ms": 600,
        "duration_ms": {"addBatch": 500, "walCommit": 40},
        "num_input_rows": 2 * PER_BATCH,
        "batch_watermark_ms": planned_ms - 5000,
        "event_time_min_ms": planned_ms - 900,
        "event_time_max_ms": planned_ms - 100,
        "event_time_avg_ms": planned_ms - 400,
        "sources": (source,),
        "state_operators": (
            RecordedOperator(
                operator_name="dedupe",
                num_rows_total=10 + batch_id,
                num_rows_dropped_by_watermark=3,
                memory_used_bytes=4096,
                custom_metrics={"rocksdbGetCount": 7},
            ),
        ),
        "sink": RecordedSink(description="DeltaSink", num_output_rows=9, metrics={"numFiles": "2"}),
    }
    return Progress(**{**fields, **changed})


def plan(
    batch_id: int, *, planned_ms: int | None = None, seen_ms: int | None = None, end: str | None = None
) -> BatchFacts:
    """An entry of the offset log, as a mirror tells of it."""
    at_ms = NOON_MS + 1000 * batch_id if planned_ms is None else planned_ms
    seen = at_ms + 50 if seen_ms is None else seen_ms
    ends = (("0", kafka_end(batch_id) if end is None else end),)
    return BatchFacts(
        batch_id=batch_id, told_by=Teller.MIRROR, plans={PlannedBatch(at_ms, at_ms - 5000, ends): Sighting(seen, seen)}
    )


def commit(batch_id: int, *, seen_ms: int | None = None) -> BatchFacts:
    """An entry of the commit log, likewise."""
    at_ms = NOON_MS + 1000 * batch_id + 750 if seen_ms is None else seen_ms
    return BatchFacts(batch_id=batch_id, told_by=Teller.MIRROR, commit=Commit(at_ms, at_ms - 20, at_ms - 5020))


def telling(*facts: BatchFacts, query_id: str = QUERY_ID, **fields: Any) -> Telling:
    """These facts of one query."""
    batches: dict[int, BatchFacts] = {}
    for each in facts:
        batches[each.batch_id] = batches[each.batch_id].with_other(each) if each.batch_id in batches else each
    return Telling((QueryFacts(query_id=query_id, checkpoint=CHECKPOINT, batches=batches, **fields),))


def failure(message: str = "cannot parse record 17") -> RecordedFailure:
    cause = ChainedException(language="python", class_name="ValueError", message=message, traceback="…")
    return RecordedFailure(condition="PYTHON_EXCEPTION", message=message, causes=(cause,), end_offsets=(offsets(5),))


def dump(place: LedgerPlace) -> dict[str, list[Any]]:
    """Every row of a ledger but the numbers that it gave to its queries."""
    engine = make_engine(place)
    try:
        with engine.begin() as connection:
            names = {row.id: (row.query_id, row.checkpoint) for row in connection.execute(sa.select(tables.query))}
            found = {}
            for table in tables.metadata.sorted_tables:
                rows = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
                shown = [{**row, "id": None, "query": names.get(row.get("query", 0))} for row in rows]
                found[table.name] = sorted(shown, key=repr)
            return found
    finally:
        engine.dispose()


def only_query(ledger: Ledger) -> QueryRow:
    (query,) = ledger.queries()
    return query


def row_of(place: LedgerPlace, table: sa.Table, **key: Any) -> dict[str, Any]:
    """The one row with this key."""
    (row,) = [row for row in dump(place)[table.name] if key.items() <= row.items()]
    return row


def write_batches(place: LedgerPlace, writer: int) -> None:
    """What one of several processes does: it opens the ledger and writes batches that others write, too."""
    with _again(lambda: open_ledger(place)) as ledger:
        for batch_id in range(20):
            own = progress(batch_id, query_id=f"{writer:08x}-0000-0000-0000-000000000000")
            _again(lambda own=own: ledger.record([progress(own.batch_id), own]))
            _again(lambda at=batch_id: ledger.add(telling(plan(at), commit(at))))


def _again(what: Callable[[], _T]) -> _T:
    """As a recorder does: where others write for long, it tries again."""
    while True:
        with contextlib.suppress(LedgerLockedError):
            return what()


class SmallDisk:
    """A file system of 600 KB; where the system lets us have none, no file may grow beyond that."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self._is_mounted = is_mounted
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._limit(600_000)

    def fill(self) -> None:
        """Leave no room."""
        self._limit(16_384)
        if self._is_mounted:
            with contextlib.suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(512))

    def make_room(self) -> None:
        """Be as it was before."""
        self._limit(600_000)
        (self.folder / "filler").unlink(missing_ok=True)

    def restore(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)

    def _limit(self, size: int) -> None:
        if not self._is_mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._limits[1]))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """A small disk below this folder."""
    place = folder / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=600k", "none", place], capture_output=True)
    is_mounted = bool(made) and made.returncode == 0
    disk = SmallDisk(place, is_mounted=is_mounted)
    try:
        yield disk
    finally:
        disk.restore()
        if is_mounted:
            subprocess.run(["umount", place], check=True)


class LedgerClaims:
    """What is true of a ledger whatever its database; a class that has the fixture `place` inherits it."""

    @pytest.fixture
    def ledger(self, place: LedgerPlace) -> Iterable[Ledger]:
        with open_ledger(place) as opened:
            yield opened

    def test_recorder_and_mirror_tell_of_one_batch(self, place: LedgerPlace, ledger: Ledger) -> None:
        told = [telling(plan(3)), telling(commit(3))]
        dumps = []
        for order in itertools.permutations(range(3)):
            for at in (*order, *order):
                ledger.record([progress(3)]) if at == 2 else ledger.add(told[at])
            dumps.append(dump(place))
            _empty(place)
        assert all(each == dumps[0] for each in dumps)
        (row,) = dumps[0]["lastgood_batch"]
        assert (row["told_by"], row["is_committed"], row["planned_at_ms"]) == ("mirror", True, NOON_MS + 3000)
        assert (row["num_input_rows"], row["num_state_rows"], row["num_rows_dropped_by_watermark"]) == (10, 13, 3)
        assert (row["event_time_max_ms"], row["duration_ms"]["addBatch"]) == (NOON_MS + 2900, 500)
        (source,) = dumps[0]["lastgood_source"]
        assert (source["end_offset"], source["subscription"]) == (kafka_end(3), "orders")
        (state,) = dumps[0]["lastgood_state"]
        assert (state["operator_name"], state["custom_metrics"]) == ("dedupe", {"rocksdbGetCount": 7})

    def test_what_is_stored_comes_out_as_it_went_in(self, ledger: Ledger) -> None:
        told = [plan(2), commit(2), plan(2, planned_ms=NOON_MS + 99_000, end="-")]
        expected = told[0].with_other(told[1]).with_other(told[2])
        ledger.add(telling(*told))
        ledger.record([progress(7)])
        found = ledger.batches(only_query(ledger), [2, 7, 8])
        assert found.keys() == {2, 7}
        assert found[2] == expected
        assert found[7].progress is not None
        assert found[7].ends == {"0": '{"orders":{"0":40,"1":40}}'}

    def test_batch_that_was_planned_anew_is_not_committed_until_it_is_again(self, ledger: Ledger) -> None:
        ledger.record([progress(3)])
        ledger.add(telling(plan(3), commit(3)))
        anew = plan(3, planned_ms=NOON_MS + 60_000, end='{"orders":{"0":1}}')
        ledger.add(telling(anew))
        query = only_query(ledger)
        found = ledger.batches(query, [3])[3]
        assert (found.is_committed, found.committed_at_ms, dict(found.ends)) == (
            False,
            None,
            {"0": '{"orders":{"0":1}}'},
        )
        assert len(found.plans) == 2
        ledger.add(telling(plan(3), commit(3)))
        assert not ledger.batches(query, [3])[3].is_committed
        ledger.add(telling(commit(3, seen_ms=NOON_MS + 61_000)))
        assert ledger.batches(query, [3])[3].is_committed

    def test_offset_is_found_in_the_batch_that_read_it(self, ledger: Ledger) -> None:
        ledger.add(telling(plan(4), plan(2)))
        query = only_query(ledger)
        assert ledger.holding("orders", 0, 22) == []
        ledger.add(telling(plan(3)))
        ledger.add(telling(plan(0)))
        assert [each.batch_id for each in ledger.holding("orders", 0, 22)] == [4]
        assert [each.batch_id for each in ledger.holding("orders", 1, 19)] == [3]
        assert ledger.holding("orders", 0, 3) == []
        ledger.add(telling(initial={"0": '{"orders":{"0":2}}'}))
        (found,) = ledger.holding("orders", 0, 3, queries=[query])
        assert (found.query, found.batch_id, found.from_offset, found.to_offset) == (query, 0, 2, 5)
        assert ledger.holding("orders", 1, 3) == []
        ledger.record([progress(9)])
        assert [each.batch_id for each in ledger.holding("orders", 1, 45)] == [9]
        assert ledger.holding("orders", 1, 50) == []

    def test_batch_at_a_time_is_the_newest_that_was_not_taken_back(self, ledger: Ledger) -> None:
        ledger.add(telling(*(plan(each) for each in range(8)), *(commit(each) for each in range(7))))
        ledger.record([progress(8)])
        query = only_query(ledger)
        assert ledger.planned_at(query, NOON_MS + 5999) == 5
        assert ledger.planned_at(query, NOON_MS - 1) is None
        assert ledger.planned_at(query, NOON_MS + 10**9) == 8
        ledger.add(telling(plan(4, planned_ms=NOON_MS + 60_000)))
        assert ledger.planned_at(query, NOON_MS + 7500) == 3
        assert ledger.planned_at(query, NOON_MS + 10**9) == 4
        assert ledger.planned_at(query, NOON_MS + 10**9, is_committed=True) == 8
        assert (ledger.bounds(query), ledger.batch_ids(query)) == ((0, 8), list(range(9)))

    def test_failures_runs_and_topics_are_told_once_however_many_recorders_tell(self, ledger: Ledger) -> None:
        names: dict[str, Any] = {"query_id": QUERY_ID, "run_id": RUN_ID, "checkpoint": "/lake/chk"}
        records: list[Record] = [
            QueryStarted(recorded_at_ms=5, started_at_ms=4, spark_version="4.2.0", application_id="local-1", **names),
            progress(1),
            Terminated(recorded_at_ms=90, batch_id=2, failure=failure(), **names),
            Terminated(recorded_at_ms=70, batch_id=None, failure=RecordedFailure(message="job aborted"), **names),
            Crashed(recorded_at_ms=99, failure=failure(), query_id=QUERY_ID, run_id=RUN_ID),
            StartFailed(recorded_at_ms=3, failure=failure("no such file"), checkpoint="/lake/chk"),
            progress(4),
        ]
        for told in (records, records[::-1], records[2:3]):
            for record in told:
                ledger.record([record])
        query = next(query for query in ledger.queries() if query.checkpoint)
        (run,) = ledger.runs(query)
        assert (run.started_at_ms, run.ended_at_ms, run.spark_version, run.last_batch_id) == (4, 70, "4.2.0", 4)
        (topic,) = ledger.topics(query)
        assert (topic.topic, topic.first_batch_id, topic.last_batch_id) == ("orders", 1, 4)
        found = {each.kind: each for each in ledger.failures()}
        assert found.keys() == {"terminated", "crashed", "start_failed"}
        assert len(ledger.failures()) == 3
        ended = found["terminated"]
        assert (ended.recorded_at_ms, ended.batch_id, ended.message) == (70, 2, "cannot parse record 17")
        assert ended.causes[0]["class_name"] == "ValueError"
        assert [each.kind for each in ledger.failures(CHECKPOINT)] == ["start_failed", "terminated"]

    def test_copy_of_a_checkpoint_is_another_query(self, ledger: Ledger) -> None:
        ledger.record([progress(1), progress(2, checkpoint="/lake/copy"), progress(3, checkpoint=None)])
        assert [query.checkpoint for query in ledger.queries()] == [CHECKPOINT, "file:///lake/copy", ""]
        assert [ledger.batch_ids(query) for query in ledger.queries()] == [[1], [2], [3]]
        assert [query.query_id for query in ledger.queries(CHECKPOINT)] == [QUERY_ID]

    def test_what_no_database_takes_is_left_out(self, ledger: Ledger) -> None:
        odd: dict[str, Any] = {
            "num_input_rows": 2**70,
            "batch_duration_ms": "long",
            "duration_ms": {"a\0b": float("nan"), "c": 1},
            "query_name": "half \ud800 a pair",
            "event_time_max_ms": True,
        }
        ledger.record([progress(1, **odd), progress(2, recorded_at_ms=None), progress(-1), progress(3, query_id=7)])  # type: ignore[arg-type]  # what a file may hold
        query = only_query(ledger)
        assert (query.name, ledger.batch_ids(query)) == ("half ? a pair", [1])
        told = ledger.batches(query, [1])[1].progress
        assert told is not None
        assert (told.num_input_rows, told.batch_duration_ms, told.event_time_max_ms) == (None, None, None)
        assert told.duration_ms == {"a�b": None, "c": 1}

    def test_long_history_is_written_in_pieces(self, ledger: Ledger) -> None:
        ledger.add(telling(*(plan(each) for each in range(1201))))
        query = only_query(ledger)
        assert ledger.bounds(query) == (0, 1200)
        assert [each.batch_id for each in ledger.holding("orders", 1, 500 * PER_BATCH)] == [500]

    def test_how_far_files_were_read_is_remembered(self, ledger: Ledger) -> None:
        ledger.set_filled("file:///a", {"x": 1, "y": 2})
        ledger.set_filled("file:///b", {"x": 5})
        ledger.set_filled("file:///a", {"y": 3})
        assert (ledger.filled("file:///a"), ledger.filled("file:///b"), ledger.filled("c")) == ({"y": 3}, {"x": 5}, {})
        ledger.set_filled("file:///b", {})
        assert ledger.filled("file:///b") == {}

    def test_migrations_make_the_tables_that_the_code_means(self, place: LedgerPlace, ledger: Ledger) -> None:
        engine = make_engine(place)
        with engine.begin() as connection:
            options = {**OPTIONS, "compare_type": True, "include_name": _is_ours}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata) == []
        engine.dispose()

    def test_ledger_of_a_newer_lastgood_is_refused(self, place: LedgerPlace, ledger: Ledger) -> None:
        engine = make_engine(place)
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE lastgood_version SET version_num = '9999'"))
        engine.dispose()
        with pytest.raises(LedgerNewerError) as refused:
            open_ledger(place)
        assert refused.value.found == "version 9999 of its tables"

    def test_ledger_that_is_not_there_is_not_made_by_one_who_only_asks(self, place: LedgerPlace) -> None:
        with pytest.raises(LedgerMissingError):
            open_ledger(place, create=False)
        with open_ledger(place):
            pass
        with open_ledger(place, create=False) as opened:
            assert opened.queries() == []

    def test_processes_that_open_and_write_at_once_lose_nothing(self, place: LedgerPlace) -> None:
        with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(write_batches, itertools.repeat(place), range(4)))
        with open_ledger(place) as ledger:
            assert len(ledger.queries()) == 5
            for query in ledger.queries():
                found = ledger.batches(query, range(20))
                assert sorted(found) == list(range(20))
                assert all(batch.progress is not None and batch.is_committed for batch in found.values())
                assert all((batch.plan is not None) == (query.query_id == QUERY_ID) for batch in found.values())
            assert len(ledger.holding("orders", 0, 52)) == 5


def _is_ours(name: str | None, kind: str, _: Any) -> bool:
    return kind != "table" or ((name or "").startswith(tables.PREFIX) and name != OPTIONS["version_table"])


def _empty(place: LedgerPlace) -> None:
    engine = make_engine(place)
    with engine.begin() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            connection.execute(sa.delete(table))
    engine.dispose()
