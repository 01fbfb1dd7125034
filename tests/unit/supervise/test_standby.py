"""A second driver that waits: real processes, which tell of themselves as the agent in one does."""

from __future__ import annotations

import fcntl
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lastgood.process.driver import Launch
from lastgood.spark.agent import SITE_FOLDER
from lastgood.storage.reading import parse_location
from lastgood.supervise import standby
from lastgood.supervise.events import Event, Noticed, StandingBy
from lastgood.supervise.standby import Standbys, Taken

SECONDS = 20
WAITING = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["LASTGOOD_AGENT_DIR"])
print("begun", flush=True)
read = os.stat("read.txt")
file = [os.path.abspath("read.txt"), read.st_dev, read.st_ino, read.st_size, read.st_mtime_ns, read.st_ctime_ns]
note = {"pid": os.getpid(), "master": "local[2]", "cores": 2, "files": [file], "warmed": ["all"]}
draft = folder / f"{os.getpid()}.draft"
draft.write_text(json.dumps(note | json.loads(os.environ.get("NOTE", "{}"))))
draft.rename(folder / f"{os.getpid()}.ready.json")
while not (folder / "open").exists():
    time.sleep(0.01)
print("let go", flush=True)
"""


class Kept:
    """Standbys of one command, and what is told of them."""

    def __init__(self, folder: Path, code: str = WAITING, **options: object) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.holds: list[int] = []
        (folder / "app.py").write_text(textwrap.dedent(code))
        (folder / "read.txt").write_text("as it was")
        note, path = options.pop("note", "{}"), str(options.pop("path", SITE_FOLDER))
        launch = Launch(
            (sys.executable, str(folder / "app.py")), {**os.environ, "NOTE": str(note), "PYTHONPATH": path}, None, None
        )
        self.standbys = Standbys(
            launch,
            folder=folder / "agent",
            log=folder / "app.log",
            tell=self.events.append,
            holds=self.holds,
            grace_seconds=1.0,
            cwd=folder,
            **options,  # type: ignore[arg-type]  # of the tests below
        )

    def wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < deadline, self.events
            self.standbys.look()
            time.sleep(0.01)

    def await_waiting(self, seen: int = 0) -> None:
        self.wait(lambda: any(isinstance(each, StandingBy) for each in self.events[seen:]))

    def take(self) -> Taken | None:
        return self.standbys.take()

    @property
    def noticed(self) -> list[str]:
        return [each.condition for each in self.events if isinstance(each, Noticed)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at everything each time, and do not wait long for the next one."""
    monkeypatch.setattr(standby, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(standby, "_AGAIN_SECONDS", 0.05)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(*args: str, **options: object) -> Kept:
        made.append(Kept(tmp_path, *args, **options))
        return made[-1]

    yield make
    for each in made:
        each.standbys.close()


def test_one_waits_and_goes_on_when_it_is_let_go(make: Callable[..., Kept], tmp_path: Path) -> None:
    kept = make()
    kept.await_waiting()
    told = kept.events[-1]
    assert isinstance(told, StandingBy)
    assert (told.master, told.cores, told.warmed) == ("local[2]", 2, ["all"])
    assert told.memory_bytes > 0
    taken = kept.take()
    assert taken is not None
    taken.output.move(tmp_path / "app.log", None, lambda _: None)
    assert taken.child.wait(SECONDS) is not None
    taken.output.finish()
    assert (tmp_path / "app.log").read_text() == "begun\nlet go\n"
    assert kept.noticed == []


def test_there_is_none_to_take_before_one_was_begun(make: Callable[..., Kept]) -> None:
    assert make().take() is None


def test_one_that_has_not_come_to_wait_yet_may_be_taken(make: Callable[..., Kept]) -> None:
    kept = make()
    kept.standbys.look()
    taken = kept.take()
    assert taken is not None
    ending = taken.child.wait(SECONDS)
    assert ending is not None
    assert ending.is_success


@pytest.mark.parametrize("name", ["read.txt", "app.py"])
def test_one_that_was_made_of_other_files_is_not_taken(make: Callable[..., Kept], tmp_path: Path, name: str) -> None:
    kept = make()
    kept.await_waiting()
    (tmp_path / name).write_text((tmp_path / name).read_text() + "\n")
    assert kept.take() is None
    assert kept.noticed == ["STANDBY_OUTDATED"]
    assert str(tmp_path / name) in kept.events[-1].to_json()["sentence"]


def test_one_that_was_made_of_other_files_is_replaced(make: Callable[..., Kept], tmp_path: Path) -> None:
    kept = make()
    kept.await_waiting()
    seen = len(kept.events)
    (tmp_path / "draft").write_text("new")
    (tmp_path / "draft").rename(tmp_path / "read.txt")
    kept.await_waiting(seen)
    assert kept.take() is not None
    assert kept.noticed == ["STANDBY_OUTDATED"]


def test_one_that_was_told_to_start_elsewhere_is_not_taken(make: Callable[..., Kept], tmp_path: Path) -> None:
    (tmp_path / "start.json").write_text("{}")
    kept = make(start_file=parse_location(str(tmp_path / "start.json")))
    kept.await_waiting()
    (tmp_path / "start.json").write_text('{"orders": {"0": 7}}')
    assert kept.take() is None
    assert kept.noticed == ["STANDBY_OUTDATED"]


def test_one_that_holds_too_much_is_ended(make: Callable[..., Kept]) -> None:
    kept = make(memory_max=1)
    kept.wait(lambda: "STANDBY_TOO_LARGE" in kept.noticed)


def test_one_that_ends_is_told_with_where_its_output_is(make: Callable[..., Kept], tmp_path: Path) -> None:
    kept = make("print('no broker', flush=True)\nraise SystemExit(3)")
    kept.wait(lambda: kept.noticed.count("STANDBY_ENDED") > 1)
    told = kept.events[0].to_json()["sentence"]
    assert "exit code 3" in told
    assert str(tmp_path / "app.standby.log") in told
    kept.standbys.close()
    assert set((tmp_path / "app.standby.log").read_text().splitlines()) == {"no broker"}


def test_after_one_that_cannot_wait_there_is_no_other(make: Callable[..., Kept]) -> None:
    kept = make(note='{"refused": "it is a client"}')
    kept.wait(lambda: kept.noticed != [])
    for _ in range(20):
        kept.standbys.look()
        time.sleep(0.01)
    assert kept.noticed == ["STANDBY_IMPOSSIBLE"]
    assert kept.take() is None


def test_one_is_ended_with_who_keeps_it(make: Callable[..., Kept]) -> None:
    kept = make()
    kept.await_waiting()
    pid = kept.events[-1].to_json()["pid"]
    kept.standbys.close()
    assert not Path(f"/proc/{pid}").exists()


def test_locks_that_came_later_are_held_for_it_as_well(make: Callable[..., Kept], tmp_path: Path) -> None:
    kept = make()
    kept.await_waiting()
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    kept.holds.append(lock)
    kept.standbys.look()
    os.close(lock)
    again = os.open(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    kept.standbys.close()
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)


def test_two_processes_that_wait_are_none_that_can_be_kept_apart(make: Callable[..., Kept]) -> None:
    kept = make(f"import os\nos.fork()\n{WAITING}")
    kept.wait(lambda: kept.noticed != [])
    assert kept.noticed == ["STANDBY_IMPOSSIBLE"]


def test_its_folder_goes_with_it(make: Callable[..., Kept], tmp_path: Path) -> None:
    kept = make()
    kept.await_waiting()
    kept.standbys.close()
    assert [each.name for each in (tmp_path / "agent").iterdir() if each.name.startswith("standby-")] == []


def test_the_gate_of_another_is_never_its_own(make: Callable[..., Kept]) -> None:
    """Both in one folder, as where a pipeline is supervised twice by what was prepared once."""
    first, second = make(), make()
    first.await_waiting()
    taken = first.take()
    assert taken is not None
    second.await_waiting()
    assert taken.child.wait(SECONDS) is not None
    assert second.take() is not None


@pytest.mark.parametrize(
    ("damage", "because"),
    [
        (lambda gate: gate.unlink(), "is not whole"),
        (lambda gate: gate.write_text(""), "is not whole"),
    ],
)
def test_none_waits_whose_gate_is_not_there(
    make: Callable[..., Kept], damage: Callable[[Path], object], because: str
) -> None:
    kept = make()
    kept.await_waiting()
    damage(kept.folder / "agent" / "code" / "site" / "sitecustomize.py")
    kept.standbys.give_up()
    kept.wait(lambda: kept.noticed == ["STANDBY_IMPOSSIBLE"])
    assert because in str(kept.events[-1])
    assert not list((kept.folder / "agent").glob("standby-*/*.ready.json"))


def test_none_waits_where_python_would_not_come_to_the_gate(make: Callable[..., Kept], tmp_path: Path) -> None:
    kept = make(path="/elsewhere")
    kept.wait(lambda: kept.noticed == ["STANDBY_IMPOSSIBLE"])
    folder = tmp_path / "a:b"
    folder.mkdir()
    split = Kept(folder)
    split.wait(lambda: split.noticed == ["STANDBY_IMPOSSIBLE"])
    assert "has a : in it" in str(split.events[-1])
    assert kept.take() is split.take() is None


def test_the_agent_that_one_begins_with_is_a_copy(make: Callable[..., Kept], tmp_path: Path) -> None:
    code = "import os, sys\nprint(os.environ['PYTHONPATH'], flush=True)"
    kept = make(code, path=f"{SITE_FOLDER}:/elsewhere")
    kept.wait(lambda: kept.noticed != [])
    kept.standbys.close()
    site, rest = (tmp_path / "app.standby.log").read_text().splitlines()[0].split(":")
    assert (site, rest) == (str(tmp_path / "agent" / "code" / "site"), "/elsewhere")
    assert (Path(site) / "sitecustomize.py").read_bytes() == (SITE_FOLDER / "sitecustomize.py").read_bytes()
