"""`examples/schedulers/systemd`: what systemd makes of the units, and what stands in them."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from schedulers import SCHEDULERS, Machine, await_, later, trying_again

from lastgood.settings.config import Config

FOLDER = SCHEDULERS / "systemd"
UNITS = ("orders.service", "orders-submit.service")
CRASHED = 1
SUBMIT_ENDS = (1, 50, 137, 143)
"""What an application that failed ends with, below spark-submit."""


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] - as configparser documents it
    parser.read_string((FOLDER / name).read_text())
    return parser


def codes(service: configparser.SectionProxy, directive: str) -> set[int]:
    return {int(word) for word in service.get(directive, "").split()}


def is_started_again(service: configparser.SectionProxy, code: int) -> bool:
    """What systemd decides when the main process of a service exits (`service_shall_restart`)."""
    if code in codes(service, "RestartPreventExitStatus"):
        return False
    if code in codes(service, "RestartForceExitStatus"):
        return True
    assert service["Restart"] == "on-abnormal"  # by exit code: never
    return False


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)(s|min)", text)
    assert match is not None
    return int(match[1]) * {"s": 1, "min": 60}[match[2]]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def before_start(machine: Machine) -> subprocess.Popen[str]:
    """What systemd runs before the application, but for where lastgood is installed."""
    line = unit("orders-submit.service")["Service"]["ExecStartPre"].replace("$$", "$")
    command = shlex.split(line.replace("/opt/lastgood/bin/lastgood", "lastgood"))
    return subprocess.Popen(command, cwd=machine.folder, env=machine.env, text=True, stdout=subprocess.PIPE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze on this machine")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    text = (FOLDER / name).read_text()
    for program in ("/opt/lastgood/bin/lastgood", "/opt/spark/bin/spark-submit"):
        text = text.replace(program, "/bin/true")
    (tmp_path / name).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", name], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_run_is_started_again_where_time_mends_it_or_it_crashed_and_nowhere_else() -> None:
    service = unit("orders.service")["Service"]
    again = {code for code in trying_again() if is_started_again(service, code)}
    assert again == later() | {CRASHED}
    assert {3, 71}.isdisjoint(again)
    assert codes(service, "RestartPreventExitStatus") == {0, 3, 71}


def test_stopped_run_has_not_failed() -> None:
    assert codes(unit("orders.service")["Service"], "SuccessExitStatus") == {130, 143}


def test_application_is_started_again_where_it_failed_and_not_where_it_ended() -> None:
    service = unit("orders-submit.service")["Service"]
    assert all(is_started_again(service, code) for code in SUBMIT_ENDS)
    assert not is_started_again(service, 0)


@pytest.mark.parametrize("name", UNITS)
def test_unit_is_stopped_with_more_patience_than_the_grace_and_leaves_nothing_behind(name: str) -> None:
    service = unit(name)["Service"]
    grace = Config(FOLDER / "lastgood.toml").pipelines()["orders"].policy.grace_seconds
    assert seconds(service["TimeoutStopSec"]) > grace
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")


def test_application_may_start_where_a_restart_does_it(machine: Machine) -> None:
    process = before_start(machine)
    shown, _ = process.communicate()
    assert process.returncode == 0
    assert "Start the application now" in shown


def test_start_fails_where_a_person_is_needed(machine: Machine) -> None:
    machine.need_a_person()
    process = before_start(machine)
    shown, _ = process.communicate()
    assert process.returncode == 3
    assert "A person is needed" in shown
    assert machine.waited == []


def test_start_waits_while_somebody_else_is_at_work(machine: Machine) -> None:
    with machine.somebody_at_work():
        process = before_start(machine)
        await_(lambda: len(machine.waited) > 1)
        assert process.poll() is None
    shown, _ = process.communicate()
    assert process.returncode == 0
    assert set(machine.waited) == {"30"}
    assert "Try again later" in shown
