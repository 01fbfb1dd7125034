"""A topic is deleted and created again while the application is down; what `recover` says of it comes true."""

from __future__ import annotations

from pathlib import Path

import pytest
from repair.seeded import BEFORE, COLUMNS, Application, MakeApplication

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.positions import StartChoice
from lastgood.operations.backup import create
from lastgood.operations.recover import recover
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.price import Guarantee, Waiver
from lastgood.recovery.applying import undo
from lastgood.recovery.decision import Decision, Verdict
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.target import resolve_target


def recovered(app: Application, *accept: Waiver) -> Decision:
    evidence = EvidenceOptions(sinks=(str(app.table),), kafka=app.broker.bootstrap)
    return recover(
        resolve_target(str(app.checkpoint)), PlanOptions(accept=accept, evidence=evidence), driver_is_dead=True
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.proof
@pytest.mark.parametrize("records", [BEFORE // 4, BEFORE + 10], ids=["shorter", "longer"])
def test_topic_of_the_same_name_is_read_from_its_beginning(records: int, application: MakeApplication) -> None:
    app = application()
    assert recovered(app).verdict is Verdict.START
    app.broker.recreate_topic(app.topic)
    app.produce(0, records)
    before = files(app.checkpoint)
    asked = recovered(app)
    assert asked.verdict is Verdict.PERSON
    assert asked.plan is not None
    assert asked.plan.guarantee is Guarantee.LOSSY
    done = recovered(app, *asked.plan.needs)
    assert done.verdict is Verdict.START
    assert done.recovery is not None
    undo(done.recovery.plan.recovery, target=resolve_target(str(app.checkpoint)), driver_is_dead=True)
    assert files(app.checkpoint) == before
    assert recovered(app).verdict is Verdict.PERSON
    assert recovered(app, *asked.plan.needs).verdict is Verdict.START
    assert app.start() is None
    assert app.rows() == app.wanted(BEFORE) + app.wanted(records)


@pytest.mark.proof
def test_mirror_of_a_query_on_another_topic_is_not_brought_back(application: MakeApplication) -> None:
    app = application()
    assert recovered(app).verdict is Verdict.START
    create(resolve_target(str(app.checkpoint)))
    app.lose_checkpoint()
    assert app.planned(StartChoice()).options["chosen"] == "the mirror"
    app.broker.recreate_topic(app.topic)
    app.produce(0, BEFORE + 10)
    with pytest.raises(RepairRefusedError, match="created again") as caught:
        app.planned(StartChoice())
    assert "--goal fresh --earliest" in str(caught.value.next)
    assert recovered(app).verdict is Verdict.PERSON
    plan = app.planned(StartChoice(earliest=True))
    assert plan.needs == (Waiver.LOSS,)
    app.carry_out(plan)
    assert app.start() is None
    assert app.rows() == app.wanted(BEFORE) + app.wanted(BEFORE + 10)


@pytest.mark.proof
def test_rows_of_the_topic_before_do_not_tell_where_to_go_on(application: MakeApplication) -> None:
    app = application()
    app.broker.recreate_topic(app.topic)
    app.produce(0, BEFORE + 10)
    app.lose_checkpoint()
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    assert plan.needs == (Waiver.LOSS, Waiver.DUPLICATES)
    assert any("looks as if it was created again" in line for line in plan.rests_on)
    app.carry_out(plan)
    assert app.start() is None
    assert app.rows() == app.wanted(BEFORE) + app.wanted(BEFORE + 10)


@pytest.mark.proof
def test_topic_that_only_an_open_batch_has_read_is_told_by_its_plan(application: MakeApplication) -> None:
    """What a plain restart would do there: the rows of the open batch are in the table, and its end is gone past."""
    app = application(limit=10 * BEFORE)
    for file in (app.checkpoint / "commits").iterdir():
        file.unlink()
    assert app.planned(StartChoice(), "resume").guarantee is Guarantee.EXACTLY_ONCE
    app.broker.recreate_topic(app.topic)
    app.produce(0, BEFORE + 10)
    asked = recovered(app)
    assert asked.verdict is Verdict.PERSON
    assert asked.plan is not None
    assert (asked.plan.guarantee, asked.plan.steps) == (Guarantee.LOSSY, ())
    assert app.start() is None
    never_read = app.wanted(BEFORE) + app.wanted(BEFORE + 10) - app.rows()
    assert never_read == app.wanted(BEFORE)
    assert asked.plan.sources[0].lost == {app.topic: {0: ((0, BEFORE),), 1: ((0, BEFORE),)}}


@pytest.mark.proof
def test_topic_in_which_the_query_has_read_on_is_told_by_an_older_plan(application: MakeApplication) -> None:
    """The application was started again by itself, before anybody looked: all that is there is older than its plan."""
    app = application()
    assert recovered(app).verdict is Verdict.START
    app.broker.recreate_topic(app.topic)
    app.produce(0, BEFORE + 10)
    assert app.start() is None
    (app.checkpoint.with_name(f"{app.checkpoint.name}.lastgood") / "topics.json").unlink()  # nobody has noted its id
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.LOSSY
    assert any("all that is left of what an older batch had read is newer" in line for line in plan.rests_on)
    assert app.start() is None
    lost = app.wanted(BEFORE) + app.wanted(BEFORE + 10) - app.rows()
    assert lost == app.wanted(BEFORE)
