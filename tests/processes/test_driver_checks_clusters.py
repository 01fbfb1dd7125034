"""`examples/driver_checks` for a standalone cluster and for YARN, by what their managers may answer.

A real standalone cluster is asked in `tests/repair/test_cluster.py`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from answering import REFUSALS, SENSELESS, Answer, Server, body, falling_silent
from schedulers import ALIVE, DEAD, UNKNOWN, driver_check, run_driver_check

from lastgood.lab.ports import LOOPBACK, find_free_port


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as running:
        yield running


# A standalone cluster

MASTER = "/json/"
CLASS = "com.example.Orders"


def spark_driver(state: str, number: int = 0, main_class: str = CLASS) -> dict[str, Any]:
    """As Spark's `JsonProtocol` writes one."""
    return {
        "id": f"driver-20261121160058-{number:04d}",
        "starttime": "1795220516284",
        "state": state,
        "cores": 1,
        "memory": 1024,
        "submitdate": "Sat Nov 21 16:00:58 UTC 2026",
        "worker": "worker-20261121155900-127.0.0.1-7078",
        "mainclass": main_class,
    }


def master(*active: dict[str, Any], completed: tuple[dict[str, Any], ...] = (), status: str = "ALIVE") -> Answer:
    return body({"url": "spark://m:7077", "activedrivers": active, "completeddrivers": completed, "status": status})


def ask_masters(*urls: str, dead: tuple[str, ...] = ()) -> int:
    known = [word for each in dead for word in ("--known-dead", each)]
    return run_driver_check("spark_standalone.py", "--main-class", CLASS, *known, *urls)[0]


@pytest.mark.parametrize("state", ["SUBMITTED", "RUNNING", "RELAUNCHING", "UNKNOWN"])
def test_driver_that_the_master_has_is_alive(server: Server, state: str) -> None:
    server.answers[MASTER] = master(spark_driver(state, 1), completed=(spark_driver("FAILED"),))
    assert ask_masters(server.url) == ALIVE


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED"])
def test_driver_whose_end_its_worker_saw_is_dead(server: Server, state: str) -> None:
    other = spark_driver("RUNNING", 7, "com.example.Other")
    server.answers[MASTER] = master(other, completed=(spark_driver(state),))
    assert ask_masters(server.url) == DEAD


def test_driver_on_a_lost_worker_is_dead_when_a_person_says_so(server: Server) -> None:
    server.answers[MASTER] = master(completed=(spark_driver("ERROR"), spark_driver("FAILED", 1)))
    assert ask_masters(server.url) == UNKNOWN
    assert ask_masters(server.url, dead=("driver-20261121160058-0000",)) == DEAD


def test_master_that_knows_no_such_driver_proves_nothing(server: Server) -> None:
    server.answers[MASTER] = master(completed=(spark_driver("FAILED", 0, "com.example.Other"),))
    assert ask_masters(server.url) == UNKNOWN


@pytest.mark.parametrize("status", ["STANDBY", "RECOVERING", "COMPLETING_RECOVERY"])
def test_master_that_is_not_in_charge_proves_nothing(server: Server, status: str) -> None:
    server.answers[MASTER] = master(completed=(spark_driver("FAILED"),), status=status)
    assert ask_masters(server.url) == UNKNOWN


def test_one_master_in_charge_is_enough_and_two_are_none(server: Server) -> None:
    server.answers[MASTER] = master(completed=(spark_driver("FAILED"),))
    with closing(Server({MASTER: master(status="STANDBY")})) as other:
        assert ask_masters(other.url, f"http://{LOOPBACK}:{find_free_port()}", server.url) == DEAD
        other.answers[MASTER] = master(completed=(spark_driver("FAILED"),))
        assert ask_masters(other.url, server.url) == UNKNOWN


@pytest.mark.parametrize("content", SENSELESS)
def test_senseless_answer_of_a_master_proves_nothing(server: Server, content: bytes) -> None:
    server.answers[MASTER] = (200, content)
    assert ask_masters(server.url) == UNKNOWN


@pytest.mark.parametrize("status", REFUSALS)
def test_refusal_of_a_master_proves_nothing(server: Server, status: int) -> None:
    server.answers[MASTER] = (status, master(completed=(spark_driver("FAILED"),))[1])
    assert ask_masters(server.url) == UNKNOWN


def test_half_an_answer_of_a_master_proves_nothing(server: Server) -> None:
    server.answers[MASTER] = master(completed=(spark_driver("FAILED"),))
    server.cuts = True
    assert ask_masters(server.url) == UNKNOWN


def test_master_that_does_not_answer_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    script = driver_check("spark_standalone")
    monkeypatch.setattr(script, "SECONDS", 0.2)
    with falling_silent() as silent:
        monkeypatch.setattr(sys, "argv", ["spark_standalone.py", "--main-class", CLASS, silent])
        assert script.main() == UNKNOWN


# YARN

APPS = "/ws/v1/cluster/apps?applicationTags=orders"
APPLICATION = "application_1795220516284_0001"
NODE = "node1:45454"


def application(state: str, number: int = 1, tags: str = "orders") -> dict[str, Any]:
    """As the resource manager writes one."""
    return {
        "id": f"application_1795220516284_{number:04d}",
        "user": "spark",
        "name": "orders",
        "queue": "default",
        "state": state,
        "finalStatus": "UNDEFINED",
        "applicationType": "SPARK",
        "applicationTags": tags,
    }


