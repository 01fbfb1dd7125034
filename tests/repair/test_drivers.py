"""Drivers that are not dead: idle, long inside a batch, without a broker, started by a scheduler in the middle of it.

Whatever they do, there are never two of them on one checkpoint, and every row is in the sink once.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer
from conformance.flavours import FLAVOURS, add_files, truth
from conformance.folders import ids
from conformance.sparks import RunningSpark

from lastgood.errors import LastgoodError
from lastgood.lab.kafka import KafkaBroker
from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.backup import create
from lastgood.process.java import Java
from lastgood.recovery import applying as operation
from lastgood.recovery.applying import apply_plan
from lastgood.recovery.driver_death import DriverNotProvenDeadError
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import Location
from lastgood.storage.writing import open_writable
from lastgood.testing.storage import FaultyWriter

VERSION = "4.2.0"
BATCHES = 3
NEW = 2
DEADLINE_SECONDS = 300
STEP_SECONDS = 0.4
"""How long each change of a slow repair takes."""


class Application:
    """A query on a folder of its own, and what tells whether a driver is at it."""

    def __init__(self, spark: RunningSpark, folder: Path, flavour: str = "files") -> None:
        self.spark = spark
        self.folder = folder
        self.flavour = FLAVOURS[flavour]
        self.options: dict[str, str] = {}
        self.files = 0
        folder.mkdir()
        (folder / "sink").mkdir()
        self.alive = folder / "alive"
        self.config = folder / "lastgood.toml"
        check = json.dumps([sys.executable, "-c", f"import os; raise SystemExit(os.path.exists({str(self.alive)!r}))"])
        self.config.write_text(
            f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{self.checkpoint}"\ndriver_check = {check}\n'
        )

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def feed(self, count: int) -> None:
        add_files(self.flavour, self.folder, self.files, self.files + count)
        self.files += count

    def ask(self, do: str) -> dict[str, Any]:
        asked = {"flavour": self.flavour.name, "folder": str(self.folder), "options": self.options}
        return self.spark.ask({"do": do, "seconds": DEADLINE_SECONDS, **asked})

    def run(self) -> dict[str, Any]:
        """A whole life of a driver: it reads all there is, or dies."""
        self.alive.touch()
        try:
            return self.ask("run")
        finally:
            self.alive.unlink()

    def begin(self) -> None:
        """A driver that goes on until something ends it."""
        self.alive.touch()
        self.ask("begin")

    def end(self) -> dict[str, Any]:
        """How it ended."""
        told = self.ask("end")
        self.alive.unlink()
        return told

    def stop(self, feed: Callable[[], None] | None = None) -> dict[str, Any]:
        """End it: where its next plan would go lies an empty file, which goes with it."""
        blocked = self.checkpoint / f"offsets/{max(ids(self.folder, 'offsets')) + 1}"
        blocked.touch()
        (feed or (lambda: self.feed(1)))()
        told = self.end()
        blocked.unlink()
        return told

    def planned(self, goal: str) -> Path:
        """A plan for it that nothing stands against but its driver."""
        sinks = () if self.flavour.sink == "foreachBatch" else (str(self.folder / "sink"),)
        options = PlanOptions(goal, evidence=EvidenceOptions(sinks=sinks), spark=VERSION)
        plan = make_plan(resolve_target(str(self.checkpoint), Config(self.config)), options)
        file = self.folder / "plan.json"
        file.write_bytes(plan.accept(plan.needs).to_bytes())
        return file

    def logs(self) -> dict[str, bytes]:
        found = (each for each in self.checkpoint.rglob("*") if each.is_file())
        return {str(each.relative_to(self.checkpoint)): each.read_bytes() for each in found}

    def require_all_once(self, wanted: Counter[str] | None = None) -> None:
        told = self.ask("content")
        assert told["content"] is not None, told
        assert Counter(told["content"]) == (wanted or truth(self.flavour, self.files))


def await_(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def committed(application: Application, count: int) -> Callable[[], bool]:
    return lambda: len(ids(application.folder, "commits")) == count


@pytest.fixture
def application(spark: RunningSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Application(spark, tmp_path / "case")


def require_refused(application: Application, goal: str) -> None:
    """A repair is refused as long as the driver is alive, and changes nothing."""
    plan, before = application.planned(goal), application.logs()
    with pytest.raises(DriverNotProvenDeadError, match="driver_check does not say"):
        apply_plan(str(plan), config=Config(application.config))
    assert application.logs() == before


@pytest.mark.proof
def test_idle_driver_keeps_its_checkpoint_and_goes_on(application: Application) -> None:
    application.feed(BATCHES)
    application.begin()
    await_(committed(application, BATCHES))
    create(resolve_target(str(application.checkpoint)))
    for path in application.checkpoint.glob("*metadata*"):
        path.unlink()  # so there is something to repair
    require_refused(application, "resume")
    application.feed(NEW)
    await_(committed(application, BATCHES + NEW))
    application.require_all_once()
    assert application.stop()["ended"] == "failed"
    apply_plan(str(application.planned("resume")), config=Config(application.config))
    assert application.run()["ended"] == "finished"
    application.require_all_once()


@pytest.mark.proof
def test_driver_inside_a_batch_ten_times_longer_than_usual_keeps_its_checkpoint(application: Application) -> None:
    application.feed(1)
    application.begin()
    await_(committed(application, 1))
    began = time.monotonic()
    application.feed(BATCHES)
    await_(committed(application, 1 + BATCHES))
    usual = (time.monotonic() - began) / BATCHES
    (application.folder / "sink/hold").touch()
    application.feed(1)
    await_((application.folder / "sink/held").exists)
    longer = time.monotonic() + 10 * usual
    while time.monotonic() < longer:
        require_refused(application, "replan")
    (application.folder / "sink/hold").unlink()
    await_(committed(application, 2 + BATCHES))
    application.require_all_once()
    assert application.stop()["ended"] == "failed"
    assert application.run()["ended"] == "finished"
    application.require_all_once()


@pytest.mark.proof
@pytest.mark.services
def test_driver_without_a_broker_keeps_its_checkpoint_and_nothing_is_lost(
    spark: RunningSpark, java: Java, broker_jars: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is silent for minutes, and then dies or goes on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    application, topic = Application(spark, tmp_path / "case", "kafka"), f"orders-{uuid.uuid4().hex[:8]}"
    wanted: Counter[str] = Counter()

    def produce(broker: KafkaBroker, count: int) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for _ in range(count):
            value = str(len(wanted))
            wanted[value] += 1
            producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0

    with KafkaBroker(tmp_path / "broker", java=java, jars=broker_jars) as broker:
        broker.create_topic(topic, 1)
        produce(broker, 10)
        application.options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        application.begin()
        await_(committed(application, 1))
        create(resolve_target(str(application.checkpoint)))
        for path in application.checkpoint.glob("*metadata*"):
            path.unlink()
        broker.kill()
        for _ in range(5):
            require_refused(application, "resume")
            time.sleep(1)
        broker.start()
        produce(broker, 10)
        await_(committed(application, 2))
        assert application.stop(lambda: produce(broker, 1))["ended"] == "failed"
        apply_plan(str(application.planned("resume")), config=Config(application.config))
        assert application.run()["ended"] == "finished"
        application.require_all_once(wanted)


class Scheduler:
    """Starts an application every second, whatever became of it."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.told: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._ended.is_set():
            self.told.append(self.application.run())
            self._ended.wait(1)


