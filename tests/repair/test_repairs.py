"""Damaged checkpoints are repaired, real Sparks go on with them, and rows are lost or doubled exactly as was said.

A repair that fails prints a line for `fixed.jsonl`, where the proof keeps it; `LASTGOOD_SEED` chooses others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.cases import Laboratory
from conformance.flavours import FLAVOURS
from plugin_laboratory import OpenLaboratory
from repair.repairs import GOALS, Repair, random_repair, repair_from
from repair.tallies import Tally, require_truth

SEED = os.environ.get("LASTGOOD_SEED", "1")
VERSION = "4.2.0"
"""The one that has Delta and Kafka here."""
SAMPLE = {"kafka-delta": 2}
"""Each goal once, a sink that goes by its folder and one that goes by the query; the proof has the other kinds."""
TRIES = 4
CASES = 8
"""Of each cell of the proof."""
CELLS = [
    *((VERSION, name) for name in ("files", "files-retain", "file-sink", "file-sink-compacted", "file-delta")),
    *((VERSION, name) for name in ("kafka", "kafka-delta", "agg-hdfs", "agg-rocksdb-changelog", "window-append")),
    *((version, name) for version in ("3.5.9", "4.0.5", "4.3.0") for name in ("files", "file-sink", "agg-hdfs")),
]
FIXED = [
    repair_from(json.loads(line)) for line in Path(__file__).with_name("fixed.jsonl").read_text().splitlines() if line
]


@pytest.fixture(scope="module")
def tally(pytestconfig: pytest.Config) -> Tally:
    shown = Tally()
    pytestconfig.pluginmanager.register(shown)
    return shown


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lastgood remembers of recoveries on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def goals_of(flavour: str) -> tuple[str, ...]:
    """Only offsets of Kafka can be chosen."""
    return GOALS if FLAVOURS[flavour].kind == "kafka" else tuple(goal for goal in GOALS if goal != "reposition")


def some_repairs(laboratory: Laboratory, flavour: str, count: int) -> Iterator[Iterator[Repair]]:
    """Every goal in turn; after one that is refused comes another."""
    goals = goals_of(flavour)
    for number in range(count):
        seed = f"{SEED}/{laboratory.version}/{flavour}/{number}"
        goal = (goals[number % len(goals)],)
        yield (random_repair(laboratory, FLAVOURS[flavour], goal, f"{seed}/{again}") for again in range(TRIES))


@pytest.mark.spark
@pytest.mark.parametrize("flavour", SAMPLE)
def test_repair_does_what_its_plan_said(flavour: str, open_laboratory: OpenLaboratory, tally: Tally) -> None:
    laboratory = open_laboratory(VERSION, flavour)
    require_truth(laboratory, some_repairs(laboratory, flavour, SAMPLE[flavour]), tally, verified_at_most=1)


@pytest.mark.proof
@pytest.mark.parametrize(("version", "flavour"), CELLS)
def test_each_of_many_repairs_does_what_its_plan_said(
    version: str, flavour: str, open_laboratory: OpenLaboratory, tally: Tally
) -> None:
    laboratory = open_laboratory(version, flavour)
    require_truth(laboratory, some_repairs(laboratory, flavour, CASES), tally, wrong_at_most=1)


@pytest.mark.proof
@pytest.mark.parametrize("flavour", sorted({repair.case.flavour for repair in FIXED}))
def test_repair_that_once_was_wrong_is_right(flavour: str, open_laboratory: OpenLaboratory, tally: Tally) -> None:
    own = [[repair] for repair in FIXED if repair.case.flavour == flavour]
    require_truth(open_laboratory(VERSION, flavour), own, tally)
