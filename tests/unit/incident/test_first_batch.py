from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.offsets import OffsetEntry, SourceLine
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset
from lastgood.incident import first_batch
from lastgood.incident.first_batch import FirstBatch, Judged, is_of, judge_beginnings, judge_number, judge_sinks
from lastgood.planning.plan import Plan, PlannedSink, Promise
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.steps import FileStep, compute_digest
from lastgood.query.history import BatchRecord
from lastgood.records.record import Progress, RecordedSource
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence

COMMIT = CommitEntry.of(1, next_batch_watermark_ms=0)


def entry(*ends: str) -> OffsetEntry:
    lines = tuple(SourceLine(str(index), end) for index, end in enumerate(ends))
    made = OffsetEntry(1, None, lines)
    return replace(made, raw=made.to_bytes())


def kafka(*ends: int) -> str:
    return KafkaOffset({"orders": dict(enumerate(ends))}).to_text()


def batch(end: str, start: str | None, number: int = 7, **others: Any) -> FirstBatch:
    """A committed batch of one source."""
    before = None if start is None else BatchRecord(number - 1, entry(start), COMMIT)
    return FirstBatch(record=BatchRecord(number, entry(end), COMMIT), before=before, **others)


SEVEN = batch(kafka(20, 20), kafka(10, 10))


def plan(*steps: FileStep, outcome: str = "resumes", number: int | None = 7, **others: Any) -> Plan:
    fields: dict[str, Any] = {"sources": (), "sinks": (), "guards": {}, "options": {}, **others}
    return Plan(
        recovery="20261121-160058-7f3a",
        goal="resume",
        checkpoint="/chk",
        query_id="q",
        guarantee=Guarantee.EXACTLY_ONCE,
        rests_on=(),
        promise=Promise("4.2", outcome, number, "so it is"),
        steps=steps,
        made_at_ms=1,
        made_by="1.0",
        **fields,
    )


def puts(path: str, content: bytes) -> FileStep:
    return FileStep(path, None, content, "it is to be so")


def counted(of: Plan | None, batch: FirstBatch, *, rerun: bool = False) -> Judged | None:
    return first_batch.judge_row_count(of, batch, is_rerun=rerun)


def states(judged: Any) -> list[bool | None]:
    return [each.is_kept for each in judged]


def lines(judged: Any) -> str:
    return "\n".join(each.line for each in judged)


# The number.


def test_batch_that_was_promised_and_is_committed_keeps_its_number() -> None:
    assert judge_number(plan(), 7, SEVEN) == Judged("batch 7 was committed, as promised", is_kept=True)
    assert judge_number(plan(), 9, SEVEN).is_kept is True  # the next ones were seen before it was looked at
    assert judge_number(None, 7, SEVEN).is_kept is True


def test_batch_below_the_promised_one_breaks_the_promise() -> None:
    told = judge_number(plan(number=8), 7, SEVEN)
    assert (told.is_kept, told.line) == (False, "the first new batch is 7, and batch 8 was promised")


def test_batch_that_is_planned_and_not_committed_breaks_the_promise() -> None:
    told = judge_number(plan(), 7, replace(SEVEN, record=replace(SEVEN.record, commit=None)))
    assert (told.is_kept, told.line) == (False, "batch 7 is planned, and not in the commit log")


def test_batch_that_nobody_knows_any_more_is_unknown() -> None:
    assert judge_number(plan(), 7, FirstBatch(record=BatchRecord(7, None, None), before=None)).is_kept is None


# Where it begins.


def test_batch_begins_where_the_one_before_it_ended() -> None:
    told = list(judge_beginnings(None, SEVEN))
    assert told == [
        Judged("batch 7 begins where the batch before it ends: orders/0 at 10, orders/1 at 10", is_kept=True)
    ]


