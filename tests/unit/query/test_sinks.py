from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planning import LATER_MS, delta, query, read

from lastgood.diagnosis.sink_reading import make_sink_readings
from lastgood.query.agreement import judge_sink_standing
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.query.sinks import NONE, Agreement, Rerun, Shown, SinkView, judge_shown_at_last, make_sink_views
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS


def view(folder: Path, sink: SinkEvidence, *, is_stateful: bool = False) -> SinkView:
    (found,) = make_sink_views(read(folder), [sink], is_stateful=is_stateful)
    return found


def test_function_need_not_mark_a_batch_that_has_nothing_to_write(tmp_path: Path) -> None:
    builder = query(tmp_path, 3)
    builder.plan(0)
    builder.commit()
    marked = delta(2)
    by_function = SinkEvidence(
        "delta", "/lake/out", DedupeKey.APP_ID, 2, known=True, because="its log", skips_up_to=2, batches=marked.batches
    )
    found = view(tmp_path, by_function)
    assert (found.agreement, found.complete_to) == (Agreement.AGREES, 3)
    assert judge_sink_standing(found).sentence == "agrees: its newest is batch 2, and batch 3 had nothing to write"
    with_state = view(tmp_path, by_function, is_stateful=True)  # which may write rows when a window closes
    assert (with_state.agreement, with_state.complete_to) == (Agreement.BEHIND, None)
    assert view(tmp_path, marked).agreement is Agreement.BEHIND


def test_what_comes_of_the_orphan_is_told_once_for_all_who_ask(tmp_path: Path) -> None:
    query(tmp_path, 5, orphan=True)
    told = {
        Rerun.WRITES: delta(4),
        Rerun.RECOGNISES: delta(5),
        Rerun.REPEATS: delta(5, skips_up_to=4),
        Rerun.UNKNOWN: delta(5, skips_known=False),
        Rerun.DROPS: delta(5, times_by_driver=False, batches=(CommittedBatch(5, 5, committed_at_ms=STARTED_MS),)),
        None: replace(delta(5), known=False),
    }
    found = {rerun: view(tmp_path, sink) for rerun, sink in told.items()}
    assert {rerun: each.rerun for rerun, each in found.items()} == {rerun: rerun for rerun in told}
    once = {rerun for rerun, each in found.items() if each.recognises_orphan}
    assert once == {Rerun.WRITES, Rerun.RECOGNISES}
    assert "it adds nothing" in judge_sink_standing(found[Rerun.RECOGNISES]).sentence
    assert "a second time" in judge_sink_standing(found[Rerun.REPEATS]).sentence


def test_orphan_that_a_sink_drops_is_of_its_plan_as_far_as_no_clock_was_set_back(tmp_path: Path) -> None:
    builder = query(tmp_path, 3, orphan=True)
    told = view(tmp_path, delta(3)).told_by_clocks
    assert told is not None
    assert told.startswith("no clock was set back between two plans of batch 3: that /lake/out has it")
    assert view(tmp_path, delta(3, skips_known=False)).told_by_clocks == told  # it may drop it
    dated_before = (CommittedBatch(3, 3, committed_at_ms=STARTED_MS),)
    for sink in (delta(2), delta(3, skips_up_to=2), delta(3, batches=dated_before)):
        assert view(tmp_path, sink).told_by_clocks is None  # it has not got it, takes it again, or has an older one
    builder.commit()
    assert view(tmp_path, delta(3)).told_by_clocks is None
    builder.plan(0)
    assert view(tmp_path, delta(4)).told_by_clocks is None  # nothing is read that could be dropped


