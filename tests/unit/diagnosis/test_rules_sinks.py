from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.asked import Asked
from lastgood.checkpoint.logs import name_batches
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.rules_sinks import CONDITIONS, find_sinks
from lastgood.query.observation import Observation
from lastgood.query.position import locate
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, make_unknown_evidence
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, KafkaInput

INFO, WARNING, ERROR = Severity
FORMER = "11111111-2222-3333-4444-555555555555"


def query(folder: Path, batches_committed: int, *, orphan: bool = False) -> CheckpointBuilder:
    builder = CheckpointBuilder(folder, KafkaInput("t", 1, 10))
    builder.run(batches_committed)
    if orphan:
        builder.plan()
    return builder


def written(batch_id: int, *, after_ms: int = 500, **others: Any) -> CommittedBatch:
    """A batch that the sink got so long after it was planned."""
    return CommittedBatch(
        batch_id,
        **{"version": batch_id, "row_count": 10, "committed_at_ms": STARTED_MS + 1000 * batch_id + after_ms, **others},
    )


def delta(last: int | None, **others: Any) -> SinkEvidence:
    """A Delta table that shows every batch up to `last`."""
    fields: dict[str, Any] = {
        "batches": tuple(written(n) for n in range(0 if last is None else last + 1)),
        "skips_up_to": last,
        "complete_from": 0,
        "identity": "table",
        "times_by_driver": True,
        **others,
    }
    return SinkEvidence("delta", "/lake/out", DedupeKey.QUERY_ID, last, known=True, because="its log", **fields)


def files(last: int | None, **others: Any) -> SinkEvidence:
    known = others.pop("known", True)
    return SinkEvidence(
        "file", "/lake/out", DedupeKey.DIRECTORY, last, known=known, because="its log", skips_up_to=last, **others
    )


def find(folder: Path, *sinks: SinkEvidence) -> list[Finding]:
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(folder)))
    asked = Asked("/chk", ("--sink", "/lake/out"))
    observed = Observation(checkpoint, location="/chk", asked=asked, sinks=sinks)
    return list(find_sinks(observed, predict(observed, SPARK_4_2)))


def told(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(finding.condition.name, finding.severity) for finding in findings]


# --- health ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [delta(3), files(3)])
def test_sink_that_shows_what_is_committed_is_healthy(tmp_path: Path, sink: SinkEvidence) -> None:
    query(tmp_path, 4)
    assert find(tmp_path, sink) == []