def slow(location: Location) -> FaultyWriter:
    return FaultyWriter(open_writable(location), between=lambda _: time.sleep(STEP_SECONDS))


def slow_until_two_starts(scheduler: Scheduler) -> Callable[[Location], FaultyWriter]:
    """Slow, and once all is repaired and only the seal stands, as slow as the scheduler's next two starts."""

    def opened(location: Location) -> FaultyWriter:
        def between(number: int) -> None:
            time.sleep(STEP_SECONDS)
            if writer.changes[number - 1].endswith("/applied.json"):
                before = len(scheduler.told)
                await_(lambda: len(scheduler.told) > before + 1)

        writer = FaultyWriter(open_writable(location), between=between)
        return writer

    return opened


def repaired(application: Application, goal: str, scheduler: Scheduler) -> int:
    """Repair it, again and again, while the scheduler is at it; how many starts came in between."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        before = len(scheduler.told)
        with contextlib.suppress(LastgoodError):  # a driver is alive just now, or was quicker
            apply_plan(str(application.planned(goal)), config=Config(application.config))
            return len(scheduler.told) - before
        time.sleep(0.2)
    raise AssertionError("never repaired")


@pytest.mark.spark
def test_scheduler_that_starts_the_application_every_second_starts_none_before_the_repair_is_whole(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.feed(BATCHES)
    assert application.run()["ended"] == "finished"
    create(resolve_target(str(application.checkpoint)))
    newest = application.checkpoint / f"offsets/{BATCHES - 1}"
    newest.write_bytes(b"")
    newest.with_name(f".{newest.name}.crc").unlink()
    application.feed(NEW)
    scheduler = Scheduler(application)
    monkeypatch.setattr(operation, "open_writable", slow_until_two_starts(scheduler))
    with scheduler:
        await_(lambda: len(scheduler.told) > 1)
        in_between = repaired(application, "resume", scheduler)
        await_(lambda: scheduler.told[-1]["ended"] == "finished")
    failed = [told for told in scheduler.told if told["ended"] == "failed"]
    assert in_between > 1
    assert all(told["calls"]["begun"] == [] for told in failed)
    application.require_all_once()


@pytest.mark.proof
@pytest.mark.parametrize("flavour", ["files", "file-sink"])
def test_scheduler_that_runs_the_planned_batch_meanwhile_loses_and_doubles_no_row(
    flavour: str, spark: RunningSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either it is quicker, and there is nothing left to repair, or the repair is, and it starts afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(operation, "open_writable", slow)
    for round_number in range(5):
        application = Application(spark, tmp_path / f"case-{round_number}", flavour)
        application.feed(BATCHES)
        assert application.run()["ended"] == "finished"
        sealed = application.checkpoint / f"offsets/{BATCHES}"
        sealed.write_bytes(b"")  # so the first starts fail
        application.feed(NEW)
        with Scheduler(application) as scheduler:
            await_(lambda: bool(scheduler.told))
            repaired(application, "resume", scheduler)
            await_(lambda: scheduler.told[-1]["ended"] == "finished")
        application.require_all_once()
