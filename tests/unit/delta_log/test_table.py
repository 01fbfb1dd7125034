"""Tables written by the deltalake library, read by us."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.delta_log.listing import name_checksum, name_commit
from lastgood.delta_log.table import LogDamage, TableLog, read_table_log
from lastgood.errors import ExtraMissingError, StorageError
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import Entry, LocalStorage, Location, parse_location

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
        (folder / "_delta_log" / name_commit(version)).unlink()


@pytest.fixture(scope="module")
def _written_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("delta") / "table"
    for batch_id in range(12):
        write(folder, "old" if batch_id < 2 else "query", batch_id)
        if batch_id == 8:
            DeltaTable(folder).create_checkpoint()
    return folder


@pytest.fixture
def table(tmp_path: Path, _written_once: Path) -> Path:
    """Twelve versions by two applications; a checkpoint at version 8."""
    return shutil.copytree(_written_once, tmp_path / "table")


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


def test_log_that_is_left_in_a_checkpoint_only_is_read_and_may_have_had_newer_versions(table: Path) -> None:
    drop(table, range(12))
    log = read(table)
    assert (log.newest_version, log.commits, log.oldest_read) == (8, (), 9)
    assert log.transactions["query"].version == 8
    assert log.unjudged == "version 8 is left in a checkpoint only"


def test_only_the_newest_versions_are_read_one_by_one_where_a_checkpoint_covers_the_rest(table: Path) -> None:
    log = read(table, commits_max=1)
    assert [commit.version for commit in log.commits] == [9, 10, 11]
    assert log.transactions["old"].version == 1
    assert [commit.version for commit in read(table, since=7).commits] == [7, 8, 9, 10, 11]


TXN_ID = "1f5b180a-461a-4bca-8987-10df3afc580d"


def with_checksum(folder: Path, **differing: object) -> None:
    """Let version 11 be one of a Spark, with its `.crc` file."""
    log = folder / "_delta_log"
    commit = log / name_commit(11)
    commit.write_text(json.dumps({"commitInfo": {"txnId": TXN_ID}}) + "\n" + transactions_only(commit))
    state = {
        "txnId": TXN_ID,
        "metadata": {"id": "x", "configuration": {}},
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
        "setTransactions": [
            {"appId": "old", "version": 1, "lastUpdated": 5},
            {"appId": "query", "version": 11, "lastUpdated": 1011},
        ],
    }
    (log / name_checksum(11)).write_text(json.dumps({**state, **differing}))


def transactions_only(commit: Path) -> str:
    return "".join(f"{line}\n" for line in commit.read_text().splitlines() if line.startswith('{"txn"'))


def test_deltas_own_checksum_file_spares_the_checkpoint(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(table, range(9))
    with_checksum(table)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    log = read(table)
    assert {app: txn.version for app, txn in log.transactions.items()} == {"old": 1, "query": 11}
    assert log.metadata is not None
    assert log.metadata.table_id == "x"


@pytest.mark.parametrize(
    "differing",
    [
        {"setTransactions": None},
        {"setTransactions": []},
        {"setTransactions": [{"appId": "query", "version": 10, "lastUpdated": 1011}]},
        {"setTransactions": [{"appId": "query", "version": 11, "lastUpdated": 1011}, {"appId": "old"}]},
        {"txnId": "of another life of this version"},
        {"txnId": None},
        {"protocol": None},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}},
        {"metadata": None},
    ],
)
def test_checksum_file_that_does_not_tell_all_or_contradicts_is_not_gone_by(
    table: Path, differing: dict[str, object]
) -> None:
    drop(table, range(9))
    with_checksum(table, **differing)
    log = read(table)
    assert {app: txn.version for app, txn in log.transactions.items()} == {"old": 1, "query": 11}
    assert log.metadata is not None
    assert log.metadata.table_id == str(DeltaTable(table).metadata().id)


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


NAME = f"{8:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
FEATURES = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
V2 = (
    {"checkpointMetadata": {"version": 8}},
    {"sidecar": {"path": "a%20b.parquet", "sizeInBytes": 5}},
    {"metaData": {"id": "y"}},
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES}},
    {"txn": {"appId": "old", "version": 1}},
)


@pytest.fixture
def json_checkpoint(table: Path) -> Path:
    """The same table; its checkpoint is one of version 2 in JSON, which `_last_checkpoint` names."""
    drop(table, range(9))
    folder = table / "_delta_log"
    next(folder.glob("*.checkpoint.parquet")).unlink()
    (folder / "_sidecars").mkdir()
    (folder / "_sidecars" / "a b.parquet").touch()
    checkpoint = folder / NAME
    checkpoint.write_text("".join(f"{json.dumps(action)}\n" for action in V2))
    told = {"path": NAME, "sizeInBytes": checkpoint.stat().st_size}
    (folder / "_last_checkpoint").write_text(json.dumps({"version": 8, "v2Checkpoint": told}))
    return checkpoint


def test_json_checkpoint_of_version_2_is_read(table: Path, json_checkpoint: Path) -> None:
    log = read(table)
    assert {app: txn.version for app, txn in log.transactions.items()} == {"old": 1, "query": 11}
    assert log.protocol is not None
    assert log.protocol.reader_features == ("v2Checkpoint",)
    assert (log.unknown, log.unjudged) == (None, None)


@pytest.mark.parametrize("last_checkpoint", [None, "", '{"version": 99}', '{"v2Checkpoint": {"path": "x"}}', "[]"])
def test_pointer_to_another_checkpoint_says_nothing_of_this_one(
    table: Path, json_checkpoint: Path, last_checkpoint: str | None
) -> None:
    pointer = json_checkpoint.with_name("_last_checkpoint")
    pointer.unlink() if last_checkpoint is None else pointer.write_text(last_checkpoint)
    assert read(table).transactions["old"].version == 1


@pytest.mark.parametrize(
    ("lines", "because"),
    [
        (V2[:-1], "truncated"),
        (V2[1:], "checkpointMetadata"),
        (({"checkpointMetadata": {"version": 7}}, *V2[1:]), "checkpointMetadata"),
        ((*V2[:3], *V2[4:]), "protocol"),
        ((*V2[:2], *V2[3:]), "metaData"),
        ((*V2, {"txn": {"appId": "q"}}), "txn"),
        ((*V2, V2[-1]), "txn"),
        ((*V2, V2[2]), "metaData"),
        ((*V2, {"sidecar": {"path": "gone.parquet"}}), "_sidecars/gone.parquet"),
        ((*V2, {"sidecar": {}}), "sidecar"),
        ((), "no protocol"),
    ],
)
def test_checkpoint_that_is_not_whole_does_not_count(
    table: Path, json_checkpoint: Path, lines: tuple[object, ...], because: str
) -> None:
    json_checkpoint.write_text("".join(f"{json.dumps(action)}\n" for action in lines))
    if because != "truncated":
        json_checkpoint.with_name("_last_checkpoint").unlink()
    log = read(table)
    assert log.unknown is not None
    assert because in log.unknown
    assert "old" not in log.transactions
    assert log.unjudged == "the protocol of the table is not known"


def rewrite(file: Path, without: str) -> None:
    """Leave out of a checkpoint in Parquet the rows with an action of a kind."""
    rows = pq.read_table(file)
    pq.write_table(rows.filter(pa.compute.is_null(rows.column(without))), file)


@pytest.mark.parametrize("kind", ["protocol", "metaData"])
def test_checkpoint_without_what_every_table_has_does_not_count(table: Path, kind: str) -> None:
    drop(table, range(9))
    rewrite(next((table / "_delta_log").glob("*.checkpoint.parquet")), kind)
    log = read(table)
    assert log.unknown is not None
    assert f"no {kind} in" in log.unknown
    assert log.unjudged == "the protocol of the table is not known"


@pytest.mark.parametrize("column", ["txn", "metaData", "protocol", "sidecar", "checkpointMetadata"])
@pytest.mark.parametrize("values", [pa.array([5]), pa.array([{"appId": b"\xff", "version": "1", "path": 1}])])
def test_checkpoint_in_parquet_of_other_types_does_not_count(table: Path, column: str, values: pa.Array) -> None:
    drop(table, range(9))
    pq.write_table(pa.table({column: values}), next((table / "_delta_log").glob("*.checkpoint.parquet")))
    log = read(table)
    assert log.unknown is not None
    assert log.unjudged is not None


def test_name_in_parquet_that_is_no_text_is_a_damage(table: Path) -> None:
    drop(table, range(9))
    file = next((table / "_delta_log").glob("*.checkpoint.parquet"))
    name = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    txn = pa.StructArray.from_arrays([name, pa.array([1])], ["appId", "version"])
    pq.write_table(pa.table({"txn": txn}), file)
    assert "checkpoint" in str(read(table).unknown)


def test_checkpoint_of_versions_that_were_made_anew_does_not_count(table: Path) -> None:
    drop(table, range(5))
    assert read(table).unknown is None
    commit = table / "_delta_log" / name_commit(8)
    whole = commit.read_text()
    commit.write_text(whole.replace('"version":8', '"version":7'))
    assert "transaction 8 of query, not 7" in str(read(table).unknown)
    commit.write_text(whole.rstrip() + '\n{"txn": {"appId": "later", "version": 8}}')
    assert "transaction None of later, not 8" in str(read(table).unknown)
    commit.write_text(whole.rstrip() + '\n{"metaData": {"id": "another"}}')
    assert "not another" in str(read(table).unknown)


@pytest.mark.parametrize("kind", ["protocol", "metaData", "txn"])
def test_checkpoint_by_which_delta_goes_has_to_tell_what_the_commits_do_though_all_are_there(
    table: Path, kind: str
) -> None:
    assert read(table).unjudged is None
    rewrite(next((table / "_delta_log").glob("*.checkpoint.parquet")), kind)
    log = read(table)
    assert log.unknown is None
    assert log.contested is not None
    assert log.contested == log.unjudged
    expected = "transaction None of old, not 1" if kind == "txn" else f"no {kind} in"
    assert expected in log.contested


def test_transaction_of_which_no_commit_tells_makes_a_checkpoint_one_of_another_life(table: Path) -> None:
    for version in range(2):
        commit = table / "_delta_log" / name_commit(version)
        commit.write_text("".join(line for line in commit.read_text().splitlines(keepends=True) if '"txn"' not in line))
    assert "transaction 1 of old, of which no commit tells" in str(read(table).unjudged)


def test_young_table_with_a_checkpoint_needs_no_pyarrow(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    log = read(table)
    assert (log.unjudged, log.transactions["query"].version) == (None, 11)


def test_parts_of_a_checkpoint_say_each_thing_once(table: Path) -> None:
    drop(table, range(9))
    whole = next((table / "_delta_log").glob("*.checkpoint.parquet"))
    parts = [whole.with_name(f"{8:020d}.checkpoint.{part:010d}.{2:010d}.parquet") for part in (1, 2)]
    for part in parts:
        shutil.copy(whole, part)
    whole.unlink()
    assert "two parts hold" in str(read(table).unknown)
    for kind in ("protocol", "metaData", "txn"):
        rewrite(parts[1], kind)
    log = read(table)
    assert log.unknown is None
    assert log.transactions["old"].version == 1


def test_last_transaction_wins_not_the_largest(table: Path) -> None:
    write(table, "query", 4)
    assert read(table).transactions["query"].version == 4


def test_missing_version_is_named(table: Path) -> None:
    drop(table, range(10, 11))
    damage = read_any(table)
    assert damage == LogDamage(DamageKind.MISSING_PART, name_commit(10), marks={"query": 11})
    (table / "_delta_log" / name_commit(10)).write_text("{}")
    drop(table, range(11, 12))
    shutil.copy(table / "_delta_log" / name_commit(9), table / "_delta_log" / name_commit(12))
    assert read_any(table) == LogDamage(DamageKind.MISSING_PART, name_commit(11), marks={"query": 9})


def test_version_that_is_no_json_is_named(table: Path) -> None:
    (table / "_delta_log" / name_commit(10)).write_text('{"add": ')
    damage = read_any(table)
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.TRUNCATED
    assert name_commit(10) in damage.found


def test_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    assert read_any(tmp_path) is None
    (tmp_path / "_delta_log").mkdir()
    assert read_any(tmp_path) is None
    assert read_any(tmp_path / "nothing") is None


@pytest.mark.parametrize("folder", ["_staged_commits", "_commits"])
def test_staged_commits_above_the_newest_version_leave_it_open_whether_it_is(table: Path, folder: str) -> None:
    staged = table / "_delta_log" / folder
    staged.mkdir()
    assert read(table).unjudged is None
    for version in (3, 11):
        (staged / f"{version:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json").touch()
    assert read(table).unjudged is None
    (staged / f"{12:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json").touch()
    assert read(table).unjudged == "version 12 is staged; whether it counts, a catalog decides"


@pytest.mark.parametrize(
    "name",
    [name_checksum(13), f"{13:020d}.checkpoint.{1:010d}.{2:010d}.parquet", f"{9:020d}.{13:020d}.compacted.json"],
)
def test_traces_of_a_newer_version_leave_it_open_whether_the_newest_is(table: Path, name: str) -> None:
    (table / "_delta_log" / name).touch()
    assert read(table).unjudged == "there are traces of version 13, which is gone"


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        name_checksum(4),
        f"{4:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
        "_staged_commits/" + f"{0:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
    ],
)
def test_log_of_which_only_traces_are_left_is_damaged_not_no_table(tmp_path: Path, name: str) -> None:
    file = tmp_path / "_delta_log" / name
    file.parent.mkdir(parents=True)
    file.touch()
    damage = read_any(tmp_path)
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.MISSING_PART


def test_first_version_has_to_say_what_the_table_is(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    for actions, why in (([{"commitInfo": {}}], "protocol"), ([protocol], "metadata")):
        (log / name_commit(0)).write_text("\n".join(map(json.dumps, actions)))
        assert read(tmp_path).unjudged == f"the {why} of the table is not known"


def test_version_that_did_nothing_is_none(table: Path) -> None:
    (table / "_delta_log" / name_commit(12)).touch()
    damage = read_any(table)
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.EMPTY


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
