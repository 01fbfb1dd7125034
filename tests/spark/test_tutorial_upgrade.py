"""`docs/tutorials/upgrade.md`, played as it stands: its change of the code, and its commands."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lastgood.lab.examples import locate_flights
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, make_small_conf, submit, submit_command, submit_env
from lastgood.process.java import Java

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.proof]

PAGE = Path(__file__).parents[2] / "docs/tutorials/upgrade.md"
APPLICATION = "delays_by_airport.py"
DEADLINE_SECONDS = 240
FLIGHTS = 12_000


def change(code: str) -> str:
    """What the page says: each new line follows the one that stands above it."""
    (diff,) = re.findall(r"```diff\n(.*?)```", PAGE.read_text(), re.DOTALL)
    before = ""
    for line in diff.splitlines():
        if line.startswith("+"):
            assert code.count(f"{before}\n") == 1, before
            code = code.replace(f"{before}\n", f"{before}\n{line[1:]}\n")
        before = line[1:]
    return code


def list_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@dataclass(frozen=True)
class Upgrade:
    """The application of the page on a topic of its own."""

    folder: Path
    topic: str
    broker: KafkaBroker
    java: Java
    jars: tuple[Path, ...]

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def source(self) -> list[str]:
        return ["--bootstrap-servers", self.broker.bootstrap, "--topic", self.topic]

    @property
    def arguments(self) -> list[str]:
        words = ["--table", str(self.table), "--checkpoint", str(self.folder / "checkpoint")]
        return [*self.source, *words, "--available-now", "--watermark", "1 day"]

    def send(self, first: int) -> None:
        words = [*self.source, "--rate", "0", "--start", str(first), "--limit", str(FLIGHTS)]
        subprocess.run([sys.executable, locate_flights() / "produce.py", *words], check=True, capture_output=True)

    def start(self, script: Path) -> bool:
        spark = find_default_spark()
        with (self.folder / "driver.log").open("wb") as output:
            child = submit(script, self.arguments, environment=spark, java=self.java, jars=self.jars, output=output)
        ending = child.wait(DEADLINE_SECONDS)
        assert ending is not None
        return ending.is_success

    def type_command(self, line: str) -> str:
        line = line.replace("/tmp/delays", str(self.folder)).replace("localhost:9092", self.broker.bootstrap)
        words = [str(Path(sys.executable).with_name("lastgood")), *shlex.split(line)[1:]]
        env = submit_env(find_default_spark(), self.java, os.environ)
        done = subprocess.run(
            words, env=env, cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout

    def type_run(self, line: str, script: Path) -> str:
        """The same of `run`, whose command has more words here."""
        spark = find_default_spark()
        command = submit_command(script, self.arguments, environment=spark, conf=make_small_conf(self.jars))
        return self.type_command(f"{line.partition(' -- ')[0]} -- {shlex.join(command)}")


@pytest.mark.parametrize("way", ["by-hand", "by-run"])
def test_every_window_is_there_once_and_open_ones_come_from_the_new_code(
    way: str,
    broker: KafkaBroker,
    java: Java,
    spark_jars: tuple[Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    upgrade = Upgrade(tmp_path, f"upgraded-{way}", broker, java, spark_jars)
    broker.create_topic(upgrade.topic, partitions=3)
    status, diagnose, plan, apply, verify, run = list_commands()
    upgrade.send(1)
    assert upgrade.start(locate_flights() / APPLICATION)
    old = len(_windows(upgrade.table))
    assert "healthy" in upgrade.type_command(status)

    upgrade.send(FLIGHTS + 1)
    changed = tmp_path / "new.py"
    changed.write_text(change((locate_flights() / APPLICATION).read_text()))
    if way == "by-hand":
        assert not upgrade.start(changed)
        assert re.search(r"next +lastgood plan \S+ --goal recompute", upgrade.type_command(diagnose))
        assert "exactly once" in upgrade.type_command(plan)
        upgrade.type_command(apply)
        assert upgrade.start(changed)
    else:
        assert "recompute: exactly once" in upgrade.type_run(run, changed)
    assert "has filled an emptied state" in upgrade.type_command(verify)

    windows = _windows(upgrade.table)
    assert len({(row["origin"], row["window_start"]) for row in windows}) == len(windows) > old > 0
    assert sum(row["dep_delay_min"] is None for row in windows) == old
    sent = _count_by_window(2 * FLIGHTS)
    assert all(row["flights"] == sent[row["origin"], row["window_start"].date().isoformat()] for row in windows)


def _windows(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


def _count_by_window(flights: int) -> Counter[tuple[str, str]]:
    """Airport and day in UTC, of so many of the first flights."""
    spec = importlib.util.spec_from_file_location("produce", locate_flights() / "produce.py")
    assert spec is not None
    assert spec.loader is not None
    produce = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(produce)
    return Counter((each["origin"], each["event_time"][:10]) for each in islice(produce.flights(), flights))
