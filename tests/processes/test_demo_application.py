"""The application of a stage under a real `lastgood run`, with a process that works on a checkpoint without Spark."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lastgood.demo import Application, DemoFailedError
from lastgood.recovery.attempts import AttemptsExhaustedError
from lastgood.settings.config import ConfiguredQuery, Pipeline
from lastgood.settings.policy import Policy
from lastgood.supervise.events import Ended, Event, Recovered, Started

# The first life plans and commits until it is killed in a batch; the second commits that batch, and waits.
_QUERY = """
import sys, time
from pathlib import Path
from lastgood.testing.checkpoints import CheckpointBuilder
folder = Path(sys.argv[1])
is_first = not folder.exists()
if is_first:
    query = CheckpointBuilder(folder)
    query.run(3)
    query.plan()
else:
    commits = folder / "commits"
    (commits / "3").write_bytes((commits / "2").read_bytes())
time.sleep(600)
"""


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def application(tmp_path: Path, told: list[Event], monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    checkpoint = tmp_path / "checkpoint"
    pipeline = Pipeline(
        name="rows",
        command=("/usr/bin/env", sys.executable, "-c", _QUERY, str(checkpoint)),
        queries=(ConfiguredQuery(name="rows", checkpoint=str(checkpoint)),),
    )
    made = Application(pipeline, options=tmp_path / "options", log=tmp_path / "rows.log", tell=told.append)
    yield made
    made.close()


def test_driver_killed_in_a_batch_is_started_again_and_all_that_was_told_is_kept(
    application: Application, told: list[Event]
) -> None:
    mark = application.start()
    killed = application.kill_in_a_batch(random.Random(1))
    assert killed.batch == 3
    recovered = application.await_event(Recovered, mark, after=killed.at)
    assert (recovered.batch, recovered.rerun) == (3, True)
    first, second = application.events(Started, mark)
    assert (first.pid, first.run, second.run) == (killed.pid, 1, 2)
    assert [each.signal for each in application.events(Ended, mark)] == ["SIGKILL"]
    assert killed in told
    application.stop()
    assert not application.is_running
    assert not psutil.pid_exists(second.pid)


def test_what_was_told_before_a_mark_is_not_waited_for(application: Application) -> None:
    mark = application.start()
    first = application.await_event(Started, mark)
    later = application.mark
    application.kill()
    assert application.await_event(Started, later) != first


def test_run_that_gives_up_tells_with_what(application: Application) -> None:
    application.start(Policy(max_attempts=0))
    application.kill_in_a_batch(random.Random(1))
    assert isinstance(application.wait(), AttemptsExhaustedError)
    assert not application.is_running


def test_waiting_for_a_run_that_gave_up_ends_with_its_error(application: Application) -> None:
    application.start(Policy(max_attempts=0))
    application.kill_in_a_batch(random.Random(1))
    with pytest.raises(AttemptsExhaustedError):
        application.await_commits(1)


def test_limit_holds_from_the_next_start_of_the_command(application: Application, tmp_path: Path) -> None:
    options = tmp_path / "options"
    application.start(limit=500)
    assert options.read_text().split() == ["--max-offsets-per-trigger", "500"]
    application.limit(None)
    assert options.read_text() == ""


def test_second_start_is_refused_while_the_first_runs(application: Application) -> None:
    application.start()
    with pytest.raises(DemoFailedError, match="runs already"):
        application.start()


def test_what_does_not_run_cannot_be_killed_and_is_stopped_without_a_word(application: Application) -> None:
    application.stop()
    assert application.wait() is None
    with pytest.raises(DemoFailedError, match="does not run"):
        application.kill()
