from __future__ import annotations

import shutil
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from reading import CASES, ID, A, batches, read, write
from trips import fewest

from lastgood.checkpoint import reader
from lastgood.checkpoint.checksums import HadoopChecksum
from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.contents import Mode, Presence
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import FileLogEntry
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import ALL_BATCHES, read_batches, read_checkpoint
from lastgood.checkpoint.state import State
from lastgood.errors import StorageError
from lastgood.storage.reading import Entry, FsspecStorage, LocalStorage, Location, StorageDeniedError, parse_location


def test_nothing_there_is_told_from_an_empty_folder(tmp_path: Path) -> None:
    assert read(tmp_path / "nothing").presence is Presence.MISSING
    empty = read(tmp_path)
    assert (empty.presence, empty.query, empty.offsets.listing.exists, empty.state) == (
        Presence.EMPTY,
        None,
        False,
        None,
    )
    assert (empty.last_planned, empty.last_committed, empty.absent) == (None, None, ())
    (tmp_path / "offsets").mkdir()
    started = read(tmp_path)
    assert (started.presence, started.offsets.listing.exists) == (Presence.PRESENT, True)
    assert not started.commits.listing.exists


def test_the_newest_batches_are_parsed_and_all_are_listed(tmp_path: Path) -> None:
    write(tmp_path, batches(30))
    found = read(tmp_path, batches=5)
    assert found.query == QueryMetadata(ID)
    assert (len(found.offsets.ids), sorted(found.offsets.entries)) == (30, [25, 26, 27, 28, 29])
    assert sorted(found.commits.entries) == [25, 26, 27, 28, 29]
    assert found.offsets.newest_modified_ms == (tmp_path / "offsets/29").stat().st_mtime_ns // 1_000_000
    assert len(read(tmp_path, batches=ALL_BATCHES).offsets.entries) == 30
    assert sorted(read(tmp_path, batches=0).offsets.entries) == [28, 29]  # what a start of Spark reads


def test_every_batch_can_be_read_in_a_stream(tmp_path: Path) -> None:
    location = write(tmp_path, batches(100))
    (tmp_path / "commits/50").unlink()
    (tmp_path / "offsets/60").write_bytes(b"")
    ids = read(tmp_path).offsets.ids
    stream = read_batches(LocalStorage(), location, ids)
    found = list(stream)
    assert [batch.batch_id for batch in found] == list(range(100))
    assert isinstance(found[50].offsets, OffsetEntry)
    assert found[50].commit is None
    assert found[60].offsets == Damage(DamageKind.EMPTY)
    assert isinstance(found[60].commit, CommitEntry)


def test_a_stream_that_nobody_reads_to_its_end_is_closed(tmp_path: Path) -> None:
    stream = read_batches(LocalStorage(), write(tmp_path, batches(100)), range(100))
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


def test_names_that_spark_cannot_open_and_foreign_files_are_kept_apart(tmp_path: Path) -> None:
    write(
        tmp_path,
        batches(3)
        | {
            "offsets/006": b"v1",
            "offsets/2.bak": b"v1",
            f"commits/.3.{A}.tmp": b"",
            "commits/.9.crc": b"",
            "notes.txt": b"",
            "other/x": b"",
        },
    )
    found = read(tmp_path)
    assert (found.last_planned, found.offsets.listing.newest_listed) == (2, 6)
    assert found.offsets.listing.noncanonical == {"006": 6}
    assert found.offsets.listing.foreign == ("2.bak",)
    assert found.commits.listing.temporary == (f".3.{A}.tmp",)
    assert found.commits.listing.stale_checksums == (".9.crc",)
    assert found.foreign == ("notes.txt", "other/")


def test_damage_is_found_where_it_is(tmp_path: Path) -> None:
    write(tmp_path, batches(5) | {"metadata": b"{", "offsets/3": b"", "commits/4": b"v9\n{}"})
    assert read(tmp_path).damage == {
        "metadata": Damage(DamageKind.TRUNCATED, "{"),
        "offsets/3": Damage(DamageKind.EMPTY),
        "commits/4": Damage(DamageKind.VERSION_TOO_NEW, "v9", 1),
    }


def test_a_file_too_large_for_an_entry_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, batches(3) | {"offsets/2": b"v1\n" + b" " * 10_000})
    monkeypatch.setattr(reader, "ENTRY_BYTES_MAX", 1000)
    assert read(tmp_path).damage["offsets/2"].kind is DamageKind.NO_SOURCE_LINES  # the limit of the parser is another
    stream = read_batches(LocalStorage(), parse_location(str(tmp_path)), [2])
    assert isinstance(next(stream).offsets, Damage)


