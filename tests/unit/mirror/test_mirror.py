from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lastgood.checkpoint.copies import Copy
from lastgood.errors import StorageError
from lastgood.mirror import mirror
from lastgood.mirror.mirror import MirrorWriter, locate_mirror, read_mirror
from lastgood.storage.reading import LocalStorage, Location, Storage, parse_location
from lastgood.storage.writing import FsspecWriter, LocalWriter, WritableStorage
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput
from lastgood.testing.storage import RefusingStorage

DAY_MS = 86_400_000
NOON_MS = 1_795_219_200_000 // DAY_MS * DAY_MS + DAY_MS // 2
OTHER_ID = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


class Clock:
    """Goes on by one millisecond each time it is asked."""

    def __init__(self) -> None:
        self.now_ms = NOON_MS

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


Look = Callable[..., MirrorWriter]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer(checkpoint: Path, clock: Clock) -> Look:
    """Makes a writer of the mirror of `checkpoint`."""

    def make(name: str = "w", *, storage: Storage | None = None, target: WritableStorage | None = None) -> MirrorWriter:
        location = parse_location(str(checkpoint))
        return MirrorWriter(
            location,
            storage=storage or LocalStorage(),
            folder=locate_mirror(location),
            target=target or LocalWriter(),
            writer=name,
            now_ms=clock,
        )

    return make


def held(checkpoint: Path) -> list[Copy]:
    """Everything in the mirror, oldest first."""
    found = read_mirror(LocalStorage(), locate_mirror(parse_location(str(checkpoint))))
    return sorted(found, key=lambda copy: copy.seen_ms)


def newest(checkpoint: Path) -> dict[str, bytes]:
    return {copy.path: copy.content for copy in held(checkpoint)}


def logs(root: Path) -> dict[str, bytes]:
    """The log files of a checkpoint, without their checksums."""
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def files_of(checkpoint: Path) -> list[str]:
    root = Path(f"{checkpoint}.lastgood/mirror")
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_every_log_file_is_copied_byte_for_byte(checkpoint: Path, writer: Look) -> None:
    query = CheckpointBuilder(checkpoint, FileInput(compact_interval=3), checksums=True)
    query.run(4)
    (checkpoint / "sources/0/junk").write_bytes(b"no entry of the log")
    (checkpoint / "offsets/9").write_bytes(b"\0\xff\r\n not even a plan")
    (checkpoint / "commits/9").write_bytes(b"")
    (checkpoint / "state/0/0").mkdir(parents=True)
    (checkpoint / "state/0/0/1.delta").write_bytes(b"state")
    look = writer()
    assert look.look() == 15
    wanted = {
        path: raw for path, raw in logs(checkpoint).items() if path not in ("sources/0/junk", "state/0/0/1.delta")
    }
    assert newest(checkpoint) == wanted
    assert {"sources/0/2.compact", "offsets/9", "metadata"} <= wanted.keys()
    assert look.look() == 0
    assert len(files_of(checkpoint)) == 1


def test_a_copy_tells_whose_it_is_and_when_it_was_written(checkpoint: Path, writer: Look) -> None:
    CheckpointBuilder(checkpoint, query_id=OTHER_ID).plan()
    writer().look()
    copies = {copy.path: copy for copy in held(checkpoint)}
    assert {copy.query_id for copy in copies.values()} == {OTHER_ID}
    stat = (checkpoint / "offsets/0").stat()
    assert (copies["offsets/0"].modified_ms, copies["offsets/0"].size) == (
        stat.st_mtime_ns // 1_000_000,
        stat.st_size,
    )
    assert copies["sources/0/0"].content.startswith(b"\0v1")


def test_the_checkpoint_itself_is_only_read(checkpoint: Path, writer: Look) -> None:
    CheckpointBuilder(checkpoint).run(3)
    before = {path: path.stat().st_mtime_ns for path in [checkpoint, *checkpoint.rglob("*")]}
    writer().look()
    assert {path: path.stat().st_mtime_ns for path in [checkpoint, *checkpoint.rglob("*")]} == before


