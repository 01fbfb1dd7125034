"""`examples/schedulers/airflow/orders.py`, run by real Airflows, each in a virtual environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from schedulers import LASTGOOD, SCHEDULERS, Machine

from lastgood.lab.cache import hold_exclusively, locate_cache

VERSIONS = ("2.11.2", "3.3.2")
RETRIES = 2
COUNTING = """#!/bin/sh
echo "$@" >>{folder}/asked
exec {lastgood} "$@"
"""


@pytest.fixture(scope="module", params=VERSIONS)
def airflow(request: pytest.FixtureRequest) -> Path:
    """The program; its environment is made once, and kept in the cache."""
    folder = locate_cache(None, os.environ) / f"airflow-{request.param}"
    done = folder / "done"
    with hold_exclusively(folder.with_name(f"{folder.name}.lock"), on_wait=lambda: None):
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [folder / "bin/python", "-I", "-m", "pip", "install", "--quiet", "--no-input"]
            subprocess.run([*pip, f"apache-airflow=={request.param}"], check=True)
            done.touch()
    return folder / "bin/airflow"


class Dag:
    """The example on this machine, with shorter pauses, and what its lastgood was asked."""

    def __init__(self, airflow: Path, machine: Machine) -> None:
        self.airflow = airflow
        self.machine = machine
        (machine.bin / "lastgood").unlink()
        machine.program("lastgood", COUNTING.replace("{lastgood}", str(LASTGOOD)))
        home = machine.folder / "airflow"
        text = (SCHEDULERS / "airflow/orders.py").read_text()
        short = {"/opt/orders": str(machine.folder), "minutes=1)": "seconds=1)", "retries=60": f"retries={RETRIES}"}
        for long, instead in short.items():
            assert text.count(long) == 1
            text = text.replace(long, instead)
        (home / "dags").mkdir(parents=True)
        (home / "dags/orders.py").write_text(text)
        switches = {"AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False"}
        self.env = {**machine.env, "AIRFLOW_HOME": str(home), **switches}
        self.run("db", "migrate")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.airflow, *words], env=self.env, capture_output=True, text=True)

    def runs_to_the_end(self) -> bool:
        """Whether one run of the DAG succeeds."""
        return self.run("dags", "test", "orders", "2026-01-01").returncode == 0

    @property
    def asked(self) -> int:
        """How often `recover` was run."""
        return len((self.machine.folder / "asked").read_text().splitlines())


@pytest.fixture
def dag(airflow: Path, tmp_path: Path) -> Dag:
    machine = Machine(tmp_path / "machine")
    machine.end(0)
    return Dag(airflow, machine)


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_application_runs_after_recover(dag: Dag) -> None:
    assert dag.runs_to_the_end()
    assert (dag.asked, len(dag.machine.started)) == (1, 1)


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_need_of_a_person_is_not_tried_again_and_somebody_at_work_is(dag: Dag) -> None:
    with dag.machine.somebody_at_work():
        assert not dag.runs_to_the_end()
        assert dag.asked == 1 + RETRIES
    dag.machine.configure("false")
    assert not dag.runs_to_the_end()
    assert dag.asked == 1 + RETRIES + 1
    assert dag.machine.started == []


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_application_that_fails_is_not_started_again_without_recover(dag: Dag) -> None:
    dag.machine.end(1)
    assert not dag.runs_to_the_end()
    assert (dag.asked, len(dag.machine.started)) == (1, 1)
