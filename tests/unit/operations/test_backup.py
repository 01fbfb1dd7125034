from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typed

from lastgood.checkpoint.checksums import HadoopChecksum
from lastgood.errors import StorageError
from lastgood.journal.room import RecoveryOpenError
from lastgood.mirror.backups import BackupMissingError, CheckpointNotEmptyError
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.open_query import CheckpointMissingError, gather
from lastgood.operations.backup import create, find_backups, keep
from lastgood.planning.price import Waiver
from lastgood.recovery import applying, backing_up, restoring
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.recovery.restoring import restore
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, Location, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput, KafkaInput
from lastgood.testing.storage import FaultyWriter

OTHER_ID = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def logs(root: Path) -> dict[str, bytes]:
    """Everything in a folder but what begins with a dot."""
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def look(checkpoint: Path, at_ms: int = STARTED_MS) -> None:
    location = parse_location(str(checkpoint))
    MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer=f"w{at_ms}",
        now_ms=lambda: at_ms,
    ).look()


@pytest.mark.parametrize("source", [KafkaInput(partitions=3), FileInput(compact_interval=3)])
@pytest.mark.parametrize("in_flight", [False, True])
def test_a_lost_checkpoint_comes_back_byte_for_byte(
    source: KafkaInput | FileInput, in_flight: bool, checkpoint: Path
) -> None:
    query = CheckpointBuilder(checkpoint, source)
    query.run(8)
    if in_flight:
        query.plan()
    look(checkpoint)
    before = logs(checkpoint)
    shutil.rmtree(checkpoint)
    restored = restore(resolve_target(str(checkpoint)))
    assert (restored.source, restored.absent) == ("mirror", ())
    assert (restored.last_planned, restored.last_committed) == (8 if in_flight else 7, 7)
    if isinstance(source, FileInput):  # what its newest compact file holds is not needed beside it
        before = {path: raw for path, raw in before.items() if path not in {f"sources/0/{n}" for n in (0, 1, 3, 4)}}
        before = {path: raw for path, raw in before.items() if path != "sources/0/2.compact"}
    newest = 8 if in_flight else 7
    if isinstance(source, FileInput) and newest == 8:
        before = {path: raw for path, raw in before.items() if path not in {f"sources/0/{n}" for n in (6, 7)}}
        before.pop("sources/0/5.compact")
    assert logs(checkpoint) == before
    assert restored.files == len(before)


def test_a_backup_brings_back_all_that_was_there(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, FileInput(compact_interval=3), checksums=True).run(8)
    (checkpoint / "offsets/9").write_bytes(b"\0\xff not a plan")
    before = logs(checkpoint)
    made, removed = create(resolve_target(str(checkpoint)))
    assert (made.files, made.query_id, made.last_planned, removed) == (len(before), QUERY_ID, 9, [])
    shutil.rmtree(checkpoint)
    assert restore(resolve_target(str(checkpoint)), source="last").source == made.id
    assert logs(checkpoint) == before


