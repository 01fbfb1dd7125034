"""CURRENT-3 in the application's own configuration: a checkpoint is left behind, and every record counted."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

import lastgood
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, make_quick_conf, submit_command, submit_env
from lastgood.process.java import Java

pytestmark = pytest.mark.proof

APP = Path(__file__).with_name("start_file_app.py")
LASTGOOD = Path(sys.executable).parent / "lastgood"
PATH = os.pathsep.join([str(Path(lastgood.__file__).parents[1]), str(Path(psutil.__file__).parents[1])])
DEADLINE_SECONDS = 500
PARTITIONS, RECORDS = 2, 30
KEY = "spark.orders.start"
POLICY = 'same_batch = 2\nbackoff = "10ms"\nvia = "app-config"'


@dataclass(frozen=True)
class Application:
    """One application that cannot go on from its checkpoint, as its pipeline is configured."""

    broker: KafkaBroker
    java: Java
    jars: Sequence[Path]
    folder: Path
    topic: str
    sink: str
    config: str
    """The file of its configuration, by its name."""
    policy: str
    told: tuple[str, ...] = ()
    """What it hands to `read_kafka`."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "chk"

    @property
    def command(self) -> list[str]:
        words = (self.broker.bootstrap, self.topic, self.checkpoint, self.folder / "out", self.sink)
        file = self.folder / self.config
        return submit_command(APP, [*map(str, words), str(file), *self.told], environment=find_default_spark(), conf={})

    @property
    def env(self) -> dict[str, str]:
        given = {**os.environ, "PYTHONPATH": PATH, "XDG_STATE_HOME": str(self.folder / "state")}
        return {**submit_env(find_default_spark(), self.java, given), "SPARK_CONF_DIR": str(self.folder / "conf")}

    def write(self) -> None:
        """The records, and all that a user configures."""
        self.broker.create_topic(self.topic, PARTITIONS)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        for number in range(PARTITIONS * RECORDS):
            producer.produce(self.topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        conf = "".join(
            f"{key} {value}\n" for key, value in make_quick_conf(find_default_spark(), self.java, self.jars).items()
        )
        (self.folder / "conf").mkdir()
        (self.folder / "conf/spark-defaults.conf").write_text(conf)
        sink = f'sink = "delta:{self.folder}/out"\n' if self.sink == "delta" else ""
        (self.folder / "lastgood.toml").write_text(
            f"[pipeline.orders]\ncommand = {json.dumps(self.command)}\ncheckpoint = '{self.checkpoint}'\n{sink}"
            f"kafka = {{ bootstrap = '{self.broker.bootstrap}' }}\ndriver_check = ['true']\n"
            f"[pipeline.orders.policy]\n{POLICY}\n{self.policy}\n"
        )

    def start(self) -> int:
        """Start it as it is, without lastgood; its exit code."""
        return self._run(self.command).returncode

    def lastgood(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        done = self._run([str(LASTGOOD), *words, "--format", "json"])
        assert done.returncode == code, done.stdout + done.stderr
        told = done.stdout
        return [json.loads(line) for line in told.splitlines()] if words[0] == "run" else [json.loads(told)]

    def kill_run_once(self, is_so: Callable[[], bool], seconds: float) -> None:
        """Have `lastgood run` and its application killed so long after something is so."""
        command = [str(LASTGOOD), "run", "orders", "--format", "json"]
        with subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=subprocess.DEVNULL) as run:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not is_so():
                assert run.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.002)
            time.sleep(seconds)
            for each in (psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()

    def plans(self) -> list[dict[str, Any]]:
        """Those of all recoveries."""
        return [
            json.loads(file.read_bytes()) for file in Path(f"{self.checkpoint}.lastgood").glob("recoveries/*/plan.json")
        ]

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )

    def rows(self) -> Counter[tuple[int, int]]:
        """Partition and offset of all that is written."""
        out = self.folder / "out"
        if self.sink == "delta":
            told = DeltaTable(out).to_pyarrow_table().to_pylist()
        else:
            told = [json.loads(line) for file in out.glob("*.json") for line in file.read_text().splitlines()]
        return Counter((row["partition"], row["offset"]) for row in told)

    def judge(self, plan: dict[str, Any]) -> None:
        """Hold what came of it against what the plan promised."""
        wanted = Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS))
        found = self.rows()
        assert not wanted - found, "records are lost"
        twice = set(found - wanted)
        priced = {
            (int(partition), offset)
            for source in plan["sources"]
            for parts in source["duplicated"].values()
            for partition, spans in parts.items()
            for first, end in spans
            for offset in range(first, end)
        }
        assert twice <= priced
        if plan["guarantee"] == "exactly_once":
            assert not twice
        else:
            assert plan["guarantee"] == "at_least_once"

    def plan_of(self, recovery: str) -> dict[str, Any]:
        file = Path(f"{self.checkpoint}.lastgood/recoveries/{recovery}/plan.json")
        told: dict[str, Any] = json.loads(file.read_bytes())
        return told


