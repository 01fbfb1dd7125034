"""A checkpoint that was moved to the earliest offset, as a user looks at it: no -2 is ever shown as a number."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked
import pytest
from predicting import change, line

from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
EARLIEST, LATEST = '{"orders":{"0":-2,"1":25}}', '{"orders":{"0":-1,"1":15}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Five committed batches of five offsets; the ends of batches 2 and 4 were replaced."""
    CheckpointBuilder(tmp_path).run(5)
    change("offsets/2", line(2, LATEST))(tmp_path)
    change("offsets/4", line(2, EARLIEST))(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("inspect",), 0, ["its end was set to earliest", "begins at latest", "not known"]),
        (("inspect", "--batch", "3"), 0, ["orders/0  from latest up to 20", "orders/1  offsets 15 to 19"]),
        (("inspect", "--batch", "4"), 0, ["orders/0  from 20 on; its end was set to earliest", "left out   orders/0"]),
        (("inspect", "--offset", "orders/0/12"), 40, ["nobody wrote down whether a batch holds offset 12"]),
        (("offsets",), 0, ["orders/0: the plan holds the earliest offset"]),
        (("verify",), 1, ["batch 2 orders/0", "batch 4 orders/0"]),
        (("diagnose",), 0, ["SOURCE_OFFSET_NEGATIVE", "next  lastgood inspect", "--batch 4"]),
        (("status",), 0, ["doubtful"]),
        (
            ("plan", "--goal", "reposition", "--at", '{"orders": {"0": 20, "1": 25}}', "--only", "orders/0"),
            0,
            [
                "read again, and nobody wrote down how much: orders/0 from 20 on",
                "lost at most 20 offsets: orders/0 [0, 20)",
                "--accept loss",
            ],
        ),
        (
            ("plan", "--goal", "reposition", "--batch", "3", "--only", "orders/0"),  # it went back to earliest since
            0,
            ["read again, and nobody wrote down how much: orders/0 from 0 on", "--accept loss"],
        ),
        (("plan",), 0, ["orders-0 stood at earliest"]),
    ],
)
def test_no_verb_counts_with_it(checkpoint: Path, words: tuple[str, ...], code: int, told: list[str]) -> None:
    verb, *options = words
    saved = ["-o", str(checkpoint.parent / "plan.json")] if verb == "plan" else []
    env = {"PATH": os.environ["PATH"], "TZ": "UTC", "HOME": str(checkpoint.parent)}
    done = forked.run(verb, checkpoint, *options, *saved, env=env)
    shown = done.stdout + done.stderr
    assert done.returncode == code, shown
    assert [each for each in told if each not in shown] == []
    as_spark_takes_it = '{"orders": {"0": -2, "1": 25}}'
    assert " -2" not in shown.replace(as_spark_takes_it, "")
    assert " -1" not in shown
