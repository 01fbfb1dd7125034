"""The rows of the decision table by which sinks go back: the unchanged application is started, and every row counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.cases import Case, Laboratory
from conformance.edits import Edit
from conformance.flavours import FLAVOURS
from conformance.folders import ids
from deltalake import DeltaTable
from plugin_laboratory import OpenLaboratory
from repair.matrix import Damage, damages, repairs
from repair.repairs import Repair, broken_promise, carry_out, differing, orphaned, planned, taken_back, tree, tried

from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.files.step import FileSinkStep

VERSION = "4.2.0"
BACK = 2
"""How many batches the logs, or the table, have gone back."""
UNDER_A_CONSTANT_NAME = (
    "died after the sink wrote, before the commit",
    "died before the sink wrote",
    "the newest two batches lost from both logs",
    "the newest two commits lost",
    "the query id lost (`metadata`)",
    "the offset log lost",
    "the whole checkpoint lost",
    "records of a planned batch expired",
)
"""What is tried with a function that gives Delta a constant `txnAppId`, and the batch as `txnVersion`."""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def require_exact(
    laboratory: Laboratory, repair: Repair, prepare: Callable[[Path], None] = lambda _: None
) -> tuple[Plan, Counter[str]]:
    """Break it, plan, apply, take back, do it again, start the application: nothing is lost, nothing twice."""
    with laboratory.damaged(repair.case, prepare) as folder:
        before = tree(folder)
        plan = planned(repair, folder)
        assert plan.guarantee is Guarantee.EXACTLY_ONCE, plan.rests_on
        carry_out(plan, folder)
        assert list(taken_back(repair, plan, before, folder)) == []
        seen = laboratory.restart(repair.case, folder)
        assert list(broken_promise(plan, seen)) == []
        lost, twice = differing(seen, folder)
        assert (lost, twice) == (Counter(), Counter())
        assert seen.shown is not None
        return plan, Counter(seen.shown)


def logs_gone_back(laboratory: Laboratory, flavour: str) -> tuple[Edit, ...]:
    """The newest batches are not in the logs any more, as in an older copy of the checkpoint."""
    newest = max(ids(laboratory.healthy(FLAVOURS[flavour]), "commits"))
    batches = [newest - back for back in range(BACK)]
    return (Edit("remove_entries", {"logs": ["offsets", "commits"], "batches": batches, "crc": "none"}),)


def damage_of(flavour: str, name: str) -> Damage:
    """One of the matrix."""
    return next(each for each in damages(FLAVOURS[flavour].batches - 1) if each.name == name)


def restored(folder: Path) -> None:
    """The table is restored by hand, which leaves its mark where it was."""
    table = DeltaTable(folder / "sink")
    table.restore(table.version() - BACK)


def expired(folder: Path) -> None:
    """The marks in the table have expired: nobody has written for as long as they last."""
    DeltaTable(folder / "sink").alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 day"})
    for file in (folder / "sink/_delta_log").glob("*"):
        if file.name.endswith(".json"):
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            for action in actions:
                action.get("txn", {}).update(lastUpdated=1)
            file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        elif file.name.endswith(".crc"):  # it holds the marks, too
            file.unlink()


@pytest.mark.proof
def test_row_13_batch_whose_mark_has_expired_is_recognised_again(open_laboratory: OpenLaboratory) -> None:
    flavour = "file-delta"
    laboratory = open_laboratory(VERSION, flavour)
    case = Case(VERSION, flavour, orphaned(laboratory, FLAVOURS[flavour]))
    with laboratory.damaged(case, expired) as folder:
        _, twice = differing(laboratory.restart(case, folder), folder)
        assert twice  # what a start by itself comes to
    plan, _ = require_exact(laboratory, Repair(case, "resume"), expired)
    (step,) = plan.steps
    assert isinstance(step, DeltaStep)
    assert step.renews


@pytest.mark.spark
@pytest.mark.parametrize("flavour", ["file-delta", pytest.param("file-sink", marks=pytest.mark.proof)])
def test_row_6_batch_that_the_sink_has_is_planned_anew(flavour: str, open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory(VERSION, flavour)
    repair = Repair(Case(VERSION, flavour, orphaned(laboratory, FLAVOURS[flavour])), "replan")
    plan, _ = require_exact(laboratory, repair)
    assert isinstance(plan.steps[0], DeltaStep | FileSinkStep)


@pytest.mark.proof
def test_row_6_for_a_compacted_file_sink(open_laboratory: OpenLaboratory) -> None:
    flavour = "file-sink-compacted"
    laboratory = open_laboratory(VERSION, flavour)
    outcome = tried(laboratory, Repair(Case(VERSION, flavour, orphaned(laboratory, FLAVOURS[flavour])), "replan"))
    assert outcome.wrong == ()


@pytest.mark.proof
@pytest.mark.parametrize("name", UNDER_A_CONSTANT_NAME)
def test_plans_for_a_function_that_gives_a_constant_name_do_what_they_say(
    name: str, open_laboratory: OpenLaboratory
) -> None:
    laboratory = open_laboratory(VERSION, "kafka-txn")
    found = repairs("kafka-txn", damage_of("kafka-txn", name))
    outcomes = {str(repair): tried(laboratory, repair).wrong for repair in found}
    assert not {repair: wrong for repair, wrong in outcomes.items() if wrong}


@pytest.mark.proof
@pytest.mark.parametrize("flavour", ["kafka-delta", "kafka-txn"])
def test_row_9_table_that_is_ahead_of_the_logs_goes_back_to_them(flavour: str, open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory(VERSION, flavour)
    plan, _ = require_exact(laboratory, Repair(Case(VERSION, flavour, logs_gone_back(laboratory, flavour)), "resume"))
    (step,) = plan.steps
    assert isinstance(step, DeltaStep)
    assert (step.mark.app_id, len(step.versions)) == (FLAVOURS[flavour].txn_app_id or plan.query_id, BACK)


@pytest.mark.proof
@pytest.mark.parametrize("flavour", ["file-delta", "kafka-delta"])
def test_row_12_mark_and_logs_follow_a_table_that_was_restored(flavour: str, open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory(VERSION, flavour)
    plan, _ = require_exact(laboratory, Repair(Case(VERSION, flavour, ()), "resume"), restored)
    assert isinstance(plan.steps[0], DeltaStep)
    assert plan.steps[0].versions == ()
