"""Checkpoint and table on S3 and HDFS, a network that delays, resets and cuts: rows are lost and doubled as was said.

Spark reaches the storage as it is. An attempt of lastgood ends well, or with an error of the storage; then a next one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.cases import Case
from conformance.edits import Edit
from conformance.flavours import FLAVOURS, add_files
from conformance.folders import ids
from conformance.sparks import RunningSpark, Sparks
from repair.far import VERSION, FarQuery
from repair.repairs import broken_promise, timeless, wrong_price
from repair.roads import Far, far_hdfs, far_s3

from lastgood.lab.hdfs import SUPERUSER, HdfsCluster
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.s3 import S3Server
from lastgood.lab.spark import SparkEnvironment
from lastgood.lab.toxiproxy import Toxiproxy
from lastgood.planning.plan import Plan
from lastgood.process.java import Java

SEED = os.environ.get("LASTGOOD_SEED", "1")
DEADLINE_SECONDS = 120
FLAVOURS_FAR = ("file-sink", "file-delta", "kafka-delta")

MakeQuery = Callable[..., FarQuery]


@pytest.fixture(scope="module", name="s3_far")
def _s3_far(s3: S3Server, toxiproxy: Toxiproxy) -> Far:
    return far_s3(s3, toxiproxy)


@pytest.fixture(scope="module", name="hdfs_far")
def _hdfs_far(hdfs: HdfsCluster, toxiproxy: Toxiproxy, tmp_path_factory: pytest.TempPathFactory) -> Far:
    return far_hdfs(hdfs, toxiproxy, tmp_path_factory.mktemp("conf"))


@pytest.fixture(scope="module")
def sparks_far(
    java: Java,
    s3: S3Server,
    spark_of: Callable[[str], SparkEnvironment],
    spark_jars: tuple[Path, ...],
    s3a_jars: tuple[Path, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sparks]:
    """A Spark that knows S3 and HDFS."""
    conf = {**s3.spark_conf, "spark.hadoop.dfs.replication": "1"}

    def start(version: str) -> RunningSpark:
        return RunningSpark(
            spark_of(version),
            java=java,
            jars=(*spark_jars, *s3a_jars),
            folder=tmp_path_factory.mktemp("spark"),
            conf=conf,
            env={"HADOOP_USER_NAME": SUPERUSER},
        )

    running = Sparks(start)
    yield running
    running.close()


@pytest.fixture
def make(request: pytest.FixtureRequest, sparks_far: Sparks, tmp_path: Path) -> Iterator[MakeQuery]:
    """Makes a query of a kind on a storage."""
    made: list[FarQuery] = []

    def new(storage: str, flavour: str) -> FarQuery:
        far: Far = request.getfixturevalue(f"{storage}_far")
        broker: KafkaBroker | None = request.getfixturevalue("broker") if FLAVOURS[flavour].kind == "kafka" else None
        case = Case(VERSION, flavour, ())
        query = FarQuery(far, case, tmp_path / "case", lambda: sparks_far.of(VERSION), broker)
        made.append(query)
        return query

    yield new
    for query in made:
        query.clear()


def repaired(query: FarQuery, goal: str, rng: random.Random) -> Plan:
    """Plan, carry out, take back, plan and carry out once more, each verb until it is done."""
    damaged = query.files()
    plan = query.plan(goal)
    assert plan.steps
    query.traveller.does(rng, "apply", "plan.json", "--driver-is-dead")
    undo = ("undo", plan.recovery, "--checkpoint", query.checkpoint, "--driver-is-dead")
    query.traveller.does(rng, *undo)
    assert query.files() == damaged
    again = query.plan(goal)
    assert timeless(again) == timeless(plan)
    query.traveller.does(rng, "apply", "plan.json", "--driver-is-dead")
    return again


def require_truth(query: FarQuery, plan: Plan) -> None:
    """Start the query, unchanged: what it does is what the plan said."""
    seen = query.restart()
    wrong = [*broken_promise(plan, seen), *wrong_price(plan, seen, query.folder)]
    assert not wrong, (plan.guarantee, plan.rests_on, wrong)
    assert seen.ended == "finished"


def truncated(query: FarQuery, log: str) -> Edit:
    newest = max(ids(query.folder, log))
    return Edit("rewrite", {"log": log, "batch": newest, "how": "empty", "crc": "none"})


@pytest.mark.proof
@pytest.mark.parametrize("log", ["offsets", "commits"])
@pytest.mark.parametrize("flavour", FLAVOURS_FAR)
@pytest.mark.parametrize("storage", ["s3", "hdfs"])
def test_truncated_log_is_repaired_there(storage: str, flavour: str, log: str, make: MakeQuery) -> None:
    rng = random.Random(f"{SEED}/{storage}/{flavour}/{log}")
    query = make(storage, flavour)
    query.make_healthy()
    query.traveller.does(rng, "backup", "create", query.checkpoint)
    query.damage(truncated(query, log))
    require_truth(query, repaired(query, "resume", rng))


@pytest.mark.proof
@pytest.mark.parametrize("flavour", FLAVOURS_FAR)
@pytest.mark.parametrize("storage", ["s3", "hdfs"])
def test_lost_checkpoint_comes_back_from_its_mirror_there(storage: str, flavour: str, make: MakeQuery) -> None:
    rng = random.Random(f"{SEED}/{storage}/{flavour}/lost")
    query = make(storage, flavour)
    query.make_healthy()
    query.traveller.does(rng, "backup", "create", query.checkpoint)
    query.lose()
    require_truth(query, repaired(query, "fresh", rng))


@pytest.mark.proof
@pytest.mark.parametrize("flavour", ["file-sink", "file-delta"])
@pytest.mark.parametrize("storage", ["s3", "hdfs"])
def test_orphan_of_a_driver_that_was_killed_is_dropped_there(
    storage: str, flavour: str, make: MakeQuery, sparks_far: Sparks
) -> None:
    rng = random.Random(f"{SEED}/{storage}/{flavour}/orphan")
    query = make(storage, flavour)
    add_files(query.flavour, query.folder, 0, query.flavour.batches)
    killed_in_a_batch(query, sparks_far, rng)
    add_files(query.flavour, query.folder, query.flavour.batches, query.flavour.batches + 2)
    require_truth(query, repaired(query, "replan", rng))


def killed_in_a_batch(query: FarQuery, sparks: Sparks, rng: random.Random) -> None:
    """Start it, and kill the driver while a batch is planned and not committed; again, until that was so."""
    while query.newest("commits") >= query.newest("offsets"):
        batch = query.newest("offsets") + rng.randrange(1, 3)
        query.ask("begin")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while query.newest("offsets") < batch:
            assert time.monotonic() < deadline
        sparks.of(VERSION).kill()
        sparks.close()