def test_sink_that_lacks_the_planned_batch_gets_it_from_the_next_start(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    assert find(tmp_path, delta(2)) == []


def test_query_that_has_written_nothing_needs_no_sink(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    absent = SinkEvidence("absent", "/lake/out", DedupeKey.QUERY_ID, None, known=True, because="nothing")
    assert find(tmp_path, absent, delta(None)) == []


# --- batches that run again -----------------------------------------------------------------------------------------


def test_sink_that_holds_the_planned_batch_drops_it_and_all_is_well(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (found,) = find(tmp_path, delta(3))
    assert (found.condition.name, found.severity, found.subject) == ("SINK_HOLDS_ORPHAN", INFO, "/lake/out")


def test_expired_mark_lets_the_planned_batch_in_a_second_time(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (found,) = find(tmp_path, delta(3, skips_up_to=None))
    assert (found.condition.name, found.severity, found.next) == (
        "SINK_WOULD_REPEAT",
        ERROR,
        "lastgood inspect /chk --batch 3 --sink /lake/out",
    )


def test_fence_with_digests_knows_the_batch_without_going_by_its_number(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    fence = SinkEvidence("fence", "sqlite:///f#fence", DedupeKey.QUERY_ID, 3, known=True, because="its rows")
    assert told(find(tmp_path, fence)) == [("SINK_HOLDS_ORPHAN", INFO)]


def test_planned_batch_that_is_younger_than_the_one_in_the_sink_will_be_dropped(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    old = delta(3, batches=(written(0), written(1), written(2), written(3, after_ms=-4000)))
    (found,) = find(tmp_path, old)
    assert (found.condition.name, found.severity) == ("SINK_WOULD_SKIP", ERROR)
    assert found.evidence["would_skip"] == [3, 3]


def test_several_sinks_may_hold_the_planned_batch_or_lack_it(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    behind = SinkEvidence("delta", "/lake/b", DedupeKey.QUERY_ID, 2, known=True, because="x", skips_up_to=2)
    assert told(find(tmp_path, delta(3), behind)) == [("SINK_HOLDS_ORPHAN", INFO), ("SINKS_APART", INFO)]


# --- batches that would be dropped ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [delta(5), files(5)])
def test_sink_ahead_of_the_checkpoint_drops_what_is_planned_next(tmp_path: Path, sink: SinkEvidence) -> None:
    query(tmp_path, 3)
    (found,) = find(tmp_path, sink)
    assert (found.condition.name, found.severity) == ("SINK_WOULD_SKIP", ERROR)
    assert (found.evidence["next_batch"], found.evidence["would_skip"]) == (3, [3, 5])
    assert found.next == f"lastgood plan /chk --sink {sink.location}"


def test_planned_batch_below_the_newest_of_the_sink_may_be_another_one(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (found,) = find(tmp_path, delta(5))
    assert found.evidence["would_skip"] == [4, 5]
    assert "So will batch 3" in found.effect


def test_new_checkpoint_on_a_file_sink_loses_its_first_batches(tmp_path: Path) -> None:
    query(tmp_path, 0)
    (found,) = find(tmp_path, files(3))
    assert (found.severity, found.evidence["would_skip"]) == (ERROR, [0, 3])
    assert "knows no query" in found.effect


def test_restored_table_keeps_its_mark_and_would_drop_what_runs_again(tmp_path: Path) -> None:
    query(tmp_path, 2)
    restored = delta(1, skips_up_to=3, batches=(written(0), written(1), written(2, is_live=False)))
    assert told(find(tmp_path, restored)) == [("SINK_WOULD_SKIP", ERROR), ("SINK_ROLLED_BACK", ERROR)]


def test_planned_batch_that_was_taken_back_would_be_dropped_too(tmp_path: Path) -> None:
    query(tmp_path, 2, orphan=True)
    found = find(tmp_path, delta(1, skips_up_to=2))
    assert found[0].evidence["would_skip"] == [2, 2]


def test_name_that_a_function_gives_drops_the_batches_of_a_new_checkpoint(tmp_path: Path) -> None:
    query(tmp_path, 0)
    found = find(tmp_path, delta(None, others={"my-app": 5}))
    assert told(found) == [("SINK_KNOWS_OTHER_QUERY", WARNING), ("SINK_WOULD_SKIP", WARNING)]
    assert found[1].evidence["would_skip"] == [0, 5]


# --- what is missing ------------------------------------------------------------------------------------------------


def test_sink_behind_the_checkpoint_lacks_rows_that_no_start_brings_back(tmp_path: Path) -> None:
    query(tmp_path, 5)
    (found,) = find(tmp_path, delta(2))
    assert (found.condition.name, found.severity, found.evidence["missing"]) == ("SINK_BEHIND", ERROR, [3, 4])
    assert found.next == "lastgood inspect /chk --batch 3 --sink /lake/out"


def test_batches_that_read_nothing_are_not_missed(tmp_path: Path) -> None:
    builder = query(tmp_path, 3)
    builder.plan(0)
    builder.commit()
    assert told(find(tmp_path, delta(2))) == [("SINK_BEHIND", INFO)]


def test_function_that_may_return_early_proves_nothing_by_being_behind(tmp_path: Path) -> None:
    query(tmp_path, 4)
    fence = SinkEvidence("fence", "sqlite:///f#fence", DedupeKey.QUERY_ID, 2, known=True, because="x", skips_up_to=2)
    assert told(find(tmp_path, fence)) == [("SINK_BEHIND", WARNING)]


def test_table_that_a_function_writes_need_not_have_every_batch(tmp_path: Path) -> None:
    query(tmp_path, 4)
    by_function = (written(0, is_streaming=False), written(2, is_streaming=False))
    assert told(find(tmp_path, delta(2, batches=by_function))) == [
        ("SINK_BEHIND", WARNING),
        ("SINK_BATCHES_MISSING", WARNING),
    ]


def test_plan_that_spark_passes_over_counts_as_done(tmp_path: Path) -> None:
    query(tmp_path, 5, orphan=True)
    (tmp_path / "commits/4").unlink()
    (found,) = find(tmp_path, delta(3))
    assert (found.condition.name, found.evidence["missing"]) == ("SINK_BEHIND", [4])


def test_rows_that_were_restored_away_are_gone_for_good(tmp_path: Path) -> None:
    query(tmp_path, 4)
    found = find(tmp_path, delta(1, skips_up_to=3))
    assert told(found) == [("SINK_BEHIND", ERROR), ("SINK_ROLLED_BACK", ERROR)]
    assert found[1].evidence["taken_back"] == [2, 3]


def test_restore_to_before_the_first_batch_is_no_strange_sink(tmp_path: Path) -> None:
    query(tmp_path, 2)
    found = find(tmp_path, delta(None, skips_up_to=1))
    assert told(found) == [("SINK_BEHIND", ERROR), ("SINK_ROLLED_BACK", ERROR)]


def test_hole_below_batches_that_were_written_later_is_found(tmp_path: Path) -> None:
    query(tmp_path, 4)
    history = (written(0), written(1, is_live=False), written(2), written(3))
    (found,) = find(tmp_path, delta(3, batches=history))
    assert (found.condition.name, found.evidence["holes"]) == ("SINK_ROLLED_BACK", [1])


def test_hole_of_a_batch_without_rows_is_none(tmp_path: Path) -> None:
    query(tmp_path, 4)
    history = (written(0), written(1, is_live=False, row_count=0), written(2), written(3))
    assert find(tmp_path, delta(3, batches=history)) == []


def test_batch_that_was_never_written_is_missed_where_the_log_reaches_back(tmp_path: Path) -> None:
    query(tmp_path, 4)
    gap = (written(0), written(2), written(3))
    (found,) = find(tmp_path, delta(3, batches=gap))
    assert (found.condition.name, found.severity, found.evidence["missing"]) == ("SINK_BATCHES_MISSING", ERROR, [1])
    assert find(tmp_path, delta(3, batches=gap, complete_from=2)) == []


def test_batch_with_rows_in_two_versions_is_doubled(tmp_path: Path) -> None:
    query(tmp_path, 3)
    twice = (written(0), written(1), written(2), written(2, version=7, after_ms=900))
    (found,) = find(tmp_path, delta(2, batches=twice))
    assert (found.condition.name, found.severity, found.evidence["versions"]) == (
        "SINK_BATCH_TWICE",
        ERROR,
        {"2": [2, 7]},
    )
    again = (written(0), written(1), written(2, is_live=False), written(2, version=7, after_ms=900))
    assert find(tmp_path, delta(2, batches=again)) == []


# --- batches that were dropped ----------------------------------------------------------------------------------------


def test_batch_that_the_sink_had_before_it_was_planned_was_dropped(tmp_path: Path) -> None:
    query(tmp_path, 4)
    (found,) = find(tmp_path, delta(3, batches=(written(0), written(1), written(2, after_ms=-1500), written(3))))
    assert (found.condition.name, found.severity, found.evidence["batches"]) == ("SINK_BATCHES_SKIPPED", ERROR, [2])


def test_dropped_batch_that_read_nothing_has_lost_nothing(tmp_path: Path) -> None:
    builder = query(tmp_path, 3)
    builder.plan(0)
    builder.commit()
    before = tuple(written(n) for n in range(3))
    assert find(tmp_path, delta(3, batches=(*before, written(3, after_ms=-1500, row_count=0)))) == []
    (twice,) = find(tmp_path, delta(3, batches=(*before, written(3))))
    assert (twice.condition.name, twice.severity) == ("SINK_BATCH_TWICE", Severity.WARNING)
    assert "it has 10 rows of batch 3, whose plan reads nothing" in twice.effect


@pytest.mark.parametrize(
    ("after_ms", "expected"),
    [(-1500, []), (-4000, [("SINK_BATCHES_SKIPPED", WARNING)]), (-600_000, [("SINK_BATCHES_SKIPPED", ERROR)])],
)
def test_clock_of_another_machine_proves_less(
    tmp_path: Path, after_ms: int, expected: list[tuple[str, Severity]]
) -> None:
    query(tmp_path, 3)
    late = tuple(written(n, version=None, after_ms=after_ms) for n in range(3))
    sink = SinkEvidence("file", "s3a://lake/out", DedupeKey.DIRECTORY, 2, known=True, because="x", batches=late)
    assert told(find(tmp_path, sink)) == expected


# --- other queries --------------------------------------------------------------------------------------------------


def test_table_that_knows_the_checkpoint_under_another_id_has_lost_it(tmp_path: Path) -> None:
    query(tmp_path, 4)
    (found,) = find(tmp_path, delta(None, others={FORMER: 3}))
    assert (found.condition.name, found.severity) == ("QUERY_ID_CHANGED", WARNING)
    assert found.evidence["former_ids"] == {FORMER: 3}


def test_planned_batch_that_the_table_has_under_the_old_id_is_written_twice(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    assert told(find(tmp_path, delta(None, others={FORMER: 3}))) == [("QUERY_ID_CHANGED", ERROR)]


@pytest.mark.parametrize(("last", "level"), [(1, INFO), (2, ERROR)])
def test_id_that_changed_on_the_way_doubled_at_most_one_batch(tmp_path: Path, last: int, level: Severity) -> None:
    query(tmp_path, 4)
    (found,) = find(tmp_path, delta(3, batches=(written(2), written(3)), others={FORMER: last}))
    assert (found.condition.name, found.severity) == ("QUERY_ID_CHANGED", level)


def test_lost_id_is_named_by_the_table(tmp_path: Path) -> None:
    query(tmp_path, 4)
    (tmp_path / "metadata").unlink()
    silent = SinkEvidence(
        "delta", "/t", DedupeKey.QUERY_ID, None, known=False, because="no id", skips_known=False, others={FORMER: 3}
    )
    assert told(find(tmp_path, silent)) == [("SINK_UNKNOWN", WARNING), ("QUERY_ID_CHANGED", WARNING)]


def test_other_query_in_the_same_table_is_only_told(tmp_path: Path) -> None:
    query(tmp_path, 4)
    assert told(find(tmp_path, delta(3, others={FORMER: 90}))) == [("SINK_KNOWS_OTHER_QUERY", INFO)]


def test_new_checkpoint_on_the_table_of_another_is_warned_of(tmp_path: Path) -> None:
    query(tmp_path, 0)
    assert told(find(tmp_path, delta(None, others={FORMER: 9}))) == [("SINK_KNOWS_OTHER_QUERY", WARNING)]


def test_name_that_stands_where_the_checkpoint_stands_is_that_of_its_function(tmp_path: Path) -> None:
    query(tmp_path, 4)
    assert told(find(tmp_path, delta(None, others={"my-app": 3}))) == [("SINK_KNOWS_OTHER_QUERY", INFO)]


def test_table_without_any_mark_can_tell_nothing(tmp_path: Path) -> None:
    query(tmp_path, 4)
    assert told(find(tmp_path, delta(None))) == [("SINK_SHOWS_NONE", WARNING)]


def test_sink_that_is_gone_has_taken_every_row_with_it(tmp_path: Path) -> None:
    query(tmp_path, 4)
    absent = SinkEvidence("absent", "/lake/out", DedupeKey.QUERY_ID, None, known=True, because="nothing")
    (found,) = find(tmp_path, absent)
    assert (found.condition.name, found.severity) == ("SINK_GONE", ERROR)
    assert "batches 0 to 3" in found.effect


# --- what is not known ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orphan", [True, False])
def test_sink_that_does_not_answer_is_unknown(tmp_path: Path, orphan: bool) -> None:
    query(tmp_path, 3, orphan=orphan)
    (found,) = find(tmp_path, make_unknown_evidence("delta", "/t", DedupeKey.QUERY_ID, "timed out"))
    assert (found.condition.name, found.severity, found.evidence["because"]) == ("SINK_UNKNOWN", WARNING, "timed out")
    assert ("second time" in found.effect) is orphan


@pytest.mark.parametrize(("orphan", "level"), [(True, WARNING), (False, INFO)])
def test_mark_that_may_have_expired_matters_with_a_planned_batch(tmp_path: Path, orphan: bool, level: Severity) -> None:
    query(tmp_path, 3, orphan=orphan)
    expired = SinkEvidence("delta", "/t", DedupeKey.QUERY_ID, None, known=False, because="marks expire", identity="x")
    assert told(find(tmp_path, expired)) == [("SINK_MARKER_UNKNOWN", level)]


@pytest.mark.parametrize(("orphan", "first"), [(True, 4), (False, 3)])
def test_mark_that_is_seen_where_the_sink_does_not_tell_may_drop_what_comes(
    tmp_path: Path, orphan: bool, first: int
) -> None:
    query(tmp_path, 3, orphan=orphan)
    untold = replace(make_unknown_evidence("delta", "/t", DedupeKey.QUERY_ID, "a catalog"), skips_up_to=2**62)
    found = next(each for each in find(tmp_path, untold) if each.condition.name == "SINK_WOULD_SKIP")
    assert (found.severity, found.evidence["would_skip"]) == (ERROR, [first, 2**62])
    assert found.effect.startswith(f"Batches {first} to {2**62} may be committed and dropped")
    agrees = replace(untold, skips_up_to=first - 1)
    assert "SINK_WOULD_SKIP" not in [name for name, _ in told(find(tmp_path, agrees))]


def test_mark_of_another_name_may_be_a_time(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = find(tmp_path, delta(None, batches=(), others={"a": 1_795_422_560_615, "b": 1}))
    assert "batches 3 to 1795422560615 will be dropped" in " ".join(each.effect for each in found)


@pytest.mark.parametrize(("orphan", "level"), [(True, WARNING), (False, INFO)])
def test_folder_that_keeps_no_record_is_unknown(tmp_path: Path, orphan: bool, level: Severity) -> None:
    query(tmp_path, 3, orphan=orphan)
    plain = make_unknown_evidence("unrecognised", "/t", DedupeKey.NONE, "no log")
    assert told(find(tmp_path, plain)) == [("SINK_UNKNOWN", level)]


# --- the log of a file sink -----------------------------------------------------------------------------------------


def test_hole_in_the_log_of_a_file_sink_stops_its_readers(tmp_path: Path) -> None:
    query(tmp_path, 4)
    (found,) = find(tmp_path, files(3, unreadable=(1,)))
    assert (found.condition.name, found.severity, found.evidence["unreadable"]) == ("SINK_LOG_GAP", ERROR, [1])


def test_next_batch_must_be_the_one_after_the_newest_of_the_sink(tmp_path: Path) -> None:
    query(tmp_path, 5)
    found = find(tmp_path, files(2))
    assert told(found) == [("SINK_BEHIND", ERROR), ("SINK_LOG_GAP", ERROR)]
    assert (found[1].evidence["next_batch"], found[1].evidence["missing"]) == (5, [3, 4])


def test_empty_log_reads_as_an_empty_table(tmp_path: Path) -> None:
    query(tmp_path, 4)
    assert told(find(tmp_path, files(None))) == [("SINK_LOG_GAP", ERROR)]


@pytest.mark.parametrize(("committed", "level"), [(4, ERROR), (0, WARNING)])
def test_folder_whose_log_was_deleted_is_told(tmp_path: Path, committed: int, level: Severity) -> None:
    query(tmp_path, committed)
    assert told(find(tmp_path, files(None, known=False))) == [("SINK_LOG_GAP", level)]


def test_what_else_is_to_be_known_of_a_sink_is_told(tmp_path: Path) -> None:
    query(tmp_path, 4)
    found = find(tmp_path, delta(3, write_obstacles=("table feature clustering",), notes=("markers expire",)))
    assert told(found) == [("SINK_NOT_WRITABLE", INFO), ("SINK_NOTES", INFO)]
    assert found[1].effect == "Markers expire."


def test_batches_are_told_as_a_range_or_one_by_one() -> None:
    assert [name_batches(each) for each in ([3], [4, 3], [1, 3], range(0, 14, 2))] == [
        "batch 3",
        "batches 3 to 4",
        "batches 1, 3",
        "batches 0, 2, 4, 6, 8 and 2 more",
    ]


def test_conditions_have_names_of_their_own_and_stories() -> None:
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)
    assert all(len(condition.story) > 150 and "." not in condition.title[-1] for condition in CONDITIONS)


# --- what a guess rests on, and what is in the way --------------------------------------------------------------------


def presumed(last: int, **others: Any) -> SinkEvidence:
    return replace(delta(last, **others), dedupe_key=DedupeKey.APP_ID, presumed_app_id="my-app")


def test_guess_about_the_name_of_a_function_warns_and_says_what_it_rests_on(tmp_path: Path) -> None:
    query(tmp_path, 3)
    (found,) = find(tmp_path, presumed(5))
    assert (found.condition.name, found.severity) == ("SINK_WOULD_SKIP", WARNING)
    assert found.effect.startswith("If the query writes as my-app, the only name in the table: batches 3 to 5")
    assert found.evidence["presumed_app_id"] == "my-app"


def test_guess_promises_nothing_about_the_batch_that_runs_again(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (found,) = find(tmp_path, presumed(3))
    assert (found.condition.name, found.severity) == ("SINK_HOLDS_ORPHAN", INFO)
    assert found.effect.startswith("If the query writes as my-app")
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(tmp_path)))
    position = locate(checkpoint, [presumed(3)])
    assert (position.sink, position.sink_known, position.skipped_up_to) == (None, False, None)
    assert "not proven to be of this query" in position.reasons[-1]


def test_file_of_the_batch_that_runs_again_is_broken(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = {each.condition.name: each for each in find(tmp_path, delta(3, files_damaged=("part-3",), broken_from=3))}
    assert found["SINK_FILES_DAMAGED"].severity is ERROR
    assert found["SINK_FILES_DAMAGED"].next == "lastgood plan /chk --goal replan --sink /lake/out"
    assert found["SINK_HOLDS_ORPHAN"].effect.endswith("the sink drops it: what is broken of it stays so.")


def test_files_of_a_file_sink_that_are_gone_are_an_error(tmp_path: Path) -> None:
    query(tmp_path, 3)
    (found,) = find(tmp_path, files(2, files_gone=("part-1", "part-2")))
    assert (found.condition.name, found.severity, found.evidence["count"]) == ("SINK_FILES_GONE", ERROR, 2)
    assert found.next == "lastgood status /chk --sink /lake/out"


@pytest.mark.parametrize(("name", "condition"), [("3/", "NAME_TAKEN"), (".3.crc", "STALE_CHECKSUM_FILE")])
def test_what_keeps_a_file_sink_from_its_next_entry_is_an_error(tmp_path: Path, name: str, condition: str) -> None:
    query(tmp_path, 3)
    (found,) = find(tmp_path, files(2, log_names=("0", "1", "2", name)))
    assert (found.condition.name, found.severity) == (condition, ERROR)
    assert found.evidence["name"] == f"_spark_metadata/{name.rstrip('/')}"
    if condition == "STALE_CHECKSUM_FILE":
        assert found.next == "rm /lake/out/_spark_metadata/.3.crc"
