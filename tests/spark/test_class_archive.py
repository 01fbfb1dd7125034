"""A class archive for the driver of a user's application, with real Spark: that Java takes it, and that all goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.supervised import Running

from lastgood.lab.spark import SPARK_VERSIONS, SparkEnvironment, provide_spark
from lastgood.process.java import Java
from lastgood.supervise.events import Noticed, Recovered, StandingBy, Started

QUERY = "lines"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java) -> None:
    assert java is not None
    monkeypatch.setattr("lastgood.supervise.class_archives.platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    # Beside other tests there is no idle time.
    monkeypatch.setattr("lastgood.supervise.class_archives._LAST", ())


def noticed(running: Running, condition: str) -> bool:
    return any(isinstance(each, Noticed) and each.condition == condition for each in running.events)


def require_back(folder: Path, spark: SparkEnvironment | None, *, standby: bool = False) -> None:
    """It is made beside the first driver, the second takes it, and each line is there once."""
    with Running(folder, QUERY, spark=spark, class_archive=True, standby=standby) as running:
        (query,) = running.queries
        query.put()
        running.wait("an archive", lambda: noticed(running, "CLASS_ARCHIVE_MADE"))
        if standby:
            running.await_event(StandingBy)
        seen = running.kill()
        query.put()
        way = running.await_event(Started, seen).way
        running.await_event(Recovered, seen)
        running.await_lines()
        assert query.shown() == query.exactly
        assert way == ("standby" if standby else "archive")
        assert not noticed(running, "CLASS_ARCHIVE_NOT_USED")


def require_back_without(folder: Path, spark: SparkEnvironment) -> None:
    """None is made, which is said, and each line is there once."""
    with Running(folder, QUERY, spark=spark, class_archive=True) as running:
        (query,) = running.queries
        query.put()
        running.wait("a word", lambda: noticed(running, "CLASS_ARCHIVE_IMPOSSIBLE"))
        seen = running.kill()
        query.put()
        assert running.await_event(Started, seen).way == "cold"
        running.await_event(Recovered, seen)
        running.await_lines()
        assert query.shown() == query.exactly


@pytest.mark.proof
def test_java_takes_what_was_made_beside_the_driver_before(tmp_path: Path) -> None:
    require_back(tmp_path, None)


@pytest.mark.proof
@pytest.mark.parametrize("version", SPARK_VERSIONS)
def test_on_each_spark(tmp_path: Path, java: Java, version: str) -> None:
    """On another Java than that of this machine with `JAVA_HOME`."""
    if java.version == 21 and version > "4":  # a jar is twice on the class path of Spark 4
        require_back_without(tmp_path, provide_spark(version))
    else:
        require_back(tmp_path, provide_spark(version))


@pytest.mark.proof
def test_beside_one_that_stands_by(tmp_path: Path) -> None:
    require_back(tmp_path, None, standby=True)


@pytest.mark.proof
def test_a_broken_one_is_no_harm(tmp_path: Path) -> None:
    """One that is broken, in the place of the right one."""
    with Running(tmp_path, QUERY, class_archive=True) as running:
        (query,) = running.queries
        query.put()
        running.wait("an archive", lambda: noticed(running, "CLASS_ARCHIVE_MADE"))
        (archive,) = (tmp_path / "cache").rglob("driver.jsa")
        archive.rename(archive.with_name("right"))
        archive.write_bytes(b"\0" * 100_000)
        seen = running.kill()
        query.put()
        running.await_event(Recovered, seen)
        running.await_lines()
        assert query.shown() == query.exactly
        assert noticed(running, "CLASS_ARCHIVE_NOT_USED")


@pytest.mark.proof
def test_files_beside_the_jars_allow_none(tmp_path: Path) -> None:
    with Running(tmp_path, QUERY, class_archive=True) as running:
        (tmp_path / "conf/log4j2.properties").write_text("")
        running.queries[0].put()
        running.wait("a word", lambda: noticed(running, "CLASS_ARCHIVE_IMPOSSIBLE"))