def test_batch_begins_where_the_plan_put_it_partition_by_partition() -> None:
    put = plan(puts("offsets/6", SEVEN.before.offsets.raw))  # type: ignore[union-attr,arg-type]  # as `batch` makes it
    assert states(judge_beginnings(put, SEVEN)) == [True]
    assert "where the plan put it" in lines(judge_beginnings(put, SEVEN))
    elsewhere = plan(puts("offsets/6", entry(kafka(10, 15)).to_bytes()))
    assert states(judge_beginnings(elsewhere, SEVEN)) == [False, False]
    assert "orders/1 begins at 10, and the plan put it at 15" in lines(judge_beginnings(elsewhere, SEVEN))
    assert "offsets/6 is another plan than the one that was left there" in lines(judge_beginnings(elsewhere, SEVEN))


def test_partition_that_the_plan_named_and_nobody_reads_breaks_the_promise() -> None:
    put = plan(puts("offsets/6", entry(kafka(10, 10, 4)).to_bytes()))
    assert "orders/2 is not read, and the plan put it at 4" in lines(judge_beginnings(put, SEVEN))


def test_earliest_is_left_to_kafka_and_no_place() -> None:
    open_start = batch(kafka(20, 20), kafka(-2, 10))
    put = plan(puts("offsets/6", open_start.before.offsets.raw))  # type: ignore[union-attr,arg-type]
    assert states(judge_beginnings(put, open_start)) == [True]
    assert counted(put, open_start) is not None


def test_offsets_that_go_back_and_partitions_that_are_gone_break_the_line() -> None:
    told = list(judge_beginnings(None, batch(kafka(8), kafka(10, 10))))
    assert states(told) == [False, False]
    assert "orders/0 goes back from 10 to 8" in lines(told)
    assert "orders/1 is not read any more from 10 on" in lines(told)


def progress(start: Any, end: Any, *, rows: int | None = 20, number: int = 7) -> Progress:
    source = RecordedSource(description="KafkaV2", start_offset=start, end_offset=end)
    return Progress(recorded_at_ms=5, batch_id=number, num_input_rows=rows, sources=(source,))


def test_where_spark_really_began_counts_before_what_the_logs_say() -> None:
    seen = replace(SEVEN, progress=progress({"orders": {"0": 10, "1": 10}}, {"orders": {"0": 20, "1": 20}}))
    assert lines(judge_beginnings(None, seen)).startswith(
        "batch 7 begins where the batch before it ends, as the recorder saw it"
    )
    elsewhere = replace(SEVEN, progress=progress({"orders": {"0": 12, "1": 10}}, {"orders": {"0": 20, "1": 20}}))
    assert lines(judge_beginnings(None, elsewhere)) == "orders/0 begins at 12, and the batch before it ends at 10"
    assert states(judge_beginnings(None, elsewhere)) == [False]


def test_recorder_line_of_another_plan_of_the_same_batch_tells_nothing() -> None:
    plan_of_seven = entry(kafka(20, 20))
    assert is_of(progress(None, {"orders": {"1": 20, "0": 20}}), plan_of_seven)
    assert not is_of(progress(None, {"orders": {"0": 30, "1": 20}}), plan_of_seven)
    assert not is_of(Progress(recorded_at_ms=5, batch_id=7), plan_of_seven)


def test_first_batch_begins_where_its_sources_say() -> None:
    first = FirstBatch(
        record=BatchRecord(0, entry(kafka(20)), COMMIT), before=None, initial={"0": KafkaOffset({"orders": {0: 5}})}
    )
    assert states(judge_beginnings(None, first)) == [True]
    told = {"offsets": {"0": {"orders": {"0": 3}}}, "starts_at": {"orders": {"0": 7}}}  # 3 has expired
    app = plan(number=0, options={"start_file": {"location": "/x"}, **told})
    assert lines(judge_beginnings(app, first)) == "orders/0 begins at 5, and the plan put it at 7"
    assert counted(app, first) is not None
    assert states(judge_beginnings(None, replace(first, initial={}))) == [None]


def test_file_source_goes_by_its_own_log() -> None:
    files = batch(FileOffset(3).to_text(), FileOffset(1).to_text())
    assert states(judge_beginnings(None, files)) == [True]
    put = plan(puts("offsets/6", entry(FileOffset(0).to_text()).to_bytes()))
    assert 'source 0 begins at {"logOffset":1}, and the plan put it at {"logOffset":0}' in lines(
        judge_beginnings(put, files)
    )


