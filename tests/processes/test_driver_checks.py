"""`examples/driver_checks`: exit code 0 means that a driver is dead, and nothing else ever leads to it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from answering import SENSELESS
from schedulers import ALIVE, DEAD, DRIVER_CHECKS, SCHEDULERS, UNKNOWN, await_, driver_check, run_driver_check

from lastgood.recovery.driver_death import DriverNotProvenDeadError, prove_driver_dead
from lastgood.settings.config import Config

SCRIPTS = sorted(DRIVER_CHECKS.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_is_a_program_that_says_how_it_is_called(script: Path) -> None:
    done = subprocess.run([script, "--help"], capture_output=True, text=True)
    assert "Exit code 0" in done.stdout
    assert subprocess.run([script], capture_output=True).returncode == UNKNOWN


@pytest.mark.parametrize("config", sorted(SCHEDULERS.glob("*/lastgood.toml")), ids=lambda path: path.parent.name)
def test_examples_name_a_script_that_there_is(config: Path) -> None:
    for pipeline in Config(config).pipelines().values():
        assert (DRIVER_CHECKS / Path(pipeline.driver_check[0]).name).exists()


def test_lastgood_shows_why_it_has_no_proof() -> None:
    check = [str(DRIVER_CHECKS / "local_process.py"), Path(sys.executable).name]
    with pytest.raises(DriverNotProvenDeadError) as refused:
        prove_driver_dead("/chk", told=False, check=check)
    assert "is alive" in str(refused.value.found)


# A process


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts one, whose command line has the path of this test."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        code = "import sys, time; print(flush=True); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "orders.py")], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        started.append(process)
        return process

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_process_is_dead_once_it_has_ended_also_if_nobody_has_asked_how(
    driver: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    words = (Path(sys.executable).name, f"{tmp_path}/orders.py")
    assert run_driver_check("local_process.py", *words)[0] == DEAD
    process = driver()
    code, why = run_driver_check("local_process.py", *words)
    assert (code, f"process {process.pid} is alive" in why) == (ALIVE, True)
    assert run_driver_check("local_process.py", *words, "another word")[0] == DEAD
    process.kill()
    await_(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert run_driver_check("local_process.py", *words)[0] == DEAD


def test_what_asks_for_the_process_is_not_the_process(tmp_path: Path) -> None:
    check = shlex.join([str(DRIVER_CHECKS / "local_process.py"), f"{tmp_path}/orders.py"])
    assert subprocess.run(["sh", "-c", f"{check}; exit $?"], stdout=subprocess.DEVNULL).returncode == DEAD


def test_hidden_processes_are_not_taken_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = driver_check("local_process")
    own = tmp_path / "proc/4711"
    own.mkdir(parents=True)
    (own / "cmdline").write_bytes(b"python\0")
    (own / "stat").write_text("4711 (py) thon) S 0 4711")
    with pytest.raises(FileNotFoundError):
        script.check(["orders.py"], tmp_path / "proc", 4711)
    init = tmp_path / "proc/1"
    init.mkdir()
    (init / "cmdline").write_bytes(b"")
    with pytest.raises(PermissionError):
        script.check(["orders.py"], tmp_path / "proc", 4711)
    (init / "cmdline").write_bytes(b"init\0")
    assert script.check(["orders.py"], tmp_path / "proc", 4711)[0] == DEAD
    monkeypatch.setattr(script, "check", lambda _: (_ for _ in ()).throw(PermissionError("hidden")))
    monkeypatch.setattr(sys, "argv", ["local_process.py", "orders.py"])
    assert script.main() == UNKNOWN


# Kubernetes


def kubernetes_pod(phase: str, name: str = "orders-1", state: str = "terminated", **metadata: str) -> dict[str, Any]:
    """As Kubernetes writes one."""
    statuses = [] if phase == "Pending" else [{"name": "run", "state": {state: {}}}]
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": "node1"},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


@dataclass
class Kubectl:
    """A program of that name, which answers as it is told and writes down what it was asked."""

    folder: Path

    def __call__(self, *pods: dict[str, Any], own: str | None = None, more: tuple[str, ...] = ()) -> int:
        self.says(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
        return self.ask(own=own, more=more)

    def says(self, answer: str, code: int = 0) -> None:
        (self.folder / "answer").write_text(answer)
        text = f'#!/bin/sh\necho "$@" >{self.folder}/asked\ncat {self.folder}/answer\nexit {code}\n'
        (self.folder / "kubectl").write_text(text)
        (self.folder / "kubectl").chmod(0o755)

    def ask(self, *, own: str | None = None, more: tuple[str, ...] = ()) -> int:
        env = {"PATH": f"{self.folder}:/usr/bin:/bin", **({} if own is None else {"POD_NAME": own})}
        command = [sys.executable, str(DRIVER_CHECKS / "kubernetes_pod.py"), "--selector", "app=orders", *more]
        return subprocess.run(command, capture_output=True, env=env).returncode

    @property
    def asked(self) -> str:
        return (self.folder / "asked").read_text().strip()


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "SomethingNew"])
def test_pod_that_has_not_ended_is_alive(kubectl: Kubectl, phase: str) -> None:
    assert kubectl(kubernetes_pod("Failed", "orders-0"), kubernetes_pod(phase, state="running")) == ALIVE


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_whose_containers_have_ended_is_dead(kubectl: Kubectl, phase: str) -> None:
    assert kubectl(kubernetes_pod(phase)) == DEAD
    assert kubectl.asked == "get pods --selector app=orders --output json --request-timeout 20s"


def test_pod_of_a_lost_node_is_not_proven_dead(kubectl: Kubectl) -> None:
    leaving = kubernetes_pod("Running", state="running", deletionTimestamp="2026-11-21T16:05:00Z")
    given_up = kubernetes_pod("Failed", state="running")
    assert kubectl(leaving) == kubectl(given_up) == ALIVE


def test_container_that_never_began_is_dead_with_its_pod(kubectl: Kubectl) -> None:
    rejected = kubernetes_pod("Failed")
    rejected["status"]["containerStatuses"] = None
    assert kubectl(rejected, kubernetes_pod("Failed", "orders-2", state="waiting")) == DEAD


def test_no_pod_at_all_proves_nothing_unless_it_is_said_to(kubectl: Kubectl) -> None:
    assert kubectl() == UNKNOWN
    assert kubectl(own="orders-1") == UNKNOWN
    assert kubectl(more=("--none-is-dead",)) == DEAD


def test_pod_that_asks_shows_that_the_selector_is_right_and_is_not_the_driver(kubectl: Kubectl) -> None:
    own = kubernetes_pod("Pending", "orders-2")
    assert kubectl(own) == ALIVE
    assert kubectl(own, own="orders-2") == DEAD
    assert kubectl(own, kubernetes_pod("Failed"), own="orders-2") == DEAD
    assert kubectl(own, kubernetes_pod("Running", state="running"), own="orders-2") == ALIVE


@pytest.mark.parametrize("content", [each.decode() for each in SENSELESS])
def test_senseless_answer_of_kubectl_proves_nothing(kubectl: Kubectl, content: str) -> None:
    kubectl.says(content)
    assert kubectl.ask(more=("--none-is-dead",)) == UNKNOWN


@pytest.mark.parametrize("items", [7, {"a": 1}, [7], [{}], [{"metadata": {"name": "orders-1"}}]])
def test_list_of_something_else_than_pods_proves_nothing(kubectl: Kubectl, items: object) -> None:
    kubectl.says(json.dumps({"items": items}))
    assert kubectl.ask() == UNKNOWN


def test_kubectl_that_fails_proves_nothing_whatever_it_printed(kubectl: Kubectl) -> None:
    kubectl.says(json.dumps({"items": [kubernetes_pod("Failed")]}), code=1)
    assert kubectl.ask() == UNKNOWN
    (kubectl.folder / "kubectl").unlink()
    assert kubectl.ask(more=("--kubectl", str(kubectl.folder / "kubectl"))) == UNKNOWN


def test_kubectl_that_does_not_answer_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = driver_check("kubernetes_pod")
    monkeypatch.setattr(script, "SECONDS", 0.2)
    slow = shlex.join([sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(sys, "argv", ["kubernetes_pod.py", "--selector", "app=orders", "--kubectl", slow])
    assert script.main() == UNKNOWN


def test_namespace_and_context_reach_kubectl(kubectl: Kubectl) -> None:
    more = ("--namespace", "streaming", "--kubectl", f"{kubectl.folder}/kubectl --context prod")
    assert kubectl(kubernetes_pod("Failed"), more=more) == DEAD
    words = "--context prod get pods --selector app=orders --namespace streaming --output json --request-timeout 20s"
    assert kubectl.asked == words
