"""`replan`: the orphan is dropped so that today's limits apply, also where a file source has noted it down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from planning import carried_out, changes, delta, drafted, files, known, query
from predicting import of_spark_2_1

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import ReplanGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.files.facts import FileFacts, FileState
from lastgood.testing.checkpoints import FileInput


def test_files_of_the_orphan_are_planned_again(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    found = drafted(known(tmp_path, delta(2)), ReplanGoal())
    assert changes(found) == {"sources/0/3": "set aside", "offsets/3": "set aside"}
    assert (found.guarantee, found.sources[0].reread_files) == (
        Guarantee.EXACTLY_ONCE,
        ("file:///data/input/f003.json",),
    )
    assert predict(Observation(carried_out(tmp_path, found)), SPARK_4_2).batch == 3


def test_age_up_to_which_files_are_found_again_is_an_assumption_where_they_are_older_than_others(
    tmp_path: Path,
) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    assert "maxFileAge" not in str(drafted(known(tmp_path, delta(2)), ReplanGoal()).rests_on)
    entry = tmp_path / "sources/0/2"
    now_ms = int(json.loads(entry.read_bytes().splitlines()[1])["timestamp"])
    entry.write_bytes(entry.read_bytes().replace(str(now_ms).encode(), str(now_ms + 3_600_000).encode()))
    found = drafted(known(tmp_path, delta(2)), ReplanGoal())
    assert any("maxFileAge of source 0, which no file records, is 1.00 hours" in line for line in found.rests_on)


def test_compaction_that_holds_the_orphan_is_refused(tmp_path: Path) -> None:
    query(tmp_path, 4, orphan=True, source=FileInput(compact_interval=5))
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(3)), ReplanGoal())
    assert refused.value.subject == "sources/0/4.compact"


def test_file_that_would_not_be_found_again_is_refused(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    gone = FileFacts(SourceFile("file:///data/input/f003.json", 1, 3), FileState.MISSING)
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(2), files={"0": (gone,)}), ReplanGoal())
    assert refused.value.found == "file:///data/input/f003.json would not be found again"


def test_first_batch_keeps_the_note_where_it_began(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    found = drafted(known(tmp_path, files(None)), ReplanGoal())
    assert (changes(found), found.guarantee) == ({"offsets/0": "set aside"}, Guarantee.EXACTLY_ONCE)


def test_first_batch_without_that_note_is_refused(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    (tmp_path / "sources/0/0").unlink()
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, files(None)), ReplanGoal())
    assert refused.value.found == "no sources/*/0, where the first batch began"


def test_first_batch_that_an_unknown_sink_may_drop_is_lossy(tmp_path: Path) -> None:
    """No commit is there that an empty batch could be committed with."""
    query(tmp_path, 0, orphan=True)
    assert drafted(known(tmp_path), ReplanGoal()).guarantee is Guarantee.LOSSY


def test_sink_that_is_behind_is_left_to_resume(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(1)), ReplanGoal())
    assert refused.value.next == "lastgood plan /chk --goal resume"


def test_damaged_plan_is_dropped_as_well(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (tmp_path / "offsets/3").write_bytes(b"")
    found = drafted(known(tmp_path, delta(2)), ReplanGoal())
    assert (changes(found), found.guarantee) == ({"offsets/3": "set aside"}, Guarantee.EXACTLY_ONCE)
    assert found.sources[0].bound


def test_files_that_are_not_touched_are_guarded(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    assert drafted(known(tmp_path, delta(2)), ReplanGoal()).guards == ("metadata", "offsets/2", "commits/2")


def several(folder: Path, source: FileInput | None = None) -> None:
    """Batches 0 to 2 are committed, 3 to 5 planned."""
    builder = query(folder, 3, source=source)
    for number in (3, 4, 5):
        builder.plan()
        if number < 5:
            builder.commit()
    for number in (3, 4):
        (folder / f"commits/{number}").unlink()


def test_several_orphans_are_dropped_together_where_the_sinks_have_none_of_them(tmp_path: Path) -> None:
    several(tmp_path)
    found = drafted(known(tmp_path, files(2)), ReplanGoal())
    assert changes(found) == {f"offsets/{n}": "set aside" for n in (3, 4, 5)}
    assert (found.guarantee, found.sources[0].reread) == (
        Guarantee.EXACTLY_ONCE,
        {"orders": {0: ((15, 30),), 1: ((15, 30),)}},
    )
    then = predict(Observation(carried_out(tmp_path, found)), SPARK_4_2)
    assert (then.outcome.value, then.batch) == ("resumes", 3)


def test_numbers_of_several_orphans_are_used_up_in_a_table_that_spark_alone_writes(tmp_path: Path) -> None:
    several(tmp_path)
    found = drafted(known(tmp_path, delta(2, back_to=0)), ReplanGoal())
    assert changes(found) == {f"{log}/{n}": "written" for log in ("offsets", "commits") for n in (3, 4, 5)}
    assert [(edit.batch, found.guarantee) for edit in found.sinks] == [(5, Guarantee.EXACTLY_ONCE)]
    then = predict(Observation(carried_out(tmp_path, found)), SPARK_4_2)
    assert (then.outcome.value, then.batch) == ("resumes", 6)


@pytest.mark.parametrize("sink", [files(2), delta(2)], ids=["files", "delta"])
def test_orphans_of_which_the_newest_reads_nothing_are_dropped_together_too(tmp_path: Path, sink: SinkEvidence) -> None:
    builder = query(tmp_path, 3)
    builder.plan()
    builder.plan(0)
    found = drafted(known(tmp_path, sink), ReplanGoal())
    assert (changes(found), found.guarantee) == (
        {"offsets/3": "set aside", "offsets/4": "set aside"},
        Guarantee.EXACTLY_ONCE,
    )


def test_files_of_several_orphans_are_planned_again(tmp_path: Path) -> None:
    several(tmp_path, FileInput())
    found = drafted(known(tmp_path, files(2)), ReplanGoal())
    assert changes(found) == {f"{log}/{n}": "set aside" for log in ("sources/0", "offsets") for n in (3, 4, 5)}
    assert found.sources[0].reread_files == tuple(f"file:///data/input/f{n:03}.json" for n in (3, 4, 5))


def test_several_orphans_come_twice_where_nobody_knows_what_the_sink_has(tmp_path: Path) -> None:
    several(tmp_path)
    found = drafted(known(tmp_path), ReplanGoal())
    assert changes(found) == {f"offsets/{n}": "written" for n in (3, 4, 5)}
    assert (found.guarantee, found.sources[0].duplicated) == (
        Guarantee.AT_LEAST_ONCE,
        {"orders": {0: ((15, 30),), 1: ((15, 30),)}},
    )
    assert found.rests_on[1] == "the assumption that no sink is a file sink of Spark, whose log would lack 3 to 4"
    then = predict(Observation(carried_out(tmp_path, found)), SPARK_4_2)
    assert (then.outcome.value, then.batch) == ("reruns", 5)


def test_where_no_sink_is_named_it_is_said_that_one_would_tell_and_that_they_can_be_dropped(tmp_path: Path) -> None:
    several(tmp_path)
    found = drafted(known(tmp_path), ResumeGoal())
    assert found.guarantee is Guarantee.LOSSY
    assert found.rests_on[-1].startswith(
        "batches 3 to 4 have no commit, and Spark takes what is below batch 5 for done"
    )
    assert "(--sink)" in found.rests_on[-1]
    words = {each.goal: each.guarantee for each in found.alternatives}
    assert words["replan"] is Guarantee.AT_LEAST_ONCE
    assert drafted(known(tmp_path, files(2)), ResumeGoal()).guarantee is Guarantee.EXACTLY_ONCE


def test_spark_2_1_plans_a_batch_when_the_one_before_is_done_and_keeps_no_commits(tmp_path: Path) -> None:
    several(tmp_path)
    of_spark_2_1(tmp_path)
    found = drafted(known(tmp_path), ResumeGoal())
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert not any("no commit" in each for each in found.rests_on)
    assert (found.sources[0].duplicated, found.sources[0].lost) == ({"orders": {0: ((25, 30),), 1: ((25, 30),)}}, {})


def test_orphan_that_the_sink_has_stays_and_those_after_it_are_dropped(tmp_path: Path) -> None:
    several(tmp_path)
    found = drafted(known(tmp_path, delta(4)), ReplanGoal())
    assert (changes(found), found.guarantee) == ({"offsets/5": "set aside"}, Guarantee.EXACTLY_ONCE)
    then = predict(Observation(carried_out(tmp_path, found), sinks=(delta(4),)), SPARK_4_2)
    assert (then.outcome.value, then.batch) == ("reruns", 4)


def test_orphans_that_a_sink_has_and_cannot_give_back_are_refused(tmp_path: Path) -> None:
    several(tmp_path)
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, delta(5)), ReplanGoal())


def test_plans_without_any_commit_before_them_are_no_orphans(tmp_path: Path) -> None:
    """A commit log that is lost does not make of every batch one that is not done."""
    several(tmp_path)
    for number in range(3):
        (tmp_path / f"commits/{number}").unlink()
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path), ReplanGoal())
    assert refused.value.sentence == "batches 0 to 5 are planned and not committed"
