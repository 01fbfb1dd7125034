"""Worlds in which a restart looks exact and is not: what speaks against it is named, and the word is a weaker one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planning import (
    SPARK,
    broker,
    carried_out,
    changes,
    delta,
    drafted,
    fence,
    files,
    known,
    mirror_of,
    query,
    read,
    serve,
    silent,
    written_ms,
)

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.diagnosis.engine import diagnose as judge
from lastgood.diagnosis.findings import Severity
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.sinks.evidence import START_MS, CommittedBatch, DedupeKey, SinkEvidence
from lastgood.sources.files.facts import FileFacts, FileState, WrittenAgain
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts
from lastgood.sources.kafka.retention import MAX_CLOCK_SKEW_MS
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
KEPT = serve((0, 40), (0, 40))
BY_CLOCKS = "the assumption that no clock was set back between two plans of batch 3"
FORMER = "11111111-2222-3333-4444-555555555555"


def compacted(facts: KafkaFacts) -> KafkaFacts:
    topic = replace(facts.topics["orders"], config={"cleanup.policy": "compact"})
    return replace(facts, topics={"orders": topic})


def batch(number: int, **others: object) -> CommittedBatch:
    fields = {"version": number, "is_streaming": True, "committed_at_ms": written_ms(number), **others}
    return CommittedBatch(number, **fields)  # type: ignore[arg-type]


def lines(found: object) -> str:
    return "\n".join(getattr(found, "rests_on", ()))


def test_rows_of_a_compacted_topic_are_not_taken_back_to_be_read_again(tmp_path: Path) -> None:
    query(tmp_path, 3)
    ahead = delta(5, back_to=0)
    assert drafted(known(tmp_path, ahead, kafka=KEPT), ResumeGoal()).guarantee is EXACT
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, ahead, kafka=compacted(KEPT)), ResumeGoal())


def test_nor_are_they_where_a_broker_does_not_tell_whether_it_is_compacted(tmp_path: Path) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, delta(5, back_to=0), kafka=broker((0, 40), (0, 40))), ResumeGoal())


def test_batches_that_a_sink_lacks_are_not_read_again_from_a_compacted_topic(tmp_path: Path) -> None:
    query(tmp_path, 5)
    assert drafted(known(tmp_path, delta(2), kafka=KEPT), ResumeGoal()).guarantee is EXACT
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(2), kafka=compacted(KEPT)), ResumeGoal())
    assert refused.value.found == "orders, which is compacted: what was superseded is gone"


def test_nor_from_one_of_which_the_first_of_them_has_a_new_partition(tmp_path: Path) -> None:
    """Where it began nobody wrote down: all that the batch has read of it is to be read again."""
    query(tmp_path, 5)
    for batch_id in (3, 4):
        plan = tmp_path / f"offsets/{batch_id}"
        first, metadata, offsets = plan.read_text().splitlines()
        orders = json.loads(offsets)
        plan.write_text(f"{first}\n{metadata}\n{json.dumps({**orders, 'late': {'0': 5}})}")
    late = replace(KEPT.topics["orders"], config={"cleanup.policy": "compact"})
    facts = replace(KEPT, topics={**KEPT.topics, "late": late})
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(2), kafka=facts), ResumeGoal())
    assert refused.value.found == "late, which is compacted: what was superseded is gone"


@pytest.mark.parametrize(
    ("sink", "word", "condition"),
    [
        (delta(4, batches=tuple(batch(n) for n in (0, 1, 3, 4))), LOSSY, "SINK_BATCHES_MISSING"),
        (delta(4, batches=(*(batch(n) for n in range(5)), batch(2, version=7))), TWICE, "SINK_BATCH_TWICE"),
        (files(4, files_gone=("part-3.parquet",)), LOSSY, "SINK_FILES_GONE"),
        (files(4, files_damaged=("part-3.parquet",)), LOSSY, "SINK_FILES_DAMAGED"),
    ],
    ids=["a batch is missing", "a batch is there twice", "a file is gone", "a file is cut short"],
)
def test_what_is_lost_or_doubled_already_is_named(
    tmp_path: Path, sink: SinkEvidence, word: Guarantee, condition: str
) -> None:
    query(tmp_path, 5)
    found = drafted(known(tmp_path, sink, kafka=KEPT), ResumeGoal())
    assert (found.guarantee, found.is_plain) == (word, True)
    assert condition in lines(found)


def test_files_that_nobody_could_look_for_are_an_assumption(tmp_path: Path) -> None:
    query(tmp_path, 5)
    found = drafted(
        known(tmp_path, files(4, files_untold="the storage does not let us look"), kafka=KEPT), ResumeGoal()
    )
    assert found.guarantee is EXACT
    told = "the assumption that the data files of /lake/files are there: the storage does not let us look"
    assert told in found.rests_on


def test_first_batch_whose_beginning_is_lost_is_not_run_again_as_it_was(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    (tmp_path / "sources/0/0").unlink()
    found = drafted(known(tmp_path, replace(delta(None), kind="absent"), kafka=KEPT), ResumeGoal())
    assert found.guarantee is LOSSY  # as the price beside it says
    assert found.sources[0].lost == {"orders": {0: ((0, 5),), 1: ((0, 5),)}}


def test_batch_that_went_back_has_left_something_out(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path)
    for size in (5, 5, -3, 5):
        builder.plan(size)
        builder.commit()
    found = drafted(known(tmp_path, delta(3), kafka=KEPT), ResumeGoal())
    assert found.guarantee is LOSSY
    assert "SOURCE_OFFSET_WENT_BACK" in lines(found)


@pytest.mark.parametrize("sink", [silent(), delta(None)], ids=["does not tell", "shows nothing"])
def test_orphan_that_reads_nothing_promises_no_more_than_a_restart_without_it(
    tmp_path: Path, sink: SinkEvidence
) -> None:
    builder = query(tmp_path, 3)
    assert drafted(known(tmp_path, sink, kafka=KEPT), ResumeGoal()).guarantee is TWICE
    builder.plan(0)
    assert drafted(known(tmp_path, sink, kafka=KEPT), ResumeGoal()).guarantee is TWICE
    assert drafted(known(tmp_path, delta(2), kafka=KEPT), ResumeGoal()).guarantee is EXACT


def test_clock_that_went_back_leaves_open_of_which_plan_a_batch_is(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path, started_ms=STARTED_MS)
    builder.run(3)
    builder.plan(at_ms=STARTED_MS + 1500)
    held = delta(3, back_to=0)
    found = drafted(known(tmp_path, held, kafka=KEPT), ResumeGoal())
    assert found.guarantee is not EXACT or not found.is_plain
    assert "clocks differ" in lines(found)


def test_storage_whose_clock_is_ahead_leaves_it_open_as_well(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    late = tuple(batch(n, version=None, committed_at_ms=written_ms(n) + 10_000) for n in range(4))
    found = drafted(known(tmp_path, files(3, batches=late), kafka=KEPT), ResumeGoal())
    assert found.guarantee is not EXACT
    assert "by its time it got batch 2" in lines(found)


def test_mark_that_expires_soon_is_not_relied_upon(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    soon = delta(3, skips_known=False)
    found = drafted(known(tmp_path, soon, kafka=KEPT), ResumeGoal())
    assert (found.guarantee, found.is_plain) == (EXACT, False)  # it is committed by hand instead
    assert {edit.path for edit in found.edits} == {"commits/3"}
    by_function = replace(soon, batches=tuple(batch(n, is_streaming=False) for n in range(4)))
    line = "the assumption that the function writes batch 3 into the named sinks and nowhere else"
    assert line in drafted(known(tmp_path, by_function, kafka=KEPT), ResumeGoal()).rests_on


def test_that_nobody_else_writes_under_the_name_is_named_where_a_batch_is_dropped_by_its_number(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    named = replace(delta(3, app_id="etl"), dedupe_key=DedupeKey.APP_ID)
    line = "the assumption that no other query writes into /lake/out as etl"
    assert line in drafted(known(tmp_path, named, kafka=KEPT), ResumeGoal()).rests_on
    assert line not in drafted(known(tmp_path, delta(3), kafka=KEPT), ResumeGoal()).rests_on


def test_what_kafka_may_delete_before_a_start_is_lost_without_a_word(tmp_path: Path) -> None:
    query(tmp_path, 3)
    topic = replace(KEPT.topics["orders"], config={"cleanup.policy": "delete", "retention.ms": "3600000"})
    now_ms = STARTED_MS + 7_200_000

    def word(left_ms: int, *, fails: bool) -> Guarantee:
        unread = {"orders": {0: FoundRecord(15, now_ms - 3_600_000 + left_ms)}}
        facts = replace(KEPT, topics={"orders": topic}, unread=unread)
        what = known(tmp_path, delta(2), kafka=facts, now_ms=now_ms, fail_on_data_loss=fails)
        return drafted(what, ResumeGoal()).guarantee

    assert word(START_MS - 1, fails=False) is LOSSY
    assert word(START_MS, fails=False) is EXACT
    assert word(0, fails=True) is EXACT  # Spark fails, and nothing is lost without a word


def test_what_the_sinks_have_of_the_orphan_can_expire_and_nothing_is_lost(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    topic = replace(KEPT.topics["orders"], config={"cleanup.policy": "delete", "retention.ms": "3600000"})
    now_ms = STARTED_MS + 7_200_000
    unread = {"orders": {part: FoundRecord(15, now_ms - 3_600_000 + START_MS - 1) for part in (0, 1)}}

    def word(sink: SinkEvidence, latest: int) -> Guarantee:
        ends = {part: PartitionFacts(0, latest) for part in (0, 1)}
        facts = replace(KEPT, topics={"orders": replace(topic, partitions=ends)}, unread=unread)
        what = known(tmp_path, sink, kafka=facts, now_ms=now_ms, fail_on_data_loss=False)
        return drafted(what, ResumeGoal()).guarantee

    assert word(delta(3), 20) is EXACT
    assert word(delta(3), 21) is LOSSY  # what comes after it is still to be read
    assert word(delta(2), 20) is LOSSY


def without(folder: Path, number: int, topics: dict[str, dict[int, int]]) -> None:
    """The plan names these topics, and no others."""
    entry = read(folder).offsets.entries[number]
    assert hasattr(entry, "with_source_line")
    (folder / f"offsets/{number}").write_bytes(entry.with_source_line("0", KafkaOffset(topics)).to_bytes())


def test_topic_that_a_batch_left_out_may_come_back_from_its_beginning(tmp_path: Path) -> None:
    query(tmp_path, 4)
    for number in range(3):
        end = 5 * number + 5
        without(tmp_path, number, {"orders": {0: end, 1: end}, "more": {0: end}})
    found = drafted(known(tmp_path, delta(3)), ResumeGoal())
    assert found.guarantee is TWICE
    assert "Batch 3 was committed without more-0" in lines(found)


def test_application_that_leaves_topics_out_does_so_again(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    without(tmp_path, 3, {"other": {0: 5}})
    lax = known(tmp_path, delta(2), kafka=KEPT, fail_on_data_loss=False)
    found = drafted(lax, ReplanGoal())
    assert found.guarantee is LOSSY
    assert "left out orders of source 0" in lines(found)


def test_plan_of_the_mirror_that_is_younger_than_what_the_sink_holds_says_nothing_of_it(tmp_path: Path) -> None:
    builder = query(tmp_path, 3)
    builder.plan(10, at_ms=STARTED_MS + 600_000)
    mirror = mirror_of(tmp_path)
    (tmp_path / "offsets/3").unlink()
    to_its_end = RepositionGoal({"0": {"orders": {0: 25, 1: 25}}}, "a test wants it")
    found = drafted(known(tmp_path, delta(3), kafka=KEPT, mirror=mirror), to_its_end)
    assert found.guarantee is LOSSY  # how far the older plan went nobody knows


def test_table_that_went_back_to_before_its_log_may_lack_what_its_mark_stands_for(tmp_path: Path) -> None:
    query(tmp_path, 4)
    why = "version 9 restored version 1, which is older than what could be read"
    not_known = delta(3, known=False, last_batch=None, batches=(), unclear=why)
    gone_on = delta(3, batches=(batch(3),), complete_from=3, unclear=why)
    for sink in (not_known, gone_on):
        for goal in (ResumeGoal(), ReplanGoal(), RepositionGoal({}, "it stands")):
            found = drafted(known(tmp_path, sink, kafka=KEPT), goal)
            assert (found.guarantee, f"/lake/out may lack what its mark stands for: {why}" in lines(found)) == (
                LOSSY,
                True,
            )
        unknowns = judge(known(tmp_path, sink, kafka=KEPT)).restart.unknowns
        assert [why in line for line in unknowns if "/lake/out" in line] == [sink is gone_on]
    assert drafted(known(tmp_path, delta(3, unclear=why), kafka=KEPT), ResumeGoal()).guarantee is EXACT  # each is told


@pytest.mark.parametrize(
    ("newest_day", "word", "condition"),
    [(8, TWICE, "SOURCE_FILES_CHANGED"), (2, LOSSY, "SOURCE_FILE_IGNORED")],
    ids=["its name is forgotten", "its name is held"],
)
def test_file_that_comes_again_comes_twice_or_is_not_read(
    tmp_path: Path, newest_day: int, word: Guarantee, condition: str
) -> None:
    query(tmp_path, 3, source=FileInput())
    day = 24 * 60 * 60 * 1000
    changed = FileFacts(SourceFile("file:/in/a", 0, 0), FileState.CHANGED, 9 * day)
    again = {"0": WrittenAgain((changed,), newest_day * day, 3, 3)}
    found = drafted(known(tmp_path, delta(2), files_again=again), ResumeGoal())
    assert (found.guarantee, found.is_plain) == (word, True)
    assert f"{condition} sources/0" in lines(found)
    assumed = "maxFileAge of source 0, which no file records, is 48.00 hours or more"
    is_held = condition == "SOURCE_FILE_IGNORED"  # with a shorter one its name would be forgotten as well
    assert (assumed in lines(found)) == is_held
    unknowns = judge(known(tmp_path, delta(2), files_again=again)).restart.unknowns
    assert any(assumed in line for line in unknowns) == is_held


def made(created_ms: int, last: int | None, first: int = 0, **others: object) -> SinkEvidence:
    """A table that was made at some time and that shows the batches from `first` to `last`."""
    shown = () if last is None else tuple(batch(n) for n in range(first, last + 1))
    return delta(last, batches=shown, created_at_ms=created_ms, **others)


@pytest.mark.parametrize(
    ("sink", "word"),
    [
        (made(STARTED_MS - 1, 4), EXACT),
        (made(written_ms(0), 4), EXACT),
        (made(written_ms(9), None), LOSSY),
        (made(written_ms(0), None), TWICE),
        (made(written_ms(2), 4, first=3), LOSSY),
        (made(written_ms(9), 4, first=0), EXACT),
        (made(written_ms(9), 4, first=5, complete_from=5), EXACT),
    ],
    ids=[
        "made before",
        "made by the first batch",
        "made after all, and empty",
        "made by the first batch of a function that leaves no mark",
        "made anew by a later batch",
        "its clock is ahead: it shows the first batch",
        "only its mark is left",
    ],
)
def test_table_lacks_what_was_written_before_it_was_made(tmp_path: Path, sink: SinkEvidence, word: Guarantee) -> None:
    query(tmp_path, 5)
    observed = known(tmp_path, sink, kafka=KEPT)
    found = drafted(observed, ResumeGoal())
    assert (found.guarantee, found.is_plain) == (word, True)
    assert ("by its time it was made after them" in lines(found)) == (word is LOSSY)
    told = [each.condition.name for each in judge(observed).findings if "made after" in each.effect]
    assert told == (["SINK_BEHIND"] if word is LOSSY else [])


def test_batch_before_a_pause_counts_where_the_table_was_made_long_after_it_was_planned(tmp_path: Path) -> None:
    query(tmp_path, 1)
    at_once, late = made(written_ms(0), None), made(written_ms(0) + MAX_CLOCK_SKEW_MS, None)
    words = [drafted(known(tmp_path, sink, kafka=KEPT), ResumeGoal()).guarantee for sink in (at_once, late)]
    assert words == [TWICE, LOSSY]


def test_that_a_function_writes_nowhere_else_is_named_where_a_batch_runs_again(tmp_path: Path) -> None:
    line = "the assumption that the function writes batch 3 into the named sinks and nowhere else"
    query(tmp_path, 3, orphan=True)
    by_function = delta(3, batches=tuple(batch(n, is_streaming=False) for n in range(4)))
    found = drafted(known(tmp_path, by_function, kafka=KEPT), ResumeGoal())
    assert (found.guarantee, line in found.rests_on) == (EXACT, True)
    shown = tuple(batch(n, is_streaming=False) for n in range(3))
    anew = drafted(known(tmp_path, delta(2, batches=shown), kafka=KEPT), ReplanGoal())
    assert (anew.guarantee, line in anew.rests_on) == (EXACT, True)
    by_spark = drafted(known(tmp_path, delta(3), kafka=KEPT), ResumeGoal())
    assert (by_spark.guarantee, line in by_spark.rests_on) == (EXACT, False)


@pytest.mark.parametrize(
    ("name", "at_ms", "is_named"),
    [(FORMER, STARTED_MS - 1, True), (FORMER, written_ms(1), False), ("etl", STARTED_MS - 1, False)],
    ids=["a query that had stopped before", "one that writes beside it", "a name that a user chose"],
)
def test_that_a_query_which_wrote_before_is_another_one_is_named(
    tmp_path: Path, name: str, at_ms: int, is_named: bool
) -> None:
    query(tmp_path, 3)
    sink = delta(2, others={name: 7}, others_at_ms={name: at_ms})
    found = drafted(known(tmp_path, sink, kafka=KEPT), ResumeGoal())
    line = f"the assumption that query {name}, which wrote to /lake/out before, is another one"
    assert (found.guarantee, line in lines(found)) == (EXACT, is_named)


def test_topic_of_which_a_broker_does_not_tell_whether_it_is_the_same_is_named(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(2), kafka=KEPT), ResumeGoal())
    assert "the assumption that orders is the topic that was read: it was not asked by time" in found.rests_on
    same = drafted(
        known(tmp_path, delta(2), kafka=broker((0, 40), (0, 40), topic_id="one"), topic_ids={"orders": "one"}),
        ResumeGoal(),
    )
    assert "the topic that was read" not in lines(same)


def leave_out(folder: Path, number: int, **left: dict[int, int]) -> None:
    """A plan names these topics and partitions alone, as with `failOnDataLoss=false`."""
    plan = folder / f"offsets/{number}"
    head = plan.read_text().splitlines()[:2]
    plan.write_text("\n".join([*head, KafkaOffset(left).to_text()]))


@pytest.mark.parametrize("facts", [KEPT, broker((0, 40)), None])
def test_partition_that_a_batch_has_left_out_is_not_called_exact(tmp_path: Path, facts: KafkaFacts | None) -> None:
    """What was unread there is lost, or all of it is read again as soon as it is back."""
    query(tmp_path, 4)
    leave_out(tmp_path, 3, orders={0: 20})
    observed = known(tmp_path, delta(3), kafka=facts)
    found = drafted(observed, ResumeGoal())
    assert found.guarantee is LOSSY
    assert "SOURCE_PARTITIONS_GONE offsets/3: Batch 3 was committed without orders-1" in lines(found)
    told = drafted(replace(observed, rewritten={3: "a recovery"}), ResumeGoal())
    assert told.guarantee is (TWICE if facts is KEPT else EXACT)  # it is there again, and is read from its beginning


def test_partition_that_was_left_out_long_ago_and_is_back_comes_twice(tmp_path: Path) -> None:
    """No plan that is read names it any more; where the source began does."""
    query(tmp_path, 3)
    for number in range(3):
        leave_out(tmp_path, number, orders={0: 5 * number + 5})
    (tmp_path / "offsets/0").unlink()
    found = drafted(known(tmp_path, delta(2), kafka=KEPT), ResumeGoal())
    assert found.guarantee is TWICE
    assert "The query began with orders-1, and a batch has left it out since" in lines(found)
    assert drafted(known(tmp_path, delta(2), kafka=broker((0, 40))), ResumeGoal()).guarantee is EXACT


def test_topic_that_a_pattern_has_left_out_was_gone(tmp_path: Path) -> None:
    query(tmp_path, 4)
    (tmp_path / "sources/0/0").write_bytes(b'\0v1\n{"orders":{"0":0},"returns":{"0":0}}')
    for number in range(3):
        leave_out(tmp_path, number, orders={0: 5 * number + 5}, returns={0: 5 * number + 5})
    leave_out(tmp_path, 3, orders={0: 20})
    observed = known(tmp_path, delta(3), kafka=broker((0, 40)))
    assert drafted(observed, ResumeGoal()).guarantee is TWICE  # it may have been given up
    assert drafted(replace(observed, is_pattern=True), ResumeGoal()).guarantee is LOSSY


def with_old_records(**others: object) -> KafkaFacts:
    """A topic that was created again and filled with copies that kept their times: none is newer than any plan."""
    nothing = {"orders": {0: FoundRecord(), 1: FoundRecord()}}
    times = [*range(STARTED_MS + 1, STARTED_MS + 3000, 1000), STARTED_MS + 2001 + MAX_CLOCK_SKEW_MS]
    facts = broker((0, 1000), (0, 1000), topic_id="now")
    topic = replace(facts.topics["orders"], **others)  # type: ignore[arg-type]
    first_at = dict.fromkeys(times, nothing)
    return replace(facts, asked_at_ms=STARTED_MS + 10_000, topics={"orders": topic}, first_at=first_at)


def test_topic_that_only_the_times_of_its_records_tell_is_an_assumption(tmp_path: Path) -> None:
    query(tmp_path, 3)
    observed = known(tmp_path, delta(2), kafka=with_old_records())
    for goal in (ResumeGoal(), ReplanGoal(), RepositionGoal({}, "it stands")):
        found = drafted(observed, goal)
        assert found.guarantee is EXACT
        assert "the assumption that orders is the topic that was read: no id tells it, and the times" in lines(found)
    (unknown,) = (each for each in judge(observed, SPARK).restart.unknowns if "orders" in each)
    assert unknown.startswith("whether orders is the topic that was read: no id tells it")


@pytest.mark.parametrize(
    ("facts", "is_same_topic"),
    [
        (with_old_records(config={"message.timestamp.type": "LogAppendTime"}), False),
        (replace(with_old_records(), topic_ids_before={"orders": "now"}), False),
        (with_old_records(), True),
    ],
    ids=["the broker sets the times", "an id tells it", "a person tells it"],
)
def test_topic_that_is_proven_to_be_the_same_is_no_assumption(
    tmp_path: Path, facts: KafkaFacts, is_same_topic: bool
) -> None:
    query(tmp_path, 3)
    observed = known(tmp_path, delta(2), kafka=facts, is_same_topic=is_same_topic)
    assert "is the topic that was read" not in lines(drafted(observed, ResumeGoal()))
    assert not any("orders" in each for each in judge(observed, SPARK).restart.unknowns)


@pytest.mark.parametrize(
    ("others", "key"),
    [
        ({"my-app": 3, "their-app": 9}, DedupeKey.QUERY_ID),
        ({"my-app": 3, FORMER: 9}, DedupeKey.QUERY_ID),
        ({FORMER: 3}, DedupeKey.QUERY_ID),  # which a function may give as its `txnAppId`
        ({"my-app": 3}, DedupeKey.APP_ID),  # asked by a name that was not spelled right
    ],
)
def test_number_that_a_table_may_have_under_another_name_is_not_given_to_a_new_plan(
    tmp_path: Path, others: dict[str, int], key: DedupeKey
) -> None:
    query(tmp_path, 3, orphan=True)
    shared = replace(delta(None, batches=(), others=others), dedupe_key=key)
    found = drafted(known(tmp_path, shared, kafka=KEPT), ReplanGoal())
    assert found.guarantee is TWICE
    assert carried_out(tmp_path, found).last_planned == 3, "batch 3 would be dropped, whatever it reads"


def test_batches_below_the_newest_that_left_no_mark_may_have_had_rows(tmp_path: Path) -> None:
    query(tmp_path, 5)
    marked = tuple(batch(n, is_streaming=False) for n in (0, 1, 3, 4))
    by_function = known(tmp_path, delta(4, batches=marked), kafka=KEPT)
    found = drafted(by_function, ResumeGoal())
    assert found.guarantee is TWICE
    assert "It shows nothing of batch 2, though later ones are there" in lines(found)
    (finding,) = [each for each in judge(by_function).findings if each.condition.name == "SINK_BATCHES_MISSING"]
    assert finding.severity is Severity.WARNING


def test_table_that_begins_with_a_later_batch_may_lack_those_before(tmp_path: Path) -> None:
    query(tmp_path, 5)
    later = delta(4, batches=(batch(3), batch(4)))
    found = drafted(known(tmp_path, later, kafka=KEPT), ResumeGoal())
    assert found.guarantee is TWICE
    assert "It shows nothing of batches 0 to 2, which are older than all that it shows" in lines(found)
    for explained in (replace(later, complete_from=3), replace(later, others={FORMER: 2})):
        assert drafted(known(tmp_path, explained, kafka=KEPT), ResumeGoal()).guarantee is EXACT


def test_rows_that_may_be_gone_for_good_are_lost_until_they_are_read_again(tmp_path: Path) -> None:
    query(tmp_path, 5)
    gone = tuple(batch(n, is_live=None) for n in range(5))
    replaced = known(tmp_path, delta(4, batches=gone, unclear="version 5 (WRITE) replaced all rows"), kafka=KEPT)
    assert drafted(replaced, ResumeGoal()).guarantee is LOSSY
    (finding,) = [each for each in judge(replaced).findings if each.condition.name == "SINK_ROLLED_BACK"]
    assert finding.severity is Severity.WARNING


def test_number_that_a_recovery_has_used_up_is_of_no_plan_that_reads_something(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)  # as it was put back by hand, from a copy that is older than the recovery
    used_up = batch(3, is_streaming=None, row_count=0, committed_at_ms=STARTED_MS + 60_000)
    table = delta(3, batches=(*(batch(n) for n in range(3)), used_up))
    found = drafted(known(tmp_path, table, kafka=KEPT), ResumeGoal())
    assert found.guarantee is TWICE
    assert "a recovery has used up the number of batch 3, without a row of it" in lines(found)
    assert carried_out(tmp_path, found).offsets.entries[3] == read(tmp_path).offsets.entries[2]
    ran = delta(3, batches=(*(batch(n) for n in range(3)), replace(used_up, is_streaming=True)))
    query(tmp_path / "ran", 3, orphan=True)
    assert drafted(known(tmp_path / "ran", ran, kafka=KEPT), ResumeGoal()).guarantee is EXACT


@pytest.mark.parametrize("goal", [ResumeGoal(), RepositionGoal({}, "it stands")])
def test_number_that_a_sink_has_is_taken_for_the_plan_in_the_logs_by_clocks_and_that_is_named(
    tmp_path: Path, goal: ResumeGoal | RepositionGoal
) -> None:
    """A driver whose clock was ahead got it there, and the next one has planned it anew: that looks the same."""
    query(tmp_path, 3, orphan=True)
    what = known(tmp_path, delta(3), kafka=KEPT)
    found = drafted(what, goal)
    assert found.guarantee is EXACT
    assert BY_CLOCKS in lines(found)
    assert any("whether no clock was set back" in each for each in judge(what, SPARK).restart.unknowns)
    assert BY_CLOCKS not in lines(drafted(known(tmp_path, delta(2), kafka=KEPT), goal))


def test_clocks_are_not_asked_of_a_batch_that_a_sink_gives_back(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, delta(3, back_to=0), kafka=KEPT), ReplanGoal())
    assert (found.guarantee, [edit.batch for edit in found.sinks]) == (EXACT, [2])
    assert BY_CLOCKS not in lines(found)


def test_batch_that_a_sink_got_after_now_is_not_taken_for_the_plan_in_the_logs(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    now_ms = written_ms(3) + 4000
    ahead = (*(batch(n) for n in range(3)), batch(3, committed_at_ms=now_ms + 95_000))
    found = drafted(known(tmp_path, delta(3, batches=ahead, asked_at_ms=now_ms), kafka=KEPT), ResumeGoal())
    assert found.guarantee is TWICE
    assert "by its time it got batch 3 95.0 seconds after now, and it was planned before now" in lines(found)


def test_times_of_a_plan_that_is_dropped_still_tell_that_a_batch_before_it_is_of_an_older_plan(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    ahead = (*(batch(n) for n in range(2)), batch(2, committed_at_ms=written_ms(2) + 99_000))
    found = drafted(known(tmp_path, delta(2, batches=ahead), kafka=KEPT), ReplanGoal())
    assert changes(found)["offsets/3"] == "set aside"
    assert found.guarantee is LOSSY
    assert "may lack what batch 2 read: it got batch 2 after batch 3 was planned" in lines(found)


@pytest.mark.parametrize("seen", [None, 1])
def test_a_table_with_an_empty_version_may_lack_rows_also_of_batches_without_a_mark(
    tmp_path: Path, seen: int | None
) -> None:
    query(tmp_path, 3)
    told = {"batches": (), "complete_from": None, "skips_known": False, "unclear": "an empty version"}
    sink = replace(delta(seen, **told), last_batch=None, known=False)
    what = known(tmp_path, sink)
    found = drafted(what, ResumeGoal())
    assert found.guarantee is LOSSY
    assert [line for line in found.rests_on if "may lack" in line and "an empty version" in line]
    names = {each.condition.name for each in judge(what, SPARK).findings}
    assert "SINK_ROLLED_BACK" in names


def _edited(folder: Path, batch: int, by: int, *, at_ms: int | None = None) -> None:
    """What somebody does with an editor; with a time, what a driver does that plans the number anew."""
    plan = folder / f"offsets/{batch}"
    lines = plan.read_text().split("\n")
    ends = json.loads(lines[-1])
    lines[-1] = json.dumps({t: {part: at + by for part, at in parts.items()} for t, parts in ends.items()})
    if at_ms is not None:
        lines[1] = json.dumps(json.loads(lines[1]) | {"batchTimestampMs": at_ms})
    plan.write_text("\n".join(lines))


@pytest.mark.parametrize(("by", "word"), [(4, LOSSY), (-4, TWICE), (0, EXACT)])
@pytest.mark.parametrize("orphan", [False, True])
def test_a_plan_that_somebody_edited_since_the_mirror_saw_it_is_told(
    tmp_path: Path, orphan: bool, by: int, word: Guarantee
) -> None:
    """The next batch begins where it ends now: 4 offsets of each partition were read by none, called exactly once."""
    query(tmp_path, 4, orphan=orphan)
    mirror = mirror_of(tmp_path)
    _edited(tmp_path, 3, by)
    what = known(tmp_path, delta(3), kafka=KEPT, mirror=mirror)
    found = drafted(what, ResumeGoal())
    assert found.guarantee is word
    assert bool([line for line in found.rests_on if line.startswith("offsets/3 was edited")]) == bool(by)
    assert drafted(replace(what, rewritten={3: "a recovery"}), ResumeGoal()).guarantee is EXACT


@pytest.mark.parametrize("holds", [False, True])
def test_how_far_an_edited_orphan_goes_matters_where_a_sink_has_it(tmp_path: Path, holds: bool) -> None:
    query(tmp_path, 4, orphan=True)
    mirror = mirror_of(tmp_path)
    _edited(tmp_path, 4, 4)
    found = drafted(known(tmp_path, delta(4 if holds else 3), kafka=KEPT, mirror=mirror), ResumeGoal())
    assert found.guarantee is (LOSSY if holds else EXACT)


def test_a_plan_that_a_driver_has_made_anew_was_not_edited(tmp_path: Path) -> None:
    query(tmp_path, 4, orphan=True)
    mirror = mirror_of(tmp_path)
    _edited(tmp_path, 4, 4, at_ms=written_ms(5))
    assert drafted(known(tmp_path, delta(3), kafka=KEPT, mirror=mirror), ResumeGoal()).guarantee is EXACT


@pytest.mark.parametrize(("at", "word"), [(3, LOSSY), (0, TWICE)])
def test_a_table_without_marks_that_was_restored_may_lack_what_was_planned_before(
    tmp_path: Path, at: int, word: Guarantee
) -> None:
    """Later batches are not meant: a RESTORE of last year is none of theirs."""
    query(tmp_path, 4)
    told = {"batches": (), "unclear": "version 9 is a RESTORE", "unclear_at_ms": written_ms(at) - 500}
    what = known(tmp_path, replace(delta(None, **told), skips_up_to=None), kafka=KEPT)
    found = drafted(what, ResumeGoal())
    assert found.guarantee is word
    lacking = [line for line in found.rests_on if "may lack rows of batches that are done" in line]
    assert bool(lacking) == (word is LOSSY)


def test_what_kafka_lacks_of_an_orphan_that_a_fence_has_is_not_lost(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    gone = broker((18, 60), (15, 60))
    lenient = {"kafka": gone, "fail_on_data_loss": False}
    assert drafted(known(tmp_path, fence(3), **lenient), ResumeGoal()).guarantee is EXACT
    assert drafted(known(tmp_path, fence(2), **lenient), ResumeGoal()).guarantee is LOSSY
    beyond = {**lenient, "kafka": broker((18, 60), (25, 60))}
    assert drafted(known(tmp_path, fence(3), **beyond), ResumeGoal()).guarantee is LOSSY


@pytest.mark.parametrize("key", [DedupeKey.QUERY_ID, DedupeKey.APP_ID])
@pytest.mark.parametrize("goal", [ResumeGoal(), ReplanGoal()])
@pytest.mark.parametrize(
    ("marked_ms", "is_used_up"),
    [(-600_000, True), (-1_000, True), (None, True), (1_000, False)],
    ids=["long before", "before", "nobody knows", "after"],
)
def test_number_of_an_older_plan_under_a_name_that_nobody_gave_is_used_up(
    tmp_path: Path, marked_ms: int | None, is_used_up: bool, goal: ResumeGoal | ReplanGoal, key: DedupeKey
) -> None:
    """Marked so long after the orphan was planned; where that was before, a plain restart is dropped by the table."""
    query(tmp_path, 3, orphan=True)
    planned_ms = json.loads((tmp_path / "offsets/3").read_text().splitlines()[1])["batchTimestampMs"]
    at_ms = {} if marked_ms is None else {"my-app": planned_ms + marked_ms}
    sink = delta(None, batches=(), others={"my-app": 3}, others_at_ms=at_ms, times_by_driver=True)
    found = drafted(known(tmp_path, replace(sink, dedupe_key=key), kafka=KEPT), goal)
    assert found.guarantee is TWICE
    assert (changes(found) == {"offsets/3": "written"}) == (is_used_up or isinstance(goal, ReplanGoal))
    if is_used_up:
        assert "if the query writes there as my-app (--txn-app-id)" in lines(found)


@pytest.mark.parametrize("orphan", [True, False])
def test_numbers_that_a_table_has_under_a_name_that_nobody_gave_are_lossy(tmp_path: Path, orphan: bool) -> None:
    query(tmp_path, 3, orphan=orphan)
    other = delta(None, batches=(), others={"their-app": 9})
    found = drafted(known(tmp_path, other, kafka=KEPT), ResumeGoal())
    assert found.guarantee is LOSSY
    assert f"batches {4 if orphan else 3} to 9 if the query writes as their-app" in lines(found)
    own = replace(other, others={"my-app": 2, "their-app": 9})
    passed_over = drafted(known(tmp_path, own, kafka=KEPT), ResumeGoal())
    assert passed_over.guarantee is TWICE
    assert "the assumption that the query does not write into /lake/out as their-app" in passed_over.rests_on
    many = replace(other, others={f"name{number}": 9 for number in range(1000)})
    told = lines(drafted(known(tmp_path, many, kafka=KEPT), ResumeGoal()))
    assert told.count("name") == 5, "whoever writes to a table may leave any number of names in it"


def test_batch_that_a_table_had_before_under_a_presumed_name_may_be_missing(tmp_path: Path) -> None:
    query(tmp_path, 4)
    had = delta(
        3, presumed_app_id="my-app", app_id="my-app", batches=(batch(3, committed_at_ms=written_ms(3) - 900_000),)
    )
    presumed = replace(had, dedupe_key=DedupeKey.APP_ID)
    found = drafted(known(tmp_path, presumed, kafka=KEPT), ResumeGoal())
    assert found.guarantee is LOSSY
    assert "if the query writes there as my-app, /lake/out may lack what batch 3 read" in lines(found)
    several = delta(None, batches=(), others={"my-app": 3}, others_at_ms={"my-app": written_ms(3) - 900_000})
    assert drafted(known(tmp_path, several, kafka=KEPT), ResumeGoal()).guarantee is LOSSY