def test_where_nobody_knows_the_batch_before_it_is_unknown() -> None:
    told = list(judge_beginnings(None, batch(kafka(20), None)))
    assert states(told) == [None]
    assert "the plan before it is gone" in lines(told)
    torn = replace(SEVEN, record=BatchRecord(7, Damage(DamageKind.EMPTY), COMMIT))
    assert states(judge_beginnings(None, torn)) == [None]


def test_batch_that_was_to_run_again_has_to_be_the_same_plan() -> None:
    same = plan(outcome="reruns", guards={"offsets/7": compute_digest(entry(kafka(20, 20)).raw)})
    other = plan(outcome="reruns", guards={"offsets/7": compute_digest(b"another")})
    assert states(judge_beginnings(same, SEVEN)) == [True]
    assert lines(judge_beginnings(other, SEVEN)) == "offsets/7 is another plan than the one that was left there"
    assert states(judge_beginnings(plan(guards={"offsets/7": compute_digest(b"another")}), SEVEN)) == [
        True
    ]  # it was planned anew


def test_rerun_reads_what_its_price_says() -> None:
    def priced(end: int, **others: Any) -> Plan:
        price = SourcePrice(0, "kafka", reread={"orders": {0: ((10, end),), 1: ((10, 20),)}}, **others)
        return plan(outcome="reruns", sources=(price,))

    assert states(judge_beginnings(priced(20), SEVEN)) == [True]
    assert lines(judge_beginnings(priced(25), SEVEN)) == "orders/0 is read otherwise than the plan said"
    assert states(judge_beginnings(priced(25, bound=True), SEVEN)) == [True]


def test_topic_that_was_made_anew_between_plan_and_start_breaks_the_promise() -> None:
    seen = progress({"orders": {"0": 10, "1": 10}}, {"orders": {"0": 20, "1": 20}})
    (source,) = seen.sources
    another = replace(SEVEN, progress=replace(seen, sources=(replace(source, topic_ids={"orders": "B"}),)))
    told = list(judge_beginnings(plan(options={"topic_ids": {"orders": "A"}}), another))
    assert told == [Judged("orders is the topic B, and the plan was made of A", is_kept=False)]
    silent: tuple[dict[str, Any], ...] = ({"topic_ids": {"orders": "B"}}, {"topic_ids": {"orders": None}}, {})
    assert [states(judge_beginnings(plan(options=each), another)) for each in silent] == [[True]] * 3
    assert states(judge_beginnings(None, another)) == [True]


def test_many_differences_are_told_in_a_few_lines() -> None:
    put = plan(puts("offsets/6", entry(kafka(*([9] * 40))).to_bytes()))
    told = list(judge_beginnings(put, batch(kafka(*([20] * 40)), kafka(*([10] * 40)))))
    assert len(told) == 6
    assert told[-1].line == "and 36 more"
    assert states(told) == [False] * 6


# Rows.


def test_rows_of_a_range_settle_it() -> None:
    told = counted(None, replace(SEVEN, rows=18, rows_by="the recorder"))
    assert told == Judged("18 rows were read of 20 offsets, by the recorder", is_kept=True)


def test_no_row_of_a_range_that_is_not_empty_breaks_the_promise() -> None:
    told = counted(None, replace(SEVEN, rows=0, rows_by="the recorder"))
    assert told is not None
    assert told.is_kept is False
    assert "markers of transactions" in told.line
    assert told.line.endswith("or a sink that was not asked has that number, and dropped the batch")


def test_batch_that_its_sink_had_already_gives_no_row_when_it_runs_again() -> None:
    unread = replace(SEVEN, rows=0, rows_by="the recorder")

    def told(sinks: tuple[PlannedSink, ...], *, rerun: bool = True) -> Judged:
        found = counted(plan(outcome="reruns", sinks=sinks), unread, rerun=rerun)
        assert found is not None
        return found

    assert told(planned(7)).line.endswith("/lake/out had the batch already")
    assert [told(planned(7)).is_kept, told(planned(6)).is_kept, told(()).is_kept] == [True, False, None]
    assert told(planned(7), rerun=False).is_kept is False  # a new batch was dropped
    assert told((), rerun=False).is_kept is False


