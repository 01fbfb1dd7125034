"""An application that writes under another name than before, with a real broker and a real Spark; all counted."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from repair.seeded import BEFORE, GOALS, MORE, TXN_APP_ID, WIDER, Application, MakeApplication, judged

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.price import Guarantee
from lastgood.settings.target import resolve_target

NEW = "orders-v2"
EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY


def asked_by(app: Application, name: str | None) -> Application:
    """The same, whose table is asked for what it has of a name; None: of none."""
    return replace(app, evidence={} if name is None else {"txn_app_id": name})


def unknowns(app: Application) -> list[str]:
    evidence = EvidenceOptions(sinks=(str(app.table),), kafka=app.broker.bootstrap, **app.evidence)
    found = diagnose(resolve_target(str(app.checkpoint)), DiagnoseOptions(evidence=evidence))
    return [line for line in found.restart.unknowns if "(--txn-app-id)" in line]


FIRST = {
    ("before", None): (TWICE, TWICE, TWICE),
    ("before", TXN_APP_ID): (EXACT, EXACT, EXACT),
    ("before", NEW): (TWICE, TWICE, TWICE),
    ("after", None): (TWICE, TWICE, TWICE),
    ("after", TXN_APP_ID): (TWICE, TWICE, TWICE),
    ("after", NEW): (EXACT, EXACT, TWICE),
}
"""What is said of the first batch since the change, by when its function died and by which name it was asked."""
LATER = {
    ("before", None): (TWICE, TWICE, TWICE),
    ("before", TXN_APP_ID): (LOSSY, LOSSY, LOSSY),
    ("before", NEW): (EXACT, EXACT, EXACT),
    ("after", None): (TWICE, TWICE, TWICE),
    ("after", TXN_APP_ID): (LOSSY, LOSSY, LOSSY),
    ("after", NEW): (EXACT, EXACT, TWICE),
}
"""The same, where batches were done since."""


@pytest.mark.proof
@pytest.mark.parametrize(("moment", "name"), FIRST)
@pytest.mark.parametrize("goal", GOALS)
def test_first_batch_under_another_name_comes_as_it_is_said(
    goal: str, moment: str, name: str | None, application: MakeApplication
) -> None:
    app = asked_by(replace(application(sink="txn"), txn_app_id=NEW), name)
    app.die(moment)
    plan = app.planned(app.choose(goal), goal)
    assert plan.guarantee is FIRST[moment, name][GOALS.index(goal)]
    app.carry_out(plan)
    assert judged(replace(app, limit=WIDER), plan) == []


@pytest.mark.proof
@pytest.mark.parametrize(("moment", "name"), LATER)
@pytest.mark.parametrize("goal", GOALS)
def test_batches_under_another_name_come_as_it_is_said(
    goal: str, moment: str, name: str | None, application: MakeApplication
) -> None:
    app = replace(application(sink="txn"), txn_app_id=NEW)
    assert app.start() is None
    app.produce(BEFORE + 10, MORE)
    app = asked_by(replace(app, end=MORE), name)
    app.die(moment)
    assert bool(unknowns(app)) == (name != NEW)
    plan = app.planned(app.choose(goal), goal)
    assert plan.guarantee is LATER[moment, name][GOALS.index(goal)]
    app.carry_out(plan)
    assert judged(replace(app, limit=WIDER), plan) == []


@pytest.mark.proof
@pytest.mark.parametrize("name", [None, TXN_APP_ID, NEW])
@pytest.mark.parametrize("goal", GOALS)
def test_batches_that_another_name_has_already_are_not_called_exact(
    goal: str, name: str | None, application: MakeApplication
) -> None:
    """Somebody else has written under the new name: all that the application writes under it is dropped."""
    app = application(sink="txn")
    other = replace(app, folder=app.folder / "other", where="offset < 0", txn_app_id=NEW, limit=8)
    other.folder.mkdir()
    other.table.symlink_to(app.table)
    assert other.start() is None
    app = asked_by(replace(app, txn_app_id=NEW), name)
    assert app.start() is None
    assert app.wanted() - app.rows()
    with contextlib.suppress(RepairRefusedError):
        assert app.planned(app.choose(goal), goal).guarantee is LOSSY


@pytest.mark.proof
@pytest.mark.parametrize("name", [None, TXN_APP_ID])
@pytest.mark.parametrize("goal", GOALS)
def test_application_that_has_gone_over_to_sparks_own_sink_comes_as_it_is_said(
    goal: str, name: str | None, application: MakeApplication
) -> None:
    app = replace(application(sink="txn"), sink="delta")
    assert app.start() is None
    app.produce(BEFORE + 10, MORE)
    app = asked_by(replace(app, end=MORE), name)
    assert replace(app, where="assert_true(offset < 0) IS NULL").start() is not None
    plan = app.planned(app.choose(goal), goal)
    assert plan.guarantee is (LOSSY if name is None else TWICE)
    app.carry_out(plan)
    assert judged(replace(app, limit=WIDER), plan) == []
