"""Ids come from the names of files; what a file says of its own id must agree, and no path is made of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hostile.attacker import call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.checkpoint.copies import Copy
from lastgood.journal.incidents import list_incidents
from lastgood.journal.room import list_recoveries
from lastgood.mirror.backups import BackupMissingError, list_backups, locate_backups, make_backup, remove_older
from lastgood.mirror.copies import decode_copies
from lastgood.operations import backup as verbs
from lastgood.recovery.prover import _copy
from lastgood.recovery.restoring import restore
from lastgood.settings.target import resolve_target
from lastgood.storage.overlay import OverlayStorage
from lastgood.storage.reading import Entry, FsspecStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import CheckpointBuilder

AT_MS = 1_795_220_516_284
ELSEWHERE = "../../../victim/secret"
ID = "20261121-002156-7f3a"
STORAGE = LocalWriter()
TO_NOWHERE = [
    "offsets/../../x",
    "sources/./1",
    "sources//1",
    "sources/../1",
    "sources/a\0b/1",
    "sources/\udc41/1",
    "/1",
]


def state_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with a query and a backup, and a victim's folder beside it."""
    CheckpointBuilder(tmp_path / "lake/chk").run(3)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "secret.json").write_bytes(b"{}")
    copies = [Copy("q", "metadata", AT_MS, None, b'{"id":"q"}'), Copy("q", "offsets/7", AT_MS, None, b"v1\n{}\n1")]
    backup, content = make_backup(copies, at_ms=AT_MS, backup_id=ID)
    (victim / "secret.jsonl.gz").write_bytes(content)
    folder = tmp_path / "lake/chk.lastgood/backups"
    folder.mkdir(parents=True)
    (folder / f"{ID}.jsonl.gz").write_bytes(content)
    (folder / f"{ID}.json").write_text(json.dumps({**backup.to_json(), "id": ELSEWHERE}))
    return tmp_path


def test_a_backup_that_says_it_is_another_one_is_none(lake: Path) -> None:
    before = state_of(lake / "victim")
    checkpoint = str(lake / "lake/chk")
    folder = locate_backups(parse_location(checkpoint))
    assert verbs.find_backups(resolve_target(checkpoint))[0] == []
    assert remove_older(STORAGE, folder, before_ms=AT_MS + 1) == []
    for wanted in (ELSEWHERE, ID):
        with pytest.raises(BackupMissingError):
            verbs.keep(resolve_target(checkpoint), wanted)
    assert state_of(lake / "victim") == before


def test_a_lost_checkpoint_is_not_restored_from_a_victims_folder(lake: Path) -> None:
    checkpoint = str(lake / "lake/lost")
    (lake / "lake/chk.lastgood").rename(lake / "lake/lost.lastgood")
    for wanted in (ELSEWHERE, ID, "last"):
        with pytest.raises(BackupMissingError):
            restore(resolve_target(checkpoint), source=wanted)
    assert not (lake / "lake/lost").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_only_names_as_lastgood_makes_them_are_ids(tmp_path: Path, name: str) -> None:
    """Whatever a file is called, an id that is told of it is digits and hex, and its name is the id."""
    location = parse_location(str(tmp_path / "chk"))
    work = tmp_path / "chk.lastgood"
    for kind in ("backups", "incidents", "recoveries"):
        (work / kind).mkdir(parents=True, exist_ok=True)
    backup, _ = make_backup([Copy(None, "metadata", 1, 1, b"x")], at_ms=AT_MS, backup_id=ID)
    placed = [work / f"backups/{name}.json", work / f"incidents/{name}.json", work / f"recoveries/{name}"]
    if name in (".", ".."):
        return
    placed[0].write_text(json.dumps(replace(backup, id=name).to_json()))
    placed[1].write_text("{}")
    placed[2].mkdir(exist_ok=True)
    backups = [each.id for each in list_backups(STORAGE, locate_backups(location))]
    ids = [*backups, *list_incidents(STORAGE, location), *list_recoveries(STORAGE, location)]
    placed[0].unlink()
    placed[1].unlink()
    placed[2].rmdir()
    is_ours = name.isascii() and len(name) == len(ID) and set(name) <= set("0123456789abcdef-")
    assert ids == [] or (is_ours and set(ids) == {name})


