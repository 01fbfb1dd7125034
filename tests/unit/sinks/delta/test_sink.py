"""Delta tables written by the deltalake library: what they say of a query."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lastgood.delta_log.actions import Protocol, TableMetadata
from lastgood.delta_log.listing import name_commit
from lastgood.delta_log.table import TableLog
from lastgood.sinks.delta.sink import DeltaSink, write_obstacles
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.storage.reading import Entry, FsspecStorage, LocalStorage, Location, StorageDeniedError, parse_location

Q = "9818c18b-9839-4690-99f7-f5f3cde02c1d"
DAY_MS = 86_400_000
NOW = int(time.time() * 1000)
ROWS = pa.table({"batch": [1, 1, 1]})


def properties(app_id: str, batch_id: int, updated_ms: int | None = NOW) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(app_id, batch_id, updated_ms)])


def write(folder: Path, batch_id: int, *, app_id: str = Q, updated_ms: int | None = NOW, **more: object) -> None:
    commit = properties(app_id, batch_id, updated_ms)
    write_deltalake(folder, ROWS, mode="append", commit_properties=commit, **more)


def mark(folder: Path, batch_id: int) -> None:
    """A commit that holds nothing but a marker."""
    table = DeltaTable(folder)
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties(Q, batch_id))


def evidence(folder: Path, query_id: str = Q, *, now_ms: int = NOW, **how: object) -> SinkEvidence:
    return DeltaSink(LocalStorage(), parse_location(str(folder)), **how).evidence(query_id, now_ms=now_ms)


def clean_up(folder: Path) -> None:
    """What log cleanup leaves: a checkpoint, and the commits from there on."""
    newest = DeltaTable(folder).version()
    DeltaTable(folder).create_checkpoint()
    for version in range(newest):
        (folder / "_delta_log" / name_commit(version)).unlink(missing_ok=True)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Batches 0 to 3 of the query, each three rows."""
    folder = tmp_path / "table"
    for batch_id in range(4):
        write(folder, batch_id)
    return folder


def test_table_shows_the_batch_of_its_marker(table: Path) -> None:
    found = evidence(table)
    assert (found.kind, found.last_batch, found.known, found.skips_up_to) == ("delta", 3, True, 3)
    assert found.because == "transaction in version 3 of the table"
    assert found.dedupe_key is DedupeKey.QUERY_ID
    assert found.complete_from == 0
    assert found.identity == str(DeltaTable(table).metadata().id)
    assert [(batch.batch_id, batch.version, batch.row_count) for batch in found.batches] == [
        (n, n, 3) for n in range(4)
    ]
    assert all(batch.committed_at_ms and batch.is_live for batch in found.batches)
    assert (found.notes, found.write_obstacles, found.others) == ((), (), {})


