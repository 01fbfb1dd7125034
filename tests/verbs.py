"""The reading verbs, as a person types them and as they answer, whatever storage their target is on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import forked
import pytest

from lastgood.cli.main import main

LASTGOOD = Path(sys.executable).parent / "lastgood"
CASES = Path(__file__).parent / "corpus" / "cases"
ROUND_TRIPS_MAX = 12
ANSWER_SECONDS = 60
"""When a test gives up on an answer; the promise of ten seconds is for a machine that does nothing else."""

VERBS = [
    ["status"],
    ["inspect"],
    ["inspect", "--all"],
    ["inspect", "--batch", "1"],
    ["inspect", "--state"],
    ["inspect", "--offset", "t1/0/0"],
    ["inspect", "--file", "f001.json"],
    ["inspect", "--time", "2026-11-21T12:00Z"],
    ["offsets"],
    ["offsets", "--stable-lag", "1"],
    ["diagnose", "--spark", "4.2"],
    ["verify"],
    ["backup", "list"],
]
FEW_ROUND_TRIPS = [
    "4.3-agg-rocksdb-ckptv2-healthy",
    *(pytest.param(case, marks=pytest.mark.proof) for case in ("4.2-kafka-multi-topic", "4.3-file-sink-healthy")),
]
"""Cases in which the requests of a verb are counted that wait for one another."""
FEW_VERBS = [["status"], ["verify"], ["backup", "list"]]

Answer = tuple[int, str, str]
"""Exit code, stdout, stderr."""


def arguments(verb: list[str], target: str) -> list[str]:
    words = verb[:2] if verb[0] == "backup" else verb[:1]
    return [*words, target, *verb[len(words) :], "--format=json"]


def run(verb: list[str], target: str, env: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """A verb in a process of its own, which knows nothing but `env`."""
    done = forked.run(*arguments(verb, target), env={"PATH": os.environ["PATH"], "HOME": "/nowhere", **env})
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


class Say:
    """What verbs say of a target in this process, as if it stood at X."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, target: str, verbs: list[list[str]] = VERBS) -> list[Answer]:
        said = []
        for verb in verbs:
            with pytest.raises(SystemExit) as ended:
                main(arguments(verb, target))
            shown = self._capsys.readouterr()
            said.append((ended.value.code, shown.out.replace(target, "X"), shown.err.replace(target, "X")))
        return said


def without_local_disk(said: list[Answer]) -> list[tuple[int, Any, str]]:
    """What is said, less the advice that only a folder of this machine gets."""
    parsed = [(code, json.loads(out), err) for code, out, err in said]
    for _, shown, _ in parsed:
        if "findings" in shown:
            local = "CHECKPOINT_ON_LOCAL_DISK"
            shown["findings"] = [found for found in shown["findings"] if found["condition"] != local]
    return parsed
