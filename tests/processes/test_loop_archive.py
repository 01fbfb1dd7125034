"""A supervised command whose Java has a class archive: when it is named, looked after, and told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest
from supervising import Caring, Counter, Listener, supervisor

from lastgood.settings.policy import Policy
from lastgood.supervise import loop
from lastgood.supervise.events import Started

POLICY = Policy(max_attempts=3, backoff_seconds=0.01, grace_seconds=0.5)
FAILS_TWICE = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with (folder / "runs").open("a") as runs:
    runs.write(os.environ.get("ARCHIVE", "-"))
for log in ("planned", "committed"):
    with (folder / log).open("a") as stream:
        stream.write("x")
time.sleep(0.3)
sys.exit(len((folder / "runs").read_text()) < 3)
"""


class Archives:
    """Is there from the second start on, and writes down what it is asked."""

    def __init__(self, *, is_mapped: bool = True, is_broken: bool = False) -> None:
        self.is_mapped = is_mapped
        self.is_broken = is_broken
        self.starts = 0
        self.looks = 0
        self.ends: list[bool] = []
        self.refused: list[str] = []

    def begin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        self.starts += 1
        return {**env, "ARCHIVE": "a"} if self.is_in_use else env

    @property
    def is_in_use(self) -> bool:
        return self.starts > 1

    def confirm(self, processes: Sequence[psutil.Process]) -> bool:
        assert processes
        return self.is_mapped

    def look(self, processes: Sequence[psutil.Process]) -> None:
        assert processes
        self.looks += 1
        if self.is_broken:
            raise psutil.NoSuchProcess(1)

    def give_way(self, *, has_moved: bool) -> None:
        self.ends.append(has_moved)

    def refuse(self, because: str) -> None:
        self.refused.append(because)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_AGENT_POLL_SECONDS", 0.02)
    monkeypatch.setattr(loop, "_IDLE_LOOK_SECONDS", 0.02)


def run(folder: Path, archives: Archives) -> tuple[Listener, Caring]:
    told, care = Listener(), Caring()
    command = supervisor(folder, FAILS_TWICE, told, POLICY, care=care, archives=archives, orders=Counter(folder))
    assert command.run() == 0
    return told, care


def test_a_start_with_it_is_told_where_java_has_taken_it(tmp_path: Path) -> None:
    archives = Archives()
    told, care = run(tmp_path, archives)
    assert (tmp_path / "runs").read_text() == "-aa"
    assert [each.way for each in told.events if isinstance(each, Started)] == ["cold", "archive", "archive"]
    assert [each.way for each in care.backs] == ["cold", "archive", "archive"]
    assert archives.ends == [True, True]
    assert archives.looks


def test_it_is_not_told_where_java_has_not(tmp_path: Path) -> None:
    _, care = run(tmp_path, Archives(is_mapped=False))
    assert [each.way for each in care.backs] == ["cold", "cold", "cold"]


def test_whatever_goes_wrong_the_command_goes_on(tmp_path: Path) -> None:
    archives = Archives(is_broken=True)
    run(tmp_path, archives)
    assert "NoSuchProcess" in archives.refused[0]