def test_no_row_of_an_empty_range_or_of_one_that_is_lost_is_right() -> None:
    empty = batch(kafka(10, 10), kafka(10, 10), rows=0)
    assert counted(None, empty) == Judged("batch 7 had nothing to read", is_kept=True)
    lost = SourcePrice(0, "kafka", lost={"orders": {0: ((0, 20),), 1: ((5, 20),)}})
    told = counted(plan(sources=(lost,)), replace(SEVEN, rows=0))
    assert told == Judged("batch 7 had nothing to read", is_kept=True)


def test_rows_that_nobody_counted_are_unknown_and_never_kept() -> None:
    told = counted(plan(), SEVEN)
    assert told == Judged("how many rows were read of 20 offsets is not known: nobody counted them", is_kept=None)


@pytest.mark.parametrize(("end", "start"), [(kafka(20), kafka(-2)), (kafka(20, 5), kafka(20)), ("17", "3")])
def test_what_cannot_be_counted_and_gave_no_row_is_unknown(end: str, start: str) -> None:
    told = counted(None, batch(end, start, rows=0, rows_by="the recorder"))
    assert told is not None
    assert told.is_kept is None


def delta(last: int | None, *counts: int | None, first: int = 0, streaming: bool | None = True) -> SinkEvidence:
    """A table that holds so many batches from `first` on, with these row counts."""
    batches = tuple(
        CommittedBatch(first + n, 100 + n, row_count=rows, is_streaming=streaming) for n, rows in enumerate(counts)
    )
    return SinkEvidence(
        "delta", "/lake/out", DedupeKey.QUERY_ID, last, known=True, because="its log", batches=batches, complete_from=0
    )


def test_rows_that_a_table_says_were_written_are_enough() -> None:
    told = counted(plan(), replace(SEVEN, sinks=(delta(7, *range(1, 9)),)))
    assert told == Judged("8 rows were written of 20 offsets, by the sink", is_kept=True)


def test_no_row_written_is_broken_only_where_every_earlier_batch_had_some() -> None:
    always = counted(plan(), replace(SEVEN, sinks=(delta(7, 5, 5, 5, 5, 5, 5, 5, 0),)))
    at_times = counted(plan(), replace(SEVEN, sinks=(delta(7, 5, 5, 0, 5, 5, 5, 5, 0),)))
    too_few = counted(plan(), replace(SEVEN, sinks=(delta(7, 5, 0, first=6),)))
    assert [told.is_kept for told in (always, at_times, too_few) if told] == [False, None, None]


SILENT = plan(options={"fail_on_data_loss": False})


def unseen(of: Plan | None, batch: FirstBatch, *, rerun: bool = False) -> Judged | None:
    return first_batch.judge_passed_over(of, batch, is_rerun=rerun)


def test_offsets_without_a_row_are_unknown_where_spark_passes_over_what_is_gone() -> None:
    told = unseen(SILENT, replace(SEVEN, rows=5, rows_by="the recorder"))
    passes = "with failOnDataLoss=false Spark passes without a word over what is deleted"
    assert told == Judged(f"15 offsets gave no row: {passes}", is_kept=None)
    assert unseen(SILENT, SEVEN) == Judged(passes, is_kept=None)
    open_start = batch(kafka(20, 20), kafka(-2, 10), rows=30)
    assert unseen(SILENT, open_start) == Judged(passes, is_kept=None)


def test_nothing_is_passed_over_where_every_offset_gave_a_row_or_spark_would_fail() -> None:
    assert unseen(SILENT, replace(SEVEN, rows=20)) is None
    assert unseen(SILENT, batch(kafka(10, 10), kafka(10, 10))) is None
    assert unseen(SILENT, batch(FileOffset(3).to_text(), FileOffset(1).to_text(), rows=1)) is None
    assert unseen(plan(options={"fail_on_data_loss": True}), replace(SEVEN, rows=5)) is None
    assert unseen(None, replace(SEVEN, rows=5)) is None
    had = replace(SILENT, sinks=planned(7))
    assert [unseen(had, replace(SEVEN, rows=0), rerun=each) is None for each in (True, False)] == [True, False]


