"""Links in a checkpoint or beside it are told and not followed: nothing is read or written through one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verbs import arguments

from lastgood.cli.main import main
from lastgood.errors import StorageError
from lastgood.journal.holding import locate_lock_file
from lastgood.recovery.hold import CheckpointHeldError, hold_checkpoint
from lastgood.storage.local_tree import LinkNotFollowedError
from lastgood.storage.reading import LocalStorage, Location, open_storage, parse_location
from lastgood.storage.writing import LocalWriter, open_writable
from lastgood.testing.checkpoints import CheckpointBuilder

SECRET = b"the secret of the victim"
PLACES = ["metadata", "offsets/8", "commits/7", "sources/0/0", "offsets", "commits", "sources/0", "sources", "state"]
WORK = ["", "mirror", "mirror/parts", "backups", "incidents", "leases", "recoveries", "leases/1.json"]
REFUSING = [
    ["inspect"],
    ["inspect", "--all"],
    ["inspect", "--state"],
    ["offsets"],
    ["verify"],
    ["plan"],
    ["backup", "create"],
    ["recover", "--driver-is-dead"],
]

Run = Callable[[list[str]], tuple[int, Any]]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with a query, and a victim's folder beside it that must not change."""
    query = CheckpointBuilder(tmp_path / "lake/chk")
    query.run(8)
    query.plan()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/secret").write_bytes(SECRET)
    return tmp_path


@pytest.fixture
def run(lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Gives exit code and answer of a verb, and sees that the victim is left alone, and not read."""
    monkeypatch.setenv("HOME", str(lake / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(lake / "home/state"))
    monkeypatch.chdir(lake)

    def verb(words: list[str]) -> tuple[int, Any]:
        before = snapshot(lake / "victim")
        with pytest.raises(SystemExit) as ended:
            main(arguments(words, str(lake / "lake/chk")))
        shown = capsys.readouterr()
        assert snapshot(lake / "victim") == before
        assert SECRET.decode() not in shown.out + shown.err
        assert "Traceback" not in shown.err
        code = ended.value.code
        assert isinstance(code, int)
        return code, json.loads(shown.out or shown.err)

    return verb


def snapshot(folder: Path) -> dict[str, bytes | str]:
    return {
        str(each.relative_to(folder)): str(each.readlink()) if each.is_symlink() else each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if not each.is_dir()
    }


def link(place: Path, target: Path) -> None:
    """What stands there goes where the link leads, so that Spark would not notice."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and not target.exists():
        place.rename(target)
    elif place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize("place", PLACES)
def test_a_link_in_a_checkpoint_is_told_and_no_repair_is_made(place: str, lake: Path, run: Run) -> None:
    link(lake / "lake/chk" / place, lake / "victim/moved")
    (lake / "victim/moved").exists() or (lake / "victim/moved").mkdir()
    before = snapshot(lake / "lake")
    for verb in (["diagnose"], ["status"]):
        code, told = run(verb)
        assert code == 1
        found = [each for each in told["findings"] if each["condition"] == "CHECKPOINT_HAS_LINKS"]
        assert [each["severity"] for each in found] == ["error"]
        assert found[0]["evidence"]["links"] == [f"{lake}/lake/chk/{place} -> {lake}/victim/moved"]
        if verb == ["diagnose"]:
            assert any("which Spark follows" in each for each in told["restart"]["unknowns"])
    for verb in REFUSING:
        if verb[0] == "backup" and place == "state":
            continue  # of which a backup holds nothing
        code, told = run(verb)
        assert code in (33, 34), (verb, told)
        assert f"{lake}/lake/chk/{place}" in told["error"]["subject"]
    assert snapshot(lake / "lake") == before


@pytest.mark.parametrize("place", WORK)
def test_a_link_in_the_work_folder_is_told_and_no_repair_is_made(place: str, lake: Path, run: Run) -> None:
    path = "chk.lastgood" + (f"/{place}" if place else "")
    link(lake / "lake" / path, lake / "victim" / ("secret" if place.endswith(".json") else "."))
    code, told = run(["diagnose"])
    found = [each for each in told["findings"] if each["condition"] == "CHECKPOINT_HAS_LINKS"]
    assert (code, [each["subject"] for each in found]) == (1, [f"{lake}/lake/{path}"])
    for verb in (["plan"], ["recover", "--driver-is-dead"]):
        code, told = run(verb)
        assert code in (33, 34), (verb, told)


def test_a_link_that_spark_does_not_look_at_is_a_warning(lake: Path, run: Run) -> None:
    (lake / "lake/chk/notes").symlink_to(lake / "victim/secret")
    code, told = run(["diagnose"])
    found = [each for each in told["findings"] if each["condition"] == "CHECKPOINT_HAS_LINKS"]
    assert (code, [each["severity"] for each in found]) == (0, ["warning"])
    assert run(["verify"])[0] == 0
    assert run(["plan"])[0] != 33


def test_a_location_may_be_a_link_and_lie_behind_one(lake: Path, run: Run) -> None:
    (lake / "lake/chk").rename(lake / "lake/there")
    (lake / "lake/chk").symlink_to("there")
    (lake / "disk").symlink_to("lake")
    assert run(["diagnose"])[1]["last_planned"] == 8
    assert run(["verify"])[0] == 0
    assert run(["backup", "create"])[0] == 0
    storage = open_storage(parse_location(f"{lake}/disk/chk"))
    assert storage.read(parse_location(f"{lake}/disk/chk/offsets/8"), limit=10**6)


def test_nothing_is_restored_through_a_link(lake: Path, run: Run) -> None:
    assert run(["backup", "create"])[0] == 0
    (lake / "lake/chk").rename(lake / "lake/before")
    (lake / "lake/chk").mkdir()
    (lake / "lake/chk/offsets").symlink_to(lake / "victim")
    for source in ("last", "mirror"):
        code, told = run(["backup", "restore", "--from", source])
        assert (code, told["error"]["condition"]) == (34, "LINK_NOT_FOLLOWED")


# Each way to read and to write.


@pytest.fixture
def root(tmp_path: Path) -> Location:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/file").write_bytes(SECRET)
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "root/own").write_bytes(b"own")
    (tmp_path / "root/file").symlink_to(tmp_path / "victim/file")
    (tmp_path / "root/folder").symlink_to(tmp_path / "victim")
    (tmp_path / "root/dangling").symlink_to(tmp_path / "victim/new")
    (tmp_path / "root/circle").symlink_to("circle")
    (tmp_path / "root/sub/up").symlink_to("..")
    return parse_location(str(tmp_path / "root"))


