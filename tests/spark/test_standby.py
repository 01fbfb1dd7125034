"""A second driver that waits, with real Spark: what takes over, and what does not."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.supervised import APP, Running

from lastgood.journal.incidents import Incidents
from lastgood.lab.spark import SPARK_VERSIONS, provide_spark
from lastgood.process.java import Java
from lastgood.settings.keys import find_keys
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.supervise import loop
from lastgood.supervise.events import Ended, Event, Noticed, PromiseChecked, Recovered, StandingBy, Started

ODD = Path(__file__).with_name("standby_odd_app.py")
QUERY = "lines"


@pytest.fixture
def run(java: Java, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts an application with a second driver."""
    assert java is not None
    made: list[Running] = []

    def run(*names: str, **options: Any) -> Running:
        running = Running(tmp_path, *names, standby=True, **options).__enter__()
        made.append(running)
        for query in running.queries:
            query.put()
        return running

    yield run
    for each in made:
        each.__exit__()


def odd(kind: str, folder: Path) -> dict[str, Any]:
    return {"app": ODD, "more": (kind, str(folder / "secret"))}


def require_taken_over(running: Running, since: int = 0) -> list[Event]:
    """The driver is killed, the one that waits takes over, and each line is there once."""
    running.await_event(StandingBy, since)
    seen = running.kill()
    for query in running.queries:
        query.put()
    assert running.await_event(Started, seen).way == "standby"
    running.await_event(Recovered, seen)
    running.await_lines()
    assert all(query.shown() == query.exactly for query in running.queries)
    return running.events[seen:]


def noticed(running: Running) -> list[str]:
    return [each.condition for each in running.events if isinstance(each, Noticed)]


def test_one_that_waits_takes_over_and_another_follows_it(run: Callable[..., Running]) -> None:
    running = run("first", "second")
    told = require_taken_over(running)
    running.wait("promises", lambda: sum(isinstance(each, PromiseChecked) for each in running.events) == 2)
    assert {each.state for each in running.events if isinstance(each, PromiseChecked)} == {"kept"}
    waited = [each.pid for each in running.events if isinstance(each, StandingBy)]
    assert [each.waited_seconds is not None for each in told if isinstance(each, Started)] == [True]
    running.await_event(StandingBy, running.events.index(told[0]))
    assert len({*waited, *(each.pid for each in running.events if isinstance(each, StandingBy))}) == 2
    location = parse_location(str(running.queries[0].checkpoint))
    incident = Incidents(open_writable(location), location, find_keys()).last()
    assert incident is not None
    assert incident.back is not None
    assert incident.back.way == "standby"
    assert list(incident.parts) == ["noticed", "judged", "repaired", "waited", "started", "first batch"]


@pytest.mark.proof
@pytest.mark.parametrize("version", SPARK_VERSIONS)
def test_on_each_spark(run: Callable[..., Running], version: str) -> None:
    require_taken_over(run(QUERY, spark=provide_spark(version)))


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["slow", "three"])
def test_applications_that_are_no_model(run: Callable[..., Running], tmp_path: Path, kind: str) -> None:
    require_taken_over(run(QUERY, **odd(kind, tmp_path)))


@pytest.mark.proof
def test_a_secret_that_was_changed_is_read_anew(run: Callable[..., Running], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("old")
    running = run(QUERY, **odd("secret", tmp_path))
    running.await_event(StandingBy)
    (tmp_path / "secret").write_text("newer")
    seen = running.kill()
    running.queries[0].put()
    assert running.await_event(Started, seen).way == "cold"
    assert "STANDBY_OUTDATED" in noticed(running)
    running.await_event(Recovered, seen)
    assert (tmp_path / "secret.used").read_text() == "old\nnewer\n"


@pytest.mark.proof
@pytest.mark.parametrize("name", ["a.jar", "conf/spark-defaults.conf", "app.py"])
def test_one_that_was_made_of_what_is_another_now_gives_way_to_the_next(
    run: Callable[..., Running], tmp_path: Path, name: str
) -> None:
    """While it waits, and nobody asks for it: a jar, the settings, or the code has changed."""
    jar, changed = tmp_path / "a.jar", tmp_path / name
    write_jar(jar, "old")
    app = shutil.copy(APP, tmp_path / "app.py")
    running = run(QUERY, app=app, jars=[jar])
    first = running.await_event(StandingBy)
    if changed == jar:
        write_jar(jar, "new")
    else:
        changed.write_text(changed.read_text() + "# changed\n")
    running.wait("a word", lambda: "STANDBY_OUTDATED" in noticed(running))
    assert any(isinstance(each, Noticed) and str(changed) in each.sentence for each in running.events)
    told = require_taken_over(running, since=running.events.index(first) + 1)
    (taken,) = (each for each in told if isinstance(each, Started))
    assert taken.pid != first.pid


def write_jar(jar: Path, content: str) -> None:
    with zipfile.ZipFile(jar, "w") as stream:
        stream.writestr("content", content)


@pytest.mark.proof
def test_none_waits_where_a_query_was_started_past_python(run: Callable[..., Running], tmp_path: Path) -> None:
    running = run(QUERY, **odd("java", tmp_path))
    running.wait("a word", lambda: "STANDBY_IMPOSSIBLE" in noticed(running))
    seen = running.kill()
    assert running.await_event(Started, seen).way == "cold"
    assert not any(isinstance(each, StandingBy) for each in running.events)


@pytest.mark.proof
def test_none_waits_where_no_query_is_started(
    run: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_IDLE_AFTER_SECONDS", 0.0)
    running = run(QUERY, **odd("none", tmp_path))
    assert running.await_event(Ended).exit_code == 0
    assert not any(isinstance(each, StandingBy) for each in running.events)
