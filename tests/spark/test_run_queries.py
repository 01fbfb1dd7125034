"""Two queries in one real driver under `lastgood run`: what befalls one of them is nothing to the other."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.supervised import Lines, Running

from lastgood.process.java import Java
from lastgood.recovery.attempts import AttemptsExhaustedError
from lastgood.settings.policy import Policy
from lastgood.supervise.events import Committed, Diagnosed, Ended, PromiseChecked, Recovered, Repaired, Stalled, Started

FIRST, SECOND = "first", "second"


@pytest.fixture(scope="module")
def running(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    assert java is not None
    with Running(tmp_path_factory.mktemp("supervised"), FIRST, SECOND) as running:
        put(running)
        running.await_event(Committed)
        running.await_lines()
        yield running


def put(running: Running) -> None:
    for query in running.queries:
        query.put()


def require_exact(running: Running, seen: int) -> None:
    """Both go on, as was promised, and every line is there once."""
    put(running)
    for query in running.queries:
        running.wait("recovered", lambda query=query: query.name in named(running, Recovered, seen))  # type: ignore[misc]
    running.await_lines()
    assert [query.shown() == query.exactly for query in running.queries] == [True, True]
    running.wait("promised", lambda: len(named(running, PromiseChecked, seen)) == len(running.queries))
    states = {each.state for each in running.events[seen:] if isinstance(each, PromiseChecked)}
    assert states == {"kept"}


def named(
    running: Running, kind: type[Repaired | Diagnosed | Recovered | PromiseChecked | Stalled], seen: int
) -> list[str]:
    """The queries that such events were told of."""
    return [Path(each.checkpoint).parent.name for each in running.events[seen:] if isinstance(each, kind)]


def changed_at_rest(running: Running, query: Lines) -> bool:
    """Whether a file of it was another one when the driver was started last than when it had ended before."""
    ended, started = running.at_rest[-2:]
    return ended[query.name] != started[query.name]


@pytest.mark.proof
def test_damage_to_one_is_repaired_and_the_other_stays_as_it_is(running: Running) -> None:
    first, second = running.queries
    time.sleep(1.5)  # the mirror looks twice a second
    second.newest_plan.write_bytes(second.newest_plan.read_bytes()[:20])
    seen = running.kill()
    running.await_event(Started, seen)
    assert (named(running, Repaired, seen), named(running, Diagnosed, seen)) == ([SECOND], [FIRST])
    assert [changed_at_rest(running, each) for each in (first, second)] == [False, True]
    require_exact(running, seen)


@pytest.mark.proof
def test_damage_to_both_is_repaired_before_one_start(running: Running) -> None:
    first, second = running.queries
    time.sleep(1.5)
    shutil.rmtree(first.checkpoint)
    second.newest_plan.write_bytes(b"")
    seen = running.kill()
    running.await_event(Started, seen)
    assert named(running, Repaired, seen) == [FIRST, SECOND]
    require_exact(running, seen)


@pytest.mark.proof
def test_query_that_dies_while_the_other_goes_on_is_repaired_after_half_a_minute(running: Running) -> None:
    first, second = running.queries
    time.sleep(1.5)
    seen = len(running.events)
    taken = int(second.newest_plan.name) + 1
    (second.checkpoint / f"offsets/{taken}").write_bytes(second.newest_plan.read_bytes()[:20])
    second.put()  # Spark finds the name of its next plan taken
    for _ in range(3):  # nothing to the other
        first.put(1)
        running.wait("lines of the first", lambda: len(first.shown()) == first.count)
    running.await_event(Stalled, seen)
    assert not any(isinstance(each, Ended) for each in running.events[seen : running.events.index(_stalled(running))])
    assert (named(running, Stalled, seen), _stalled(running).checkpoint) == ([SECOND], str(second.checkpoint))
    running.await_event(Started, seen)
    assert (named(running, Repaired, seen), named(running, Diagnosed, seen)) == ([SECOND], [FIRST])
    assert not changed_at_rest(running, first)
    require_exact(running, seen)


def _stalled(running: Running) -> Stalled:
    return next(each for each in reversed(running.events) if isinstance(each, Stalled))


@pytest.mark.proof
def test_query_that_fails_at_every_start_is_given_up_though_the_other_makes_progress(
    java: Java, tmp_path: Path
) -> None:
    assert java is not None
    with Running(tmp_path, FIRST, SECOND, policy=Policy(max_attempts=2, backoff_seconds=0.1)) as running:
        first, second = running.queries
        put(running)
        running.await_lines()
        (first.input / "000001.gz").write_bytes(b"this is no gzip")
        while running.is_running:
            if len(second.shown()) == second.count:
                second.put(1)
            time.sleep(0.1)
    assert isinstance(running.failed, AttemptsExhaustedError)
    assert running.failed.sentence.endswith(f"without a new committed batch of {first.checkpoint}")
    _, again, *_ = (number for number, each in enumerate(running.events) if isinstance(each, Started))
    committed = [each for each in running.events[again:] if isinstance(each, Committed)]
    assert {Path(each.checkpoint).parent.name for each in committed} == {SECOND}
