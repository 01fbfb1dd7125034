"""The table of a sink is dropped and made again, on a real broker and a real Spark; every record counted."""

from __future__ import annotations

import shutil

import pytest
from repair.seeded import Application, MakeApplication

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
    assert any("it was made after them" in line for line in plan.rests_on)


@pytest.mark.proof
def test_table_that_the_query_has_made_itself_lacks_nothing(application: MakeApplication) -> None:
    app = application()
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.EXACTLY_ONCE
    assert app.start() is None
    assert app.rows() == app.wanted()
