"""What lastgood writes is for its owner alone; what Spark of another user reads stays readable to him."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastgood.spark.agent.driver import Heartbeat
from lastgood.spark.agent.files import RecordFileWriter
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct, autouse=True)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("act", ["write", "create"])
def test_what_lies_beside_a_checkpoint_is_for_its_owner_alone(tmp_path: Path, act: str) -> None:
    file = tmp_path / "chk.lastgood/recoveries/20261121-160058-7f3a/plan.json"
    getattr(LocalWriter(), act)(parse_location(str(file)), b"{}")
    assert _mode(file) == 0o600
    assert [_mode(each) for each in (file.parent, file.parent.parent, tmp_path / "chk.lastgood")] == [0o700] * 3


def test_a_copy_of_a_file_of_the_checkpoint_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A file that is moved keeps its mode, as with every move; a folder that is made for it is ours."""
    entry, aside = tmp_path / "chk/offsets/7", tmp_path / "chk.lastgood/recoveries/x/before/offsets/7"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"v1")
    entry.chmod(0o640)
    LocalWriter().move(parse_location(str(entry)), parse_location(str(aside)))
    assert (_mode(aside), _mode(aside.parent)) == (0o640, 0o700)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664])
def test_a_file_that_is_written_anew_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    entry = tmp_path / "chk/offsets/7"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"old")
    entry.chmod(mode)
    LocalWriter().write(parse_location(str(entry)), b"new")
    assert (entry.read_bytes(), _mode(entry)) == (b"new", mode)


@pytest.mark.parametrize("mode", [0o640, 0o644])
def test_a_new_file_among_those_of_a_query_is_as_readable_as_they_are(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "chk/offsets"
    folder.mkdir(parents=True)
    folder.chmod(0o750)
    (folder / "6").write_bytes(b"v1")
    (folder / "6").chmod(mode)
    (folder / ".7.crc").write_bytes(b"")
    (folder / ".7.crc").chmod(0o600)
    LocalWriter().create(parse_location(str(folder / "7")), b"v1")
    assert _mode(folder / "7") == mode


def test_a_new_folder_in_a_checkpoint_is_as_readable_as_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "chk").mkdir()
    (tmp_path / "chk").chmod(0o755)
    (tmp_path / "chk/metadata").write_bytes(b"{}")
    (tmp_path / "chk/metadata").chmod(0o644)
    LocalWriter().create(parse_location(str(tmp_path / "chk/offsets/7")), b"v1")
    assert _mode(tmp_path / "chk/offsets") == 0o755
    assert _mode(tmp_path / "chk/offsets/7") == 0o644


def test_records_are_for_who_runs_the_application_alone(tmp_path: Path) -> None:
    folder = tmp_path / "chk.lastgood/records"
    sink = RecordFileWriter(folder)
    sink.write([{"kind": "progress"}])
    sink.close()
    (file,) = folder.iterdir()
    assert (_mode(file), _mode(folder), _mode(folder.parent)) == (0o600, 0o700, 0o700)
    beat = Heartbeat(tmp_path / "agent/x", dict)
    beat.close(30)
    (file,) = (tmp_path / "agent/x").iterdir()
    assert (_mode(file), _mode(file.parent), _mode(file.parent.parent)) == (0o600, 0o700, 0o700)
