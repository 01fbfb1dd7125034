"""A machine loses its power: the sink's log has the newest batch, and a data file of it is gone, or cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from repair.seeded import Application, MakeApplication, judged

from lastgood.planning.price import Guarantee

WAYS = ("gone", "cut", "empty")
SINKS = ("delta", "parquet")


def list_newest_files(app: Application) -> list[Path]:
    """The data files of the newest entry of the sink's log."""
    if app.sink == "parquet":
        log, key = app.table / "_spark_metadata", None
    else:
        log, key = app.table / "_delta_log", "add"
    newest = max(each for each in log.iterdir() if each.stem.isdecimal() and each.suffix in ("", ".json"))
    lines = [json.loads(line) for line in newest.read_text().splitlines() if line.startswith("{")]
    told = [line if key is None else line[key] for line in lines if key is None or key in line]
    return [app.table / Path(each["path"]).name for each in told]


def break_newest(app: Application, way: str) -> None:
    file = list_newest_files(app)[0]
    if way == "gone":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2 if way == "cut" else 0])


@pytest.mark.proof
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sink", SINKS)
def test_batch_whose_file_is_broken_is_given_back_and_read_again(
    sink: str, way: str, application: MakeApplication
) -> None:
    app = application(sink=sink)
    newest = app.newest
    for name in (f"{newest}", f".{newest}.crc"):
        (app.checkpoint / "commits" / name).unlink()
    whole = app.planned(app.choose("resume"), goal="resume")
    assert whole.guarantee is Guarantee.EXACTLY_ONCE
    break_newest(app, way)
    assert app.planned(app.choose("resume"), goal="resume").guarantee is Guarantee.LOSSY
    plan = app.planned(app.choose("replan"), goal="replan")
    assert plan.guarantee is Guarantee.EXACTLY_ONCE
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("goal", ["fresh", "reposition"])
@pytest.mark.parametrize("is_done", [True, False], ids=["done", "orphan"])
def test_other_goals_promise_no_more_than_comes(
    goal: str, sink: str, is_done: bool, application: MakeApplication
) -> None:
    app = application(sink=sink)
    if not is_done:
        for name in (f"{app.newest}", f".{app.newest}.crc"):
            (app.checkpoint / "commits" / name).unlink()
    break_newest(app, "gone")
    plan = app.planned(app.choose(goal), goal=goal)
    if plan.guarantee is Guarantee.LOSSY:
        return
    app.carry_out(plan)
    assert judged(app, plan) == []