# Sinks.


def planned(batch_id: int | None = 6) -> tuple[PlannedSink, ...]:
    return (PlannedSink(0, "delta", "/lake/out", batch_id, known=True, skips_up_to=batch_id, identity=None),)


def sink(evidence: SinkEvidence, *, of: FirstBatch = SEVEN, rerun: bool = True, before: int | None = 6) -> Judged:
    (told,) = judge_sinks(planned(before), replace(of, sinks=(evidence,)), is_rerun=rerun)
    return told


def test_sink_whose_mark_has_moved_keeps_the_promise() -> None:
    assert sink(delta(7, *[1] * 8)) == Judged("/lake/out shows batch 7, by version 107", is_kept=True)
    passed = replace(delta(9), complete_from=None)
    assert sink(passed).is_kept is True


def test_sink_whose_mark_has_not_moved_breaks_the_promise() -> None:
    told = sink(delta(6, *[1] * 7))
    assert told == Judged("/lake/out shows batch 6 as the newest, and batch 7 is committed", is_kept=False)
    assert sink(replace(delta(6), complete_from=None)).is_kept is False
    assert sink(replace(delta(None), complete_from=None)).is_kept is False


def test_batch_that_was_taken_back_breaks_the_promise() -> None:
    table = delta(6, *[1] * 8)
    gone = replace(table, batches=(*table.batches[:7], replace(table.batches[7], is_live=False)))
    assert sink(gone).is_kept is False


def test_empty_batch_need_not_be_shown() -> None:
    assert sink(delta(6, *[1] * 7), of=batch(kafka(10), kafka(10))).is_kept is True


def test_function_may_leave_out_what_has_no_rows() -> None:
    assert sink(delta(6, *[1] * 7, streaming=False)).is_kept is None


def test_sink_that_had_the_batch_before_it_was_planned_may_have_dropped_its_rows() -> None:
    table = replace(delta(7, *[1] * 8), times_by_driver=True)
    early = replace(table, batches=tuple(replace(each, committed_at_ms=500) for each in table.batches))
    with_time = replace(SEVEN, record=BatchRecord(7, _timed(entry(kafka(20, 20)), 1000), COMMIT))
    assert sink(early, of=with_time, rerun=False).is_kept is None
    assert sink(early, of=with_time, rerun=True).is_kept is None
    on_time = replace(table, batches=tuple(replace(each, committed_at_ms=1500) for each in table.batches))
    assert sink(on_time, of=with_time, rerun=True).is_kept is True


def _timed(made: OffsetEntry, time_ms: int) -> OffsetEntry:
    from lastgood.checkpoint.lines import to_json
    from lastgood.checkpoint.offsets import BatchMetadata

    fields: Any = {"batchWatermarkMs": 0, "batchTimestampMs": time_ms}
    return replace(made, metadata=BatchMetadata(fields, to_json(fields)))


def test_sink_that_does_not_answer_is_unknown_and_one_that_never_could_is_not_asked_for_more() -> None:
    silent = SinkEvidence("unknown", "/lake/out", DedupeKey.NONE, None, known=False, because="no answer within 10 s")
    assert sink(silent).is_kept is None
    other = SinkEvidence("unrecognised", "/lake/x", DedupeKey.NONE, None, known=False, because="no sink that can tell")
    assert sink(other) == Judged("/lake/x cannot tell: no sink that can tell", is_kept=True)
    gone = SinkEvidence("absent", "/lake/out", DedupeKey.NONE, None, known=True, because="there is nothing")
    assert sink(gone).is_kept is False


def test_sink_that_told_before_and_is_not_asked_now_is_unknown() -> None:
    assert states(judge_sinks(planned(), SEVEN, is_rerun=True)) == [None]
    assert list(judge_sinks((), SEVEN, is_rerun=True)) == []
