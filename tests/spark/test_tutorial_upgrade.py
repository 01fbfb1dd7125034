"""`docs/tutorials/upgrade.md`, played as it stands: its change of the code, and its commands."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import typed
from deltalake import DeltaTable

from lastgood.lab.examples import locate_flights
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, submit
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


def test_every_window_is_there_once_and_open_ones_come_from_the_new_code(
    broker: KafkaBroker,
    java: Java,
    spark_jars: tuple[Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    topic = "upgraded"
    broker.create_topic(topic, partitions=3)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def send(first: int, count: int) -> None:
        words = ["--bootstrap-servers", broker.bootstrap, "--topic", topic, "--rate", "0"]
        words += ["--start", str(first), "--limit", str(count)]
        subprocess.run([sys.executable, locate_flights() / "produce.py", *words], check=True, capture_output=True)

    def start(script: Path) -> bool:
        arguments = ["--bootstrap-servers", broker.bootstrap, "--topic", topic, "--table", str(table)]
        arguments += ["--checkpoint", str(checkpoint), "--available-now", "--watermark", "1 day"]
        with (tmp_path / "driver.log").open("wb") as output:
            child = submit(
                script, arguments, environment=find_default_spark(), java=java, jars=spark_jars, output=output
            )
        ending = child.wait(DEADLINE_SECONDS)
        assert ending is not None
        return ending.is_success

    def type_command(line: str) -> str:
        line = line.replace("/tmp/delays", str(tmp_path)).replace("localhost:9092", broker.bootstrap)
        done = typed.call(*shlex.split(line)[1:])
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout

    status, diagnose, plan, apply, verify = list_commands()
    send(1, FLIGHTS)
    assert start(locate_flights() / APPLICATION)
    old = len(_windows(table))
    assert "healthy" in type_command(status)

    send(FLIGHTS + 1, FLIGHTS)
    changed = tmp_path / "new.py"
    changed.write_text(change((locate_flights() / APPLICATION).read_text()))
    assert not start(changed)
    assert re.search(r"next +lastgood plan \S+ --goal recompute", type_command(diagnose))
    assert "exactly once" in type_command(plan)
    type_command(apply)
    assert start(changed)
    assert "has filled an emptied state" in type_command(verify)

    windows = _windows(table)
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
