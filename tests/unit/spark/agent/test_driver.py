"""The name of a process, and its heartbeat."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lastgood.records.files import DRIVER_FILE, Driver, parse_driver
from lastgood.spark.agent.driver import FOLDER_VARIABLE, Heartbeat, find_process_start_ms, report_trouble

DEADLINE_SECONDS = 20


def facts() -> dict[str, Any]:
    query = {"query_id": "q", "run_id": "r", "query_name": "orders", "checkpoint": "file:/chk"}
    return {"is_classic": True, "queries": [query], "recorded": 3, "dropped": 1, "trouble": None}


def await_beat(folder: Path, after_ms: int = 0) -> Driver:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for file in folder.iterdir() if folder.exists() else ():
            driver = parse_driver(file.read_bytes()) if DRIVER_FILE.fullmatch(file.name) else None
            if driver is not None and driver.beat_at_ms > after_ms:
                return driver
        time.sleep(0.01)
    raise AssertionError("no heartbeat")


def test_process_began_when_the_kernel_says_so() -> None:
    assert abs(find_process_start_ms() - psutil.Process().create_time() * 1000) < 100


def test_heartbeat_names_the_process_and_what_runs_in_it(tmp_path: Path) -> None:
    beat = Heartbeat(tmp_path / "new", facts, beat_seconds=3600)
    driver = await_beat(tmp_path / "new")
    assert (driver.pid, driver.host, driver.exited_at_ms) == (os.getpid(), socket.gethostname(), None)
    assert (driver.queries[0].query_name, driver.queries[0].checkpoint) == ("orders", "file:/chk")
    assert (driver.recorded, driver.dropped, driver.trouble) == (3, 1, None)
    time.sleep(0.002)  # beats are told apart by their millisecond
    beat.beat_now()
    later = await_beat(tmp_path / "new", driver.beat_at_ms)
    beat.close(DEADLINE_SECONDS)
    last = await_beat(tmp_path / "new", later.beat_at_ms - 1)
    assert last.exited_at_ms is not None
    assert [file.suffix for file in (tmp_path / "new").iterdir()] == [".json"]


def test_heartbeat_goes_on_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    beat = Heartbeat(tmp_path / "file", facts, beat_seconds=0.01)
    (tmp_path / "file").unlink()
    assert await_beat(tmp_path / "file").recorded == 3
    beat.close(DEADLINE_SECONDS)


def test_trouble_before_the_agent_began_is_noted_where_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_trouble(ValueError("nowhere to write"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "missing"))
    report_trouble(ValueError("no such folder"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    report_trouble(ValueError("noted"))
    (note,) = tmp_path.iterdir()
    assert note.read_text() == "ValueError: noted\n"