def test_table_tells_when_it_was_made_unless_its_rows_are_older(table: Path) -> None:
    made_ms = evidence(table).created_at_ms
    assert made_ms is not None
    assert NOW - DAY_MS < made_ms < NOW + DAY_MS
    clean_up(table)
    assert evidence(table).created_at_ms == made_ms
    first = table / "_delta_log" / name_commit(3)
    for operation in ("CLONE", "CONVERT", "CREATE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT"):
        lines = [json.loads(line) for line in first.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["operation"] = operation
        first.write_text("\n".join(map(json.dumps, lines)))
        assert evidence(table).created_at_ms is None


def test_would_skip_up_to_the_marker_and_no_further(table: Path) -> None:
    found = evidence(table)
    assert [found.would_skip(batch_id) for batch_id in (0, 3, 4)] == [True, True, False]


def test_query_that_never_wrote_is_known_to_have_nothing(table: Path) -> None:
    found = evidence(table, "another")
    assert (found.last_batch, found.known, found.skips_up_to) == (None, True, None)
    assert found.others == {Q: 3}
    assert found.would_skip(0) is False


def test_names_that_have_had_a_batch_before_its_newest_are_of_others(table: Path) -> None:
    for app_id, number in (("my-app", 1), ("my-app", 2), ("their-app", 1), ("anew", 2), ("anew", 3)):
        write(table, number, app_id=app_id)
    assert evidence(table, app_id="my-app").others_beside == tuple(sorted(("their-app", Q)))


def test_application_id_of_the_user_is_looked_for_instead(table: Path) -> None:
    write(table, 9, app_id="my-app")
    found = evidence(table, app_id="my-app")
    assert (found.last_batch, found.dedupe_key, found.others) == (9, DedupeKey.APP_ID, {Q: 3})


def test_restore_without_the_marker_shows_less_than_it_skips(table: Path) -> None:
    DeltaTable(table).restore(1)
    found = evidence(table)
    assert (found.last_batch, found.known, found.skips_up_to) == (1, True, 3)
    assert found.because == "RESTORE in version 4 of the table"
    assert [batch.is_live for batch in found.batches] == [True, True, False, False]
    assert len(found.notes) == 1
    write(table, 4)
    assert evidence(table).holes == (2, 3)


def test_restore_with_a_lowered_marker_is_a_rollback(table: Path) -> None:
    DeltaTable(table).restore(1, commit_properties=properties(Q, 1))
    found = evidence(table)
    assert (found.last_batch, found.skips_up_to, found.notes) == (1, 1, ())
    for batch_id in (2, 3):
        write(table, batch_id)
    found = evidence(table)
    assert found.versions(2) == (2, 5)
    assert found.live_version(2) == 5
    assert (found.last_batch, found.holes) == (3, ())


def test_marker_that_is_lowered_after_a_restore_is_a_rollback_too(table: Path) -> None:
    DeltaTable(table).restore(1)
    mark(table, 1)
    found = evidence(table)
    assert (found.last_batch, found.skips_up_to, found.notes) == (1, 1, ())


def test_restore_by_time_is_told_from_its_files(table: Path) -> None:
    DeltaTable(table).restore(1)
    log = table / "_delta_log" / name_commit(4)
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:  # as Spark notes it down
            action["commitInfo"]["operationParameters"] = {"version": None, "timestamp": "2026-01-01 00:00:00"}
    log.write_text("\n".join(map(json.dumps, actions)))
    found = evidence(table)
    assert (found.last_batch, found.known, found.skips_up_to) == (1, True, 3)


def test_compaction_and_foreign_writes_take_nothing_back(table: Path) -> None:
    DeltaTable(table).optimize.compact()
    write_deltalake(table, ROWS, mode="append")
    found = evidence(table)
    assert (found.last_batch, found.skips_up_to) == (3, 3)
    assert all(batch.is_live for batch in found.batches)


def test_cleaned_log_still_knows_the_last_batch_but_not_each(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    clean_up(table)
    found = evidence(table)
    assert (found.last_batch, found.known, found.skips_up_to) == (3, True, 3)
    assert (found.batches, found.complete_from) == ((), 4)
    assert evidence(table, "another").known


def test_cleaned_log_counts_the_batches_that_followed(table: Path) -> None:
    clean_up(table)
    write(table, 4)
    found = evidence(table)
    assert [batch.batch_id for batch in found.batches] == [3, 4]
    assert (found.last_batch, found.complete_from) == (4, 3)


def test_restore_to_before_the_cleaned_log_leaves_it_open(table: Path) -> None:
    clean_up(table)
    write(table, 4)
    restore = {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": "1"}}}
    (table / "_delta_log" / name_commit(5)).write_text(json.dumps(restore))
    found = evidence(table)
    assert (found.last_batch, found.known, found.skips_up_to) == (None, False, 4)
    assert found.unclear == "version 5 restored version 1, which is older than what could be read"
    write(table, 5)
    went_on = evidence(table)
    assert (went_on.last_batch, went_on.known, went_on.unclear) == (5, True, found.unclear)


def test_only_as_many_versions_as_asked_are_read_one_by_one(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    found = evidence(table, commits_max=2)
    assert [batch.batch_id for batch in found.batches] == [2, 3]
    assert (found.last_batch, found.complete_from) == (3, 2)


@pytest.fixture
def expiring(tmp_path: Path) -> Path:
    """Markers expire after a day; batch 5 was written now."""
    folder = tmp_path / "expiring"
    write(folder, 5, configuration={"delta.setTransactionRetentionDuration": "interval 1 day"})
    return folder


def test_marker_counts_until_it_expires(expiring: Path) -> None:
    assert evidence(expiring, now_ms=NOW + DAY_MS - 1).skips_up_to == 5


def test_expired_marker_is_no_longer_heeded_though_the_batch_is_there(expiring: Path) -> None:
    found = evidence(expiring, now_ms=NOW + DAY_MS)
    assert (found.last_batch, found.known) == (5, True)
    assert (found.skips_up_to, found.skips_known) == (None, True)
    assert found.notes == ("the marker has expired: Spark would write batch 5 again",)


def test_marker_without_a_time_is_not_heeded_where_markers_expire(expiring: Path) -> None:
    write(expiring, 6, updated_ms=None)
    found = evidence(expiring)
    assert (found.last_batch, found.skips_up_to) == (6, None)


def test_marker_that_may_have_expired_out_of_the_log_is_unknown_not_none(expiring: Path) -> None:
    write_deltalake(expiring, ROWS, mode="append")
    clean_up(expiring)
    found = evidence(expiring, "another")
    assert (found.last_batch, found.known) == (None, False)
    assert "expire" in found.because


def test_expired_marker_that_is_gone_is_told_by_the_versions_of_its_rows(expiring: Path) -> None:
    write(expiring, 6, updated_ms=1)
    for _ in range(3):
        write_deltalake(expiring, ROWS, mode="append")
    DeltaTable(expiring).create_checkpoint()
    (expiring / "_delta_log" / name_commit(0)).unlink()
    for count in (1, 500):
        found = evidence(expiring, commits_max=count)
        assert [each.version for each in found.batches] == [1]
        assert (found.last_batch, found.known, found.skips_up_to, found.skips_known) == (6, True, None, True)
    assert found.mark_lasts_ms == DAY_MS


def test_renewed_marker_is_no_second_batch(expiring: Path) -> None:
    info = {"commitInfo": {"operation": "LASTGOOD RENEW", "operationParameters": {"recovery": "20261121-160058-7f3a"}}}
    mark = {"txn": {"appId": Q, "version": 5, "lastUpdated": NOW + DAY_MS}}
    (expiring / "_delta_log" / name_commit(1)).write_text(f"{json.dumps(info)}\n{json.dumps(mark)}\n")
    found = evidence(expiring, now_ms=NOW + DAY_MS)
    assert ([each.version for each in found.batches], found.last_batch, found.skips_up_to) == ([0], 5, 5)


def test_retention_that_is_not_understood_leaves_the_skipping_open(expiring: Path) -> None:
    action = {"metaData": {"id": "x", "configuration": {"delta.setTransactionRetentionDuration": "a while"}}}
    (expiring / "_delta_log" / name_commit(1)).write_text(json.dumps(action))
    found = evidence(expiring)
    assert (found.skips_up_to, found.skips_known, found.would_skip(5)) == (5, False, None)
    assert found.mark_lasts_ms == 0
    assert len(found.notes) == 1


def test_damaged_checkpoint_makes_absence_unknown(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    clean_up(table)
    next((table / "_delta_log").glob("*.checkpoint.parquet")).write_bytes(b"no")
    found = evidence(table)
    assert (found.last_batch, found.known, found.skips_known) == (None, False, False)
    assert "checkpoint" in found.because


def test_damaged_log_is_an_answer(table: Path) -> None:
    (table / "_delta_log" / name_commit(2)).unlink()
    found = evidence(table)
    assert (found.known, found.skips_known) == (False, False)
    assert name_commit(2) in found.because


def test_empty_version_may_be_one_that_a_batch_wrote(table: Path) -> None:
    """Delta reads it as a version in which nothing was written: seen with real Spark, which ran on without the rows."""
    newest = max((table / "_delta_log").glob("*.json"))
    assert evidence(table).unclear is None
    newest.write_bytes(b"")
    found = evidence(table)
    assert (found.known, found.skips_known) == (False, False)
    assert found.unclear is not None
    assert newest.name in found.unclear
    newest.write_bytes(b"{")
    assert evidence(table).unclear is None  # no reader gets past it


def test_missing_table_shows_nothing(tmp_path: Path) -> None:
    found = evidence(tmp_path / "nothing")
    assert (found.kind, found.last_batch, found.known, found.would_skip(0)) == ("absent", None, True, False)


def test_table_in_a_catalog_is_unknown(table: Path) -> None:
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (table / "_delta_log" / name_commit(4)).write_text(json.dumps(action))
    found = evidence(table)
    assert (found.last_batch, found.known, found.skips_known) == (None, False, False)
    assert (found.complete_from, found.back_to) == (None, None)
    assert found.write_obstacles == ("a catalog keeps the newest commits of this table",)


@pytest.mark.parametrize(
    ("action", "because"),
    [
        (
            {"protocol": {"minReaderVersion": 99, "minWriterVersion": 7, "writerFeatures": []}},
            "reader version 99 is not known to lastgood",
        ),
        (
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["marvel"]}},
            "table feature marvel is not known to lastgood",
        ),
        ({"metaData": {"id": "x", "configuration": {"delta.redirectReaderWriter-preview": "{}"}}}, "redirected"),
        ({"txn": {"appId": Q, "version": "4"}}, "damaged"),
        ({"txn": {"appId": "another", "version": None}}, "damaged"),
    ],
)
def test_log_that_cannot_be_judged_leaves_open_what_is_shown_and_skipped(
    table: Path, action: dict[str, object], because: str
) -> None:
    (table / "_delta_log" / name_commit(4)).write_text(json.dumps(action))
    for query_id in (Q, "another"):
        found = evidence(table, query_id)
        assert (found.last_batch, found.known, found.skips_known) == (None, False, False)
        assert (found.complete_from, found.back_to) == (None, None)
        assert because in found.because


def test_mark_that_is_seen_may_drop_batches_also_where_it_may_not_be_the_last(table: Path) -> None:
    for action in ({"metaData": {"id": "x", "configuration": {"delta.redirectWriterOnly-preview": "{}"}}}, {"txn": 5}):
        (table / "_delta_log" / name_commit(4)).write_text(json.dumps(action))
        found = evidence(table)
        assert (found.known, found.skips_known, found.skips_up_to) == (False, False, 3)
        assert [found.would_skip(3), found.may_skip(3), found.may_skip(4)] == [None, True, False]
        assert evidence(table, "another").skips_up_to is None
    (table / "_delta_log" / name_commit(1)).unlink()
    (table / "_delta_log" / name_commit(4)).unlink()
    found = evidence(table)
    assert (found.known, found.skips_known, found.skips_up_to) == (False, False, 3)


@pytest.mark.parametrize("version", [-2, -(2**63), 2**31, 1_795_422_560_615, 2**63 - 1])
def test_mark_that_is_no_number_of_a_batch_leaves_open_what_is_shown(table: Path, version: int) -> None:
    (table / "_delta_log" / name_commit(4)).write_text(json.dumps({"txn": {"appId": Q, "version": version}}))
    skips = version if version > 0 else None
    found = evidence(table)
    assert (found.known, found.last_batch, found.complete_from) == (False, None, None)
    assert found.because == f"transaction {version} is not the number of a batch"
    assert (found.skips_up_to, found.skips_known, found.may_skip(9)) == (skips, True, version > 0)
    assert {batch.batch_id for batch in found.batches} == {0, 1, 2, 3}
    by_name = evidence(table, "a query", app_id=Q)
    assert (by_name.known, by_name.skips_up_to, by_name.skips_known) == (False, None, False)


def test_fence_before_the_first_batch_is_no_odd_mark(table: Path) -> None:
    fence = {"commitInfo": {"operation": "LASTGOOD FENCE"}}
    mark = {"txn": {"appId": "new", "version": -1}}
    (table / "_delta_log" / name_commit(4)).write_text(f"{json.dumps(fence)}\n{json.dumps(mark)}\n")
    assert (evidence(table, "new").known, evidence(table, "new").last_batch) == (True, None)


def test_what_the_writer_noted_down_comes_along(table: Path) -> None:
    transaction = Transaction(Q, 4, NOW)
    commit = CommitProperties(app_transactions=[transaction], custom_metadata={"userMetadata": '{"offsets": 1}'})
    write_deltalake(table, ROWS, mode="append", commit_properties=commit)
    assert evidence(table).batches[-1].user_metadata == '{"offsets": 1}'


def test_table_in_an_object_store_is_read_as_well(table: Path) -> None:
    store = fsspec.filesystem("memory", use_listings_cache=False)
    for file in (table / "_delta_log").iterdir():
        store.pipe_file(f"lake/orders/_delta_log/{file.name}", file.read_bytes())
    found = DeltaSink(FsspecStorage(store), parse_location("s3a://lake/orders")).evidence(Q, now_ms=NOW)
    store.rm("lake", recursive=True)
    assert (found.last_batch, found.location, len(found.batches)) == (3, "s3a://lake/orders", 4)


class DeadStorage(LocalStorage):
    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def read(self, file: Location, *, limit: int) -> bytes | None:
        self.gate.wait(60)
        return super().read(file, limit=limit)

    def stat(self, location: Location) -> Entry | None:
        self.gate.wait(60)
        return super().stat(location)


def test_storage_that_does_not_answer_is_an_answer(table: Path) -> None:
    storage = DeadStorage()
    found = DeltaSink(storage, parse_location(str(table)), timeout_seconds=0.2).evidence(Q, now_ms=NOW)
    storage.gate.set()
    assert (found.known, found.skips_known, found.would_skip(1)) == (False, False, None)
    assert "no answer within 0.2 s" in found.because


@pytest.mark.parametrize(
    ("protocol", "obstacles"),
    [
        (Protocol(1, 2), ()),
        (Protocol(2, 5), ()),
        (Protocol(2, 6), ("writer version 6",)),
        (Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "appendOnly")), ()),
        (
            Protocol(1, 7, (), ("rowTracking", "domainMetadata")),
            ("table feature domainMetadata", "table feature rowTracking"),
        ),
        (Protocol(1, 8), ("writer version 8 is not known to lastgood",)),
        (Protocol(3, 7, ("marvel",), ("marvel",)), ("table feature marvel is not known to lastgood",)),
        (None, ("the protocol of the table is not known",)),
    ],
)
def test_what_delta_rs_cannot_write_is_named(protocol: Protocol | None, obstacles: tuple[str, ...]) -> None:
    assert write_obstacles(TableLog("t", 0, (), metadata=TableMetadata("x"), protocol=protocol)) == obstacles


@pytest.mark.parametrize(
    ("feature", "is_obstacle"),
    [("appendOnly", False), ("changeDataFeed", False), ("rowTracking", True), ("inCommitTimestamp", True)],
)
def test_obstacles_are_what_the_installed_library_refuses(tmp_path: Path, feature: str, is_obstacle: bool) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    schema = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
    table = {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)}
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}},
        {"metaData": {**table, "partitionColumns": [], "configuration": {}, "createdTime": 1}},
    ]
    (log / name_commit(0)).write_text("\n".join(map(json.dumps, actions)))
    assert bool(evidence(tmp_path).write_obstacles) is is_obstacle
    if is_obstacle:
        with pytest.raises(Exception, match="Unsupported table features"):
            mark(tmp_path, 1)
    else:
        mark(tmp_path, 1)
        assert evidence(tmp_path).skips_up_to == 1


