"""Died between sink and commit, with state: after the repair real Spark goes on, and no row is lost or twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from conformance.cases import Case
from conformance.edits import Edit
from conformance.flavours import FLAVOURS
from conformance.folders import ids
from plugin_laboratory import OpenLaboratory
from repair.repairs import Repair, carry_out, differing, make_mirror, planned, taken_back, tree

from lastgood.planning.price import Guarantee
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.files.step import FileSinkStep

pytestmark = pytest.mark.spark

VERSION = "4.2.0"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lastgood remembers of recoveries on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@dataclass(frozen=True)
class Damage:
    """What happens to a query whose newest batch its sink has."""

    flavour: str
    commit: str
    """`missing` or `empty`."""
    is_state_gone: bool
    """Whether the state that the batch made is gone in one partition."""
    gives_back: bool
    """Whether the sink has to give the batch back."""
    goal: str = "resume"

    def edits(self, newest: int) -> tuple[Edit, ...]:
        edit = Edit("remove_entries", {"logs": ["commits"], "batches": [newest], "crc": "none"})
        if self.commit == "empty":
            edit = Edit("rewrite", {"log": "commits", "batch": newest, "how": "empty", "crc": "none"})
        gone = {"partitions": "first", "versions": [newest + 1], "kind": "any"}
        return (edit, Edit("remove_state_versions", gone)) if self.is_state_gone else (edit,)


DAMAGES = [
    *(Damage(name, "empty", False, False) for name in ("dedup-file-sink", "dedup-delta")),
    *(Damage(name, "missing", True, True) for name in ("dedup-file-sink", "dedup-delta")),
    Damage("dedup-delta", "missing", False, True, "replan"),
    Damage("dedup-delta-v2", "missing", False, True),
    Damage("dedup-delta-v2", "empty", True, True),
]


@pytest.mark.proof
@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_query_goes_on_exactly_once(damage: Damage, open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory(VERSION, damage.flavour)
    newest = max(ids(laboratory.healthy(FLAVOURS[damage.flavour]), "commits"))
    repair = Repair(Case(VERSION, damage.flavour, damage.edits(newest)), damage.goal)
    with laboratory.damaged(repair.case, lambda folder: make_mirror(folder, repair.mirror)) as folder:
        before = tree(folder)
        plan = planned(repair, folder)
        carry_out(plan, folder)
        wrong = list(taken_back(repair, plan, before, folder))
        seen = laboratory.restart(repair.case, folder)
        lost, twice = differing(seen, folder)
    assert (plan.guarantee, wrong) == (Guarantee.EXACTLY_ONCE, [])
    assert (seen.ended, seen.executed[0]) == ("finished", newest)
    assert (lost.total(), twice.total()) == (0, 0)
    is_given_back = any(isinstance(step, DeltaStep | FileSinkStep) for step in plan.steps)
    assert is_given_back == damage.gives_back
