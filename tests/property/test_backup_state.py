"""State that a backup keeps: whole, copied once, back in its place; and nothing left of a copy that broke off."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typed
from reading import CASES, read_files

from lastgood.checkpoint.layout import SparkChecksumFile, classify
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import StorageError
from lastgood.mirror.backups import Backup, BackupMissingError, CheckpointNotEmptyError
from lastgood.mirror.state_copies import StateNotKeptError
from lastgood.operations.backup import create, find_backups
from lastgood.planning.draft import RepairRefusedError
from lastgood.recovery import backing_up, restoring
from lastgood.recovery.plans import make_plan
from lastgood.recovery.restoring import restore
from lastgood.settings.target import Target, resolve_target
from lastgood.storage.reading import Location, open_storage
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.storage import FaultyWriter

STATEFUL = [
    "3.5-agg-hdfs-healthy",
    "3.5-agg-rocksdb-healthy",
    "3.5-join-hdfs",
    "4.0-agg-rocksdb-changelog-healthy",
    "4.2-agg-nokey-rocksdb-ckptv2",
    "4.3-agg-rocksdb-ckptv2-healthy",
]
DAY_MS = 24 * 3600 * 1000


def take(folder: Path, case: str = STATEFUL[0]) -> Target:
    """A query that keeps state, from the corpus."""
    shutil.copytree(CASES / case / "checkpoint", folder / "chk")
    return resolve_target(str(folder / "chk"))


def lose(target: Target) -> None:
    shutil.rmtree(target.location.path)


def state_of(target: Target) -> dict[str, bytes]:
    """Its files, without checksums."""
    found = read_files(Path(target.location.path) / "state")
    return {path: content for path, content in found.items() if not path.endswith(".crc")}


def find_needed(target: Target) -> Path:
    """A file of the state that has to be there, since it was copied; it lies in the checkpoint."""
    changes = sorted(path for path in kept(target) if path.endswith(".delta"))
    return Path(target.location.path) / "state" / changes[-1].partition("/")[2]


def kept(target: Target) -> dict[str, bytes]:
    """What lies beside it of the state."""
    folder = Path(f"{target.location.path}.lastgood/state")
    return read_files(folder) if folder.exists() else {}


@pytest.mark.parametrize("case", STATEFUL)
@pytest.mark.parametrize("source", ["mirror", "last"])
def test_lost_checkpoint_comes_back_with_what_its_state_is_loaded_from(case: str, source: str, tmp_path: Path) -> None:
    target = take(tmp_path, case)
    before = state_of(target)
    made, _ = create(target, state=True)
    assert made.state is not None
    newest = read_checkpoint(open_storage(target.location), target.location).last_committed
    assert (made.state.batch, made.state.copied) == (newest, made.state.size)
    lose(target)
    restored = restore(target, source=source)
    assert (restored.state_batch, restored.last_committed, restored.absent) == (newest, newest, ())
    back = state_of(target)
    assert back
    assert back.items() <= before.items()
    state = read_checkpoint(open_storage(target.location), target.location).state
    assert state is not None
    assert state.last_loadable_batch == newest


def test_what_was_copied_is_not_copied_again(tmp_path: Path) -> None:
    target, seen = take(tmp_path), []
    first, _ = create(target, state=True)
    second, _ = create(target, state=True, tell=lambda chosen: seen.append(len(chosen.to_copy)))
    assert first.state is not None
    assert second.state is not None
    assert (second.state.files, second.state.size, second.state.copied, seen) == (
        first.state.files,
        first.state.size,
        0,
        [0],
    )
    assert {path.split("/")[0] for path in kept(target)} == {first.id}
    lose(target)
    assert restore(target, source=second.id).absent == ()


def test_copy_that_is_gone_or_a_file_that_was_written_anew_is_copied_again(tmp_path: Path) -> None:
    target = take(tmp_path)
    first, _ = create(target, state=True)
    folder = Path(f"{target.location.path}.lastgood/state/{first.id}")
    gone, anew = sorted(folder.rglob("[0-9]*.*"))[:2]
    gone.unlink()
    file = Path(target.location.path) / "state" / anew.relative_to(folder)
    file.write_bytes(file.read_bytes())  # the same bytes, at another time
    second, _ = create(target, state=True)
    assert second.state is not None
    copied = {path for path in kept(target) if path.startswith(second.id)}
    assert copied == {f"{second.id}/{each.relative_to(folder)}" for each in (gone, anew)}
    lose(target)
    assert restore(target, source=second.id).absent == ()


def test_query_without_state_has_none_to_keep(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    made, _ = create(resolve_target(str(tmp_path / "chk")), state=True)
    assert made.state is None
    told = typed.call("backup", "create", tmp_path / "chk", "--state")
    assert "the query keeps no state\n" in told.stdout
    assert "state" not in typed.call("backup", "create", tmp_path / "chk", "--state", "--format=json").stdout


def test_state_that_cannot_be_loaded_is_no_backup(tmp_path: Path) -> None:
    target = take(tmp_path)
    create(target, state=True)
    find_needed(target).unlink()
    before, found = kept(target), find_backups(target)
    with pytest.raises(StateNotKeptError, match="state cannot be copied") as refused:
        create(target, state=True)
    assert refused.value.effect == "no backup was made"
    assert (find_backups(target), kept(target)) == (found, before)


@pytest.mark.parametrize("how", ["gone", "longer"])
def test_state_that_changes_while_it_is_copied_is_no_backup(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changing(LocalWriter):
        def copy(self, source: Location, target: Location) -> None:
            if how == "gone":
                Path(source.path).unlink()
            super().copy(source, target)
            Path(source.path).write_bytes(b"longer than it was" * 100)

    target = take(tmp_path)
    monkeypatch.setattr(backing_up, "open_writable", lambda _: Changing())
    with pytest.raises(StateNotKeptError, match="changed while it was copied"):
        create(target, state=True)
    assert (find_backups(target), kept(target)) == (([], []), {})


def interrupted(monkeypatch: pytest.MonkeyPatch, module: object, work: Callable[[], object], number: int) -> bool:
    """Whether it broke off before the change of this number, as if it was killed there."""
    broken = FaultyWriter(LocalWriter(), error=StorageError("the disk is full"), before=number)
    with monkeypatch.context() as patch:
        patch.setattr(module, "open_writable", lambda _: broken)
        try:
            work()
        except StorageError:
            return True
    return False


def test_backup_that_was_killed_anywhere_is_whole_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = take(tmp_path)
    for number in itertools.count(1):
        is_broken = interrupted(monkeypatch, backing_up, lambda: create(target, state=True), number)
        found, unread = find_backups(target)
        for each in found:
            lose(target)
            assert restore(target, source=each.id).absent == ()
        assert unread == []
        if not is_broken:
            return
        shutil.rmtree(f"{target.location.path}.lastgood", ignore_errors=True)
        lose(target)
        take(tmp_path)


@pytest.mark.parametrize("source", ["mirror", "last"])
def test_restore_that_was_killed_anywhere_starts_no_driver_and_goes_on(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = take(tmp_path)
    create(target, state=True)
    newest = f"offsets/{restoring.read_checkpoint(open_storage(target.location), target.location).last_planned}"
    lose(target)
    restore(target, source=source)
    whole = read_files(Path(target.location.path))
    for number in itertools.count(1):
        lose(target)
        if not interrupted(monkeypatch, restoring, lambda: restore(target, source=source), number):
            assert number > len(whole)
            return
        there = read_files(Path(target.location.path)) if Path(target.location.path).exists() else {}
        assert not there or there[newest] == b""
        restore(target, source=source)
        assert read_files(Path(target.location.path)) == whole


def test_copies_go_once_no_backup_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = take(tmp_path)
    begin_ms = backing_up.read_clock_ms()

    def back_up(days: int, **options: Any) -> Backup:
        monkeypatch.setattr(backing_up, "read_clock_ms", lambda: begin_ms + days * DAY_MS)
        return create(target, **options)[0]

    first = back_up(0, state=True)
    second = back_up(2, state=True)
    back_up(4, retain_ms=3 * DAY_MS)  # the first goes, and the second still names its copies
    assert find_backups(target)[0][0].id == second.id
    assert {path.split("/")[0] for path in kept(target)} == {first.id}
    lose(target)
    assert restore(target, source=second.id).absent == ()
    back_up(6, retain_ms=DAY_MS)
    assert kept(target) == {}
    assert not list(Path(f"{target.location.path}.lastgood/backups").glob("*.state.json"))


def test_nothing_is_removed_while_a_backup_does_not_say_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = take(tmp_path)
    begin_ms = backing_up.read_clock_ms()
    first, _ = create(target, state=True)
    (tmp_path / f"chk.lastgood/backups/{first.id}.json").write_bytes(b"{")
    before = kept(target)
    monkeypatch.setattr(backing_up, "read_clock_ms", lambda: begin_ms + 9 * DAY_MS)
    create(target, retain_ms=DAY_MS)
    assert kept(target) == before


def test_copy_that_is_cut_off_or_gone_is_told_before_anything_is_written(tmp_path: Path) -> None:
    target = take(tmp_path)
    made, _ = create(target, state=True)
    lose(target)
    (file, *_) = sorted((tmp_path / f"chk.lastgood/state/{made.id}").rglob("*.delta"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BackupMissingError, match="not whole"):
        restore(target, source="last")
    (tmp_path / f"chk.lastgood/backups/{made.id}.state.json").unlink()
    with pytest.raises(BackupMissingError, match="not as it was kept"):
        restore(target, source="last")
    assert not (tmp_path / "chk").exists()


def test_other_file_in_its_place_is_never_overwritten(tmp_path: Path) -> None:
    target = take(tmp_path)
    create(target, state=True)
    file = find_needed(target)
    for log in ("offsets", "commits"):
        shutil.rmtree(tmp_path / "chk" / log)
    file.write_bytes(b"another one")
    before = read_files(tmp_path / "chk")
    with pytest.raises(CheckpointNotEmptyError, match="with another size"):
        restore(target, source="last")
    assert read_files(tmp_path / "chk") == before


def test_snapshot_that_is_newer_than_the_backup_is_not_left_to_be_loaded_one_day(tmp_path: Path) -> None:
    target = take(tmp_path)
    create(target, state=True)
    stale = find_needed(target).with_name("999.snapshot")
    stale.write_bytes(b"of a future that was lost")
    for log in ("offsets", "commits"):
        shutil.rmtree(tmp_path / "chk" / log)
    before = read_files(tmp_path / "chk")
    with pytest.raises(CheckpointNotEmptyError, match="newer than the backup"):
        restore(target, source="last")
    assert read_files(tmp_path / "chk") == before
    stale.unlink()
    restore(target, source="last")


def test_checksum_of_a_file_that_is_gone_is_not_held_against_the_one_that_comes_back(tmp_path: Path) -> None:
    target = take(tmp_path)
    create(target, state=True)
    for log in ("offsets", "commits"):
        shutil.rmtree(tmp_path / "chk" / log)
    file = find_needed(target)
    file.unlink()
    hadoop, spark = file.with_name(f".{file.name}.crc"), file.with_name(f"{file.name}.crc")
    for checksum in (hadoop, spark):
        checksum.write_bytes(b"of another file")
    restore(target, source="last")
    assert file.exists()
    assert not hadoop.exists()
    assert not spark.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ["state/../../../victim", 5, 1, ""],
        ["/state/0/0/1.delta", 5, 1, ""],
        ["state/0/0/1.delta", 5, 1, "../../.."],
        ["offsets/99", 5, 1, ""],
        ["state//0/0/1.delta", 5, 1, ""],
        ["state/0/0/run.sh", 5, 1, ""],
    ],
)
def test_list_of_copies_that_names_anything_else_is_refused(wrong: list[Any], tmp_path: Path) -> None:
    """Whoever writes to the lake can write the list, and the facts with its digest, where there is no key."""
    target = take(tmp_path)
    made, _ = create(target, state=True)
    (tmp_path / "victim").write_bytes(b"12345")
    lose(target)
    listed = tmp_path / f"chk.lastgood/backups/{made.id}.state.json"
    told = json.loads(listed.read_bytes())
    told["files"].append([*wrong[:3], wrong[3] or made.id])
    listed.write_text(json.dumps(told))
    facts = tmp_path / f"chk.lastgood/backups/{made.id}.json"
    said = json.loads(facts.read_bytes())
    said["state"]["sha256"] = hashlib.sha256(listed.read_bytes()).hexdigest()
    facts.write_text(json.dumps(said))
    with pytest.raises(BackupMissingError, match="no file of a state"):
        restore(target, source="last")
    assert not (tmp_path / "chk").exists()


def test_state_of_another_history_does_not_come_to_the_logs_of_the_mirror(tmp_path: Path) -> None:
    """Somebody has dropped the batch whose state was kept, and it ran again with something else."""
    target = take(tmp_path)
    made, _ = create(target, state=True)
    assert made.state is not None
    plan = tmp_path / f"chk/offsets/{made.state.batch}"
    plan.write_bytes(plan.read_bytes().replace(b'"batchTimestampMs":1', b'"batchTimestampMs":2'))
    create(target)
    lose(target)
    assert restore(target).state_batch is None


def test_spark_s_own_checksums_come_along(tmp_path: Path) -> None:
    target = take(tmp_path, "4.3-agg-rocksdb-ckptv2-healthy")
    own = [path for path in read_files(tmp_path / "chk") if isinstance(classify(path), SparkChecksumFile)]
    made, _ = create(target, state=True)
    copied = {f"state/{path.partition('/')[2]}" for path in kept(target)}
    assert {path for path in own if path.startswith("state/") and path.removesuffix(".crc") in copied} <= copied
    assert made.state is not None


def test_person_reads_what_it_costs_before_and_what_was_kept(tmp_path: Path) -> None:
    target = take(tmp_path)
    told = typed.call("backup", "create", target.location.path, "--state")
    assert told.returncode == 0
    (made,) = find_backups(target)[0]
    assert made.state is not None
    whole = f"{made.state.files} files, {made.state.size:,} bytes"
    assert f"the state after batch 7: {whole}; to be copied: {whole}\n" == told.stderr
    assert f"with the state after batch 7: {whole}\n" in told.stdout
    assert f"{made.state.size:,}" in typed.call("backup", "list", target.location.path).stdout
    lose(target)
    assert "and the state after batch 7\n" in typed.call("backup", "restore", target.location.path).stdout


@pytest.mark.parametrize("case", ["4.2-agg-nokey-rocksdb-ckptv2", STATEFUL[0]])
def test_who_plans_for_a_lost_checkpoint_is_sent_to_the_state_that_is_kept(case: str, tmp_path: Path) -> None:
    target = take(tmp_path, case)
    create(target, state=True)
    lose(target)
    with pytest.raises(RepairRefusedError, match="a backup has kept it") as refused:
        make_plan(target)
    assert refused.value.next == f"lastgood backup restore {target.location}"