THROUGH = ["file", "folder", "folder/file", "folder/new", "dangling", "circle", "sub/up/own", "sub/up/folder/file"]
ACTS: dict[str, Callable[[LocalWriter, Location, Location], object]] = {
    "names": lambda storage, place, _: list(storage.names(place) or ()),
    "scan": lambda storage, place, _: list(storage.scan(place) or ()),
    "walk": lambda storage, place, _: list(storage.walk(place) or ()),
    "read": lambda storage, place, _: storage.read(place, limit=100),
    "stat": lambda storage, place, _: storage.stat(place),
    "move from": lambda storage, place, root: storage.move(place, root / "elsewhere"),
}
IN_PLACE: dict[str, Callable[[LocalWriter, Location, Location], object]] = {
    "write": lambda storage, place, _: storage.write(place, b"mine"),
    "create": lambda storage, place, _: storage.create(place, b"mine"),
    "move to": lambda storage, place, root: storage.move(root / "own", place),
    "remove": lambda storage, place, _: storage.remove(place),
    "takes links": lambda storage, place, _: storage.takes_links(place),
}


def writer(root: Location) -> LocalWriter:
    storage = open_writable(root)
    assert isinstance(storage, LocalWriter)
    return storage


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("path", THROUGH)
def test_no_link_is_followed_to_read(act: str, path: str, root: Location, tmp_path: Path) -> None:
    with pytest.raises(LinkNotFollowedError) as told:
        ACTS[act](writer(root), root / path, root)
    assert Path(told.value.link.path).is_symlink()
    assert told.value.link.target == str(Path(told.value.link.path).readlink())
    assert snapshot(tmp_path / "victim") == {"file": SECRET}


@pytest.mark.parametrize("act", IN_PLACE)
@pytest.mark.parametrize("path", THROUGH)
def test_no_link_is_followed_to_write(act: str, path: str, root: Location, tmp_path: Path) -> None:
    """A link at the very place may be replaced or removed: what it leads to is left alone."""
    with_link = "/" in path
    with pytest.raises(LinkNotFollowedError) if with_link else contextlib.suppress(StorageError):
        IN_PLACE[act](writer(root), root / path, root)
    assert snapshot(tmp_path / "victim") == {"file": SECRET}
    assert (tmp_path / "root/folder").is_symlink() or path == "folder"


def test_a_folder_with_a_link_in_it_is_not_listed_as_if_it_had_none(root: Location) -> None:
    for listed in (lambda: writer(root).names(root), lambda: writer(root).scan(root), lambda: writer(root).walk(root)):
        with pytest.raises(LinkNotFollowedError):
            list(listed() or ())


