"""Which commands are run silently: only such as lastgood is in the driver of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.storage.reading import parse_location
from lastgood.supervise.silent_driver import prepare_silent

CHECKPOINT = parse_location("/lake/chk")


@pytest.mark.parametrize(
    "words",
    [
        ["python", "-I", "app.py"],
        ["python", "-u", "-Es", "app.py"],
        ["spark-submit", "--deploy-mode", "cluster", "app.py"],
        ["spark-submit", "--conf", "spark.submit.deployMode=cluster", "app.py"],
    ],
)
def test_driver_that_lastgood_would_not_be_in_is_not_started(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without its sink"):
        prepare_silent(words, os.environ, tmp_path, CHECKPOINT)


def test_command_that_nobody_knows_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not known of this command"):
        prepare_silent(["bash", "run.sh"], os.environ, tmp_path, CHECKPOINT)


def test_application_knows_what_it_is_to_run_and_where_it_is_asked(tmp_path: Path) -> None:
    launch = prepare_silent([sys.executable, "-u", "app.py", "-I"], os.environ, tmp_path, CHECKPOINT)
    assert (launch.env["LASTGOOD_REBUILD"], launch.env["LASTGOOD_AGENT_DIR"]) == ("/lake/chk", str(tmp_path))