def test_checksum_files_that_lie_are_named_and_change_nothing(tmp_path: Path) -> None:
    files = batches(4)
    files |= {
        "offsets/.2.crc": HadoopChecksum.of(files["offsets/2"]).to_bytes(),
        "offsets/.3.crc": HadoopChecksum.of(files["offsets/2"]).to_bytes(),
        "commits/.3.crc": b"",
    }
    write(tmp_path, files)
    found = read(tmp_path)
    assert {n: wrong.kind for n, wrong in found.offsets.checksum_damage.items()} == {3: DamageKind.CHECKSUM_MISMATCH}
    assert found.commits.checksum_damage == {3: Damage(DamageKind.EMPTY)}
    assert found.damage == {}


def test_an_entry_that_is_purged_while_we_read_is_not_there(tmp_path: Path) -> None:
    location = write(tmp_path, batches(3) | {"sources/0/0": b"v1", "sources/0/1": b"v1", "state/0/0/1.zip": b"PK"})

    class Purging(LocalStorage):
        def read(self, file: Location, *, limit: int) -> bytes | None:
            gone = file.path.endswith(("offsets/1", "sources/0/1", ".zip"))
            return None if gone else super().read(file, limit=limit)

        def stat(self, location: Location) -> Entry | None:
            return None

    found = read_checkpoint(Purging(), location)
    assert sorted(found.offsets.entries) == [0, 2]
    assert sorted(found.sources[0].entries) == [0]
    assert found.offsets.newest_modified_ms is None


def test_sources_are_read_since_their_newest_compaction_and_at_their_beginning(tmp_path: Path) -> None:
    def log(log_id: int) -> bytes:
        return b'v1\n{"path":"file:///f","timestamp":1,"batchId":%d}' % log_id

    files = batches(3)
    files |= {f"sources/10/{n}": log(n) for n in (0, 5, 6, 7)}
    files |= {"sources/10/8.compact": log(8), "sources/10/9": log(9), "sources/10/10": b"v1\n{"}
    files |= {"sources/2/0": b'\0v1\n{"t":{"0":0}}', "sources/orders/x/y": b"", "sources/loose": b""}
    write(tmp_path, files)
    two, ten, orders = read(tmp_path).sources
    assert (two.name, ten.name, orders.name) == ("2", "10", "orders")
    assert isinstance(two.initial, InitialOffset)
    assert sorted(ten.entries) == [0, 8, 9, 10]
    assert isinstance(ten.entries[8], FileLogEntry)
    assert ten.damage == {"sources/10/10": Damage(DamageKind.TRUNCATED, "{", 2)}
    assert orders.listing.foreign == ("x/",)


def test_a_huge_compact_file_is_listed_and_not_read(tmp_path: Path) -> None:
    write(tmp_path, batches(2) | {"sources/0/9.compact": b"v1" + b"\n{}" * 400_000})
    (source,) = read(tmp_path).sources
    assert source.entries == {9: Damage(DamageKind.TOO_LARGE, "more than 1048576 bytes")}
    assert read(tmp_path).damage == {}


def test_a_query_with_thousands_of_source_entries_is_read_at_its_end(tmp_path: Path) -> None:
    write(tmp_path, batches(2) | {f"sources/0/{n}": b"v1" for n in range(300)})
    assert sorted(read(tmp_path).sources[0].entries) == [0, *range(236, 300)]


def _judge(state: State | None) -> State | None:
    """What was found, without those lineages that are read only where it costs nothing."""
    if state is None:
        return None
    operators = (
        replace(operator, stores=tuple(replace(store, lineages={}) for store in operator.stores))
        for operator in state.operators
    )
    return replace(state, operators=tuple(operators))


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_an_object_store_shows_the_same_as_a_disk(name: str) -> None:
    local = CASES / name / "checkpoint"
    memory = MemoryFileSystem()
    memory.store, memory.pseudo_dirs = {}, [""]
    for path in local.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/chk/{path.relative_to(local).as_posix()}", path.read_bytes())
    there = read_checkpoint(FsspecStorage(memory), Location("file", "", "/chk"))
    here = read(local)
    assert there.offsets.entries == here.offsets.entries
    assert there.commits.entries == here.commits.entries
    assert [source.listing for source in there.sources] == [source.listing for source in here.sources]
    assert _judge(there.state) == _judge(here.state)
    assert (there.mode, there.absent, there.damage) == (here.mode, here.absent, here.damage)
    assert (there.presence, there.foreign) == (Presence.PRESENT, here.foreign)


def test_numbers_beyond_all_bounds_cost_no_time(case: Callable[[str], Path]) -> None:
    for name in ("3.5-agg-hdfs-healthy", "4.3-agg-rocksdb-ckptv2-healthy"):
        root = case(name)
        for path in ("offsets/999999999999999999", "commits/999999999999999999", "sources/0/999999999999999999"):
            (root / path).write_bytes(b'v1\n{}\n{"logOffset":999999999999999999}' if "offsets" in path else b"v1")
        (root / "state/0/999999999999999999").mkdir()
        (root / "state/0/0/999999999999999999.delta").write_bytes(b"x")
        found = read(root)
        assert found.last_committed == 999_999_999_999_999_999
        assert found.absent


