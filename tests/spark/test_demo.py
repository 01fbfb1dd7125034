"""The whole demo as a user starts it, once; `tests/proof` does it twenty times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

LASTGOOD = Path(sys.executable).parent / "lastgood"


@pytest.mark.spark
@pytest.mark.services
def test_demo_loses_nothing_doubles_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [LASTGOOD, "demo", "--flights=20000", "--kills=2", "--seed=7", f"--folder={tmp_path}"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "lost 0, duplicated 0 of 20,000 flights" in shown.stdout
    assert shown.stdout.count("killed by SIGKILL") == 2
    assert [process for process in psutil.process_iter() if _works_in(process, tmp_path)] == []


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in process.cmdline())
    except psutil.Error:
        return False
