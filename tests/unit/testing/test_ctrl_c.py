from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

IGNORING = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""A shell that has started the tests in the background, so that they and all that they start ignore Ctrl-C."""


def test_what_tests_start_ends_on_ctrl_c() -> None:
    waiting = "print(flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", waiting], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        child.communicate()
    assert child.returncode == -signal.SIGINT


def test_so_it_does_where_the_shell_ignores_it(tmp_path: Path) -> None:
    test = f"{__file__}::{test_what_tests_start_ends_on_ctrl_c.__name__}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = [*IGNORING, sys.executable, "-m", "pytest", "-q", "--basetemp", tmp_path / "tmp", test]
    done = subprocess.run(words, env=env, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