@pytest.mark.parametrize("operation", ["names", "walk", "read", "stat"])
@pytest.mark.parametrize("error", [StorageError("the storage does not answer"), StorageDeniedError("no")])
def test_a_storage_that_does_not_answer_is_an_error_and_no_empty_checkpoint(
    operation: str, error: StorageError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(LocalStorage, operation, refuse)
    with pytest.raises(StorageError) as caught:
        read(CASES / "4.3-agg-rocksdb-ckptv2-healthy" / "checkpoint")
    assert caught.value is error
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


class Distant(LocalStorage):
    """An object store far away; counts how many of its requests had to wait for one another.

    It answers once nobody has asked for a while, so that what a busy machine itself takes does not count.
    """

    parallel = 100

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._asked = 0.0
        self.round_trips = 0

    def _wait(self) -> None:
        with self._lock:
            answered, self._asked = self._answered, time.monotonic()
        while not answered.wait(0.01):
            with self._lock:
                if not answered.is_set() and time.monotonic() - self._asked >= 0.05:
                    self.round_trips += 1
                    self._answered = threading.Event()
                    answered.set()

    def names(self, folder: Location) -> Iterator[str] | None:
        self._wait()
        return super().names(folder)

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        self._wait()
        return super().walk(folder)

    def read(self, file: Location, *, limit: int) -> bytes | None:
        self._wait()
        return super().read(file, limit=limit)

    def stat(self, location: Location) -> Entry | None:
        self._wait()
        return super().stat(location)


def test_a_stateless_checkpoint_of_100_batches_takes_few_round_trips(tmp_path: Path) -> None:
    location = write(tmp_path, batches(101) | {"sources/0/0": b'\0v1\n{"t":{"0":0}}'})

    def newest() -> int:
        distant = Distant()
        assert read_checkpoint(distant, location).last_committed == 100
        return distant.round_trips

    def whole() -> int:
        distant = Distant()
        assert len(read_checkpoint(distant, location, batches=ALL_BATCHES).offsets.entries) == 101
        return distant.round_trips

    assert fewest(newest, enough=3) <= 3
    assert fewest(whole, enough=5) <= 5


def widen(root: Path, partitions: int) -> None:
    """Give the state of the only operator more partitions, all like the first, as in each commit."""
    for file in (root / "commits").glob("[0-9]*"):
        commit = parse_commit_entry(file.read_bytes())
        assert isinstance(commit, CommitEntry)
        assert commit.state_unique_ids
        ids = {0: commit.state_unique_ids[0][:1] * partitions}
        file.write_bytes(commit.with_state_unique_ids(ids).to_bytes())
    metadata = root / "state/0/_metadata/metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b'"numPartitions":2', b'"numPartitions":%d' % partitions))
    shutil.rmtree(root / "state/0/1")
    for partition in range(1, partitions):
        shutil.copytree(root / "state/0/0", root / f"state/0/{partition}")


@pytest.mark.parametrize(("partitions", "commits_kept", "most"), [(120, 8, 7), (60, 1, 6)])
def test_a_stateful_checkpoint_takes_few_round_trips(
    partitions: int, commits_kept: int, most: int, case: Callable[[str], Path]
) -> None:
    """Format v2 is the longest way there is: of each store a lineage and a snapshot, a hundred files at a time."""
    root = case("4.3-agg-rocksdb-ckptv2-healthy")
    widen(root, partitions)
    for n in range(8 - commits_kept):
        (root / f"commits/{n}").unlink()

    def measure() -> int:
        distant = Distant()
        found = read_checkpoint(distant, parse_location(str(root)))
        assert (found.last_loadable, found.absent) == (7, ())
        return distant.round_trips

    assert fewest(measure, enough=most) <= most


def test_a_log_of_100000_batches_is_listed_in_little_memory(tmp_path: Path) -> None:
    location = write(tmp_path, batches(2))

    class Endless(LocalStorage):
        """Lists 100,000 planned batches with their side files, as a disk would."""

        def names(self, folder: Location) -> Iterator[str] | None:
            if folder.name != "offsets":
                return super().names(folder)
            return (name for n in range(100_000) for name in (str(n), f".{n}.crc"))

        def read(self, file: Location, *, limit: int) -> bytes | None:
            name = "0" if file.name.isdecimal() else file.name
            return super().read(Location("file", "", f"{file.path.rpartition('/')[0]}/{name}"), limit=limit)

    tracemalloc.start()
    try:
        found = read_checkpoint(Endless(), location)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.last_planned, len(found.offsets.ids)) == (99_999, 100_000)
    assert found.mode is Mode.MICRO_BATCH
    assert peak < 40_000_000
