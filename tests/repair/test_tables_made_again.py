"""The table of a sink is dropped and made again, on a real broker and a real Spark; every record counted."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from repair.seeded import GOALS, TXN_APP_ID, Application, MakeApplication

from lastgood.observe.positions import StartChoice
from lastgood.planning.price import Guarantee


def drop(app: Application) -> None:
    shutil.rmtree(app.table)


def make(app: Application) -> None:
    app.sql("CREATE TABLE {} (topic STRING, partition INT, offset BIGINT, value STRING) USING delta")


@pytest.mark.proof
@pytest.mark.parametrize("goal", ["resume", "replan"])
@pytest.mark.parametrize("sink", ["delta", "foreachBatch"])
def test_empty_table_that_was_made_again_lacks_what_was_written(
    sink: str, goal: str, application: MakeApplication
) -> None:
    app = application(sink=sink)
    drop(app)
    make(app)
    assert app.planned(StartChoice(), goal).guarantee is Guarantee.LOSSY
    assert app.start() is None
    assert app.wanted() - app.rows()


@pytest.mark.proof
def test_query_that_has_written_on_in_the_new_table_is_not_called_exact(application: MakeApplication) -> None:
    app = application()
    drop(app)
    assert app.start() is None
    assert app.wanted() - app.rows()
    app.produce(30, 40)
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.LOSSY
    assert any("by its time it was made after them" in line for line in plan.rests_on)


@pytest.mark.proof
def test_table_that_the_query_has_made_itself_lacks_nothing(application: MakeApplication) -> None:
    app = application()
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.EXACTLY_ONCE
    assert app.start() is None
    assert app.rows() == app.wanted()


def lose(app: Application, log: str, number: int) -> None:
    for name in (str(number), f".{number}.crc"):
        (app.checkpoint / log / name).unlink(missing_ok=True)


@pytest.mark.proof
@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize(
    ("sink", "evidence"), [("delta", {}), ("foreachBatch", {}), ("txn", {"txn_app_id": TXN_APP_ID})]
)
def test_table_that_was_made_again_before_the_open_batch_was_done_lacks_all_before(
    sink: str, evidence: dict[str, str], goal: str, application: MakeApplication
) -> None:
    """No plan says that a batch was done before the table was made, but that of the open one."""
    app = application(sink=sink, evidence=evidence)
    number = app.newest
    lose(app, "commits", number)
    drop(app)
    make(app)
    plan = app.planned(app.choose(goal), goal)
    assert plan.guarantee is Guarantee.LOSSY
    app.carry_out(plan)
    assert app.start() is None
    assert app.wanted() - app.rows()


@pytest.mark.proof
@pytest.mark.parametrize("sink", ["delta", "txn"])
def test_table_that_the_query_has_made_again_lacks_what_no_next_plan_tells_of(
    sink: str, application: MakeApplication
) -> None:
    """The plan of the batch that made the table is lost, or the logs begin with the newest that it lacks."""
    app = application(sink=sink, evidence={"txn_app_id": TXN_APP_ID} if sink == "txn" else {})
    number = app.newest
    drop(app)
    assert replace(app, limit=100, retained=2).start() is None
    assert app.newest == number + 1
    assert app.wanted() - app.rows()
    for each in range(number):
        lose(app, "offsets", each)
        lose(app, "commits", each)
    assert app.planned(StartChoice(), "resume").guarantee is Guarantee.LOSSY
    app.produce(30, 40)
    assert replace(app, limit=100).start() is None
    lose(app, "offsets", number + 1)
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.LOSSY
