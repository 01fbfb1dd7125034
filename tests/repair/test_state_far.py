"""State on S3 and HDFS: kept by a backup, made anew by the batches of the query, and brought; with real Spark there."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import RunningSpark
from repair.test_rebuild import BATCHES, BEFORE, FORMATS, LASTGOOD, Harmed

from lastgood.lab.hdfs import SUPERUSER, HdfsCluster
from lastgood.lab.s3 import S3Server
from lastgood.lab.spark import submit_env
from lastgood.process.java import Java
from lastgood.storage.location import Location
from lastgood.storage.reading import format_fsspec_path, parse_location
from lastgood.storage.writing import FsspecWriter, open_writable

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.proof]


@dataclass(frozen=True)
class Storage:
    """Where the checkpoint lies, and what it takes to get there."""

    root: str
    options: Mapping[str, Any]
    env: Mapping[str, str]
    conf: Mapping[str, str]


@pytest.fixture(params=["s3", "hdfs"])
def storage(request: pytest.FixtureRequest) -> Storage:
    if request.param == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        return Storage("s3a://lake", s3.options, s3.environment, s3.spark_conf)
    hdfs: HdfsCluster = request.getfixturevalue("hdfs")
    # lastgood finds the cluster by its settings, the application by the address: its other paths are of this machine.
    conf = {"spark.hadoop.dfs.replication": "1", "spark.hadoop.fs.defaultFS": "file:///"}
    return Storage(f"{hdfs.uri}/lake", hdfs.options, {**hdfs.environment, "HADOOP_USER_NAME": SUPERUSER}, conf)


@dataclass
class FarHarmed(Harmed):
    """The same, with its checkpoint there; its table is here."""

    there: Storage = field(kw_only=True)
    place: str = field(default_factory=lambda: uuid.uuid4().hex)

    def say(self, name: str = "") -> dict[str, Any]:
        return {**super().say(name), "checkpoint": f"{self.root}{name}"}

    @property
    def root(self) -> str:
        return f"{self.there.root}/{self.place}/chk"

    @property
    def env(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.folder / "state"), "HADOOP_USER_NAME": SUPERUSER}
        return {**submit_env(self.environment, self.java, os.environ), **own, **self.there.env}

    @property
    def writer(self) -> FsspecWriter:
        writer = open_writable(parse_location(self.root), dict(self.there.options))
        assert isinstance(writer, FsspecWriter)
        return writer

    def remove(self, below: str = "") -> None:
        path = format_fsspec_path(parse_location(f"{self.root}{below}"))
        self.writer.filesystem.rm(path, recursive=True)

    def list_files(self) -> list[tuple[str, int | None]]:
        found: Location = parse_location(self.root)
        return sorted((each.name, each.size) for each in self.writer.walk(found) or ())

    def run_lastgood(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run([LASTGOOD, *words], env=self.env, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode in codes, (words, done.stdout, done.stderr)
        return done.stdout

    def type(self, *words: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.run_lastgood(*words, codes=codes))
        return told

    def run_mirrored(self) -> None:
        """Under `run`, which keeps the state every second."""
        words = ", ".join(json.dumps(word) for word in self.command())
        named = f"[pipeline.orders]\ncommand = [{words}]\ncheckpoint = {json.dumps(self.root)}\n"
        kept = 'mirror_state = true\nmirror_state_every = "1s"\ndriver_check = ["true"]\n'
        self.folder.joinpath("lastgood.toml").write_text(named + kept)
        self.run_lastgood("run", "orders")

    def make_anew(self) -> None:
        words = ("rebuild", self.root, "--sink", str(self.table), "--format", "json", "--", *self.command())
        plan = self.type(*words)
        assert plan["guarantee"] == "exactly_once"
        self.type("apply", plan["file"], "--driver-is-dead", "--format", "json")


@pytest.fixture
def make(
    storage: Storage,
    spark_of: Any,
    java: Java,
    s3a_jars: tuple[Path, ...],
    tmp_path: Path,
) -> Any:
    running: list[RunningSpark] = []

    def begin(kind: str, form: str) -> FarHarmed:
        environment = spark_of("4.2.0")
        conf = {"spark.sql.shuffle.partitions": "2", **FORMATS[form], **storage.conf}
        env = {"HADOOP_USER_NAME": SUPERUSER}
        folder = tmp_path / "spark"
        running.append(RunningSpark(environment, java=java, jars=s3a_jars, folder=folder, conf=storage.conf, env=env))
        query = FarHarmed(running[0], environment, java, s3a_jars, tmp_path, kind, "parquet", conf, there=storage)
        query.begin()
        return query

    yield begin
    for spark in running:
        spark.close()


@pytest.mark.parametrize("form", FORMATS)
def test_lost_state_is_made_anew_there(make: Any, form: str) -> None:
    query = make("leftOuter", form)
    query.remove("/state")
    query.make_anew()
    query.finish()


@pytest.mark.parametrize("form", FORMATS)
def test_state_that_run_keeps_comes_back_there(make: Any, form: str) -> None:
    query = make("leftOuter", form)
    query.feed(range(BEFORE, BATCHES - 1))
    query.run_mirrored()
    assert query.start("-never-harmed") is None
    query.remove()
    restored = query.type("backup", "restore", query.root, "--format", "json", codes=(0, 1))
    assert restored["state_batch"] is not None
    if restored["state_batch"] < restored["last_committed"]:
        query.make_anew()
    query.feed(range(BATCHES - 1, BATCHES))
    assert query.start() is None
    assert query.start("-never-harmed") is None
    assert query.rows() == query.rows("-never-harmed")


@pytest.mark.parametrize("form", FORMATS)
def test_lost_checkpoint_comes_back_there_with_the_state_that_was_kept(make: Any, form: str) -> None:
    query = make("sessions", form)
    made = query.type("backup", "create", query.root, "--state", "--format", "json")
    assert made["state"]["size"] > 0
    query.feed(range(BEFORE, BATCHES - 1))
    assert query.start() is None
    assert query.start("-never-harmed") is None
    query.type("backup", "create", query.root, "--format", "json")
    query.remove()
    restored = query.type("backup", "restore", query.root, "--format", "json", codes=(1,))  # it is not whole yet
    assert restored["state_batch"] < restored["last_committed"]
    query.make_anew()
    query.feed(range(BATCHES - 1, BATCHES))
    assert query.start() is None
    assert query.start("-never-harmed") is None
    assert query.rows() == query.rows("-never-harmed")
