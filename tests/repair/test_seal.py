"""A sealed checkpoint: no driver goes on with it, none starts on it, and unsealed it goes on as if nothing had been."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.cases import NEW_INPUTS
from conformance.flavours import FLAVOURS, add_files, truth
from conformance.folders import ids
from conformance.sparks import RunningSpark, Sparks

from lastgood.journal.room import Room
from lastgood.journal.seal import list_seal_files, put_up, take_down
from lastgood.recovery.applying import apply_plan
from lastgood.recovery.driver_death import DriverNotProvenDeadError
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter

FLAVOUR = FLAVOURS["files"]
BATCHES = 3
DEADLINE_SECONDS = 120
CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE"
VERSIONS = [
    pytest.param("4.2.0", marks=pytest.mark.spark),
    *(pytest.param(version, marks=pytest.mark.proof) for version in ("3.5.9", "4.0.5", "4.3.0")),
]


class Query:
    """A query on a folder of its own; each input file is a batch."""

    def __init__(self, spark: RunningSpark, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files = 0
        self.room = Room(parse_location(str(folder / "checkpoint")), "20261121-160058-7f3a", LocalWriter())
        self.seal: tuple[str, ...] = ()

    def feed(self, count: int) -> None:
        add_files(FLAVOUR, self.folder, self.files, self.files + count)
        self.files += count

    def ask(self, do: str) -> dict[str, Any]:
        return self.spark.ask(
            {"do": do, "flavour": FLAVOUR.name, "folder": str(self.folder), "seconds": DEADLINE_SECONDS}
        )

    def begin_and_commit(self, batches: int) -> None:
        """Start it, and wait until it is idle."""
        self.feed(batches)
        self.ask("begin")
        await_(lambda: len(ids(self.folder, "commits")) == batches)

    def begin_and_hold(self, batches: int) -> None:
        """The same, and then let it stand inside the sink call of one batch more."""
        self.begin_and_commit(batches)
        (self.folder / "sink" / "hold").touch()
        self.feed(1)
        await_((self.folder / "sink" / "held").exists)

    def release(self) -> None:
        (self.folder / "sink" / "hold").unlink()

    def put_seal_up(self) -> None:
        planned, committed = (max(ids(self.folder, log), default=None) for log in ("offsets", "commits"))
        self.seal = list_seal_files(planned, committed, planned)
        assert put_up(self.room, self.seal) is None

    def is_sealed(self) -> bool:
        """Whether every file of the seal is there and empty."""
        return all((self.folder / "checkpoint" / path).read_bytes() == b"" for path in self.seal)

    def require_all_once(self) -> None:
        shown = self.ask("content")["content"]
        assert Counter(shown) == truth(FLAVOUR, self.files)


def await_(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def conditions(told: dict[str, Any]) -> set[str | None]:
    return {link["condition"] for link in told["chain"]}


@pytest.fixture(scope="module", params=VERSIONS)
def spark(request: pytest.FixtureRequest, sparks: Sparks) -> RunningSpark:
    return sparks.of(request.param)


@pytest.fixture
def query(spark: RunningSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "case"
    yield Query(spark, folder)
    shutil.rmtree(folder)


def test_idle_driver_dies_at_its_next_plan(query: Query) -> None:
    query.begin_and_commit(BATCHES)
    query.put_seal_up()
    query.feed(NEW_INPUTS)
    told = query.ask("end")
    assert (told["ended"], CONCURRENT in conditions(told)) == ("failed", True), told
    assert told["calls"]["begun"] == list(range(BATCHES))
    assert query.is_sealed()
    require_no_start(query)
    take_down(query.room, query.seal)
    told = query.ask("run")
    assert (told["ended"], told["calls"]["finished"][0]) == ("finished", BATCHES)
    query.require_all_once()


@pytest.mark.proof
def test_driver_inside_a_batch_finishes_its_sink_call_and_dies_at_the_commit(query: Query) -> None:
    query.begin_and_hold(BATCHES)
    query.put_seal_up()
    query.release()
    told = query.ask("end")
    assert (told["ended"], CONCURRENT in conditions(told)) == ("failed", True), told
    assert told["calls"]["finished"] == list(range(BATCHES + 1))
    assert query.is_sealed()
    require_no_start(query)
    take_down(query.room, query.seal)
    told = query.ask("run")
    assert (told["ended"], told["calls"]["finished"]) == ("finished", [BATCHES])  # the sink was not asked what it has


def test_repair_of_a_query_that_may_be_running_is_refused_and_it_goes_on(query: Query, tmp_path: Path) -> None:
    query.begin_and_hold(BATCHES)
    checkpoint, file = query.folder / "checkpoint", tmp_path / "plan.json"
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions(goal="replan", spark=query.spark.version))
    file.write_bytes(plan.accept(plan.needs).to_bytes())
    before = files(checkpoint)
    with pytest.raises(DriverNotProvenDeadError):
        apply_plan(str(file))
    assert files(checkpoint) == before
    query.release()
    await_(lambda: len(ids(query.folder, "commits")) == BATCHES + 1)
    query.put_seal_up()
    query.feed(NEW_INPUTS)
    assert query.ask("end")["ended"] == "failed"
    take_down(query.room, query.seal)
    assert query.ask("run")["ended"] == "finished"
    query.require_all_once()


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def require_no_start(query: Query) -> None:
    """A driver that starts dies at once, without a call of its sink, and leaves the seal as it is."""
    told = query.ask("run")
    assert told["ended"] == "failed"
    assert "Incomplete log file" in (told["text"] or "") + str(told["chain"])
    assert told["calls"]["begun"] == []
    assert query.is_sealed()
