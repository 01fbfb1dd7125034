"""Ids come from the names of files; what a file says of its own id must agree, and no path is made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.operations import backup as verbs
from lastgood.recovery.backups import BackupMissingError, backups_folder, list_backups, new_backup, remove_older
from lastgood.recovery.copies import Copy, decode_copies
from lastgood.recovery.incidents import list_incidents
from lastgood.recovery.room import recoveries
from lastgood.storage import parse_location
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.writing import LocalWriter

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
    backup, content = new_backup(copies, at_ms=AT_MS, mark="7f3a")
    (victim / "secret.jsonl.gz").write_bytes(content)
    folder = tmp_path / "lake/chk.lastgood/backups"
    folder.mkdir(parents=True)
    (folder / f"{ID}.jsonl.gz").write_bytes(content)
    (folder / f"{ID}.json").write_text(json.dumps({**backup.to_json(), "id": ELSEWHERE}))
    return tmp_path


def test_a_backup_that_says_it_is_another_one_is_none(lake: Path) -> None:
    before = state_of(lake / "victim")
    checkpoint = str(lake / "lake/chk")
    folder = backups_folder(parse_location(checkpoint))
    assert verbs.backups(checkpoint) == []
    assert remove_older(STORAGE, folder, before_ms=AT_MS + 1) == []
    for wanted in (ELSEWHERE, ID):
        with pytest.raises(BackupMissingError):
            verbs.keep(checkpoint, wanted)
    assert state_of(lake / "victim") == before


def test_a_lost_checkpoint_is_not_restored_from_a_victims_folder(lake: Path) -> None:
    checkpoint = str(lake / "lake/lost")
    (lake / "lake/chk.lastgood").rename(lake / "lake/lost.lastgood")
    for wanted in (ELSEWHERE, ID, "last"):
        with pytest.raises(BackupMissingError):
            verbs.restore(checkpoint, source=wanted)
    assert not (lake / "lake/lost").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_only_names_as_lastgood_makes_them_are_ids(tmp_path: Path, name: str) -> None:
    """Whatever a file is called, an id that is told of it is digits and hex, and its name is the id."""
    location = parse_location(str(tmp_path / "chk"))
    work = tmp_path / "chk.lastgood"
    for kind in ("backups", "incidents", "recoveries"):
        (work / kind).mkdir(parents=True, exist_ok=True)
    backup, _ = new_backup([Copy(None, "metadata", 1, 1, b"x")], at_ms=AT_MS, mark="7f3a")
    placed = [work / f"backups/{name}.json", work / f"incidents/{name}.json", work / f"recoveries/{name}"]
    if name in (".", ".."):
        return
    placed[0].write_text(json.dumps(replace(backup, id=name).to_json()))
    placed[1].write_text("{}")
    placed[2].mkdir(exist_ok=True)
    backups = [each.id for each in list_backups(STORAGE, backups_folder(location))]
    ids = [*backups, *list_incidents(STORAGE, location), *recoveries(STORAGE, location)]
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
    assert recoveries(STORAGE, location) == []
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
    assert verbs.backups(str(lake / "lake/chk")) == []


def test_a_backup_is_still_found_where_its_name_agrees(lake: Path) -> None:
    folder = lake / "lake/chk.lastgood/backups"
    told = json.loads((folder / f"{ID}.json").read_text())
    (folder / f"{ID}.json").write_text(json.dumps({**told, "id": ID}))
    (folder / "20261121-002156-7f3b.json").write_text(json.dumps({**told, "id": ID}))  # a copy of it by hand
    assert [each.id for each in verbs.backups(str(lake / "lake/chk"))] == [ID]
