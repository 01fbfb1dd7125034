from __future__ import annotations

import pytest

from lastgood.checkpoint.offsets import OffsetEntry, SourceLine
from lastgood.checkpoint.source_offsets import KafkaOffset, NumberOffset, VoidOffset
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts, TopicFacts
from lastgood.sources.kafka.reader import (
    OffsetRange,
    SourceKindError,
    TopicRecreatedError,
    list_committed_ranges,
    list_served_ranges,
)


def entry(*lines: str) -> OffsetEntry:
    return OffsetEntry(1, None, tuple(SourceLine(str(index), text) for index, text in enumerate(lines)))


def held(earliest: int, latest: int) -> KafkaFacts:
    """What a broker says that holds these offsets."""
    partitions = {0: PartitionFacts(earliest=earliest, latest=latest)}
    return KafkaFacts("broker:9092", 0, {"t": TopicFacts(exists=True, partitions=partitions)})


def test_range_begins_where_the_source_began_and_ends_with_the_committed_batch() -> None:
    committed = entry('{"t":{"1":7,"0":9}}')
    initial = {"0": KafkaOffset({"t": {0: 3, 1: 0}})}
    assert list_committed_ranges(committed, initial, committed) == (
        OffsetRange("0", "t", 0, start=3, begin=3, end=9),
        OffsetRange("0", "t", 1, start=0, begin=0, end=7),
    )


def test_partition_and_topic_that_came_later_begin_at_zero() -> None:
    ranges = list_committed_ranges(
        entry('{"t":{"0":9,"1":4},"u":{"0":2}}'), {"0": KafkaOffset({"t": {0: 3}})}, entry("-")
    )
    assert [(each.topic, each.partition, each.start) for each in ranges] == [("t", 0, 3), ("t", 1, 0), ("u", 0, 0)]


def test_beginning_that_is_lost_is_the_end_of_the_oldest_batch() -> None:
    ranges = list_committed_ranges(entry('{"t":{"0":9}}'), {}, entry('{"t":{"0":5}}'))
    assert [(each.start, each.end) for each in ranges] == [(5, 9)]


def test_each_source_of_a_query_has_ranges_of_its_own() -> None:
    lines = ('{"t":{"0":9}}', "-", '{"t":{"0":4}}')
    ranges = list_committed_ranges(entry(*lines), {"0": KafkaOffset({"t": {0: 1}})}, entry(*lines[:2], '{"t":{"0":2}}'))
    assert [(each.source, each.start, each.end) for each in ranges] == [("0", 1, 9), ("2", 2, 4)]


def test_source_without_offsets_yet_has_no_range() -> None:
    assert list_committed_ranges(entry(VoidOffset().to_text()), {}, entry("-")) == ()


def test_offsets_that_went_back_below_the_start_are_an_empty_range() -> None:
    (found,) = list_committed_ranges(entry('{"t":{"0":5}}'), {"0": KafkaOffset({"t": {0: 15}})}, entry("-"))
    assert (found.start, found.begin, found.end, found.served) == (5, 5, 5, 0)


@pytest.mark.parametrize(("line", "kind"), [('{"logOffset":3}', "file"), (NumberOffset(7).to_text(), "number")])
def test_source_that_is_not_kafka_is_refused_by_its_kind(line: str, kind: str) -> None:
    with pytest.raises(SourceKindError) as caught:
        list_committed_ranges(entry('{"t":{"0":5}}', line), {}, entry("-"))
    assert caught.value.subject == "source 1"
    assert caught.value.found == f"offsets of kind '{kind}'"


@pytest.mark.parametrize(
    ("earliest", "begin", "expired"), [(0, 3, 0), (3, 3, 0), (5, 5, 2), (9, 9, 6), (12, 9, 6)], ids=str
)
def test_range_begins_where_kafka_still_serves_it(earliest: int, begin: int, expired: int) -> None:
    (served,) = list_served_ranges([OffsetRange("0", "t", 0, start=3, begin=3, end=9)], held(earliest, 20))
    assert (served.start, served.begin, served.end) == (3, begin, 9)
    assert (served.expired, served.served) == (expired, 9 - begin)


def test_topic_that_ends_before_what_was_read_is_another_one() -> None:
    with pytest.raises(TopicRecreatedError) as caught:
        list_served_ranges([OffsetRange("0", "t", 0, start=0, begin=0, end=9)], held(0, 8))
    assert caught.value.found == "t-0 ends at 8"
    assert list_served_ranges([OffsetRange("0", "t", 0, start=0, begin=0, end=9)], held(0, 9))


def test_topic_with_fewer_partitions_than_were_read_is_another_one() -> None:
    with pytest.raises(TopicRecreatedError) as caught:
        list_served_ranges([OffsetRange("0", "t", part, start=0, begin=0, end=1) for part in (0, 2, 1)], held(0, 9))
    assert caught.value.found == "no partition t-1, t-2"