def test_a_checkpoint_is_restored_in_an_order_in_which_commits_are_never_ahead_and_no_driver_starts(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[str] = []

    class Recording(LocalWriter):
        def create(self, file: Location, content: bytes) -> bool:
            made = super().create(file, content)
            writes.append(file.path.removeprefix(f"{checkpoint}/"))
            assert (checkpoint / "offsets/11").read_bytes() == b"", "a driver could start"
            planned = {path.name for path in checkpoint.glob("offsets/*") if path.stat().st_size}
            assert {path.name for path in checkpoint.glob("commits/*")} <= planned | {"11"}
            needed = {path.name for path in checkpoint.glob("sources/0/*")} if planned else planned
            assert planned <= needed
            assert writes == ["offsets/11"] or (checkpoint / "metadata").exists()
            return made

        def write(self, file: Location, content: bytes) -> None:
            super().write(file, content)
            writes.append(file.path.removeprefix(f"{checkpoint}/"))

    def open_recording(location: Location) -> Recording:
        return Recording()

    CheckpointBuilder(checkpoint, FileInput(compact_interval=99)).run(12)
    look(checkpoint)
    shutil.rmtree(checkpoint)
    monkeypatch.setattr(restoring, "open_writable", open_recording)
    restore(resolve_target(str(checkpoint)))
    numbers = range(12)
    expected = ["metadata", *(f"{log}/{n}" for log in ("sources/0", "offsets", "commits") for n in numbers)]
    expected.remove("offsets/11")
    assert writes == ["offsets/11", *expected, "offsets/11"]


def test_a_restore_that_was_interrupted_goes_on_where_no_log_is_there_yet(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(LocalWriter):
        def create(self, file: Location, content: bytes) -> bool:
            if "/offsets/" in file.path:
                raise StorageError("the disk is full", subject=str(file))
            return super().create(file, content)

    def open_full(location: Location) -> Full:
        return Full()

    CheckpointBuilder(checkpoint).run(3)
    look(checkpoint)
    before = logs(checkpoint)
    shutil.rmtree(checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "open_writable", open_full)
        with pytest.raises(StorageError):
            restore(resolve_target(str(checkpoint)))
    restore(resolve_target(str(checkpoint)))
    assert logs(checkpoint) == before


def interrupt(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Iterator[dict[str, bytes]]:
    """A restore that ends before each of its changes, one later each time; gives what was there before the loss."""
    CheckpointBuilder(checkpoint).run(3)
    create(resolve_target(str(checkpoint)))
    before = logs(checkpoint)
    for number in itertools.count(1):
        shutil.rmtree(checkpoint)
        broken = FaultyWriter(LocalWriter(), error=StorageError("the disk is full"), before=number)
        with monkeypatch.context() as patch:
            patch.setattr(restoring, "open_writable", lambda _, broken=broken: broken)
            try:
                restore(resolve_target(str(checkpoint)), source=source)
            except StorageError:
                pass
            else:
                assert number > len(before)
                return
        yield before


@pytest.mark.parametrize("source", ["mirror", "last"])
def test_a_restore_that_was_interrupted_anywhere_starts_no_driver_and_goes_on(
    source: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left a checkpoint that had fewer batches, which Spark went on with, and which was not restored any more."""
    rounds = 0
    for before in interrupt(checkpoint, monkeypatch, source):
        there = logs(checkpoint) if checkpoint.exists() else {}
        assert not there or there["offsets/2"] == b""
        restore(resolve_target(str(checkpoint)), source=source)
        assert logs(checkpoint) == before
        rounds += 1
    assert rounds > len(before)


@pytest.mark.parametrize("path", ["offsets/3", "offsets/1", "commits/2"])
def test_what_a_driver_has_left_is_no_restore_that_was_interrupted(path: str, checkpoint: Path) -> None:
    """A plan beyond those of the copies, whose newest one is empty; and one or a commit that is another one."""
    CheckpointBuilder(checkpoint).run(3)
    create(resolve_target(str(checkpoint)))
    (checkpoint / "offsets/2").write_bytes(b"")
    (checkpoint / path).write_bytes(b"" if path == "offsets/3" else b"v1\nother")
    before = logs(checkpoint)
    with pytest.raises(CheckpointNotEmptyError):
        restore(resolve_target(str(checkpoint)), source="last")
    assert logs(checkpoint) == before


def test_the_seal_of_a_repair_is_no_restore_that_was_interrupted(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(3)
    query.plan()
    query.plan()
    create(resolve_target(str(checkpoint)))
    (checkpoint / "offsets/4").unlink()
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions("replan", accept=tuple(Waiver)))
    broken = FaultyWriter(LocalWriter(), error=StorageError("the disk is full"), before=12)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "open_writable", lambda _: broken)
        with pytest.raises(StorageError):
            applying.apply_plan(plan, driver_is_dead=True)
    assert (checkpoint / "offsets/4").read_bytes() == b""
    before = logs(checkpoint)
    with pytest.raises(RecoveryOpenError):
        restore(resolve_target(str(checkpoint)), source="last")
    assert logs(checkpoint) == before


@pytest.mark.parametrize("lost", [(), ("offsets",), ("commits",), ("offsets/2",)])
def test_a_checkpoint_that_is_there_is_never_overwritten(lost: tuple[str, ...], checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    look(checkpoint)
    for name in lost:
        path = checkpoint / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = {path: path.stat().st_mtime_ns for path in [checkpoint, *checkpoint.rglob("*")]}
    with pytest.raises(CheckpointNotEmptyError) as refused:
        restore(resolve_target(str(checkpoint)))
    assert refused.value.next == f"lastgood inspect {checkpoint}"
    assert {path: path.stat().st_mtime_ns for path in [checkpoint, *checkpoint.rglob("*")]} == before


def test_a_file_with_other_content_is_never_overwritten(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    look(checkpoint)
    for log in ("offsets", "commits"):
        shutil.rmtree(checkpoint / log)
    kept = (checkpoint / "metadata").stat().st_mtime_ns
    (checkpoint / "sources/0/0").write_bytes(b"\0v1\n{}")
    with pytest.raises(CheckpointNotEmptyError) as refused:
        restore(resolve_target(str(checkpoint)))
    assert (refused.value.subject, refused.value.effect) == (str(checkpoint / "sources/0/0"), "nothing was written")
    assert logs(checkpoint).keys() == {"metadata", "sources/0/0"}
    assert (checkpoint / "metadata").stat().st_mtime_ns == kept


def test_a_driver_that_starts_during_a_restore_keeps_what_it_has_written(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked into the empty logs before the seal stood, and plans its first batch while ours come back."""

    class Meanwhile(LocalWriter):
        def create(self, file: Location, content: bytes) -> bool:
            made = super().create(file, content)
            if file.path.endswith("/metadata"):
                super().write(planned, b"v1\nits own plan")
            return made

        def write(self, file: Location, content: bytes) -> None:
            super().write(file, content)
            if file.path.endswith("/metadata"):
                super().write(planned, b"v1\nits own plan")

    def open_meanwhile(location: Location) -> Meanwhile:
        return Meanwhile()

    CheckpointBuilder(checkpoint).run(3)
    look(checkpoint)
    shutil.rmtree(checkpoint)
    planned = parse_location(str(checkpoint)) / "offsets/0"
    monkeypatch.setattr(restoring, "open_writable", open_meanwhile)
    with pytest.raises(CheckpointNotEmptyError) as refused:
        restore(resolve_target(str(checkpoint)))
    assert (checkpoint / "offsets/0").read_bytes() == b"v1\nits own plan"
    assert (refused.value.subject, refused.value.effect) == (str(planned), "what was restored before it stays")
    assert not (checkpoint / "commits").exists()
    assert not (checkpoint / "offsets/2").exists(), "it would die at our seal"


def test_checksums_that_were_left_over_do_not_outlive_the_restore(checkpoint: Path) -> None:
    """`rm offsets/*` leaves `.5.crc`, which Hadoop would hold against any other file 5."""
    query = CheckpointBuilder(checkpoint, checksums=True)
    query.run(2)
    look(checkpoint)
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).glob("[0-9]*"):
            file.unlink()
    (checkpoint / "offsets/.1.crc").write_bytes(HadoopChecksum.of(b"another plan").to_bytes())
    (checkpoint / "offsets/.7.crc").write_bytes(b"not in the mirror")
    restore(resolve_target(str(checkpoint)))
    assert sorted(path.name for path in (checkpoint / "offsets").iterdir()) == [".7.crc", "0", "1"]
    assert sorted(path.name for path in (checkpoint / "commits").iterdir()) == ["0", "1"]


def test_the_mirror_restores_as_many_batches_as_spark_keeps(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(150)
    look(checkpoint)
    shutil.rmtree(checkpoint)
    restored = restore(resolve_target(str(checkpoint)))
    kept = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir())
    assert kept == sorted(int(path.name) for path in (checkpoint / "commits").iterdir()) == list(range(49, 150))
    assert (restored.files, restored.last_committed) == (2 + 202, 149)
    assert len(gather(resolve_target(str(checkpoint))).records()) == 150


def test_the_newest_query_is_restored(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, query_id=OTHER_ID).run(9)
    look(checkpoint)
    shutil.rmtree(checkpoint)
    CheckpointBuilder(checkpoint).run(2)
    look(checkpoint, STARTED_MS + 1)
    before = logs(checkpoint)
    shutil.rmtree(checkpoint)
    restore(resolve_target(str(checkpoint)))
    assert logs(checkpoint) == before


def test_what_was_taken_back_is_not_restored(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(6)
    look(checkpoint)
    query.drop_plan()
    query.drop_plan()
    query.plan(1)
    look(checkpoint, STARTED_MS + 1)
    before = logs(checkpoint)
    shutil.rmtree(checkpoint)
    restored = restore(resolve_target(str(checkpoint)))
    assert (restored.last_planned, restored.last_committed) == (4, 3)
    assert logs(checkpoint) == before


def test_a_damaged_version_is_not_restored_where_there_is_a_whole_one(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    look(checkpoint)
    before = logs(checkpoint)
    (checkpoint / "offsets/2").write_bytes(b"")
    (checkpoint / "metadata").write_bytes(b"")
    look(checkpoint, STARTED_MS + 1)
    shutil.rmtree(checkpoint)
    restore(resolve_target(str(checkpoint)))
    assert logs(checkpoint) == before


def test_state_that_is_lost_is_told(checkpoint: Path) -> None:
    case = Path(__file__).parents[2] / "corpus" / "cases" / "3.5-agg-hdfs-healthy" / "checkpoint"
    shutil.copytree(case, checkpoint)
    look(checkpoint)
    for name in ("offsets", "commits", "state/0/1"):
        shutil.rmtree(checkpoint / name)
    (checkpoint / "state/0/1").mkdir()
    restored = restore(resolve_target(str(checkpoint)))
    assert restored.absent == ("state/0/1/1.delta",)
    assert restored.to_json()["absent"] == list(restored.absent)


@pytest.mark.parametrize("source", ["mirror", "last", "20200101-000000-0000"])
def test_nothing_to_restore_from_is_an_error_and_writes_nothing(source: str, checkpoint: Path) -> None:
    with pytest.raises(BackupMissingError):
        restore(resolve_target(str(checkpoint)), source=source)
    assert not checkpoint.exists()


def test_nothing_to_back_up_is_an_error(checkpoint: Path) -> None:
    with pytest.raises(CheckpointMissingError):
        create(resolve_target(str(checkpoint)))
    assert not Path(f"{checkpoint}.lastgood").exists()


def test_a_backup_goes_into_the_mirror_too_and_the_checkpoint_is_not_touched(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    before = {path: path.stat().st_mtime_ns for path in [checkpoint, *checkpoint.rglob("*")]}
    create(resolve_target(str(checkpoint)))
    create(resolve_target(str(checkpoint)))
    assert {path: path.stat().st_mtime_ns for path in [checkpoint, *checkpoint.rglob("*")]} == before
    shutil.rmtree(checkpoint)
    assert restore(resolve_target(str(checkpoint))).last_planned == 2
    assert len(find_backups(resolve_target(str(checkpoint)))[0]) == 2


def test_old_backups_go_and_kept_ones_stay(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointBuilder(checkpoint).run(1)
    made = []
    for hour in range(4):
        monkeypatch.setattr(backing_up, "read_clock_ms", lambda hour=hour: STARTED_MS + 3_600_000 * hour)
        made.append(create(resolve_target(str(checkpoint)))[0])
    assert keep(resolve_target(str(checkpoint)), made[0].id).kept
    monkeypatch.setattr(backing_up, "read_clock_ms", lambda: STARTED_MS + 3_600_000 * 4)
    newest, removed = create(resolve_target(str(checkpoint)), retain_ms=2 * 3_600_000)
    assert removed == [made[1]]
    assert [each.id for each in find_backups(resolve_target(str(checkpoint)))[0]] == [
        made[0].id,
        made[2].id,
        made[3].id,
        newest.id,
    ]
    assert not keep(resolve_target(str(checkpoint)), made[0].id, kept=False).kept
    with pytest.raises(BackupMissingError):
        keep(resolve_target(str(checkpoint)), made[1].id)


def test_the_last_backup_is_never_an_older_one_for_that_the_newest_cannot_be_read(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CheckpointBuilder(checkpoint).run(1)
    target, made = resolve_target(str(checkpoint)), []
    for hour in range(3):
        monkeypatch.setattr(backing_up, "read_clock_ms", lambda hour=hour: STARTED_MS + 3_600_000 * hour)
        made.append(create(target)[0])
    folder = Path(f"{checkpoint}.lastgood/backups")
    shutil.rmtree(checkpoint)
    (folder / f"{made[0].id}.json").write_bytes(b"{")
    assert find_backups(target)[1] == [made[0].id]
    assert restore(target, source="last").source == made[2].id  # an older one that is damaged is in nobody's way
    shutil.rmtree(checkpoint)
    (folder / f"{made[2].id}.json").write_bytes(b"{")
    with pytest.raises(BackupMissingError, match="newest backup") as caught:
        restore(target, source="last")
    assert made[1].id in (caught.value.expected or "")
    listed = typed.call("backup", "list", checkpoint)
    assert f"{made[2].id}: it does not say what it holds" in listed.stdout
    assert json.loads(typed.call("backup", "list", checkpoint, "--format", "json").stdout)["unread"] == [
        made[0].id,
        made[2].id,
    ]
    assert restore(target, source=made[1].id).source == made[1].id


def test_an_unwritable_work_folder_is_an_error(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(1)
    Path(f"{checkpoint}.lastgood").write_bytes(b"in the way")
    with pytest.raises(StorageError):
        create(resolve_target(str(checkpoint)))


def test_a_pipelines_name_is_resolved(checkpoint: Path, tmp_path: Path) -> None:
    CheckpointBuilder(checkpoint).run(1)
    config = tmp_path / "lastgood.toml"
    config.write_text(f'[pipeline.orders]\ncommand = ["x"]\ncheckpoint = "{checkpoint}"\n')
    made, _ = create(resolve_target("orders", Config(config)))
    assert find_backups(resolve_target("orders", Config(config))) == ([made], [])
    assert keep(resolve_target("orders", Config(config)), "last").id == made.id
    shutil.rmtree(checkpoint)
    assert restore(resolve_target("orders", Config(config)), source=made.id).checkpoint == str(checkpoint)
    assert [path.name for path in (checkpoint / "offsets").iterdir()] == ["0"]
