"""Tables written by the deltalake library, read by us."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.delta_log.listing import checksum_name, commit_name
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.errors import ExtraMissingError, StorageError
from lastgood.parallel import Deadline
from lastgood.storage import Entry, LocalStorage, Location, parse_location

ROWS = pa.table({"i": [1, 2, 3]})


def write(folder: Path, app_id: str, batch_id: int, **more: object) -> None:
    transaction = Transaction(app_id, batch_id, 1000 + batch_id)
    write_deltalake(
        folder, ROWS, mode="append", commit_properties=CommitProperties(app_transactions=[transaction]), **more
    )


def read(folder: Path, **how: int) -> TableLog:
    log = read_any(folder, **how)
    assert isinstance(log, TableLog)
    return log


def read_any(folder: Path, **how: int) -> TableLog | Damage | None:
    return read_table_log(LocalStorage(), parse_location(str(folder)), deadline=Deadline.after(60), **how)


def drop(folder: Path, versions: range) -> None:
    for version in versions:
        (folder / "_delta_log" / commit_name(version)).unlink()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Twelve versions by two applications; a checkpoint at version 8."""
    folder = tmp_path / "table"
    for batch_id in range(12):
        write(folder, "old" if batch_id < 2 else "query", batch_id)
        if batch_id == 8:
            DeltaTable(folder).create_checkpoint()
    return folder


def test_whole_log_is_read_one_by_one(table: Path) -> None:
    log = read(table)
    assert [commit.version for commit in log.commits] == list(range(12))
    assert {app: txn.version for app, txn in log.transactions.items()} == {"old": 1, "query": 11}
    assert log.newest_version == 11
    assert log.unknown is None
    assert log.metadata is not None
    assert log.metadata.table_id == str(DeltaTable(table).metadata().id)
    assert log.protocol is not None
    assert log.protocol.min_writer_version == DeltaTable(table).protocol().min_writer_version
    assert log.commits[5].row_count == 3
    assert log.location == str(table)


def test_cleaned_log_gives_old_transactions_from_its_checkpoint(table: Path) -> None:
    drop(table, range(9))
    log = read(table)
    assert [commit.version for commit in log.commits] == [9, 10, 11]
    assert {app: txn.version for app, txn in log.transactions.items()} == {"old": 1, "query": 11}
    assert log.transactions["old"].last_updated_ms == 1001
    assert log.metadata is not None
    assert log.metadata.table_id == str(DeltaTable(table).metadata().id)


def test_log_that_is_left_in_a_checkpoint_only_is_read(table: Path) -> None:
    drop(table, range(12))
    log = read(table)
    assert (log.newest_version, log.commits, log.oldest_read) == (8, (), 9)
    assert log.transactions["query"].version == 8


def test_only_the_newest_versions_are_read_one_by_one_where_a_checkpoint_covers_the_rest(table: Path) -> None:
    log = read(table, commits_max=1)
    assert [commit.version for commit in log.commits] == [9, 10, 11]
    assert log.transactions["old"].version == 1
    assert [commit.version for commit in read(table, since=7).commits] == [7, 8, 9, 10, 11]


def test_deltas_own_checksum_file_spares_the_checkpoint(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(table, range(9))
    state = {
        "metadata": {"id": "x", "configuration": {}},
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
        "setTransactions": [{"appId": "old", "version": 1, "lastUpdated": 5}, {"appId": "query", "version": 11}],
    }
    (table / "_delta_log" / checksum_name(11)).write_text(json.dumps(state))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    log = read(table)
    assert {app: txn.version for app, txn in log.transactions.items()} == {"old": 1, "query": 11}
    assert log.metadata is not None
    assert log.metadata.table_id == "x"


def test_checksum_file_without_transactions_is_not_enough(table: Path) -> None:
    drop(table, range(9))
    (table / "_delta_log" / checksum_name(11)).write_text('{"metadata": {"id": "x"}}')
    assert read(table).transactions["old"].version == 1


def test_checkpoint_without_pyarrow_names_the_extra(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(table, range(9))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ExtraMissingError) as raised:
        read_any(table)
    assert raised.value.next == "pip install 'lastgood[delta]'"


def test_damaged_checkpoint_leaves_what_the_commits_say(table: Path) -> None:
    drop(table, range(9))
    next((table / "_delta_log").glob("*.checkpoint.parquet")).write_bytes(b"PAR1 no")
    log = read(table)
    assert log.unknown is not None
    assert "checkpoint" in log.unknown
    assert {app: txn.version for app, txn in log.transactions.items()} == {"query": 11}


def test_json_checkpoint_of_version_2_is_read(table: Path) -> None:
    drop(table, range(9))
    folder = table / "_delta_log"
    next(folder.glob("*.checkpoint.parquet")).unlink()
    actions = [
        {"checkpointMetadata": {"version": 8}},
        {"txn": {"appId": "old", "version": 1}},
        {"metaData": {"id": "y"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"]}},
    ]
    name = f"{8:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    (folder / name).write_text("\n".join(map(json.dumps, actions)))
    log = read(table)
    assert {app: txn.version for app, txn in log.transactions.items()} == {"old": 1, "query": 11}
    assert log.protocol is not None
    assert log.protocol.reader_features == ("v2Checkpoint",)


def test_last_transaction_wins_not_the_largest(table: Path) -> None:
    write(table, "query", 4)
    assert read(table).transactions["query"].version == 4


def test_missing_version_is_named(table: Path) -> None:
    drop(table, range(10, 11))
    damage = read_any(table)
    assert damage == Damage(DamageKind.MISSING_PART, commit_name(10))
    (table / "_delta_log" / commit_name(10)).write_text("{}")
    drop(table, range(11, 12))
    shutil.copy(table / "_delta_log" / commit_name(9), table / "_delta_log" / commit_name(12))
    assert read_any(table) == Damage(DamageKind.MISSING_PART, commit_name(11))


def test_version_that_is_no_json_is_named(table: Path) -> None:
    (table / "_delta_log" / commit_name(10)).write_text('{"add": ')
    damage = read_any(table)
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.TRUNCATED
    assert commit_name(10) in damage.found


def test_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    assert read_any(tmp_path) is None
    (tmp_path / "_delta_log").mkdir()
    assert read_any(tmp_path) is None
    assert read_any(tmp_path / "nothing") is None


def test_commits_that_a_catalog_keeps_are_told(table: Path) -> None:
    assert not read(table).is_in_catalog
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["catalogManaged"]}}
    (table / "_delta_log" / commit_name(12)).write_text(json.dumps(action))
    assert read(table).is_in_catalog


class HangingStorage(LocalStorage):
    """A storage that never answers a read, as a dead network share does."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def read(self, file: Location, *, limit: int) -> bytes | None:
        self._gate.wait(60)
        return super().read(file, limit=limit)

    def stat(self, location: Location) -> Entry | None:
        self._gate.wait(60)
        return super().stat(location)


@pytest.fixture
def hanging() -> Iterator[HangingStorage]:
    gate = threading.Event()
    yield HangingStorage(gate)
    gate.set()


def test_storage_that_does_not_answer_is_not_waited_for(table: Path, hanging: HangingStorage) -> None:
    with pytest.raises(StorageError) as raised:
        read_table_log(hanging, parse_location(str(table)), deadline=Deadline.after(0.2))
    assert raised.value.found == "no answer within 0.2 s"
