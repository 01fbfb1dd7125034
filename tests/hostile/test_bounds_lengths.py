"""Many long files at a time, which take no room where they lie: one of them is held at most."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hostile.bounded import RESIDENT_KIB, Said, arguments, bounded
from hostile.conftest import table

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.delta_log import own_files
from lastgood.delta_log.actions import parse_commit
from lastgood.mirror import mirror as module
from lastgood.mirror.copies import CopiesTooLargeError, Copy, compress, decode_copies, encode_copies
from lastgood.mirror.mirror import MirrorWriter, locate_mirror, read_mirror
from lastgood.notes import VALUES_MAX, read_json
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import LocalStorage, Location, parse_location
from lastgood.storage.writing import open_writable
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder, FileInput

MEGABYTE = 1024 * 1024
FILES = 12
"""More than a backup may hold."""
LONG = range(1, 5)
"""Whoever holds three of them at a time has more than `RESIDENT_KIB`."""


def long(file: Path, megabytes: int = 250) -> None:
    """A hole, behind what a log begins with."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.write(b"v1\n")
        stream.truncate(megabytes * MEGABYTE)


def said_by(folder: Path, *words: str) -> Said:
    said = bounded(words, folder)
    assert not said.is_bug, (words, said.code, said.err)
    assert said.resident_kib < RESIDENT_KIB, (words, said.resident_kib)
    return said


@pytest.mark.parametrize("sink", ["file", "delta"])
def test_the_log_of_a_sink_costs_no_more_than_one_of_its_files(tmp_path: Path, sink: str) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(8)
    query.plan()
    if sink == "delta":
        table(tmp_path / "sink", QUERY_ID, 1)
    for number in LONG:
        log, name = ("_spark_metadata", f"{number}") if sink == "file" else ("_delta_log", f"{number:020d}.json")
        long(tmp_path / "sink" / log / name)
    said_by(tmp_path, *arguments(["diagnose"], tmp_path / "chk"), "--sink", str(tmp_path / "sink"))


def test_the_log_of_a_table_is_looked_at_one_long_file_at_a_time(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(2)
    table(tmp_path / "sink", QUERY_ID, 1)
    for number in LONG:
        long(tmp_path / "sink/_delta_log" / f"{number:020d}.json")
    words = ["plan", str(tmp_path / "chk"), "--goal", "fresh", "--offset-columns", "partition,offset", "--topic", "t"]
    said_by(tmp_path, *words, "--sink", str(tmp_path / "sink"), "-o", str(tmp_path / "plan.json"))


def test_before_a_table_is_opened_its_long_files_are_looked_at_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_files, "_AHEAD_BYTES_MAX", 100)
    table(tmp_path / "sink", QUERY_ID, 4)
    held: list[str] = []
    most = 0
    read = LocalStorage.read

    def read_slowly(storage: LocalStorage, file: Location, **bounds: Any) -> bytes | None:
        nonlocal most
        held.append(file.name)
        most = max(most, len(held))
        time.sleep(0.05)
        held.remove(file.name)
        return read(storage, file, **bounds)

    monkeypatch.setattr(LocalStorage, "read", read_slowly)
    location = parse_location(str(tmp_path / "sink"))
    own_files.require_own_files(open_writable(location), location, deadline=Deadline.after(600))
    assert most == 1


@pytest.mark.parametrize("log", ["offsets", "sources/0"])
def test_logs_that_are_longer_than_can_be_backed_up_are_told(tmp_path: Path, log: str) -> None:
    query = CheckpointBuilder(tmp_path / "chk", FileInput() if log == "sources/0" else None)
    query.run(FILES)
    for number in range(FILES):
        long(tmp_path / "chk" / log / str(number))
    said = said_by(tmp_path, "backup", "create", str(tmp_path / "chk"), "--format", "json")
    assert said.code == CopiesTooLargeError.exit_code
    assert f"{250 * MEGABYTE:,} of them in {log}/" in said.out
    assert "no backup was made" in said.out


