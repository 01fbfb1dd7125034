"""Several plans in a row that are not committed: dropped together, and every row comes as often as was said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.cases import Case
from conformance.edits import Edit
from conformance.flavours import FLAVOURS
from conformance.folders import ids
from plugin_laboratory import OpenLaboratory
from repair.repairs import Repair, broken_promise, carry_out, differing, planned, wrong_price

VERSION = "4.2.0"
AHEAD = 3
"""Offsets of each plan that no driver has run."""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lastgood remembers of recoveries on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def without_commits(newest: int, count: int) -> Iterator[Edit]:
    batches = list(range(newest - count + 1, newest + 1))
    yield Edit("remove_entries", {"logs": ["commits"], "batches": batches, "crc": "none"})


def planned_ahead(newest: int, count: int) -> Iterator[Edit]:
    """Plans that no driver has run; of Kafka alone, which keeps no list of what was planned."""
    for batch in range(newest, newest + count):
        yield Edit("copy_ahead", {"logs": ["offsets"], "batch": batch, "by": 1})
        yield Edit("move_offset", {"batch": batch + 1, "source": 0, "by": AHEAD, "crc": "none"})


def sink_set_back(folder: Path, count: int) -> None:
    """A file sink loses its newest batches, as if their drivers had died before they wrote."""
    log = folder / "sink/_spark_metadata"
    numbers = sorted((each for each in log.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
    for each in numbers[-count:]:
        each.unlink()
        each.with_name(f".{each.name}.crc").unlink(missing_ok=True)


def nobody_has_them(newest: int) -> list[Edit]:
    return [*planned_ahead(newest, 2)]


def one_has_the_first(newest: int) -> list[Edit]:
    return [*planned_ahead(newest, 1), *without_commits(newest, 1)]


def all_are_there(newest: int) -> list[Edit]:
    return [*without_commits(newest, 2)]


CASES = [
    pytest.param("kafka-delta", nobody_has_them, 0, "exactly_once", id="table, which has none"),
    pytest.param("kafka-delta", one_has_the_first, 0, "exactly_once", id="table, which has the first"),
    pytest.param("kafka-delta", all_are_there, 0, "exactly_once", id="table, which has both and gives them back"),
    pytest.param("kafka", nobody_has_them, 0, "at_least_once", id="function, which tells nothing, and lacks both"),
    pytest.param("kafka", all_are_there, 0, "at_least_once", id="function, which tells nothing, and has both"),
    pytest.param("files", all_are_there, 0, "at_least_once", id="function over files, which has both"),
    pytest.param("file-sink", all_are_there, 2, "exactly_once", id="file sink, which has none"),
    pytest.param("file-sink", all_are_there, 1, "exactly_once", id="file sink, which has the first"),
    pytest.param("dedup-file-sink", all_are_there, 2, "exactly_once", id="with state, of which the newest has no data"),
    pytest.param("agg-hdfs", all_are_there, 0, "lossy", id="with state, function, which has both"),
    pytest.param("agg-rocksdb-changelog", all_are_there, 0, "lossy", id="the same with another store"),
    pytest.param("kafka-dedup", nobody_has_them, 0, "lossy", id="with state, function, which has none"),
]
HELD = [("dedup-file-sink", 1), ("dedup-file-sink", 0), ("dedup-delta", 0)]
"""With state, and the sink lacks so many of two orphans."""


@pytest.mark.proof
@pytest.mark.parametrize(("flavour", "damage", "lacking", "word"), CASES)
def test_orphans_are_dropped_together_and_every_row_comes_as_often_as_was_said(
    flavour: str,
    damage: Callable[[int], list[Edit]],
    lacking: int,
    word: str,
    open_laboratory: OpenLaboratory,
) -> None:
    laboratory = open_laboratory(VERSION, flavour)
    newest = max(ids(laboratory.healthy(FLAVOURS[flavour]), "commits"))
    case = Case(VERSION, flavour, tuple(damage(newest)), "several")
    repair = Repair(case, "replan")
    with laboratory.damaged(case, lambda folder: sink_set_back(folder, lacking) if lacking else None) as folder:
        plan = planned(repair, folder)
        carry_out(plan, folder)
        seen = laboratory.restart(case, folder)
        lost, twice = differing(seen, folder)
        wrong = [*broken_promise(plan, seen), *wrong_price(plan, seen, folder)]
    print(flavour, plan.guarantee.value, plan.promise, seen.ended, lost.total(), twice.total(), plan.rests_on)
    assert wrong == []
    assert (plan.guarantee.value, seen.ended) == (word, "finished")
    assert lost.total() == 0


@pytest.mark.proof
@pytest.mark.parametrize(("flavour", "lacking"), HELD)
@pytest.mark.parametrize("goal", ["resume", "replan"])
def test_orphans_of_a_query_with_state_that_the_sink_holds_come_once(
    flavour: str, lacking: int, goal: str, open_laboratory: OpenLaboratory
) -> None:
    """`resume` starts it as it stands; `replan` has the sink give them back."""
    laboratory = open_laboratory(VERSION, flavour)
    newest = max(ids(laboratory.healthy(FLAVOURS[flavour]), "commits"))
    case = Case(VERSION, flavour, tuple(all_are_there(newest)), "several")
    repair = Repair(case, goal)
    with laboratory.damaged(case, lambda folder: sink_set_back(folder, lacking) if lacking else None) as folder:
        plan = planned(repair, folder)
        carry_out(plan, folder)
        seen = laboratory.restart(case, folder)
        lost, twice = differing(seen, folder)
        wrong = [*broken_promise(plan, seen), *wrong_price(plan, seen, folder)]
    assert (plan.guarantee.value, bool(plan.steps), seen.ended) == ("exactly_once", goal == "replan", "finished")
    assert (wrong, lost.total(), twice.total()) == ([], 0, 0)