def test_purged_batches_stay_known(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    every: dict[str, bytes] = {}
    for _ in range(10):
        query.run(2)
        look.look()
        every |= logs(checkpoint)
        query.purge(retain=2)
    assert not (checkpoint / "offsets/0").exists()
    assert newest(checkpoint) == every
    assert {f"offsets/{n}" for n in range(20)} <= every.keys()


def test_older_batches_are_left_out_if_nobody_wants_them(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    folder = locate_mirror(parse_location(str(checkpoint)))
    for _ in range(2):
        query.run(6)
        look.look()
        found = [copy.path for copy in read_mirror(LocalStorage(), folder, since=4)]
        wanted = [f"{log}/{n}" for log in ("commits", "offsets") for n in range(4, query.planned + 1)]
        assert sorted(found) == sorted(["metadata", "sources/0/0", *wanted])
        look.settle()


def test_what_a_packed_file_holds_of_the_newest_batches_is_told_again_and_as_it_is_by_now(
    checkpoint: Path, writer: Look
) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    folder = locate_mirror(parse_location(str(checkpoint)))
    for since in (4, 4, 5, 4):
        query.run(6)
        look.look()
        look.settle()
        for _ in range(2):
            found = {copy.path for copy in read_mirror(LocalStorage(), folder, since=since)}
            assert {f"offsets/{n}" for n in range(query.planned + 1)} & found == {
                f"offsets/{n}" for n in range(since, query.planned + 1)
            }


def test_a_batch_that_is_planned_again_keeps_both_versions(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    query.run(2)
    query.plan(100)
    look.look()
    first = (checkpoint / "offsets/2").read_bytes()
    query.drop_plan()
    look.look()
    query.plan(1)
    assert look.look() == 1
    second = (checkpoint / "offsets/2").read_bytes()
    assert [copy.content for copy in held(checkpoint) if copy.path == "offsets/2"] == [first, second]


def test_a_batch_that_is_planned_again_between_two_looks_is_seen(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    query.plan(100)
    look.look()
    query.drop_plan()
    query.plan(1)
    assert look.look() >= 1
    assert newest(checkpoint)["offsets/0"] == (checkpoint / "offsets/0").read_bytes()


def test_a_new_query_id_begins_anew_and_the_old_one_is_kept(checkpoint: Path, writer: Look) -> None:
    CheckpointBuilder(checkpoint).run(3)
    look = writer()
    look.look()
    old = logs(checkpoint)
    shutil.rmtree(checkpoint)
    assert look.look() == 0
    CheckpointBuilder(checkpoint, query_id=OTHER_ID).run(2)
    assert look.look() == len(logs(checkpoint))
    copies = held(checkpoint)
    assert {copy.path: copy.content for copy in copies if copy.query_id != OTHER_ID} == old
    assert {copy.path: copy.content for copy in copies if copy.query_id == OTHER_ID} == logs(checkpoint)


def test_files_of_a_checkpoint_that_is_replaced_during_a_look_are_not_ascribed_to_the_old_query(
    checkpoint: Path, writer: Look
) -> None:
    class Replaced(LocalStorage):
        is_due = False

        def read(self, file: Location, *, limit: int) -> bytes | None:
            if self.is_due and file.name != "metadata":
                self.is_due = False
                shutil.rmtree(checkpoint)
                CheckpointBuilder(checkpoint, query_id=OTHER_ID).run(2)
            return super().read(file, limit=limit)

    query, storage = CheckpointBuilder(checkpoint), Replaced()
    query.run(2)
    look = writer(storage=storage)
    look.look()
    query.plan()
    storage.is_due = True
    assert look.look() == 0
    assert look.look() == len(logs(checkpoint))
    new = {copy.path: copy.content for copy in held(checkpoint) if copy.query_id == OTHER_ID}
    assert new == logs(checkpoint)
    assert not [copy for copy in held(checkpoint) if copy.query_id != OTHER_ID and copy.content == new["metadata"]]


def test_what_is_purged_while_it_is_read_is_left_out(checkpoint: Path, writer: Look) -> None:
    class Purging(LocalStorage):
        def read(self, file: Location, *, limit: int) -> bytes | None:
            return None if file.name == "0" else super().read(file, limit=limit)

    CheckpointBuilder(checkpoint).run(2)
    writer(storage=Purging()).look()
    assert newest(checkpoint).keys() == {"metadata", "offsets/1", "commits/1"}


def test_a_checkpoint_that_is_not_there_yet_is_no_error(checkpoint: Path, writer: Look) -> None:
    look = writer()
    assert look.look() == 0
    look.settle()
    assert not Path(f"{checkpoint}.lastgood").exists()
    CheckpointBuilder(checkpoint).plan()
    assert look.look() == 3


def test_a_writer_goes_on_where_another_ended(checkpoint: Path, writer: Look) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(5)
    first = writer("first")
    first.look()
    first.settle()
    assert writer("second").look() == 0
    query.run(1)
    assert writer("third").look() == 2
    assert len(held(checkpoint)) == len(logs(checkpoint))


def test_a_file_of_the_day_that_has_no_room_is_followed_by_another(
    checkpoint: Path, writer: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = CheckpointBuilder(checkpoint)
    monkeypatch.setattr("lastgood.mirror.mirror.FILE_BYTES_MAX", 1500)
    look = writer("first")
    for _ in range(6):
        query.run(1)
        look.look()
        look.settle()
    files = sorted(Path(f"{checkpoint}.lastgood/mirror").glob("*.gz"))
    assert len(files) > 1
    assert all(file.stat().st_size <= 1500 for file in files)
    assert newest(checkpoint).keys() == logs(checkpoint).keys()


def test_a_later_writer_knows_the_newest_version_whoever_wrote_it(checkpoint: Path, writer: Look) -> None:
    """Writers' names are random: files are read in the order of names, but what counts is when a copy was seen."""
    query = CheckpointBuilder(checkpoint)
    query.plan(100)
    first = writer("z")
    first.look()
    first.settle()
    query.drop_plan()
    query.plan(1)
    second = writer("a")
    assert second.look() >= 1
    second.settle()
    assert writer("m").look() == 0
    assert newest(checkpoint)["offsets/0"] == (checkpoint / "offsets/0").read_bytes()


def test_two_writers_at_once_harm_nothing(checkpoint: Path, writer: Look) -> None:
    query = CheckpointBuilder(checkpoint)
    writers = [writer("one"), writer("two")]
    is_over = threading.Event()

    def work(each: MirrorWriter) -> None:
        while not is_over.is_set():
            each.look()
            each.settle()
        each.look()

    threads = [threading.Thread(target=work, args=(each,)) for each in writers]
    for thread in threads:
        thread.start()
    for _ in range(40):
        query.run(1)
    is_over.set()
    for thread in threads:
        thread.join()
    versions = [(copy.path, copy.content) for copy in held(checkpoint)]
    assert len(set(versions)) == len(versions) == len(logs(checkpoint))
    assert dict(versions) == logs(checkpoint)


def test_an_unwritable_mirror_is_an_error_and_the_next_look_catches_up(checkpoint: Path, writer: Look) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(2)
    work = Path(f"{checkpoint}.lastgood")
    work.write_bytes(b"in the way")
    look = writer()
    for _ in range(2):
        with pytest.raises(StorageError):
            look.look()
        query.run(1)
    work.unlink()
    assert look.look() == len(logs(checkpoint))
    assert newest(checkpoint) == logs(checkpoint)


def test_a_checkpoint_that_does_not_answer_is_an_error_and_nothing_is_forgotten(checkpoint: Path, writer: Look) -> None:
    CheckpointBuilder(checkpoint).run(2)
    storage = RefusingStorage(parse_location(str(checkpoint / "commits")))
    look = writer(storage=storage)
    with pytest.raises(StorageError):
        look.look()
    assert files_of(checkpoint) == []


def test_what_looks_have_found_is_put_together_before_it_becomes_much(
    checkpoint: Path, writer: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "LOOKS_MAX", 3)
    query, look = CheckpointBuilder(checkpoint), writer()
    for count in range(1, 8):
        query.run(1)
        look.look()
        assert any(name.startswith("parts/") for name in files_of(checkpoint)) == (count % 3 > 0)
    assert newest(checkpoint) == logs(checkpoint)


def test_each_day_has_a_file_of_each_writer(checkpoint: Path, writer: Look, clock: Clock) -> None:
    query, look = CheckpointBuilder(checkpoint), writer("w")
    for _ in range(3):
        query.run(1)
        look.look()
        look.settle()
        clock.now_ms += DAY_MS
    days = files_of(checkpoint)
    assert [name[10:] for name in days] == ["-w.jsonl.gz"] * 3
    assert len({name[:10] for name in days}) == 3
    folder = locate_mirror(parse_location(str(checkpoint)))
    recent = {copy.path for copy in read_mirror(LocalStorage(), folder, days=2)}
    assert recent == {"offsets/1", "commits/1", "offsets/2", "commits/2"}
    assert newest(checkpoint) == logs(checkpoint)


class KilledError(Exception):
    """Stands for a kill."""


class CrashingWriter(LocalWriter):
    """Dies when it is to remove a file."""

    def remove(self, file: Location) -> None:
        raise KilledError(str(file))


def test_a_crash_between_the_days_file_and_the_removal_of_its_parts_doubles_nothing(
    checkpoint: Path, writer: Look
) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(2)
    look = writer(target=CrashingWriter())
    look.look()
    query.run(2)
    look.look()
    with pytest.raises(KilledError):
        look.settle()
    assert [name.partition("/")[0][-3:] for name in files_of(checkpoint)] == [".gz", "rts"]
    assert len(held(checkpoint)) == len(logs(checkpoint))
    assert writer("next").look() == 0


class SettlingStorage(LocalStorage):
    """Its reader comes while a writer puts its parts into a file of the day: right before a part, or a day, is read."""

    def __init__(self, writer: MirrorWriter, before: str) -> None:
        super().__init__()
        self._writer, self._before = writer, before

    def read(self, file: Location, *, limit: int) -> bytes | None:
        if self._before in str(file):
            self._before = "never again"
            self._writer.settle()
        return super().read(file, limit=limit)


@pytest.mark.parametrize("before", ["/parts/", ".gz"])
@pytest.mark.parametrize("is_first", [True, False])
def test_who_reads_while_parts_are_put_together_misses_nothing(
    checkpoint: Path, writer: Look, before: str, *, is_first: bool
) -> None:
    query, mirrored = CheckpointBuilder(checkpoint), writer()
    query.run(2)
    mirrored.look()
    if not is_first:
        mirrored.settle()
        query.run(2)
        mirrored.look()
    found = read_mirror(SettlingStorage(mirrored, before), locate_mirror(parse_location(str(checkpoint))))
    assert {copy.path for copy in found} == {*logs(checkpoint)}


def test_an_error_while_putting_together_loses_and_doubles_nothing(checkpoint: Path, writer: Look) -> None:
    class Failing(LocalWriter):
        is_dead = True

        def remove(self, file: Location) -> None:
            if self.is_dead:
                raise StorageError("the storage does not answer", subject=str(file))
            super().remove(file)

    CheckpointBuilder(checkpoint).run(2)
    target = Failing()
    look = writer(target=target)
    look.look()
    with pytest.raises(StorageError):
        look.settle()
    target.is_dead = False
    look.settle()
    assert len(files_of(checkpoint)) == 1
    assert len(held(checkpoint)) == len(logs(checkpoint))


def test_a_torn_part_and_a_torn_days_file_are_read_as_far_as_they_go(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    root = Path(f"{checkpoint}.lastgood/mirror")
    query.run(1)
    look.look()
    look.settle()
    (day,) = root.glob("*.gz")
    whole = day.read_bytes()
    query.run(1)
    look.look()
    look.settle()
    day.write_bytes(day.read_bytes()[: len(whole) + 60])
    query.run(1)
    look.look()
    (part,) = (root / "parts").iterdir()
    first_line = part.read_bytes().index(b"\n") + 1
    part.write_bytes(part.read_bytes()[: first_line + 40])
    (root / "parts" / "notes.txt").write_bytes(b"not ours")
    (root / "0000-other.jsonl.gz").write_bytes(b"no gzip at all")
    assert {"offsets/0", "commits/0", "commits/2"} <= newest(checkpoint).keys()
    assert "offsets/2" not in newest(checkpoint)
    query.run(1)
    look.settle()  # what follows a tear can still be read
    look.look()
    look.settle()
    assert {"offsets/0", "offsets/2", "offsets/3"} <= newest(checkpoint).keys()


def test_a_snapshot_is_everything_that_is_there_now(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    query.run(3)
    look.look()
    query.run(1)
    assert {copy.path: copy.content for copy in look.snapshot()} == logs(checkpoint)
    assert look.look() == 2  # a snapshot is beside the mirror


def test_a_file_whose_folder_tells_no_change_is_seen_by_a_look_anew(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    query.run(3)
    os.utime(checkpoint / "offsets", (1.25, 1.25))
    look.look()
    (checkpoint / "offsets" / "1").write_bytes(b"v1")
    assert look.look() == 0
    assert look.look(anew=True) == 1
    assert newest(checkpoint)["offsets/1"] == b"v1"


def test_an_old_entry_that_is_written_over_is_seen_after_some_seconds(checkpoint: Path, clock: Clock) -> None:
    now = [0.0]
    location = parse_location(str(checkpoint))
    look = MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer="w",
        now_ms=clock,
        clock=lambda: now[0],
    )
    query = CheckpointBuilder(checkpoint)
    query.run(5)
    look.look()
    (checkpoint / "offsets" / "1").write_bytes(b"v1")
    query.run(1)
    assert look.look() == 2
    now[0] += 60
    query.run(1)
    assert look.look() == 3
    assert newest(checkpoint) == logs(checkpoint)


def test_batches_that_were_taken_away_and_planned_again_between_two_looks_are_seen(
    checkpoint: Path, writer: Look
) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    query.run(5)
    look.look()
    for path in ("offsets/4", "offsets/3", "commits/4", "commits/3"):
        (checkpoint / path).unlink()
    for batch in (3, 4, 5):
        (checkpoint / f"offsets/{batch}").write_bytes(f"v1\n{batch}".encode())
    assert look.look() == 3
    assert newest(checkpoint)["offsets/3"] == b"v1\n3"
    (checkpoint / "offsets/5").unlink()
    assert look.look() == 0


def test_lines_are_put_behind_a_part_until_it_is_gone(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    for _ in range(3):
        query.run(1)
        look.look()
    (part,) = files_of(checkpoint)
    assert part.startswith("parts/")
    shutil.rmtree(f"{checkpoint}.lastgood")
    query.run(1)
    look.look()
    assert newest(checkpoint).keys() == {"offsets/3", "commits/3"}
    look.settle()  # of what it has found it still knows all
    assert newest(checkpoint) == logs(checkpoint)


def test_on_a_share_each_look_lists_all_and_has_a_part_of_its_own(
    checkpoint: Path, writer: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "find_own_disk", lambda location: None)
    query, look = CheckpointBuilder(checkpoint), writer()
    query.run(3)
    look.look()
    (checkpoint / "offsets" / "0").write_bytes(b"v1")
    query.run(1)
    assert look.look() == 3
    assert len(files_of(checkpoint)) == 2
    assert newest(checkpoint) == logs(checkpoint)


def test_behind_a_line_that_may_be_torn_nothing_is_put(
    checkpoint: Path, writer: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    query.run(1)
    look.look()
    write_whole = mirror.append

    def tear(storage: WritableStorage, file: Location, content: bytes) -> bool:
        write_whole(storage, file, content[: len(content) // 2])
        raise StorageError("the disk is full", subject=str(file))

    query.run(1)
    with monkeypatch.context() as full:
        full.setattr(mirror, "append", tear)
        with pytest.raises(StorageError):
            look.look()
    assert look.look() == 2
    assert len(files_of(checkpoint)) == 2
    assert newest(checkpoint) == logs(checkpoint)
    look.settle()
    assert newest(checkpoint) == logs(checkpoint)


def test_a_snapshot_sees_what_no_folder_tells(checkpoint: Path, writer: Look) -> None:
    query, look = CheckpointBuilder(checkpoint), writer()
    query.run(3)
    os.utime(checkpoint / "offsets", (1.25, 1.25))
    look.look()
    (checkpoint / "offsets" / "1").write_bytes(b"v1")
    assert {copy.path: copy.content for copy in look.snapshot()} == logs(checkpoint)


def test_a_mirror_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert list(read_mirror(LocalStorage(), parse_location(str(tmp_path / "none")))) == []


def test_the_mirror_may_be_on_an_object_store(checkpoint: Path, clock: Clock) -> None:
    filesystem = MemoryFileSystem()
    filesystem.store = {}
    filesystem.pseudo_dirs = [""]
    target, folder = FsspecWriter(filesystem), parse_location("s3://bucket/chk.lastgood/mirror")
    CheckpointBuilder(checkpoint).run(3)
    look = MirrorWriter(
        parse_location(str(checkpoint)),
        storage=LocalStorage(),
        folder=folder,
        target=target,
        writer="w",
        now_ms=clock,
    )
    assert look.look() == 8
    assert len(list(read_mirror(target, folder))) == 8
    look.settle()
    assert {copy.path: copy.content for copy in read_mirror(target, folder)} == logs(checkpoint)


def test_the_mirror_stands_beside_the_checkpoint() -> None:
    assert str(locate_mirror(parse_location("s3a://lake/chk/orders"))) == "s3a://lake/chk/orders.lastgood/mirror"


def test_what_a_look_has_copied_is_told_once_it_is_in_the_mirror(checkpoint: Path, clock: Clock) -> None:
    location = parse_location(str(checkpoint))
    told: list[tuple[list[str], int]] = []
    writer = MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer="w",
        now_ms=clock,
        copied=lambda copies: told.append((sorted(copy.path for copy in copies), len(held(checkpoint)))),
    )
    query = CheckpointBuilder(checkpoint)
    query.run(1)
    writer.look()
    writer.look()
    query.plan()
    writer.look()
    assert told == [(["commits/0", "metadata", "offsets/0", "sources/0/0"], 4), (["offsets/1"], 5)]