def test_only_name_in_a_table_is_presumed_to_be_the_querys_and_said_to_be(tmp_path: Path) -> None:
    for batch_id in range(3):
        write(tmp_path / "table", batch_id, app_id="my-app")
    found = evidence(tmp_path / "table")
    assert (found.presumed_app_id, found.dedupe_key) == ("my-app", DedupeKey.APP_ID)
    assert (found.last_batch, found.skips_up_to, len(found.batches)) == (2, 2, 3)
    assert "by the application id my-app: the only name in the table" in found.because
    asked = evidence(tmp_path / "table", app_id="my-app")
    assert (asked.presumed_app_id, asked.last_batch) == (None, 2)


@pytest.mark.parametrize(
    "others", [["my-app", "their-app"], ["0dcd0ea6-5866-4db8-bdb7-960f2e49c827"], ["my-app", Q[::-1]]]
)
def test_nothing_is_presumed_where_names_are_several_or_ids_of_queries(tmp_path: Path, others: list[str]) -> None:
    for app_id in others:
        write(tmp_path / "table", 1, app_id=app_id)
    found = evidence(tmp_path / "table")
    assert (found.presumed_app_id, found.last_batch, found.others) == (None, None, dict.fromkeys(others, 1))


def test_nothing_is_presumed_of_a_query_that_the_table_knows_or_that_nobody_does(table: Path) -> None:
    write(table, 9, app_id="my-app")
    assert (evidence(table).presumed_app_id, evidence(table).last_batch) == (None, 3)
    assert evidence(table, "").presumed_app_id is None