@pytest.mark.parametrize("digits", ["\u0663" * 8, "\uff13" * 8, "\U0001d7db" * 8])
def test_digits_of_other_scripts_are_none(tmp_path: Path, digits: str) -> None:
    location = parse_location(str(tmp_path / "chk"))
    (tmp_path / f"chk.lastgood/recoveries/{digits}-002156-7f3a").mkdir(parents=True)
    incidents = tmp_path / "chk.lastgood/incidents"
    incidents.mkdir()
    (incidents / f"{digits}-002156-7f3a.json").write_text("{}")
    assert list_recoveries(STORAGE, location) == []
    assert list_incidents(STORAGE, location) == []


@pytest.mark.parametrize("path", TO_NOWHERE)
def test_a_copy_whose_path_is_no_file_of_a_log_is_left_out(path: str) -> None:
    line = json.dumps({"path": path, "query": None, "seen_ms": 1, "text": "x"}).encode()
    assert list(decode_copies(line)) == []


@given(st.lists(st.sampled_from(["..", ".", "", "sources", "offsets", "0", "7", "a\0", "\udc80", "7.compact"])))
def test_no_path_of_a_copy_leads_out_of_the_checkpoint(parts: list[str]) -> None:
    line = json.dumps({"path": "/".join(parts), "query": None, "seen_ms": 1, "text": "x"}).encode()
    for copy in decode_copies(line):
        assert all(part not in ("", ".", "..") and "\0" not in part for part in copy.path.split("/"))
        copy.path.encode()


@pytest.mark.parametrize("time", [-1, 10**15, 10**30, True, 1.5, float("nan"), float("inf"), None, "1"])
def test_a_copy_or_backup_of_no_time_is_none(lake: Path, time: object) -> None:
    fields = {"path": "offsets/7", "query": None, "seen_ms": time, "text": "x"}
    assert list(decode_copies(json.dumps(fields).encode())) == []
    folder = lake / "lake/chk.lastgood/backups"
    told = json.loads((folder / f"{ID}.json").read_text())
    (folder / f"{ID}.json").write_text(json.dumps({**told, "id": ID, "at_ms": time}))
    assert verbs.find_backups(resolve_target(str(lake / "lake/chk")))[0] == []


def test_a_backup_is_still_found_where_its_name_agrees(lake: Path) -> None:
    folder = lake / "lake/chk.lastgood/backups"
    told = json.loads((folder / f"{ID}.json").read_text())
    (folder / f"{ID}.json").write_text(json.dumps({**told, "id": ID}))
    (folder / "20261121-002156-7f3b.json").write_text(json.dumps({**told, "id": ID}))  # a copy of it by hand
    assert [each.id for each in verbs.find_backups(resolve_target(str(lake / "lake/chk")))[0]] == [ID]


class Bucket:
    """An object store: a key is any text."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = objects

    def find(self, path: str, **_: object) -> dict[str, Any]:
        return {key: self._entry(key) for key in self.objects if key.startswith(f"{path}/")}

    def ls(self, path: str, **_: object) -> list[Any]:
        below = [key.removeprefix(f"{path}/").partition("/") for key in self.find(path)]
        names = {f"{path}/{name}{slash}": bool(slash) for name, slash, _ in below}
        return [{"name": name, "type": "directory"} if folder else self._entry(name) for name, folder in names.items()]

    def cat_file(self, path: str, **_: object) -> bytes:
        return self.objects[path]

    def _entry(self, key: str) -> dict[str, Any]:
        return {"name": key, "type": "file", "size": len(self.objects[key])}


@given(st.lists(st.sampled_from(["..", ".", "", "a", "0", "\0", "7\0", ".crc", "..."]), min_size=1, max_size=6))
def test_a_key_that_is_no_name_is_left_out_of_every_listing(parts: list[str]) -> None:
    name = "/".join(parts)
    chk = parse_location("s3a://lake/chk")
    storage = FsspecStorage(Bucket({"lake/chk/9": b"", f"lake/chk/{name}": b""}))
    is_name = all(part not in ("", ".", "..") and "\0" not in part for part in parts)
    assert {entry.name for entry in storage.walk(chk) or ()} == {"9", *([name] if is_name else [])}
    for shown in [*(storage.names(chk) or ()), *(entry.name for entry in storage.scan(chk) or ())]:
        assert shown.rstrip("/") not in ("", ".", "..")
        assert "\0" not in shown


@pytest.mark.parametrize("climb", ["sources/0/", "sources/0/../", "offsets/", "sources/", "commits/x/"])
@pytest.mark.parametrize("is_checked", [False, True])
def test_a_proof_copies_no_key_to_where_it_leads(tmp_path: Path, climb: str, is_checked: bool) -> None:
    """Keys are written nowhere but into the copy, and only those of a checkpoint's logs."""
    mine = tmp_path / "home/.ssh/authorized_keys"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    CheckpointBuilder(tmp_path / "chk").run(3)
    logs = {f"lake/chk/{path}": content for path, content in state_of(tmp_path / "chk").items()}
    name = f"{climb}{'../' * 20}{str(mine).lstrip('/')}"
    evil = {name: b"evil", "sources/../7": b"evil", "sources/0/app.py": b"evil", "offsets/.pth": b"evil"}
    bucket = FsspecStorage(Bucket({**logs, **{f"lake/chk/{each}": content for each, content in evil.items()}}))
    chk = parse_location("s3a://lake/chk")
    storage = bucket if is_checked else Unchecked(bucket)
    found: Any = SimpleNamespace(location=chk, seen=SimpleNamespace(is_local=False))
    _copy(OverlayStorage(storage, chk, {}), found, tmp_path / "deep/copy")
    copied = state_of(tmp_path / "deep")
    assert {f"copy/{key.removeprefix('lake/chk/')}" for key in logs if not key.endswith(".crc")} == set(copied)
    assert mine.read_text() == "mine"


