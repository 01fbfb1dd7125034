"""A driver in cluster deploy mode: what started it has ended long ago, and it is alive."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from schedulers import ALIVE, DRIVER_CHECKS, UNKNOWN
from standalone import DEADLINE_SECONDS, Cluster, await_

from lastgood.lab.spark import SMALL_CONF, find_default_spark
from lastgood.operations.backup import create
from lastgood.process.child import Child
from lastgood.process.java import Java
from lastgood.recovery.applying import apply_plan
from lastgood.recovery.driver_death import DriverNotProvenDeadError
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target

APP = Path(__file__).with_name("cluster_app.py")
BATCHES = 3
ROWS = 10
RUNNER = "org.apache.spark.deploy.PythonRunner"


class DriverCluster(Cluster):
    """One that has drivers."""

    @property
    def check(self) -> list[str]:
        """Whether the driver is dead, as the example asks."""
        return [sys.executable, str(DRIVER_CHECKS / "spark_standalone.py"), "--main-class", RUNNER, self.url]

    def deploy(self, folder: Path) -> None:
        """Submit the application, and see the command end at once."""
        small = {"spark.driver.memory": "600m", "spark.executor.memory": "500m", "spark.cores.max": "1"}
        conf = {**SMALL_CONF, **small, "spark.master": self.master}
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        jar = next((self.spark.home / "jars").glob("spark-launcher_*.jar"))
        runner = ["--deploy-mode", "cluster", "--class", RUNNER, f"file://{jar}"]
        command = [str(self.spark.home / "bin/spark-submit"), *settings, *runner, str(APP), "", str(folder)]
        with (self.folder / "submit.log").open("ab") as log, Child(command, env=self.env, output=log) as submitted:
            ending = submitted.wait(DEADLINE_SECONDS)
            assert ending is not None
            assert ending.is_success

    def driver(self) -> psutil.Process:
        """The process of the driver: the worker has it, not we."""
        for each in self.workers[0].processes():
            with suppress(psutil.NoSuchProcess):  # a child of the driver, which comes and goes
                if "DriverWrapper" in " ".join(each.cmdline()):
                    return each
        raise AssertionError("the worker has no driver")


@pytest.fixture
def cluster(tmp_path: Path, java: Java) -> Iterator[DriverCluster]:
    with DriverCluster(tmp_path / "cluster", find_default_spark(), java) as running:
        yield running


def feed(folder: Path, first: int, last: int) -> None:
    (folder / "input").mkdir(exist_ok=True)
    for number in range(first, last):
        rows = [json.dumps({"id": number * ROWS + n}) for n in range(ROWS)]
        draft = folder / f"draft-{number}"
        draft.write_text("\n".join(rows))
        draft.rename(folder / f"input/f{number:03d}.json")


def shown(folder: Path) -> Counter[int]:
    """The rows that readers of the sink see."""
    logs = sorted((folder / "sink/_spark_metadata").glob("[0-9]*"))
    files = {json.loads(line)["path"] for log in logs for line in log.read_text().splitlines()[1:]}
    return Counter(row for file in files for row in pq.read_table(file.removeprefix("file://"))["id"].to_pylist())


def logs(checkpoint: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in checkpoint.rglob("*") if each.is_file()}


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_driver_in_a_cluster_keeps_its_checkpoint_until_the_cluster_says_that_it_is_dead(
    cluster: DriverCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "orders"
    checkpoint, config, file = folder / "checkpoint", tmp_path / "lastgood.toml", tmp_path / "plan.json"
    folder.mkdir()
    check = json.dumps(cluster.check)
    config.write_text(f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\ndriver_check = {check}\n')
    feed(folder, 0, BATCHES)
    cluster.deploy(folder)
    await_((checkpoint / f"commits/.{BATCHES - 1}.crc").exists)  # Hadoop writes it last
    create(resolve_target(str(checkpoint)))
    for path in checkpoint.glob("*metadata*"):
        path.unlink()  # so there is something to repair
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions(spark="4.2.0"))
    file.write_bytes(plan.accept(plan.needs).to_bytes())
    before = logs(checkpoint)
    with pytest.raises(DriverNotProvenDeadError):
        apply_plan(str(file), config=Config(config))
    assert logs(checkpoint) == before
    feed(folder, BATCHES, 2 * BATCHES)
    await_((checkpoint / f"offsets/{BATCHES}").exists)
    cluster.driver().send_signal(signal.SIGKILL)
    await_(lambda: not cluster.state()["activedrivers"])
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions(spark="4.2.0"))
    file.write_bytes(plan.accept(plan.needs).to_bytes())
    apply_plan(str(file), config=Config(config))
    cluster.deploy(folder)
    await_((checkpoint / f"commits/{2 * BATCHES - 1}").exists)
    assert shown(folder) == Counter(range(2 * BATCHES * ROWS))
    assert subprocess.run(cluster.check).returncode == ALIVE
    cluster.workers[0].kill()  # nobody is left who could see the driver end
    await_(lambda: not cluster.state()["activedrivers"])
    assert subprocess.run(cluster.check).returncode == UNKNOWN