@pytest.mark.parametrize(
    ("place", "obstacles"),
    [
        ("/lake/t", 0),
        ("s3a://lake/t", 0),
        ("abfss://c@a.dfs.core.windows.net/t", 1),
        ("wasbs://c@a.blob.core.windows.net/t", 1),
        ("gs://lake/t", 1),
    ],
)
def test_no_table_is_written_where_no_commit_was_tried_beside_sparks(place: str, obstacles: int) -> None:
    log = TableLog(place, 0, (), metadata=TableMetadata("x"), protocol=Protocol(1, 2))
    assert len(write_obstacles(log)) == obstacles


def test_table_that_was_overwritten_by_an_older_version_may_lack_what_came_after(table: Path) -> None:
    older = DeltaTable(table, version=1).to_pyarrow_table()
    write_deltalake(table, older, mode="overwrite")
    found = evidence(table)
    assert (found.last_batch, found.skips_up_to) == (3, 3)
    assert [batch.is_live for batch in found.batches] == [None] * 4
    assert found.unclear == "version 4 (WRITE) replaced all rows by 6, where the query had written 12"
    DeltaTable(table).restore(3)
    assert [batch.is_live for batch in evidence(table).batches] == [True] * 4


def test_table_whose_rows_were_all_written_anew_lacks_none(table: Path) -> None:
    write_deltalake(table, DeltaTable(table).to_pyarrow_table(), mode="overwrite", schema_mode="overwrite")
    found = evidence(table)
    assert (found.unclear, [batch.is_live for batch in found.batches]) == (None, [True] * 4)