def test_sink_that_shows_none_is_complete_to_none_where_that_is_sure(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    absent = SinkEvidence("absent", "/lake/out", DedupeKey.QUERY_ID, None, known=True, because="nothing is there")
    assert view(tmp_path, absent).complete_to == NONE
    assert view(tmp_path, delta(None)).complete_to is None


def test_older_batch_under_a_mark_that_may_not_be_the_last_may_be_dropped(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    before = tuple(CommittedBatch(n, n, committed_at_ms=STARTED_MS + 1000 * n + 500) for n in range(3))
    older = CommittedBatch(3, 3, committed_at_ms=STARTED_MS + 2500, row_count=10)
    sink = delta(3, batches=(*before, older), skips_known=False)
    found = view(tmp_path, sink)
    assert list(found.would_drop) == [3]
    observed = Observation(read(tmp_path), location="/chk", sinks=(sink,))
    (reading,) = make_sink_readings(observed, predict(observed, SPARK_4_2))
    assert reading.would_drop == found.would_drop


def test_number_that_is_used_up_drops_nothing(tmp_path: Path) -> None:
    builder = query(tmp_path, 3)
    builder.plan(0)
    before = tuple(CommittedBatch(n, n, committed_at_ms=STARTED_MS + 1000 * n + 500) for n in range(3))
    older = CommittedBatch(3, 3, committed_at_ms=STARTED_MS + 2500, row_count=10)
    found = view(tmp_path, delta(3, batches=(*before, older)))
    assert (list(found.would_drop), list(found.doubled())) == ([], [3])
    assert list(view(tmp_path, delta(2, skips_up_to=3)).would_drop) == []  # nor where its rows are not there
    assert list(view(tmp_path, delta(2, skips_up_to=4)).would_drop) == [4]


def test_sink_that_has_passed_a_batch_has_it_and_one_that_is_behind_has_not() -> None:
    sink = replace(delta(5), batches=(), complete_from=None)
    assert [judge_shown_at_last(sink, number, ()) for number in (4, 5, 6)] == [Shown.LIVE, Shown.LIVE, Shown.ABSENT]
    assert judge_shown_at_last(replace(sink, known=False), 4, ()) is Shown.UNKNOWN
    none = replace(delta(None), complete_from=None)
    assert judge_shown_at_last(none, 4, ()) is Shown.UNKNOWN
    assert judge_shown_at_last(none, 4, (), was_known=True) is Shown.ABSENT


def test_of_several_names_in_a_table_none_is_known_to_be_the_querys(tmp_path: Path) -> None:
    query(tmp_path, 6)
    shared = delta(None, batches=(), others={"my-app": 8, "their-app": 3})
    found = view(tmp_path, shared)
    assert (found.sink.known, found.shows_none, found.sink.would_skip(6)) == (False, False, None)
    assert list(found.would_drop) == [6, 7, 8]
    assert "my-app, their-app" in judge_sink_standing(found).sentence


def test_name_that_stands_where_the_logs_do_is_likelier_than_a_higher_one(tmp_path: Path) -> None:
    query(tmp_path, 6, orphan=True)
    shared = delta(None, batches=(), others={"my-app": 6, "their-app": 40}, others_at_ms={"my-app": LATER_MS})
    assert not view(tmp_path, shared).would_drop
    assert not view(tmp_path, shared).names_ahead
    assert view(tmp_path, replace(shared, others_at_ms={})).would_drop == range(6, 7), "it may be of an older plan"


def test_name_that_has_gone_on_where_the_query_has_stopped_may_be_its_own(tmp_path: Path) -> None:
    query(tmp_path, 5)
    found = view(tmp_path, delta(2, others={"my-app": 4}))
    assert (found.sink.known, found.complete_to, found.perhaps_gone()) == (False, None, [3, 4])
    for others in ({"my-app": 2}, {"9818c18b-9839-4690-99f7-f5f3cde02c1d": 4}):
        assert view(tmp_path, delta(2, others=others)).complete_to == 2  # nowhere between, or another query
    assert view(tmp_path, delta(4, others={"my-app": 4})).complete_to == 4


def test_name_that_stands_at_the_orphan_may_have_written_it(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = view(tmp_path, delta(2, others={"my-app": 3}))
    assert (found.recognises_orphan, found.perhaps_gone()) == (False, [])
    assert view(tmp_path, delta(2, others={"my-app": 4})).recognises_orphan


def test_name_that_a_person_gives_is_not_believed_where_another_one_may_have_written_the_orphan(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    planned_ms = STARTED_MS + 3000
    told = replace(delta(2, others={"my-app": 3}), dedupe_key=DedupeKey.APP_ID)
    for at_ms, is_known in ((None, False), (planned_ms + 500, False), (planned_ms - 3_600_000, True)):
        others_at_ms = {} if at_ms is None else {"my-app": at_ms}
        assert view(tmp_path, replace(told, others_at_ms=others_at_ms)).sink.known is is_known
    assert view(tmp_path, replace(told, others_beside=("my-app",))).sink.known
    own = replace(told, others={QUERY_ID: 3}, others_beside=(QUERY_ID,))
    assert not view(tmp_path, own).sink.known


def test_higher_name_may_have_dropped_what_a_sink_does_not_show(tmp_path: Path) -> None:
    query(tmp_path, 5)
    table = delta(2, others={"my-app": 14})
    found = view(tmp_path, table)
    assert (found.sink.known, found.complete_to, found.perhaps_gone()) == (False, None, [3, 4])
    taken_back = (*table.batches, CommittedBatch(3, is_live=False))
    assert view(tmp_path, replace(table, batches=taken_back)).complete_to == 2


def test_id_of_the_query_beside_the_name_that_was_asked_for_is_its_own(tmp_path: Path) -> None:
    query(tmp_path, 5)
    by_name = replace(delta(2, others={QUERY_ID: 4}), dedupe_key=DedupeKey.APP_ID)
    assert not view(tmp_path, by_name).sink.known


def test_name_that_a_person_gives_is_believed_until_batches_are_done_that_it_does_not_show(tmp_path: Path) -> None:
    named = replace(delta(None, batches=(), others={"my-app": 2}), dedupe_key=DedupeKey.APP_ID)
    query(tmp_path / "new", 0, orphan=True)
    assert view(tmp_path / "new", named).sink.would_skip(0) is False
    query(tmp_path / "old", 3)
    assert view(tmp_path / "old", named).sink.would_skip(3) is None


def test_what_was_done_before_the_batch_that_made_a_table_is_not_in_it(tmp_path: Path) -> None:
    """Also where no plan is left of the batch that made it, and a function writes, which need not mark every batch."""
    query(tmp_path, 5)
    for number in (0, 1, 3):
        (tmp_path / f"offsets/{number}").unlink()
    made_ms = STARTED_MS + 3200
    batches = tuple(CommittedBatch(n, version, is_streaming=False) for version, n in enumerate((3, 4)))
    table = delta(4, batches=batches, created_at_ms=made_ms)
    assert view(tmp_path, table).older() == [0, 1, 2]
    later = tuple(replace(each, version=(each.version or 0) + 1) for each in batches)
    assert view(tmp_path, replace(table, batches=later)).older() == [0, 1]
