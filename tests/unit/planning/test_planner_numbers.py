"""Numbers that a sink has from an older plan: every goal, and what is so once the number is used up."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning import carried_out, changes, delta, drafted, files, known, query, serve, stateful, written

from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.position import locate
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.testing.checkpoints import STARTED_MS, FileInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
KEPT = serve((0, 40), (0, 40))


def committed(last: int, *, newest_after_ms: int | None, row_count: int | None = 10) -> tuple[CommittedBatch, ...]:
    """Each batch half a second after its plan, and the newest so long after its own."""
    after = dict.fromkeys(range(last), 500) | {last: newest_after_ms}
    return tuple(
        CommittedBatch(
            n,
            n,
            committed_at_ms=None if ms is None else STARTED_MS + 1000 * n + ms,
            row_count=row_count,
            is_streaming=True,
        )
        for n, ms in after.items()
    )


def older(last: int = 3, **others: Any) -> SinkEvidence:
    """A table that had its newest batch two seconds before that was planned."""
    return delta(last, batches=committed(last, newest_after_ms=-2000), **others)


@pytest.mark.parametrize("goal", [ResumeGoal(), ReplanGoal()])
def test_number_that_a_table_has_from_an_older_plan_is_used_up(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, older(), kafka=KEPT), goal)
    assert (found.guarantee, found.is_plain, changes(found)) == (TWICE, False, {"offsets/3": "written"})
    assert written(found, "offsets/3") == (tmp_path / "offsets/2").read_bytes()
    (price,) = found.sources
    assert price.duplicated == {"orders": {0: ((15, 40),), 1: ((15, 40),)}}  # how far the older plan went nobody knows
    assert (price.bound, dict(price.lost)) == (True, {})
    assert any("2.0 seconds before that was planned" in line for line in found.rests_on)


def test_once_it_is_used_up_a_restart_reads_the_range_under_the_next_number(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    carried_out(tmp_path, drafted(known(tmp_path, older(), kafka=KEPT), ResumeGoal()))
    then = known(tmp_path, older(), kafka=KEPT)
    restart = predict(then, SPARK_4_2)
    assert (restart.outcome, restart.batch) == (Outcome.RERUNS, 3)
    found = drafted(then, ResumeGoal())
    assert (found.guarantee, found.is_plain) == (TWICE, True)
    assert found.sources[0].duplicated == {"orders": {0: ((15, 40),), 1: ((15, 40),)}}


@pytest.mark.parametrize("goal", [ResumeGoal(), RepositionGoal({}, "it stands")])
def test_rows_that_came_twice_by_that_are_named_as_long_as_the_plan_is_there(
    tmp_path: Path, goal: ResumeGoal | RepositionGoal
) -> None:
    query(tmp_path, 3, orphan=True)
    carried_out(tmp_path, drafted(known(tmp_path, older(), kafka=KEPT), ResumeGoal()))
    shutil.copy(tmp_path / "commits/2", tmp_path / "commits/3")
    found = drafted(known(tmp_path, older(), kafka=KEPT), goal)
    assert (found.guarantee, found.is_plain) == (TWICE, True)
    assert any("may have rows twice" in line for line in found.rests_on)


def test_first_batch_may_be_the_one(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    (tmp_path / "sources/0/0").write_bytes(b'\0v1\n{"orders":{"0":0,"1":0}}')
    found = drafted(known(tmp_path, delta(0, batches=committed(0, newest_after_ms=-400_000)), kafka=KEPT), ResumeGoal())
    assert (found.guarantee, changes(found)) == (TWICE, {"offsets/0": "written"})
    assert b'{"orders":{"0":0,"1":0}}' in (written(found, "offsets/0") or b"")


@pytest.mark.parametrize(
    ("newest_after_ms", "word"), [(500, EXACT), (-1, TWICE), (-400_000, TWICE)], ids=["younger", "older", "much older"]
)
def test_table_tells_by_its_times_of_which_plan_its_batch_is(
    tmp_path: Path, newest_after_ms: int, word: Guarantee
) -> None:
    query(tmp_path, 3, orphan=True)
    table = delta(3, batches=committed(3, newest_after_ms=newest_after_ms))
    assert drafted(known(tmp_path, table, kafka=KEPT), ResumeGoal()).guarantee is word


def test_table_without_times_tells_by_its_mark(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    table = delta(3, batches=(), marked_at_ms=STARTED_MS + 1000)
    assert drafted(known(tmp_path, table, kafka=KEPT), ResumeGoal()).guarantee is TWICE


def test_file_sink_and_file_source_are_no_other_case(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput(2))
    sink = files(3, batches=committed(3, newest_after_ms=-400_000, row_count=None))
    found = drafted(known(tmp_path, sink), ResumeGoal())
    assert (found.guarantee, changes(found)) == (TWICE, {"offsets/3": "written"})
    assert found.sources[0].duplicated_files


def test_reposition_knows_that_the_table_may_be_anywhere(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, older(), kafka=KEPT), RepositionGoal({}, "it stands"))
    assert found.guarantee is TWICE
    assert found.sources[0].duplicated == {"orders": {0: ((15, 40),), 1: ((15, 40),)}}
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, older()), RepositionGoal({}, "it stands"))


def test_state_that_an_older_plan_made_would_count_twice_so_the_table_gives_the_batch_back(tmp_path: Path) -> None:
    sizes = stateful(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, older(back_to=0), kafka=KEPT, state_files=sizes), ResumeGoal())
    assert (changes(found), [edit.batch for edit in found.sinks]) == ({}, [2])
    assert {step.path for step in found.moves if step.path.endswith(".delta")} == {
        "state/0/0/4.delta",
        "state/0/1/4.delta",
    }
    with pytest.raises(RepairRefusedError, match="keeps state"):
        drafted(known(tmp_path, older(), kafka=KEPT, state_files=sizes), ResumeGoal())


def test_position_does_not_take_the_number_for_the_batch(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    position = locate(known(tmp_path).checkpoint, [older()])
    assert (position.sink, position.sink_known, position.last_good, position.skipped_up_to) == (None, False, 2, 3)
    assert "is not known to be of its plan" in position.reasons[-1]


def test_batch_that_was_skipped_already_is_lost(tmp_path: Path) -> None:
    query(tmp_path, 4)
    found = drafted(known(tmp_path, older(), kafka=KEPT), ResumeGoal())
    assert (found.guarantee, found.is_plain) == (LOSSY, True)
    assert "may lack what batch 3 read" in found.rests_on[-1]


@pytest.mark.parametrize("goal", [ResumeGoal(), ReplanGoal()])
@pytest.mark.parametrize("kind", ["delta", "file"])
def test_numbers_above_that_the_sink_has_as_well_are_used_up_with_it(tmp_path: Path, kind: str, goal: Goal) -> None:
    """Somebody dropped three plans by hand; the next driver has planned the first of the numbers anew."""
    query(tmp_path, 3, orphan=True)
    times = {n: STARTED_MS + 1000 * n + (500 if n < 3 else -1500) for n in range(6)}
    batches = tuple(CommittedBatch(n, n, committed_at_ms=ms, is_streaming=True) for n, ms in times.items())
    make = delta if kind == "delta" else files
    sink = make(5, batches=batches, times_by_driver=True)
    found = drafted(known(tmp_path, sink, kafka=KEPT), goal)
    assert changes(found) == dict.fromkeys(("offsets/3", "offsets/4", "offsets/5"), "written")
    assert found.guarantee is TWICE
    carried_out(tmp_path, found)
    then = predict(known(tmp_path, sink, kafka=KEPT), SPARK_4_2)
    assert (then.outcome, then.batch) == (Outcome.RERUNS, 5)


@pytest.mark.parametrize("goal", [ResumeGoal(), ReplanGoal(), RepositionGoal({}, "it stands")])
def test_batch_that_an_older_driver_got_there_by_a_clock_that_was_ahead_is_not_exact(
    tmp_path: Path, goal: Goal
) -> None:
    query(tmp_path, 3)
    assert (
        drafted(known(tmp_path, delta(2, batches=committed(2, newest_after_ms=500)), kafka=KEPT), goal).guarantee
        is EXACT
    )
    ahead = tuple(
        CommittedBatch(n, n, committed_at_ms=STARTED_MS + 1000 * n + (1500 if n == 1 else 500), is_streaming=True)
        for n in range(3)
    )
    found = drafted(known(tmp_path, delta(2, batches=ahead), kafka=KEPT), goal)
    assert found.guarantee is LOSSY
    assert any("after batch 2 was planned" in line for line in found.rests_on)


def test_rows_that_were_taken_back_are_no_batch_that_had_none(tmp_path: Path) -> None:
    """A function need not leave a mark; of a batch that the table has had it did."""
    query(tmp_path, 3)
    batches = tuple(
        CommittedBatch(n, n, is_live=n < 1, committed_at_ms=STARTED_MS + 1000 * n + 500, is_streaming=False)
        for n in range(3)
    )
    sink = replace(delta(0, batches=batches, skips_up_to=2), dedupe_key=DedupeKey.APP_ID)
    found = drafted(known(tmp_path, sink, kafka=KEPT), RepositionGoal({}, "it stands"))
    assert found.guarantee is LOSSY
    assert any("lacks batches (1, 2)" in line for line in found.rests_on)
