"""Rows of a query in a Delta table that no mark of its stands for, with a real broker and a real Spark; all counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from repair.seeded import BEFORE, GOALS, MORE, WIDER, MakeApplication, judged

from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.price import Guarantee


@pytest.mark.proof
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("goal", GOALS)
def test_batch_of_a_function_that_leaves_no_mark_is_never_called_exact(
    goal: str, moment: str, application: MakeApplication
) -> None:
    app = application(sink="foreachBatch")
    app.die(moment)
    plan = app.planned(app.choose(goal), goal)
    assert plan.guarantee is Guarantee.AT_LEAST_ONCE
    app.carry_out(plan)
    assert judged(replace(app, limit=WIDER), plan) == []


@pytest.mark.proof
@pytest.mark.parametrize(("moment", "word"), [("before", Guarantee.EXACTLY_ONCE), ("after", Guarantee.AT_LEAST_ONCE)])
@pytest.mark.parametrize("goal", GOALS)
def test_as_many_rows_without_a_mark_as_the_open_batch_reads_are_reckoned_to_be_its(
    goal: str, moment: str, word: Guarantee, application: MakeApplication
) -> None:
    """The application was changed from Spark's own sink to a function, and died in its first batch since."""
    app = replace(application(), sink="foreachBatch")
    app.die(moment)
    plan = app.planned(app.choose(goal), goal)
    assert plan.guarantee is word
    app.carry_out(plan)
    assert judged(replace(app, limit=WIDER), plan) == []


@pytest.mark.proof
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("goal", GOALS)
def test_batches_that_are_done_and_written_without_a_mark_are_not_called_exact(
    goal: str, moment: str, application: MakeApplication
) -> None:
    """The same, and it had done batches since: that the mark stands behind them looks as if their rows were lost."""
    app = replace(application(), sink="foreachBatch")
    assert app.start() is None
    app.produce(BEFORE + 10, MORE)
    app = replace(app, end=MORE)
    app.die(moment)
    if goal == "replan":
        with pytest.raises(RepairRefusedError, match="a sink shows nothing after batch 3, and batch 5 is committed"):
            app.planned(app.choose(goal), goal)
        return
    plan = app.planned(app.choose(goal), goal)
    assert plan.guarantee is (Guarantee.AT_LEAST_ONCE if goal == "resume" else Guarantee.LOSSY)
    app.carry_out(plan)
    assert judged(replace(app, limit=WIDER), plan) == []
