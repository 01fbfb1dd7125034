"""`examples/schedulers/cron/scan.sh`, as cron runs it: again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from schedulers import SCHEDULERS, Machine, await_

SCAN = SCHEDULERS / "cron/scan.sh"
HOUR_SECONDS = 3600
Scan = subprocess.Popen[str]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "machine")
    yield machine
    machine.end(0)
    await_(lambda: not any(map(psutil.pid_exists, machine.started)))


def begin(machine: Machine) -> Scan:
    command = [str(SCAN), "orders", "spark-submit", "orders.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=machine.folder, env=machine.env, text=True, **pipes)  # type: ignore[call-overload,no-any-return] - of Popen's many forms


def scan(machine: Machine) -> tuple[int, str]:
    """Exit code, and what cron mails."""
    process = begin(machine)
    mail, _ = process.communicate()
    return process.returncode, mail


def kept(machine: Machine, name: str) -> Path:
    return machine.folder / "state/lastgood/scan/orders" / name


def age(file: Path, hours: float) -> None:
    then = time.time() - hours * HOUR_SECONDS
    os.utime(file, (then, then))


def test_application_that_is_not_there_is_started_without_a_word(machine: Machine) -> None:
    machine.end(0)
    assert scan(machine) == (0, "")
    assert len(machine.started) == 1


def test_application_that_is_there_is_left_alone(machine: Machine) -> None:
    running = begin(machine)
    await_(lambda: bool(machine.started))
    assert scan(machine) == (0, "")
    machine.end(0)
    running.communicate()
    assert len(machine.started) == 1


def test_scans_at_once_start_one_application(machine: Machine) -> None:
    scans = [begin(machine) for _ in range(4)]
    await_(lambda: bool(machine.started))
    await_(lambda: sum(each.poll() is None for each in scans) == 1)
    machine.end(0)
    assert [each.communicate()[0] for each in scans] == [""] * 4
    assert len(machine.started) == 1


def test_application_keeps_others_out_when_its_scan_is_killed(machine: Machine) -> None:
    killed = begin(machine)
    await_(lambda: bool(machine.started))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert psutil.pid_exists(machine.started[0])
    assert scan(machine) == (0, "")
    assert len(machine.started) == 1
    machine.end(0)
    await_(lambda: not psutil.pid_exists(machine.started[0]))
    scan(machine)
    assert len(machine.started) == 2


def test_need_of_a_person_is_told_once_and_again_a_day_later(machine: Machine) -> None:
    machine.need_a_person()
    code, mail = scan(machine)
    assert code == 3
    assert "A person is needed: driver_check does not say that the driver is dead" in mail
    assert str(kept(machine, "plan.json")) in mail
    assert kept(machine, "plan.json").exists()
    assert scan(machine) == (3, "")
    age(kept(machine, "told"), hours=25)
    assert scan(machine) == (3, mail_of(machine))
    assert machine.started == []


def mail_of(machine: Machine) -> str:
    """What a scan mails where a person is needed."""
    told = kept(machine, "told").read_text()
    return f"orders: {told}\n{kept(machine, 'answer').read_text()}"


def test_start_follows_once_the_person_has_looked(machine: Machine) -> None:
    machine.need_a_person()
    scan(machine)
    machine.configure("true")
    machine.end(0)
    assert scan(machine) == (0, "")
    assert len(machine.started) == 1
    assert not kept(machine, "told").exists()


def test_somebody_else_at_work_wakes_nobody_within_the_hour(machine: Machine) -> None:
    with machine.somebody_at_work():
        assert scan(machine) == (75, "")
        age(kept(machine, "waiting"), hours=0.9)
        assert scan(machine) == (75, "")
        age(kept(machine, "waiting"), hours=1.1)
        code, mail = scan(machine)
        assert code == 75
        assert "not started for an hour" in mail
        assert "Try again later" in mail
        assert scan(machine) == (75, "")
    machine.end(0)
    assert scan(machine) == (0, "")
    assert not kept(machine, "waiting").exists()


def test_mistake_in_the_configuration_is_told_and_starts_nothing(machine: Machine) -> None:
    (machine.folder / "lastgood.toml").write_text("[pipeline.orders]\n")
    code, mail = scan(machine)
    assert code == 2
    assert "error [CONFIG_INVALID]" in mail
    assert machine.started == []


def test_application_that_fails_is_told_once_and_started_by_every_scan(machine: Machine) -> None:
    machine.end(1)
    code, mail = scan(machine)
    assert code == 1
    assert "ended with exit code 1" in mail
    assert scan(machine) == (1, "")
    assert len(machine.started) == 2


def test_scan_without_a_command_says_how_it_is_called() -> None:
    done = subprocess.run([SCAN, "orders"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "usage: scan.sh PIPELINE COMMAND" in done.stderr
