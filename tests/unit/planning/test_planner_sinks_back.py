"""Sinks that go back because of a plan: which goals take them back, how far, and when that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planning import broker, changes, delta, drafted, files, known, mirror_of, query, serve, silent, written

from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.values import ReplanGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.sinks.evidence import SinkEvidence
from lastgood.steps.step import SinkEdit
from lastgood.testing.checkpoints import QUERY_ID, FileInput

EXACT = Guarantee.EXACTLY_ONCE
SERVED = serve((0, 60), (0, 60))


def table(last: int, **others: Any) -> SinkEvidence:
    """A table that can be taken back to its first batch."""
    return delta(last, **{"app_id": QUERY_ID, "back_to": 0, "back_because": "it is the first batch", **others})


def folder(last: int, **others: Any) -> SinkEvidence:
    return files(last, **{"back_to": 0, **others})


def back(found: Draft) -> dict[str, int]:
    return {edit.location: edit.batch for edit in found.sinks}


def test_row_6_table_gives_the_orphan_back(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, table(3), kafka=SERVED), ReplanGoal())
    assert (back(found), changes(found)) == ({"/lake/out": 2}, {"offsets/3": "set aside"})
    assert (found.guarantee, found.is_plain) == (EXACT, False)
    assert found.sinks[0] == SinkEdit("delta", "/lake/out", QUERY_ID, 2, "batch 3 is to be planned anew")
    assert found.sources[0].reread == {"orders": {0: ((15, 20),), 1: ((15, 20),)}}


def test_row_6_only_the_sink_that_has_it_gives_it_back(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, table(2), folder(3), kafka=SERVED), ReplanGoal())
    assert back(found) == {"/lake/files": 2}


@pytest.mark.parametrize(
    ("sinks", "kafka", "found"),
    [
        ((table(3, back_to=3, back_because="version 9 (OPTIMIZE) touched it"),), SERVED, "version 9"),
        ((table(3),), serve((18, 60), (0, 60)), "Kafka no longer serves all of orders"),
        ((table(3),), broker((0, 60), (0, 60)), "a broker that does not tell whether orders is compacted"),
        ((table(3), silent()), SERVED, "delta txn 3"),
        ((table(3),), None, "nobody who was asked"),
        ((table(3, back_to=None, back_because="the table has delta.appendOnly = true"),), SERVED, "appendOnly"),
    ],
    ids=["rewritten", "expired", "untold", "one is silent", "nobody asked", "forbidden"],
)
def test_row_6_is_refused(tmp_path: Path, sinks: tuple[SinkEvidence, ...], kafka: Any, found: str) -> None:
    query(tmp_path, 3, orphan=True)
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, *sinks, kafka=kafka), ReplanGoal())
    assert found in str(refused.value.found)


def test_row_6_first_batch_is_not_taken_back(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, table(0), kafka=SERVED), ReplanGoal())


def test_row_9_table_goes_back_to_logs_that_are_older(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, table(5), kafka=SERVED), ResumeGoal())
    assert (back(found), changes(found), found.guarantee) == ({"/lake/out": 2}, {}, EXACT)
    assert found.rests_on[0] == "offsets/2, and Kafka, which still serves all that comes after"


def test_row_9_keeps_what_the_newest_plan_covers(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    assert back(drafted(known(tmp_path, table(5), kafka=SERVED), ResumeGoal())) == {"/lake/out": 3}


@pytest.mark.parametrize(
    ("sink", "kafka"),
    [
        (table(5), None),
        (table(5), serve((16, 60), (0, 60))),
        (table(5), serve((0, 60), (0, 14))),
        (table(5), serve((0, 60))),
        (table(5, back_to=3), SERVED),
    ],
    ids=["nobody asked", "expired", "shorter than what was read", "a partition gone", "not that far"],
)
def test_row_9_is_refused(tmp_path: Path, sink: SinkEvidence, kafka: Any) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError, match="they are older than it"):
        drafted(known(tmp_path, sink, kafka=kafka), ResumeGoal())


EXPIRED = {"skips_up_to": None, "mark_lasts_ms": 7 * 86_400_000}


def test_row_13_mark_of_an_orphan_that_the_table_has_is_made_again(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    found = drafted(known(tmp_path, table(3, **EXPIRED)), ResumeGoal())
    assert (found.guarantee, changes(found), found.is_plain) == (EXACT, {}, False)
    assert found.sinks == (SinkEdit("delta", "/lake/out", QUERY_ID, 3, "it holds the rows", renews=True),)
    assert found.rests_on[:2] == (
        "/lake/out holds batch 3: its log",
        "a start within 10,080 minutes of the repair: then the mark expires again",
    )


def test_row_13_of_the_very_first_batch(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    found = drafted(known(tmp_path, table(0, **EXPIRED)), ResumeGoal())
    assert ([edit.renews for edit in found.sinks], found.guarantee) == ([True], EXACT)


def test_row_13_of_several_sinks_only_the_one_that_has_it_is_marked(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    found = drafted(known(tmp_path, table(3, **EXPIRED), folder(2)), ResumeGoal())
    assert (back(found), found.guarantee) == ({"/lake/out": 3}, EXACT)


def test_row_13_is_row_2_where_the_table_lacks_the_batch(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    found = drafted(known(tmp_path, table(2, **EXPIRED)), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, EXACT)


@pytest.mark.parametrize(
    "sinks",
    [
        (table(3, **EXPIRED), silent()),
        (table(3, **EXPIRED, write_obstacles=("table feature rowTracking",)),),
        (table(3, skips_up_to=None, mark_lasts_ms=60_000),),
        (table(3, skips_up_to=None, mark_lasts_ms=0),),
        (delta(None, skips_up_to=None, skips_known=False),),
    ],
    ids=["one is silent", "cannot be written", "expires at once", "nobody knows when", "nobody can tell"],
)
def test_row_13_is_at_least_once_where_a_mark_would_not_help(tmp_path: Path, sinks: tuple[SinkEvidence, ...]) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    found = drafted(known(tmp_path, *sinks), ResumeGoal())
    assert (found.sinks, found.is_plain, found.guarantee) == ((), True, Guarantee.AT_LEAST_ONCE)


def test_row_7_is_cheaper_than_row_9(tmp_path: Path) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    for name in ("commits/5", "offsets/5"):
        (tmp_path / name).unlink()
    found = drafted(known(tmp_path, table(5), mirror=mirror, kafka=SERVED), ResumeGoal())
    assert (found.sinks, changes(found)) == ((), {"offsets/5": "written", "commits/5": "written"})


def test_row_11_sink_that_is_further_goes_back_with_the_one_that_went_back(tmp_path: Path) -> None:
    query(tmp_path, 4)
    found = drafted(known(tmp_path, table(1), folder(3), kafka=SERVED), ResumeGoal())
    assert (back(found), found.guarantee) == ({"/lake/files": 1}, EXACT)
    assert set(changes(found)) == {"offsets/2", "offsets/3", "commits/2", "commits/3"}


def test_row_12_mark_follows_the_rows_and_then_the_logs_do(tmp_path: Path) -> None:
    query(tmp_path, 4)
    found = drafted(known(tmp_path, table(1, skips_up_to=3), kafka=SERVED), ResumeGoal())
    assert (back(found), found.guarantee) == ({"/lake/out": 1}, EXACT)
    assert set(changes(found)) == {"offsets/2", "offsets/3", "commits/2", "commits/3"}


@pytest.mark.parametrize("sink", [delta(1, skips_up_to=3), table(1, skips_up_to=3, back_to=None)])
def test_row_12_is_refused_where_the_table_cannot_be_committed_to(tmp_path: Path, sink: SinkEvidence) -> None:
    query(tmp_path, 4)
    with pytest.raises(RepairRefusedError, match="its mark was not"):
        drafted(known(tmp_path, sink, kafka=SERVED), ResumeGoal())


def test_number_of_an_orphan_is_used_up_where_the_query_writes_to_one_table_alone(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, table(2), kafka=SERVED), ReplanGoal())
    assert (back(found), found.guarantee) == ({"/lake/out": 3}, EXACT)
    assert changes(found) == {"offsets/3": "written", "commits/3": "written"}
    assert written(found, "offsets/3") == (tmp_path / "offsets/2").read_bytes()
    assert found.sources[0].duplicated == {}


@pytest.mark.parametrize(
    "sinks", [(table(2), folder(2)), (table(2, batches=()),), (delta(2),)], ids=["two", "by a function", "no access"]
)
def test_number_of_an_orphan_stays_free_elsewhere(tmp_path: Path, sinks: tuple[SinkEvidence, ...]) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, *sinks, kafka=SERVED), ReplanGoal())
    assert (back(found), changes(found)) == ({}, {"offsets/3": "set aside"})