MakeApplication = Callable[..., Application]


@pytest.fixture
def application(
    broker: KafkaBroker, java: Java, spark_jars: Sequence[Path], tmp_path: Path, topic: str
) -> MakeApplication:
    def make(sink: str, config: str, policy: str, *told: str) -> Application:
        app = Application(broker, java, spark_jars, tmp_path, topic, sink, config, policy, told)
        app.write()
        return app

    return make


def test_run_goes_back_to_current_3_by_the_configuration_where_no_sink_tells(application: MakeApplication) -> None:
    policy = "start_file = 'start.json'\ntakes_any_number = true\naccept = ['duplicates']"
    app = application("json", "start.json", policy)
    events = app.lastgood("run", "orders", "--first-start")
    repaired = [event for event in events if event.get("event") == "repaired"]
    assert [event["goal"] for event in repaired] == ["replan", "fresh"]
    plan = app.plan_of(repaired[-1]["recovery"])
    assert plan["guarantee"] == "at_least_once"
    starts = json.loads((app.folder / "start.json").read_text())
    assert starts == {app.topic: {"0": 10, "1": 10}}
    promised = [event for event in events if event.get("event") == "promised"][-1]
    assert (promised["batch"], promised["state"]) != (0, "broken")
    app.judge(plan)


def test_run_begins_where_the_sink_ends_by_a_line_of_spark_defaults(application: MakeApplication) -> None:
    policy = f"start_file = 'conf/spark-defaults.conf'\nstart_form = 'spark-defaults'\nstart_key = '{KEY}'"
    app = application("delta", "conf/spark-defaults.conf", policy, f"start_key={KEY}")
    events = app.lastgood("run", "orders")
    repaired = [event for event in events if event.get("event") == "repaired"]
    assert repaired[-1]["goal"] == "fresh"
    assert {event["guarantee"] for event in repaired} == {"exactly_once"}
    promised = [event for event in events if event.get("event") == "promised"][-1]
    assert (promised["batch"], promised["state"]) == (0, "kept"), promised
    app.judge(app.plan_of(repaired[-1]["recovery"]))


def test_scheduler_recovers_and_a_person_leaves_the_checkpoint_behind(application: MakeApplication) -> None:
    policy = "start_file = 'app.properties'\nstart_form = 'properties'\nstart_key = 'orders.start'"
    app = application("delta", "app.properties", policy, "starting_offsets=app.properties", "start_key=orders.start")
    (app.folder / "app.properties").write_text("mine = 1\n")
    for _ in range(2):  # as cron does
        (told,) = app.lastgood("recover", "orders")
        assert told["decision"] == "start"
        assert app.start() != 0
    app.lastgood("backup", "create", "orders")
    (plan,) = app.lastgood("plan", "orders", "--goal", "fresh", "--via", "app-config", "-o", "plan.json")
    assert plan["guarantee"] == "exactly_once"
    app.lastgood("apply", "plan.json")
    assert (app.folder / "app.properties").read_text().startswith("mine = 1\norders.start={")
    (status,) = app.lastgood("status", "orders")
    assert (status["grade"], status["left_behind"]["recovery"]) == ("empty", plan["recovery"])
    (told,) = app.lastgood(*shlex.split(status["next"])[1:])
    assert (told["decision"], told["guarantee"], told["warning"]) == ("start", "exactly_once", None)
    assert app.start() == 0
    app.judge(plan)
    (told,) = app.lastgood("recover", "orders")
    assert (told["decision"], told["options"].get("left_by")) == ("start", None)


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_run_that_is_killed_between_repair_and_start_is_gone_on_with(
    seconds: float, application: MakeApplication
) -> None:
    """So long after the application's configuration was written; with a mirror, and with the sink named."""
    app = application("delta", "start.json", "start_file = 'start.json'")
    assert app.start() != 0
    app.lastgood("backup", "create", "orders")
    app.kill_run_once((app.folder / "start.json").exists, seconds)
    app.lastgood("run", "orders")
    (plan,) = [plan for plan in app.plans() if plan["goal"] == "fresh"]
    assert plan["guarantee"] == "exactly_once"
    app.judge(plan)
