"""How far the sinks of a lost query have come, told by rows, by a time, or by Kafka alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning import broker

from lastgood.planning.extents import (
    Reads,
    measure_extent_from_beginning,
    measure_extent_of_batch,
    measure_extent_of_rows,
    measure_extent_since,
)
from lastgood.planning.goals.values import Extent
from lastgood.planning.price import Guarantee
from lastgood.sinks.offset_columns import OffsetsSeen, TableOffsets
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Offsets, Range

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
READS = Reads({"0": {"orders": {0: 0, 1: 0}}})


def rows(*partitions: list[Range], **others: object) -> TableOffsets:
    """A table that holds these offsets of each partition."""
    seen = OffsetsSeen()
    for number, spans in enumerate(partitions):
        for first, end in spans:
            seen.add("orders", number, first, end)
    found = seen.table("/lake/out", 7, file_count=2, files_read=2)
    return replace(found, **others)  # type: ignore[arg-type]  # fields of the table


def told(found: TableOffsets, reads: Reads = READS) -> Extent:
    return measure_extent_of_rows(found, "topic,partition,offset", reads, ())


def began(**offsets: int) -> Reads:
    return replace(READS, began={"0": {"orders": {int(name[1:]): at for name, at in offsets.items()}}})


def with_broker(facts: KafkaFacts, reads: Reads = READS) -> Reads:
    return replace(reads, facts=facts)


def at(extent: Extent) -> tuple[Offsets, Offsets | None]:
    return extent.least["0"], None if extent.most is None else extent.most["0"]


def test_rows_without_a_hole_are_exactly_as_far_as_they_go() -> None:
    found = told(rows([(0, 15)], [(0, 9)]))
    assert at(found) == ({"orders": {0: 15, 1: 9}}, {"orders": {0: 15, 1: 9}})
    assert (found.word, found.tables) == (EXACT, {"/lake/out": 7})
    assert found.rests_on == (
        "the columns topic,partition,offset of /lake/out, version 7, which hold every offset once (2 files read)",
    )


def test_what_lies_above_the_first_hole_is_read_again() -> None:
    found = told(rows([(0, 7), (8, 15)], [(0, 9)]))
    assert at(found) == ({"orders": {0: 7, 1: 9}}, {"orders": {0: 15, 1: 9}})
    assert found.word is TWICE
    assert "offsets are missing in orders-0 (from 7 on)" in found.rests_on[1]


def test_hole_in_a_compacted_topic_may_be_no_loss_and_is_not_exact_all_the_same() -> None:
    facts = broker((0, 15), (0, 9))
    topic = replace(facts.topics["orders"], config={"cleanup.policy": "compact"})
    found = told(rows([(0, 7), (8, 15)], [(0, 9)]), with_broker(replace(facts, topics={"orders": topic})))
    assert found.word is TWICE
    assert "perhaps because orders is compacted" in found.rests_on[1]


@pytest.mark.parametrize(
    ("others", "line"),
    [
        ({"repeated": {"orders": {0: 3}}}, "offsets stand in several rows of orders-0 (3 rows)"),
        ({"scattered": ("orders-0",)}, "there are too many holes in orders-0 to follow them all"),
        ({"unplaced": 2}, "2 rows carry no offset"),
    ],
)
def test_rows_that_are_no_measure_take_the_exact_word_away(others: dict[str, object], line: str) -> None:
    found = told(rows([(0, 15)], [(0, 9)], **others))
    assert (found.word, found.rests_on[1]) == (TWICE, line)


def test_rows_that_do_not_begin_at_0_tell_nothing_of_what_was_before() -> None:
    found = told(rows([(5, 15)], [(0, 9)]))
    assert at(found) == ({"orders": {0: 15, 1: 9}}, {"orders": {0: 15, 1: 9}})
    assert found.word is LOSSY
    assert "before the first rows of orders-0 (from 5 on)" in found.rests_on[1]


def test_rows_that_begin_where_the_source_wrote_that_it_began_are_whole() -> None:
    assert told(rows([(5, 15)], [(0, 9)]), began(p0=5)).word is EXACT
    late = told(rows([(5, 15)], [(0, 9)]), began(p0=3, p1=0))
    assert (at(late)[0], late.word) == ({"orders": {0: 3, 1: 9}}, TWICE)


def test_partition_without_rows_begins_where_it_began() -> None:
    assert at(told(rows([(0, 15)], []), began(p0=0, p1=4)))[0] == {"orders": {0: 15, 1: 4}}
    whole = told(rows([(0, 15)], []), with_broker(broker((0, 20), (0, 0), (0, 4))))
    assert (at(whole)[0], whole.word) == ({"orders": {0: 15, 1: 0, 2: 0}}, EXACT)
    expired = told(rows([(0, 15)], []), with_broker(broker((0, 20), (6, 8))))
    assert (at(expired)[0], expired.word) == ({"orders": {0: 15, 1: 6}}, LOSSY)


def test_doubts_from_elsewhere_count() -> None:
    doubt = (TWICE, "others write to /lake/out too")
    found = measure_extent_of_rows(rows([(0, 15)], [(0, 9)]), "c", READS, [doubt])
    assert (found.word, found.rests_on[1]) == doubt


def test_from_the_beginning_everything_may_be_there_already() -> None:
    found = measure_extent_from_beginning(with_broker(broker((5, 20), (0, 4)), began(p0=2)))
    assert (at(found), found.word) == (({"orders": {0: 2, 1: 0}}, None), TWICE)


def test_time_of_a_commit_rests_on_how_far_the_query_was_behind() -> None:
    starts = {"0": {"orders": {0: 7}}}
    found = measure_extent_since(starts, commit="version 3", behind="60 s")
    assert (found.least, found.most, found.word) == (starts, None, TWICE)
    assert "never more than 60 s behind" in found.rests_on[1]


def test_end_of_a_batch_that_the_sinks_show_is_exact() -> None:
    ends = {"0": {"orders": {0: 7}}}
    found = measure_extent_of_batch(ends, marks=["delta txn 6"], told_by="the ledger")
    assert (found.least, found.most, found.word, found.rests_on) == (ends, ends, EXACT, ("delta txn 6", "the ledger"))
    torn = measure_extent_of_batch(
        ends, marks=["delta txn 6"], told_by="the ledger", holes=["/lake/out lacks batches (3,)"]
    )
    assert (torn.word, torn.rests_on[-1]) == (LOSSY, "/lake/out lacks batches (3,)")