def test_clone_tells_of_no_batch_before_the_mark_that_it_has_brought(table: Path) -> None:
    clone = table.with_name("clone")
    write(clone, 3)
    write(clone, 4)
    commit = clone / "_delta_log" / name_commit(0)
    commit.write_text(re.sub('"operation":"[^"]*"', '"operation":"CLONE"', commit.read_text()))
    found = evidence(clone)
    assert (found.last_batch, found.complete_from) == (4, 3)
    assert evidence(table).complete_from == 0


def test_restore_leaves_open_what_a_query_without_marks_has_lost(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    for _ in range(4):
        write_deltalake(folder, ROWS, mode="append")
    assert evidence(folder).unclear is None
    DeltaTable(folder).restore(1)
    found = evidence(folder)
    assert found.unclear is not None
    assert found.unclear.startswith("version 4 is a RESTORE that took rows back")
    assert found.unclear_at_ms is not None


def test_restore_of_a_table_that_has_marks_is_told_by_them(table: Path) -> None:
    DeltaTable(table).restore(1)
    assert evidence(table).unclear_at_ms is None


def test_rows_without_a_mark_since_the_newest_batch_are_told(table: Path) -> None:
    assert evidence(table).unmarked == ()
    for _ in range(2):
        write_deltalake(table, ROWS, mode="append")
    DeltaTable(table).optimize.compact()
    DeltaTable(table).update(updates={"batch": "2"})
    found = evidence(table).unmarked
    assert [(each.version, each.row_count) for each in found] == [(4, 3), (5, 3)]
    write(table, 4)
    assert evidence(table).unmarked == ()


def test_rows_without_a_mark_say_nothing_where_no_batch_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    write_deltalake(folder, ROWS, mode="append")
    assert evidence(folder).unmarked == ()


def data_file(folder: Path, version: int) -> Path:
    lines = (folder / "_delta_log" / name_commit(version)).read_text().splitlines()
    (path,) = [action["add"]["path"] for line in lines if "add" in (action := json.loads(line))]
    return folder / path


def test_newest_files_that_are_gone_or_cut_short_are_named(table: Path) -> None:
    assert evidence(table).broken_from is None
    gone, cut = data_file(table, 3), data_file(table, 2)
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:100])
    found = evidence(table)
    assert (found.files_gone, found.files_damaged, found.broken_from) == ((gone.name,), (cut.name,), 2)