def yarn(*apps: dict[str, Any], attempts: tuple[str, ...] = (NODE,), node: str = "RUNNING") -> dict[str, Answer]:
    """All that is asked of a resource manager."""
    tried = [{"id": number, "nodeId": each} for number, each in enumerate(attempts, 1)]
    return {
        APPS: body({"apps": {"app": apps}}),
        f"/ws/v1/cluster/apps/{APPLICATION}/appattempts": body({"appAttempts": {"appAttempt": tried}}),
        "/ws/v1/cluster/nodes": body({"nodes": {"node": [{"id": NODE, "state": node}]}}),
    }


def ask_yarn(*urls: str, more: tuple[str, ...] = ()) -> int:
    return run_driver_check("yarn_application.py", "--tag", "orders", *more, *urls)[0]


@pytest.mark.parametrize("state", ["NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING", "SOMETHING_NEW"])
def test_application_that_has_not_ended_is_alive(server: Server, state: str) -> None:
    server.answers = yarn(application("FINISHED"), application(state, 2))
    assert ask_yarn(server.url) == ALIVE


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED"])
def test_application_that_has_ended_on_a_node_that_reports_is_dead(server: Server, state: str) -> None:
    server.answers = yarn(application(state))
    assert ask_yarn(server.url) == DEAD


@pytest.mark.parametrize("node", ["LOST", "SHUTDOWN", "REBOOTED", "DECOMMISSIONED"])
@pytest.mark.parametrize("state", ["FAILED", "KILLED"])
def test_application_on_a_lost_node_is_dead_when_a_person_says_so(server: Server, state: str, node: str) -> None:
    server.answers = yarn(application(state), node=node)
    assert ask_yarn(server.url) == UNKNOWN
    assert ask_yarn(server.url, more=("--known-dead", APPLICATION)) == DEAD


def test_application_on_a_node_that_yarn_has_forgotten_is_not_proven_dead(server: Server) -> None:
    server.answers = yarn(application("FAILED"), attempts=(NODE, "node2:45454"))
    assert ask_yarn(server.url) == UNKNOWN


def test_application_that_was_killed_before_its_driver_had_a_node_is_dead(server: Server) -> None:
    server.answers = yarn(application("KILLED"), attempts=("",))
    assert ask_yarn(server.url) == DEAD
    server.answers[f"/ws/v1/cluster/apps/{APPLICATION}/appattempts"] = body({"appAttempts": None})
    assert ask_yarn(server.url) == DEAD


def test_application_that_finished_by_itself_may_have_had_any_node(server: Server) -> None:
    server.answers = yarn(application("FINISHED"), node="LOST")
    assert ask_yarn(server.url) == DEAD


@pytest.mark.parametrize("apps", [None, {}, {"app": []}, {"app": [application("FAILED", tags="orders-2,other")]}])
def test_tag_that_yarn_does_not_know_proves_nothing(server: Server, apps: object) -> None:
    server.answers = {**yarn(), APPS: body({"apps": apps})}
    assert ask_yarn(server.url) == UNKNOWN


def test_tag_is_found_as_yarn_writes_it(server: Server) -> None:
    server.answers = yarn(application("FINISHED", tags="nightly,orders"))
    server.answers["/ws/v1/cluster/apps?applicationTags=Orders"] = server.answers[APPS]
    assert run_driver_check("yarn_application.py", "--tag", "Orders", server.url)[0] == DEAD


def test_resource_manager_that_stands_by_sends_on_to_the_one_in_charge(server: Server) -> None:
    server.answers = yarn(application("RUNNING"))
    there = {APPS: (307, f"{server.url}{APPS}".encode())}
    with closing(Server(there)) as standby:
        assert ask_yarn(standby.url) == ALIVE
    assert ask_yarn(f"http://{LOOPBACK}:{find_free_port()}", server.url) == ALIVE


@pytest.mark.parametrize("content", SENSELESS)
@pytest.mark.parametrize("path", list(yarn()))
def test_senseless_answer_of_yarn_proves_nothing(server: Server, path: str, content: bytes) -> None:
    server.answers = {**yarn(application("FAILED")), path: (200, content)}
    assert ask_yarn(server.url) == UNKNOWN


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("path", list(yarn()))
def test_refusal_of_yarn_proves_nothing(server: Server, path: str, status: int) -> None:
    server.answers = yarn(application("FAILED"))
    server.answers[path] = (status, server.answers[path][1])
    assert ask_yarn(server.url) == UNKNOWN


def test_half_an_answer_of_yarn_proves_nothing(server: Server) -> None:
    server.answers = yarn(application("FINISHED"))
    server.cuts = True
    assert ask_yarn(server.url) == UNKNOWN


def test_resource_manager_that_does_not_answer_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    script = driver_check("yarn_application")
    monkeypatch.setattr(script, "SECONDS", 0.2)
    slow = shlex.join([sys.executable, "-c", "import time; time.sleep(60)"])
    with falling_silent() as silent:
        for more in ([], ["--fetch", slow]):
            monkeypatch.setattr(sys, "argv", ["yarn_application.py", "--tag", "orders", *more, silent])
            assert script.main() == UNKNOWN


def test_command_that_fetches_is_believed_only_where_it_succeeds(server: Server, tmp_path: Path) -> None:
    server.answers = yarn(application("FAILED"))
    fetch = tmp_path / "fetch.py"
    code = "import sys, urllib.request\nsys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())\n"
    command = ("--fetch", shlex.join([sys.executable, str(fetch)]))
    fetch.write_text(code)
    assert ask_yarn(server.url, more=command) == DEAD
    fetch.write_text(f"{code}sys.exit(22)\n")
    assert ask_yarn(server.url, more=command) == UNKNOWN
    assert ask_yarn(server.url, more=("--fetch", str(tmp_path / "nothing"))) == UNKNOWN
