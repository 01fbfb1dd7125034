"""A driver on S3 commits while its checkpoint is sealed: it looks whether the entry is there, and then it writes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.cases import Case
from conformance.flavours import add_files, truth
from conformance.sparks import RunningSpark
from repair.far import VERSION, FarQuery
from repair.roads import Far

from lastgood.journal.room import find_open_recovery
from lastgood.lab.s3 import S3Server
from lastgood.lab.spark import SparkEnvironment
from lastgood.planning.price import Waiver
from lastgood.process.java import Java
from lastgood.recovery.applying import apply_plan
from lastgood.recovery.engine import PlanStaleError
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.testing.network import Proxy

pytestmark = pytest.mark.proof

BATCHES = 2
WAIT_SECONDS = 10
"""Then a query that still runs is stopped."""
DEADLINE_SECONDS = 120


class Gate:
    """Holds the request by which a driver puts an entry in its place; it has looked before whether there is one."""

    def __init__(self, entry: str) -> None:
        self._entry = f"/checkpoint/{entry} ".encode()
        self.has_come = threading.Event()
        self.is_open = threading.Event()

    def __call__(self, request: bytes) -> None:
        if self._entry in request.partition(b"\n")[0] and b"x-amz-copy-source" in request.lower():
            self.has_come.set()
            assert self.is_open.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate(f"commits/{BATCHES}")


@pytest.fixture(scope="module")
def spark(
    gate: Gate,
    s3: S3Server,
    java: Java,
    spark_of: Callable[[str], SparkEnvironment],
    s3a_jars: tuple[Path, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningSpark]:
    """A Spark whose requests pass the gate."""
    with Proxy(s3.port, on_request=gate) as proxy:
        conf = {**s3.spark_conf, "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{proxy.port}"}
        folder = tmp_path_factory.mktemp("spark")
        running = RunningSpark(spark_of(VERSION), java=java, jars=s3a_jars, folder=folder, conf=conf)
        yield running
        running.close()


def await_(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_commit_that_lands_on_the_seal_makes_the_plan_stale_and_nothing_is_changed(
    spark: RunningSpark, s3: S3Server, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    query = FarQuery(
        Far("s3a://lake", s3.options, {}, []), Case(VERSION, "files", ()), tmp_path / "case", lambda: spark
    )
    held_in_a_batch(query)
    plan = make_plan(resolve_target(query.checkpoint), PlanOptions("replan", spark=VERSION, accept=tuple(Waiver)))
    (query.folder / "plan.json").write_bytes(plan.to_bytes())
    assert f"commits/{BATCHES}" in plan.seal

    def drive(line: str) -> None:
        if line.startswith("sealing"):
            (query.folder / "sink" / "hold").unlink()
            assert gate.has_come.wait(DEADLINE_SECONDS)
        if line.startswith("waiting"):
            assert all(query.files()[path] == b"" for path in plan.seal)
            gate.is_open.set()

    with pytest.raises(PlanStaleError):
        apply_plan(str(query.folder / "plan.json"), driver_is_dead=True, tell=drive)
    assert all(query.files().values()), "a part of the seal is left"
    assert find_open_recovery(query.storage, parse_location(query.checkpoint)) is None
    add_files(query.flavour, query.folder, BATCHES + 1, BATCHES + 2)
    query.ask("end", seconds=WAIT_SECONDS)
    told = query.ask("run")
    assert told["ended"] == "finished", told
    assert Counter(query.ask("content")["content"]) == truth(query.flavour, BATCHES + 2)


def held_in_a_batch(query: FarQuery) -> None:
    """Let it commit some batches, and stand inside the sink call of one more."""
    add_files(query.flavour, query.folder, 0, BATCHES)
    query.ask("begin")
    await_(lambda: query.newest("commits") == BATCHES - 1)
    (query.folder / "sink" / "hold").touch()
    add_files(query.flavour, query.folder, BATCHES, BATCHES + 1)
    await_((query.folder / "sink" / "held").exists)