def test_who_tells_of_links_gets_the_rest(root: Location, tmp_path: Path) -> None:
    storage = writer(root).leave_links_out()
    assert sorted(storage.names(root) or ()) == ["own", "sub/"]
    assert [entry.name for entry in storage.walk(root) or ()] == ["own"]
    assert storage.read(root / "file", limit=9) is None
    assert storage.stat(root / "folder") is None
    assert [Path(each.path).name for each in storage.left_out] == ["circle", "dangling", "file", "folder", "up"]


def test_what_is_not_below_the_root_is_the_users_own(root: Location, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to("victim/file")
    assert writer(root).read(parse_location(str(tmp_path / "mine")), limit=100) == SECRET
    assert LocalStorage().read(root / "file", limit=100) == SECRET


@settings(max_examples=60)
@given(swaps=st.lists(st.sampled_from(["link", "folder", "gone"]), min_size=1, max_size=12))
def test_a_folder_that_becomes_a_link_is_seen_at_once(
    tmp_path_factory: pytest.TempPathFactory, swaps: list[str]
) -> None:
    base = tmp_path_factory.mktemp("swap")
    (base / "victim").mkdir()
    (base / "victim/7").write_bytes(SECRET)
    (base / "chk").mkdir()
    storage, file = writer(parse_location(str(base / "chk"))), parse_location(str(base / "chk/offsets/7"))
    offsets = base / "chk/offsets"
    for number, swap in enumerate(swaps):
        if offsets.is_symlink():
            offsets.unlink()
        elif offsets.exists():
            offsets.rename(base / f"old-{number}")
        if swap == "folder":
            offsets.mkdir()
            (offsets / "7").write_bytes(b"%d" % number)
            assert storage.read(file, limit=100) == b"%d" % number
        elif swap == "gone":
            assert storage.read(file, limit=100) is None
        else:
            offsets.symlink_to(base / "victim")
            with pytest.raises(LinkNotFollowedError):
                storage.read(file, limit=100)
            with pytest.raises(LinkNotFollowedError):
                storage.write(file, b"mine")
    assert (base / "victim/7").read_bytes() == SECRET


def test_no_race_leads_a_reader_or_a_writer_through_a_link(tmp_path: Path) -> None:
    """Somebody puts a link in the place of the folder, and the folder back, as fast as he can."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/7").write_bytes(SECRET)
    (tmp_path / "chk/folder").mkdir(parents=True)
    (tmp_path / "chk/folder/7").write_bytes(b"own")
    (tmp_path / "chk/link").symlink_to(tmp_path / "victim")
    storage, place = writer(parse_location(str(tmp_path / "chk"))), tmp_path / "chk/offsets"
    file, is_over = parse_location(str(place / "7")), threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for name in ("folder", "link"):
                try:
                    (tmp_path / "chk" / name).rename(place)
                    place.rename(tmp_path / "chk" / name)
                except OSError:  # a writer has made a folder in between
                    shutil.rmtree(place, ignore_errors=True)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(1500):
            for act in (lambda: storage.read(file, limit=100), lambda: storage.write(file, b"own")):
                try:
                    assert act() in (None, b"own")
                except StorageError:
                    continue
    finally:
        is_over.set()
        thread.join()
    assert snapshot(tmp_path / "victim") == {"7": SECRET}


# Locks.


def test_a_lock_is_no_link_and_no_second_name(lake: Path) -> None:
    checkpoint = parse_location(str(lake / "lake/chk"))
    place = locate_lock_file(checkpoint)
    place.parent.mkdir()
    for put in (place.symlink_to, place.hardlink_to):
        put(lake / "victim/secret")
        with pytest.raises(StorageError) as told, hold_checkpoint(str(checkpoint), place):
            pass
        assert not isinstance(told.value, CheckpointHeldError)
        assert (lake / "victim/secret").read_bytes() == SECRET
        place.unlink()
    place.parent.rmdir()
    place.parent.symlink_to(lake / "victim")
    with pytest.raises(LinkNotFollowedError), hold_checkpoint(str(checkpoint), place):
        pass
    assert snapshot(lake / "victim") == {"secret": SECRET}


def test_a_pipe_in_the_place_of_a_lock_hangs_nobody(lake: Path) -> None:
    checkpoint = parse_location(str(lake / "lake/chk"))
    place = locate_lock_file(checkpoint)
    place.parent.mkdir()
    os.mkfifo(place)
    with pytest.raises(StorageError), hold_checkpoint(str(checkpoint), place):
        pass


def test_a_file_in_the_place_of_a_folder_is_no_link(root: Location) -> None:
    assert writer(root).read(root / "own/below", limit=9) is None
