"""A query moved by hand that writes to Spark's file sink: its log goes on without a gap, through its compactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from repair.seeded import AFTER, BEFORE, PARTITIONS, Application, MakeApplication, judged

from lastgood.observe.positions import StartChoice
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee

EXACT, TWICE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
MORE = 20
"""Records of each partition that come later: enough batches for two compactions."""
NEWEST = 3
"""The newest batch that an application has committed when its test begins."""


@pytest.fixture
def writer(application: MakeApplication) -> Application:
    return application(sink="parquet")


def lose(folder: Path, batch_id: int) -> None:
    """An entry of a log is gone, with its checksum."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (folder / name).unlink()


def died(app: Application, *, wrote: bool = False) -> None:
    """The driver died in its newest batch, after or before the sink had it."""
    lose(app.checkpoint / "commits", NEWEST)
    if not wrote:
        lose(app.table / "_spark_metadata", NEWEST)


def require_each_row_once(app: Application, plan: Plan, twice: int = 0) -> None:
    """Carry it out; whatever is read since is in the folder, and it can be read after its compactions too."""
    app.carry_out(plan)
    assert judged(app, plan) == []
    app.produce(BEFORE + AFTER, BEFORE + AFTER + MORE)
    assert app.start() is None
    rows, wanted = app.rows(), app.wanted(BEFORE + AFTER + MORE)
    assert (wanted - rows, sum((rows - wanted).values())) == (Counter(), twice)
    compacted = {int(each.stem) for each in (app.table / "_spark_metadata").glob("*.compact")}
    assert max(compacted) > NEWEST + 3


@pytest.mark.proof
@pytest.mark.parametrize("goal", ["fresh", "reposition"])
def test_batch_that_the_sink_lacks_leaves_no_gap(goal: str, writer: Application) -> None:
    died(writer)
    plan = writer.planned(StartChoice(batch=NEWEST - 1), goal=goal)
    assert (plan.guarantee, plan.promise.batch) == (EXACT, NEWEST)
    require_each_row_once(writer, plan)


@pytest.mark.proof
@pytest.mark.parametrize("goal", ["fresh", "reposition"])
def test_batch_that_the_sink_has_is_not_written_again(goal: str, writer: Application) -> None:
    died(writer, wrote=True)
    plan = writer.planned(StartChoice(at=str(_end_of(writer))), goal=goal)
    assert (plan.guarantee, plan.promise.batch) == (EXACT, NEWEST + 1)
    require_each_row_once(writer, plan)


@pytest.mark.proof
def test_log_of_a_sink_that_went_back_goes_on_where_it_ends(writer: Application) -> None:
    lose(writer.table / "_spark_metadata", NEWEST)
    plan = writer.planned(StartChoice(batch=NEWEST - 1), goal="reposition")
    assert (plan.guarantee, plan.promise.batch) == (EXACT, NEWEST)
    require_each_row_once(writer, plan)


@pytest.mark.proof
@pytest.mark.parametrize("wrote", [False, True])
def test_number_of_a_batch_is_used_up_where_no_sink_is_asked(writer: Application, *, wrote: bool) -> None:
    died(writer, wrote=wrote)
    writer.evidence.update(sinks=())
    plan = writer.planned(StartChoice(batch=NEWEST - 1), goal="reposition")
    assert (plan.guarantee, plan.promise.outcome, plan.promise.batch) == (TWICE, "reruns", NEWEST)
    require_each_row_once(writer, plan, twice=PARTITIONS * BEFORE // 4 if wrote else 0)


@pytest.mark.proof
def test_earliest_may_be_where_an_empty_batch_begins_and_ends(writer: Application) -> None:
    died(writer)
    writer.evidence.update(sinks=())
    plan = writer.planned(StartChoice(earliest=True))
    assert (plan.guarantee, plan.promise.outcome) == (TWICE, "reruns")
    require_each_row_once(writer, plan, twice=PARTITIONS * BEFORE * NEWEST // 4)


@pytest.mark.proof
def test_new_folder_begins_with_an_empty_batch(writer: Application) -> None:
    for log in ("offsets", "commits"):
        for batch_id in range(NEWEST + 1):
            if (log, batch_id) != ("offsets", 0):
                lose(writer.checkpoint / log, batch_id)
    writer.table.rename(writer.folder / "aside")
    plan = writer.planned(StartChoice(earliest=True))
    assert (plan.guarantee, plan.promise.outcome, plan.promise.batch) == (TWICE, "reruns", 0)
    require_each_row_once(writer, plan)


@pytest.mark.proof
@pytest.mark.parametrize("goal", ["resume", "fresh", "reposition"])
def test_sink_without_its_log_is_refused(goal: str, writer: Application) -> None:
    (writer.table / "_spark_metadata").rename(writer.folder / "aside")
    writer.evidence.update(sinks=(f"file:{writer.table}/",))
    where: dict[str, Any] = {} if goal == "resume" else {"earliest": True}
    with pytest.raises(RepairRefusedError, match="own log has no entry"):
        writer.planned(StartChoice(**where), goal=goal)


def _end_of(app: Application) -> Path:
    """A file that names where the newest plan ends."""
    told = (app.checkpoint / f"offsets/{NEWEST}").read_text().splitlines()[-1]
    file = app.folder / "end.json"
    file.write_text(told)
    return file
