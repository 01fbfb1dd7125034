"""`lastgood run` with a real driver: killed, its checkpoint damaged, truncated and deleted; every line comes once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest
from spark.supervised import Running

from lastgood.journal.incidents import Incidents
from lastgood.process.java import Java
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.supervise.events import Committed, PromiseChecked, Recovered, Repaired

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def running(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    assert java is not None
    with Running(tmp_path_factory.mktemp("supervised"), "lines") as running:
        running.queries[0].put()
        running.await_event(Committed)
        running.await_lines()
        yield running


def test_truncated_plan_comes_back_from_the_mirror_since_our_own_driver_is_dead(running: Running) -> None:
    (lines,) = running.queries
    time.sleep(1.5)  # the mirror looks twice a second
    lines.newest_plan.write_bytes(lines.newest_plan.read_bytes()[:20])
    seen = running.kill()
    repaired = running.await_event(Repaired, seen)
    assert repaired.guarantee == "exactly_once"
    lines.put()
    promised = running.await_event(PromiseChecked, seen)
    assert (promised.state, promised.because) == ("kept", promised.because)
    running.await_lines()
    assert lines.shown() == lines.exactly
    location = parse_location(str(lines.checkpoint))
    told = Incidents(open_writable(location), location).last()
    assert told is not None
    assert told.outcome == "recovered"
    assert "was started here and has ended" in str(told.attempts[-1].proof)


@pytest.mark.proof
def test_deleted_checkpoint_comes_back_from_the_mirror(running: Running) -> None:
    (lines,) = running.queries
    time.sleep(1.5)
    shutil.rmtree(lines.checkpoint)
    seen = running.kill()
    assert running.await_event(Repaired, seen).guarantee == "exactly_once"
    lines.put()
    running.await_event(Recovered, seen)
    running.await_lines()
    assert lines.shown() == lines.exactly


@pytest.mark.proof
def test_plain_restart_changes_nothing(running: Running) -> None:
    (lines,) = running.queries
    seen = running.kill()
    lines.put()
    running.await_event(Recovered, seen)
    running.await_lines()
    assert lines.shown() == lines.exactly
    assert not any(isinstance(each, Repaired) for each in running.events[seen:])
