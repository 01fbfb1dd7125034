"""Spark's classes archived by a real JVM, and taken from there by the next one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lastgood.lab.cache import CACHE_VARIABLE
from lastgood.lab.class_archive import KEPT, make_class_archive
from lastgood.lab.spark import JAVA_OPTIONS, SMALL_CONF, find_class_archive, find_default_spark, make_small_conf, submit
from lastgood.process.java import Java

pytestmark = pytest.mark.spark

JOB = "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate().range(3).count()\n"
FROM_ARCHIVE = "org.apache.spark.SparkContext source: shared objects file (top)"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


@pytest.fixture
def make(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], tuple[Path | None, list[str]]]:
    """Makes an archive in a cache of its own; the archive, and what was told."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "my cache"))

    def of(job: Path) -> tuple[Path | None, list[str]]:
        told: list[str] = []
        return make_class_archive(job, environment=find_default_spark(), java=java, progress=told.append), told

    return of


@pytest.mark.proof
def test_archive_is_made_once_in_place_of_the_oldest_and_the_next_spark_takes_its_classes_from_it(
    job: Path, java: Java, tmp_path: Path, make: Callable[[Path], tuple[Path | None, list[str]]]
) -> None:
    folder = find_class_archive(find_default_spark(), java).parent
    (folder / "draft-killed").mkdir(parents=True)
    names = [f"spark-used{age}.jsa" for age in range(KEPT)]
    for age, name in enumerate(names):
        (folder / name).touch()
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    archive, told = make(job)
    assert archive == find_class_archive(find_default_spark(), java)
    assert "once" in " ".join(told)
    assert {each.name for each in folder.iterdir() if each.suffix != ".log"} == {*("lock", archive.name, *names[:-1])}
    made = archive.stat()
    assert make(job) == (archive, [])
    assert archive.stat().st_size == made.st_size
    log = tmp_path / "classes"
    conf = {JAVA_OPTIONS: f"{make_small_conf(archive=archive)[JAVA_OPTIONS]} -Xlog:class+load:file={log}"}
    with submit(job, environment=find_default_spark(), java=java, conf=conf) as child:
        ending = child.wait()
    assert ending is not None
    assert ending.is_success
    assert FROM_ARCHIVE in log.read_text()


@pytest.mark.proof
def test_job_that_fails_leaves_no_archive_and_where_to_look_and_spark_starts_without(
    job: Path, java: Java, tmp_path: Path, make: Callable[[Path], tuple[Path | None, list[str]]]
) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import sys; sys.exit('no')\n")
    archive, told = make(bad)
    where = find_class_archive(find_default_spark(), java)
    assert archive is None
    assert str(where.with_suffix(".log")) in told[-1]
    assert {each.name for each in where.parent.iterdir()} == {"lock", where.with_suffix(".log").name}
    with submit(job, environment=find_default_spark(), java=java) as child:
        ending = child.wait()
    assert ending is not None
    assert ending.is_success
    assert "SharedArchiveFile" not in SMALL_CONF[JAVA_OPTIONS]