def test_files_that_no_longer_count_are_not_looked_for(table: Path) -> None:
    before = data_file(table, 3)
    DeltaTable(table).optimize.compact()
    before.unlink()
    assert evidence(table).files_gone == ()
    moved = data_file(table, 4)
    moved.unlink()
    found = evidence(table)
    assert (found.files_gone, found.broken_from) == ((moved.name,), None)


def test_files_of_others_are_not_looked_for(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    data_file(table, 4).unlink()
    assert evidence(table).files_gone == ()


def test_log_by_itself_tells_nothing_of_its_files(table: Path) -> None:
    for each in table.glob("*.parquet"):
        each.unlink()
    found = evidence(table)
    assert (found.last_batch, found.files_gone) == (3, ())
    assert found.files_untold == "the log lies there alone, as a copy of it does"


def test_table_that_does_not_let_us_look_leaves_its_files_open(table: Path) -> None:
    for each in table.glob("*.parquet"):
        each.unlink()

    class Denied(LocalStorage):
        def names(self, folder: Location) -> Iterator[str] | None:
            if folder.name == "table":
                raise StorageDeniedError("the storage does not let us look", subject=str(folder))
            return super().names(folder)

    found = DeltaSink(Denied(), parse_location(str(table))).evidence(Q, now_ms=NOW)
    assert (found.last_batch, found.files_gone) == (3, ())
    assert "does not let us look" in (found.files_untold or "")