class Unchecked(FsspecStorage):
    """A storage that tells every key for a name: who writes by them looks himself."""

    def __init__(self, storage: FsspecStorage) -> None:
        super().__init__(storage.filesystem)

    def walk(self, folder: Any) -> Any:
        found = self.filesystem.find(f"{folder.authority}{folder.path}")
        return (Entry(key.partition(f"{folder.path}/")[2], is_folder=False, size=1, modified_ms=None) for key in found)


UNCANONICAL = ["08", "+8", "\u0668", "8 ", "8.compact", str(2**63), "-1"]
"""What Spark lists as a batch and cannot open, or does not list: only `8` is the entry of batch 8."""


@pytest.mark.parametrize("name", UNCANONICAL)
@pytest.mark.parametrize("source", ["mirror", "last"])
def test_a_copy_of_another_name_than_an_entrys_leaves_no_seal(tmp_path: Path, source: str, name: str) -> None:
    """The newest plan is put back empty first: nothing would ever fill one that no copy is of."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    (tmp_path / "chk/offsets" / name).write_bytes((tmp_path / "chk/offsets/7").read_bytes())
    target = resolve_target(str(tmp_path / "chk"))
    verbs.create(target)
    shutil.rmtree(tmp_path / "chk")
    restore(target, source=source)
    assert [path for path in (tmp_path / "chk/offsets").iterdir() if not path.stat().st_size] == []
    assert (tmp_path / "chk/offsets/7").exists()


@pytest.mark.parametrize("name", UNCANONICAL)
def test_a_copy_of_another_name_than_an_entrys_stands_for_no_batch(tmp_path: Path, name: str) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(8)
    query.plan()
    strange = tmp_path / "chk/commits" / name
    strange.write_bytes((tmp_path / "chk/commits/7").read_bytes())
    verbs.create(resolve_target(str(tmp_path / "chk")))
    strange.unlink()
    said = call("plan", tmp_path / "chk", "-o", tmp_path / "plan.json")
    assert said.code == 0, said


def of_before_the_epoch(chk: Path) -> None:
    os.utime(chk / "offsets/3", (-1e9, -1e9))


def compacted_as_no_log_is(chk: Path) -> None:
    (chk / "offsets/8.compact").write_bytes(b"v1\n{}")


def a_name_that_is_no_text(chk: Path) -> None:
    folder = chk / "sources" / os.fsdecode(b"\xff")
    folder.mkdir(parents=True)
    (folder / "0").write_bytes(b"v1\n{}")


@pytest.mark.parametrize("source", ["mirror", "last"])
@pytest.mark.parametrize("strange", [of_before_the_epoch, compacted_as_no_log_is, a_name_that_is_no_text])
def test_no_file_in_a_log_spoils_the_backup_of_the_others(
    tmp_path: Path, strange: Callable[[Path], None], source: str
) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    logs = {path: content for path, content in state_of(tmp_path / "chk").items() if not path.endswith(".crc")}
    strange(tmp_path / "chk")
    target = resolve_target(str(tmp_path / "chk"))
    verbs.create(target)
    shutil.rmtree(tmp_path / "chk")
    restore(target, source=source)
    assert state_of(tmp_path / "chk") == logs