def test_logs_within_that_bound_are_backed_up_by_whom_has_little_memory(tmp_path: Path) -> None:
    """What JSON would write six times as long as it is is kept in another way, one file after the other."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(3)
    for number in range(3):
        long(tmp_path / "chk/commits" / str(number), 60)
    assert said_by(tmp_path, "backup", "create", str(tmp_path / "chk")).code == 0


def test_a_look_of_the_mirror_holds_a_few_files_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` copies as long as it lives: it must not die of what stands in a log."""
    monkeypatch.setattr(module, "_AT_ONCE_BYTES", 2000)
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(9)
    (tmp_path / "chk/offsets/9").write_bytes(b"v1\n" + bytes(5000))
    checkpoint = parse_location(str(tmp_path / "chk"))
    storage = open_writable(checkpoint)
    folder = locate_mirror(checkpoint)
    held: list[int] = []
    writer = MirrorWriter(
        checkpoint,
        storage=storage,
        folder=folder,
        target=storage,
        writer="w",
        now_ms=lambda: 1_790_000_000_000,
        copied=lambda copies: held.append(sum(copy.size for copy in copies)),
    )
    assert writer.look() == 21  # of nine batches, their query and source, and the plan that is none
    assert len(held) > 2
    assert sorted(held)[-2] <= 2000
    copied = {copy.path: copy.content for copy in read_mirror(storage, folder)}
    assert copied["offsets/9"] == b"v1\n" + bytes(5000)
    assert len(copied) == 21
    assert writer.look() == 0
    writer.settle()
    assert {copy.path: copy.content for copy in read_mirror(storage, folder)} == copied


def test_a_long_file_of_a_mirror_is_read_when_it_is_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AHEAD_BYTES_MAX", 100)
    checkpoint = parse_location(str(tmp_path / "chk"))
    CheckpointBuilder(tmp_path / "chk").run(9)
    storage = open_writable(checkpoint)
    folder = locate_mirror(checkpoint)
    writer = MirrorWriter(
        checkpoint, storage=storage, folder=folder, target=storage, writer="w", now_ms=lambda: 1_790_000_000_000
    )
    copies = writer.snapshot()
    assert writer.look() == len(copies)
    assert sorted(read_mirror(storage, folder), key=lambda copy: copy.path) == sorted(
        copies, key=lambda copy: copy.path
    )


@pytest.mark.parametrize("name", ["20261121.jsonl.gz", "parts/w-1.jsonl"])
@pytest.mark.parametrize("megabytes", [250, 10_000_000])
def test_a_hole_in_a_mirror_is_not_read(
    name: str, megabytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that is longer than any file of a mirror, nor one of which nearly nothing is there."""
    checkpoint = parse_location(str(tmp_path / "chk"))
    folder = locate_mirror(checkpoint)
    for number in range(30):
        long(Path(folder.path) / name.replace("1.jsonl", f"1{number}.jsonl"), megabytes)
    taken: list[int] = []
    read = LocalStorage.read

    def counted(self: LocalStorage, file: Location, *, limit: int) -> bytes | None:
        found = read(self, file, limit=limit)
        taken.append(len(found or b""))
        return found

    monkeypatch.setattr(LocalStorage, "read", counted)
    with pytest.raises(CopiesTooLargeError):
        list(read_mirror(open_writable(checkpoint), folder))
    assert sum(taken) < 30 * 9 * MEGABYTE


def test_a_line_of_very_many_values_is_no_copy() -> None:
    """Each of them takes three bytes, and sixty in memory."""
    many = b'{"path":"offsets/1","query":null,"seen_ms":1,"text":"","more":[' + b"[]," * 5_000_000 + b"0]}\n"
    assert list(decode_copies(many)) == []
    content = b"[]," * 5_000_000
    copy = Copy(None, "offsets/1", 1, None, content)
    assert list(decode_copies(encode_copies([copy]))) == [copy]


def test_notes_hold_so_many_values_at_most() -> None:
    with pytest.raises(ValueError, match="values"):
        read_json(b"[" + b"[]," * VALUES_MAX + b"0]")
    with pytest.raises(ValueError, match="values"):
        read_json("[" + "0," * VALUES_MAX + "0]")


def test_a_member_is_the_same_in_however_many_pieces() -> None:
    raw = os.urandom(200_000) + bytes(300_000)
    assert compress(raw) == compress([raw[:7], raw[7:]]) == gzip.compress(raw, compresslevel=6, mtime=0)
    assert encode_copies([]) == b""


def test_a_version_of_a_table_that_holds_very_many_values_is_damaged() -> None:
    add = b'{"add":{"path":"x","size":1,"more":[' + b"[]," * VALUES_MAX + b"0]}}\n"
    found = parse_commit(1, add)
    assert isinstance(found, Damage)
    assert found.kind is DamageKind.TOO_LARGE
