"""The number under which a query goes on: none that a sink has, and none left out in the log of a file sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planning import broker, carried_out, changes, delta, drafted, files, known, mirror_of, query, silent, written

from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import Extent, FreshGoal, RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import DedupeKey, SinkEvidence

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
OTHER_ID = "0b7e60a2-1111-4222-8333-944445555666"


def fresh(offset: int, **others: Any) -> FreshGoal:
    return FreshGoal({"0": {"orders": {0: offset, 1: offset}}}, "where a test says", **others)


def to(offset: int) -> RepositionGoal:
    return RepositionGoal({"0": {"orders": {0: offset, 1: offset}}}, "a test wants it")


GOALS = pytest.mark.parametrize("goal", [fresh(15), to(15)], ids=["fresh", "reposition"])


def absent() -> SinkEvidence:
    return SinkEvidence("absent", "/lake/files", DedupeKey.NONE, None, known=True, because="there is nothing")


def without_log() -> SinkEvidence:
    """A folder with files of which nobody knows whether they count."""
    return SinkEvidence("file", "/lake/files", DedupeKey.DIRECTORY, None, known=False, because="there is no log")


def starts(folder: Path, found: Draft, *sinks: SinkEvidence) -> tuple[Outcome, int | None]:
    """How Spark goes on, and with which batch."""
    restart = predict(Observation(carried_out(folder, found), sinks=sinks), SPARK_4_2)
    assert restart.stop is None, restart
    return restart.outcome, restart.batch


@GOALS
def test_file_sink_that_lacks_the_orphan_gets_its_number_next(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, files(2)), goal)
    assert found.guarantee is EXACT
    assert starts(tmp_path, found, files(2)) == (Outcome.RESUMES, 3)


@GOALS
def test_file_sink_that_has_the_orphan_gets_the_number_after_it(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, files(3)), goal)
    assert found.guarantee is TWICE
    assert starts(tmp_path, found, files(3)) == (Outcome.RESUMES, 4)


def test_file_sink_that_went_back_gets_the_numbers_again(tmp_path: Path) -> None:
    query(tmp_path, 5)
    found = drafted(known(tmp_path, files(2)), to(15))
    assert changes(found) == {
        **dict.fromkeys(("offsets/3", "offsets/4", "commits/3", "commits/4"), "set aside"),
    }
    assert found.guarantee is EXACT
    assert starts(tmp_path, found, files(2)) == (Outcome.RESUMES, 3)


def test_file_sink_that_is_ahead_gets_the_number_after_its_newest(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, files(5), kafka=broker((0, 40), (0, 40))), to(15))
    assert found.guarantee is TWICE
    assert starts(tmp_path, found, files(5)) == (Outcome.RESUMES, 6)


@GOALS
@pytest.mark.parametrize("sinks", [(), (silent(),), (files(2), silent())], ids=["none", "silent", "one-of-two"])
def test_number_that_an_unknown_sink_may_or_may_not_have_is_run_without_a_row(
    tmp_path: Path, goal: Goal, sinks: tuple[SinkEvidence, ...]
) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, *sinks), goal)
    assert found.guarantee is not EXACT
    assert starts(tmp_path, found) == (Outcome.RERUNS, 3)
    before, now = ((tmp_path / f"offsets/{n}").read_text().splitlines() for n in (2, 3))
    assert before[2:] == now[2:]
    assert (tmp_path / "commits/2").exists()
    assert not (tmp_path / "commits/3").exists()


@GOALS
def test_number_whose_commit_is_there_is_in_every_sink(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, silent()), goal)
    assert starts(tmp_path, found) == (Outcome.RESUMES, 3)


@GOALS
def test_table_may_miss_numbers(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, delta(3)), goal)
    assert changes(found)["commits/3"] == "written"


def test_number_that_only_another_sink_knows_is_run_for_the_file_sink_that_lacks_it(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, delta(3), files(2)), fresh(15))
    assert starts(tmp_path, found, files(2)) == (Outcome.RERUNS, 3)


@GOALS
def test_number_that_would_leave_others_out_is_refused(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 5)
    with pytest.raises(RepairRefusedError, match="would lack batch 3") as refused:
        drafted(known(tmp_path, delta(4), files(2)), goal)
    assert refused.value.subject == "/lake/files"


def test_numbers_that_are_left_out_because_of_a_mark_are_told_where_a_sink_is_unknown(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(None, others={"nightly": 9}), silent()), fresh(15))
    assert any("no sink is a file sink of Spark" in line for line in found.rests_on)
    assert starts(tmp_path, found) == (Outcome.RERUNS, 9)


@pytest.mark.parametrize("sink", [files(None), absent()], ids=["empty", "absent"])
def test_sink_that_has_nothing_begins_with_an_empty_batch_0(tmp_path: Path, sink: SinkEvidence) -> None:
    query(tmp_path, 0, orphan=True)
    extent = Extent({"0": {"orders": {0: 0, 1: 0}}}, {"0": {"orders": {0: 0, 1: 0}}}, EXACT, ("a test",))
    found = drafted(known(tmp_path, sink), fresh(0, extent=extent))
    assert found.guarantee is EXACT
    assert changes(found)["offsets/0"] == "written"
    assert starts(tmp_path, found, sink) == (Outcome.RERUNS, 0)
    assert (tmp_path / "sources/0/0").read_bytes() == b'\0v1\n{"orders":{"0":0,"1":0}}'
    assert not (tmp_path / "commits/0").exists()


def test_batch_0_that_runs_without_a_row_knows_no_earliest(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    found = drafted(known(tmp_path, files(None), kafka=broker((3, 9), (0, 9))), fresh(-2))
    for path in ("offsets/0", "sources/0/0"):
        assert b'{"orders":{"0":3,"1":0}}' in (written(found, path) or b"")
    with pytest.raises(RepairRefusedError, match="only Kafka can tell"):
        drafted(known(tmp_path, files(None)), fresh(-2))


@pytest.mark.parametrize("sink", [files(None), without_log()], ids=["empty", "gone"])
@pytest.mark.parametrize("goal", [ResumeGoal(), fresh(15), to(15)], ids=["resume", "fresh", "reposition"])
def test_file_sink_whose_log_is_gone_is_refused(tmp_path: Path, goal: Goal, sink: SinkEvidence) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError, match="own log has no entry"):
        drafted(known(tmp_path, sink), goal)


@pytest.mark.parametrize("has_plan", [True, False], ids=["by-the-mirror", "without-a-plan"])
def test_files_without_a_log_are_not_hidden_by_a_new_one(tmp_path: Path, *, has_plan: bool) -> None:
    query(tmp_path / "before", 3)
    mirror = mirror_of(tmp_path / "before") if has_plan else {}
    with pytest.raises(RepairRefusedError, match="not the log"):
        drafted(known(tmp_path / "lost", without_log(), mirror=mirror), fresh(15, new_query_id=OTHER_ID))


def test_first_start_on_a_folder_with_other_files_is_not_refused(tmp_path: Path) -> None:
    query(tmp_path, 0)
    assert drafted(known(tmp_path, without_log()), ResumeGoal()).guarantee is TWICE


def test_resume_that_would_leave_a_number_out_is_refused(tmp_path: Path) -> None:
    """The commits are gone, and only one of two sinks tells how far it is."""
    query(tmp_path, 5)
    for n in range(2, 5):
        (tmp_path / f"commits/{n}").unlink()
    with pytest.raises(RepairRefusedError, match="would lack batch 2"):
        drafted(known(tmp_path, files(1), silent()), ResumeGoal())


def test_plan_that_cannot_be_read_has_used_its_number_up(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (tmp_path / "offsets/3").write_bytes(b"")
    found = drafted(known(tmp_path), fresh(15))
    assert starts(tmp_path, found) == (Outcome.RERUNS, 3)


def test_plan_that_only_the_mirror_has_may_be_in_a_sink_that_nobody_asked(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    mirror = mirror_of(tmp_path)
    (tmp_path / "offsets/3").unlink()
    found = drafted(known(tmp_path, mirror=mirror), to(15))
    assert (found.guarantee, found.sources[0].duplicated) == (TWICE, {"orders": {0: ((15, 20),), 1: ((15, 20),)}})
    assert starts(tmp_path, found) == (Outcome.RERUNS, 3)


@pytest.mark.parametrize("has_plan", [True, False], ids=["by-the-mirror", "without-a-plan"])
def test_numbers_that_a_sink_may_have_beyond_what_is_left_are_an_assumption(tmp_path: Path, *, has_plan: bool) -> None:
    query(tmp_path / "before", 3)
    mirror = mirror_of(tmp_path / "before") if has_plan else {}
    goal = fresh(15, new_query_id=OTHER_ID)
    for sinks in ((), (silent(),)):
        found = drafted(known(tmp_path / "lost", *sinks, mirror=mirror), goal)
        assert "the assumption that no sink which goes by numbers has" in found.rests_on[-1]
    told = drafted(known(tmp_path / "lost", delta(2 if has_plan else None), mirror=mirror), goal)
    assert "goes by numbers" not in " ".join(told.rests_on)
