"""What speaks against a plain restart without stopping it is told, and takes its word down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planning import broker, changes, delta, drafted, files, known, mirror_of, query
from predicting import change, line

from lastgood.checkpoint.damage import Damage
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import FreshGoal, ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, TopicFacts
from lastgood.testing.checkpoints import QUERY_ID, FileInput

GOALS = (ResumeGoal(), ReplanGoal(), FreshGoal(), RepositionGoal({}, "it stands"))
MINUTE_MS = 60_000


def newest_plan_ms(folder: Path, batch_id: int) -> int:
    entry = known(folder).checkpoint.offsets.entries[batch_id]
    assert not isinstance(entry, Damage)
    assert entry.metadata is not None
    return entry.metadata.batch_timestamp_ms


@pytest.mark.parametrize(
    ("offset", "later_ms", "word"),
    [
        (2, 10 * MINUTE_MS, Guarantee.LOSSY),
        (12, 1, Guarantee.EXACTLY_ONCE),
        (2, 1, Guarantee.LOSSY),  # a clock would have been wrong over three batches
    ],
)
def test_topic_that_looks_created_again_is_an_assumption_or_a_loss(
    tmp_path: Path, offset: int, later_ms: int, word: Guarantee
) -> None:
    query(tmp_path, 3)
    record = FoundRecord(offset=offset, timestamp_ms=newest_plan_ms(tmp_path, 2) + later_ms)
    facts = replace(broker((0, 40), (0, 40)), first_after_batch={2: {"orders": {0: record}}})
    found = drafted(known(tmp_path, files(2), kafka=facts), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, word)
    told = "holds records that are older" if word is Guarantee.EXACTLY_ONCE else "created again"
    assert told in found.rests_on[-1]
    if word is Guarantee.LOSSY:
        assert found.sources[0].lost == {"orders": {0: ((0, 15),), 1: ((0, 15),)}}
        assert found.sources[0].bound


def test_topic_that_holds_nothing_older_may_be_another_one(tmp_path: Path) -> None:
    query(tmp_path, 3)
    record = FoundRecord(offset=0, timestamp_ms=newest_plan_ms(tmp_path, 2) + 1)
    facts = replace(broker((0, 40), (0, 40)), first_after_batch={2: {"orders": {0: record, 1: record}}})
    found = drafted(known(tmp_path, files(2), kafka=facts), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, Guarantee.LOSSY)
    assert "--topic-is-the-same" in found.rests_on[-1]
    settled = drafted(known(tmp_path, files(2), kafka=facts, is_same_topic=True), ResumeGoal())
    assert settled.guarantee is Guarantee.EXACTLY_ONCE
    assert "the word of a person that orders was not created again" in settled.rests_on[-1]


@pytest.mark.parametrize("goal", GOALS[:2])
def test_plan_in_which_a_source_has_lost_its_position_is_refused(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3)
    newest = tmp_path / "offsets" / "2"
    newest.write_text(newest.read_text().replace("v1", "v2", 1))  # of which every line names its source
    with pytest.raises(RepairRefusedError, match="does not go on"):
        drafted(known(tmp_path, files(2)), goal)


def test_plan_in_which_a_file_source_went_back_is_refused(tmp_path: Path) -> None:
    query(tmp_path, 3, source=FileInput())
    newest = tmp_path / "offsets" / "2"
    version, metadata, _ = newest.read_text().split("\n")
    newest.write_text(f'{version}\n{metadata}\n{{"logOffset":0}}')
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, files(2)), ResumeGoal())


@pytest.mark.parametrize("goal", GOALS[:2])
def test_entry_of_a_file_source_without_a_file_is_refused(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3, source=FileInput())
    newest = tmp_path / "sources" / "0" / "2"
    newest.write_text(f"{newest.read_text().partition(chr(10))[0]}\n")
    with pytest.raises(RepairRefusedError, match="names no file"):
        drafted(known(tmp_path, files(2)), goal)


@pytest.mark.parametrize("goal", GOALS)
def test_sink_whose_own_log_is_damaged_is_refused(tmp_path: Path, goal: Goal) -> None:
    query(tmp_path, 3)
    sink = files(2, unreadable=(1,))
    with pytest.raises(RepairRefusedError, match="own log"):
        drafted(known(tmp_path, sink, mirror=mirror_of(tmp_path), kafka=broker((0, 40), (0, 40))), goal)


def test_table_that_nobody_could_ask_by_the_lost_id_tells_it(tmp_path: Path) -> None:
    query(tmp_path, 3)
    (tmp_path / "metadata").unlink()
    table = replace(delta(None, skips_known=False, others={QUERY_ID: 2}), known=False)
    found = drafted(known(tmp_path, table), ResumeGoal())
    assert (changes(found), found.guarantee) == ({"metadata": "written"}, Guarantee.EXACTLY_ONCE)
    assert found.rests_on[-1].startswith(f"delta txn 2 of query {QUERY_ID}")


# --- topics that are gone -------------------------------------------------------------------------------------------

GONE = KafkaFacts("broker:9092", 1, {"orders": TopicFacts(exists=False)})


@pytest.mark.parametrize("option", [True, False])
def test_pattern_whose_topics_are_all_gone_starts_and_is_lossy(tmp_path: Path, option: bool) -> None:
    query(tmp_path, 3)
    what = known(tmp_path, delta(2), kafka=GONE, is_pattern=True, fail_on_data_loss=option)
    found = drafted(what, ResumeGoal())
    assert (found.guarantee, found.is_plain) == (Guarantee.LOSSY, True)
    assert "orders does not exist: what was unread of it is lost" in found.rests_on


def test_topic_that_is_gone_and_subscribed_by_its_name_is_no_start(tmp_path: Path) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError) as caught:
        drafted(known(tmp_path, delta(2), kafka=GONE), ResumeGoal())
    assert caught.value.found == "This server does not host this topic-partition"


def test_planned_batch_that_reads_nothing_of_the_topic_that_is_gone_is_lossy(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    for batch, orders in ((2, 15), (3, 20)):
        topics = f'{{"orders":{{"0":{orders},"1":{orders}}},"late":{{"0":6}}}}'
        change(f"offsets/{batch}", line(2, topics))(tmp_path)
    served = broker((0, 30), (0, 30))
    facts = replace(served, topics={**served.topics, "late": TopicFacts(exists=False)})
    found = drafted(known(tmp_path, delta(2), kafka=facts, fail_on_data_loss=False, is_pattern=True), ResumeGoal())
    assert found.guarantee is Guarantee.LOSSY
    assert "late does not exist: what was unread of it is lost" in found.rests_on


def test_facts_that_do_not_name_the_topic_are_no_facts_where_loss_is_no_error(tmp_path: Path) -> None:
    query(tmp_path, 3)
    others = broker((0, 30), (0, 30), topic="clicks")
    found = drafted(known(tmp_path, delta(2), kafka=others, fail_on_data_loss=False), ResumeGoal())
    assert found.guarantee is Guarantee.LOSSY
    assert any("no Kafka told" in line for line in found.rests_on)


def without_its_state(folder: Path) -> Path:
    """The whole folder is gone; a watermark is all that tells of it."""
    query(folder, 3)
    change("offsets/2", lambda text: text.replace('"batchWatermarkMs":0', '"batchWatermarkMs":60000'))(folder)
    return folder


AT_THE_END = RepositionGoal({"0": {"orders": {0: 15, 1: 15}}}, "it stands")


@pytest.mark.parametrize(
    ("goal", "word"), [(ResumeGoal(), Guarantee.AT_LEAST_ONCE), (AT_THE_END, Guarantee.LOSSY)], ids=["resume", "other"]
)
def test_query_with_a_watermark_may_have_lost_its_state(tmp_path: Path, goal: Goal, word: Guarantee) -> None:
    facts = known(without_its_state(tmp_path), files(2), kafka=broker((0, 40), (0, 40)))
    found = drafted(facts, goal)
    assert found.guarantee is word
    assert any("state" in each for each in found.rests_on)
