"""When a driver that waits takes the place of one that has ended, and when a new one is started instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from supervising import Counter, Inside, Listener, make_standbys, supervisor

from lastgood.failures.ending import Cause
from lastgood.recovery.attempts import AttemptsExhaustedError
from lastgood.settings.policy import Policy
from lastgood.supervise import loop, standby
from lastgood.supervise.events import Noticed, Recovered, Stalled, Started

POLICY = Policy(max_attempts=2, backoff_seconds=0.01, grace_seconds=0.5)
WAITS = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
place = pathlib.Path(os.environ.get("LASTGOOD_AGENT_DIR", ""))
waiting = place.name.startswith("standby-")
if waiting:
    (place / "draft").write_text(json.dumps({"pid": os.getpid(), "warmed": []}))
    (place / "draft").rename(place / "1.ready.json")
    (folder / "die").touch()
    while not (place / "open").exists():
        time.sleep(0.01)
runs = folder / "runs"
with runs.open("a") as file:
    file.write("w" if waiting else "c")
def commit():
    for log in ("planned", "committed"):
        with (folder / log).open("a") as file:
            file.write(".")
    time.sleep(0.1)
def fail_when_another_waits():
    while not (folder / "die").exists():
        time.sleep(0.01)
    (folder / "die").unlink()
    sys.exit(1)
"""
COMMITS = (
    WAITS
    + """
commit()
if len(runs.read_text()) < 3:
    fail_when_another_waits()
"""
)
COMMITS_NEVER_AGAIN = (
    WAITS
    + """
if len(runs.read_text()) > 1:
    time.sleep(0.5)  # long enough for another to wait, if there were one
    sys.exit(1)
commit()
fail_when_another_waits()
"""
)
HANGS = (
    WAITS
    + """
if waiting:
    time.sleep(1000)
commit()
if len(runs.read_text()) == 1:
    fail_when_another_waits()
"""
)
COMMITS_ALONE = (
    WAITS
    + """
commit()
time.sleep(0.3)
sys.exit(len(runs.read_text()) < 3)
"""
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_AGENT_POLL_SECONDS", 0.02)
    monkeypatch.setattr(loop, "_IDLE_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(standby, "_AGAIN_SECONDS", 0.05)


class Case:
    """A command, one that waits, and what is told of both."""

    def __init__(self, folder: Path, code: str) -> None:
        self.folder = folder
        self.told = Listener()
        self.agent = Inside(folder)
        self.agent.untold.clear()
        self.standbys = make_standbys(folder, code, self.told)
        watch = Counter(folder)
        self.supervisor = supervisor(folder, code, self.told, POLICY, self.agent, standbys=self.standbys, orders=watch)

    @property
    def ways(self) -> list[str]:
        return [each.way for each in self.told.events if isinstance(each, Started)]

    @property
    def noticed(self) -> list[str]:
        return [each.condition for each in self.told.events if isinstance(each, Noticed)]


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path, getattr(request, "param", COMMITS))
    yield made
    made.standbys.close()


def test_one_that_waits_takes_the_place_of_one_that_failed(case: Case) -> None:
    assert case.supervisor.run() == 0
    assert case.ways == ["cold", "standby", "standby"]
    assert (case.folder / "runs").read_text() == "cww"
    recovered = [each for each in case.told.events if isinstance(each, Recovered) and each.checkpoint == "orders"]
    assert [each.batch for each in recovered] == [1, 2]


def test_a_new_one_is_started_where_what_was_read_before_may_hold_no_more(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "find_cause", lambda *_, **__: Cause(is_of_old_plan=True))
    assert case.supervisor.run() == 0
    assert case.ways == ["cold", "cold", "cold"]


@pytest.mark.parametrize("case", [COMMITS_NEVER_AGAIN], indirect=True)
def test_after_one_that_waited_and_committed_nothing_a_new_one_is_started(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_IDLE_AFTER_SECONDS", 0.1)
    with pytest.raises(AttemptsExhaustedError):
        case.supervisor.run()
    assert case.ways[:3] == ["cold", "standby", "cold"]


@pytest.mark.parametrize("case", [HANGS], indirect=True)
def test_one_that_was_let_go_and_starts_nothing_is_ended(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LET_GO_SECONDS", 0.3)
    case.agent.is_silent = True
    assert case.supervisor.run() == 0
    assert case.ways == ["cold", "standby", "cold"]
    assert "has started no query" in str([each.because for each in case.told.events if isinstance(each, Stalled)])


@pytest.mark.parametrize("case", [COMMITS_ALONE], indirect=True)
def test_none_waits_where_its_queries_could_not_be_held_back(case: Case) -> None:
    case.agent.unheld = "they were started in another way"
    assert case.supervisor.run() == 0
    assert case.ways == ["cold", "cold", "cold"]
    assert case.noticed == ["STANDBY_IMPOSSIBLE"]
    assert "w" not in (case.folder / "runs").read_text()


@pytest.mark.parametrize("case", [COMMITS_ALONE], indirect=True)
def test_none_waits_before_a_query_was_seen_to_start(case: Case) -> None:
    case.agent.counter = Counter(case.folder / "nowhere")
    assert case.supervisor.run() == 0
    assert case.ways == ["cold", "cold", "cold"]
    assert "w" not in (case.folder / "runs").read_text()
