from __future__ import annotations

from typing import Any

import pytest

from lastgood.sources.kafka.facts import FoundRecord, PartitionFacts, TopicFacts
from lastgood.sources.kafka.retention import (
    FROM_THE_FIRST_MS,
    MAX_CLOCK_SKEW_MS,
    Headroom,
    HeadroomKind,
    ReadUpTo,
    TopicIdentity,
    choose_least_headroom,
    estimate_headroom,
    estimate_size_headroom_ms,
    identify_topic,
)

NOW = 10_000_000
RETENTION = {"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}


def topic(**config: str) -> TopicFacts:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return TopicFacts(partitions={0: PartitionFacts(5, 20)}, config={**RETENTION, **named})


def of(facts: TopicFacts, next_offset: int = 10, unread: FoundRecord | None = None) -> Headroom:
    return estimate_headroom(facts, 0, next_offset, unread or FoundRecord(next_offset, NOW - 400), NOW)


def test_first_unread_record_stays_until_it_is_as_old_as_retention_allows() -> None:
    found = of(topic())
    assert (found.kind, found.ms, found.limited_by_size) == (HeadroomKind.LIMITED, 600, False)


def test_record_that_is_too_old_may_go_at_any_moment() -> None:
    assert of(topic(), unread=FoundRecord(10, NOW - 5000)).ms == 0


def test_record_with_a_time_to_come_stays_longer() -> None:
    assert of(topic(), unread=FoundRecord(10, NOW + 100)).ms == 1100


def test_offsets_below_the_earliest_are_lost() -> None:
    found = of(topic(), 3)
    assert (found.kind, found.because) == (HeadroomKind.LOST, "offsets [3, 5) are gone")


@pytest.mark.parametrize("next_offset", [20, 21])
def test_nothing_is_unread_at_the_end(next_offset: int) -> None:
    assert of(topic(), next_offset).kind is HeadroomKind.NOTHING_UNREAD


def test_compacted_topics_and_those_without_retention_have_no_limit() -> None:
    assert of(topic(cleanup_policy="compact")).kind is HeadroomKind.UNLIMITED
    assert of(topic(retention_ms="-1")).kind is HeadroomKind.UNLIMITED
    assert of(topic(cleanup_policy="compact,delete")).kind is HeadroomKind.LIMITED


def test_limit_by_size_is_told_beside_the_limit_by_time() -> None:
    assert of(topic(retention_bytes="1000000")).limited_by_size
    endless = of(topic(retention_ms="-1", retention_bytes="1000000"))
    assert (endless.kind, endless.limited_by_size) == (HeadroomKind.UNLIMITED, True)


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    blind = TopicFacts(partitions={0: PartitionFacts(unknown="no leader")}, unknown=None)
    assert estimate_headroom(blind, 0, 1, None, NOW) == Headroom(HeadroomKind.UNKNOWN, "no leader")
    assert estimate_headroom(TopicFacts(unknown="forbidden"), 0, 1, None, NOW).because == "forbidden"
    no_config = TopicFacts(partitions={0: PartitionFacts(0, 9)}, config_unknown="not authorized")
    assert estimate_headroom(no_config, 0, 1, FoundRecord(1, 5), NOW).because == "not authorized"
    assert of(topic(), unread=FoundRecord(unknown="no answer in time")).because == "no answer in time"
    assert of(topic(), unread=FoundRecord(10)).kind is HeadroomKind.UNKNOWN
    assert estimate_headroom(topic(), 0, 10, None, NOW).kind is HeadroomKind.UNKNOWN


def test_worst_headroom_comes_first() -> None:
    kinds = [
        Headroom(HeadroomKind.UNLIMITED, ""),
        Headroom(HeadroomKind.UNKNOWN, ""),
        Headroom(HeadroomKind.LIMITED, "", 50),
        Headroom(HeadroomKind.LIMITED, "", 5),
    ]
    assert choose_least_headroom(kinds) == kinds[3]
    assert choose_least_headroom([*kinds, Headroom(HeadroomKind.LOST, "")]) == Headroom(HeadroomKind.LOST, "")
    assert choose_least_headroom(kinds[:2]) == kinds[1]
    assert choose_least_headroom([]) is None


def test_limit_by_size_is_estimated_from_how_fast_the_beginning_moved() -> None:
    looks = [(1000, 100), (2000, 150), (3000, 300)]
    assert estimate_size_headroom_ms(looks, 500) == 2000
    assert estimate_size_headroom_ms(looks, 300) == 0
    assert estimate_size_headroom_ms(looks[:1], 500) is None
    assert estimate_size_headroom_ms([(1000, 100), (2000, 100)], 500) is None
    assert estimate_size_headroom_ms([], 500) is None


READ = ReadUpTo(NOW, {0: 15, 1: 15})


def identity(facts: TopicFacts, first_after: dict[int, FoundRecord], *earlier: ReadUpTo, **more: Any) -> TopicIdentity:
    return identify_topic(facts, reads=[READ, *earlier], asked={NOW + 1: first_after}, **more).identity


BOTH = TopicFacts(topic_id="new", partitions={0: PartitionFacts(0, 30), 1: PartitionFacts(0, 30)})
LATER = FoundRecord(15, NOW + 1)
NONE_LATER = FoundRecord()


def test_id_is_proof_either_way() -> None:
    newer = {0: FoundRecord(1, NOW + MAX_CLOCK_SKEW_MS * 2), 1: LATER}
    assert identity(BOTH, newer, recorded_topic_id="new") is TopicIdentity.SAME
    assert identity(BOTH, {}, recorded_topic_id="old") is TopicIdentity.ANOTHER


def test_log_of_the_same_topic_that_was_lost_and_has_grown_again_is_told_by_its_times() -> None:
    anew = {0: FoundRecord(0, NOW + MAX_CLOCK_SKEW_MS * 2), 1: LATER}
    found = identify_topic(BOTH, reads=[READ], asked={NOW + 1: anew}, recorded_topic_id="new")
    assert (found.identity, found.partitions) == (TopicIdentity.MAY_BE_RECREATED, (0,))
    assert found.because.startswith("its id is still new, and yet all that it holds")
    assert identity(BOTH, anew, recorded_topic_id="new", is_told_the_same=True) is TopicIdentity.SAME
    for leader, wanted in ((None, TopicIdentity.SAME), (0, TopicIdentity.SAME), (1, TopicIdentity.MAY_BE_RECREATED)):
        # A record is left alone, and a clock is ahead; but the first leader of a partition has the number 0.
        within = {0: FoundRecord(0, NOW + MAX_CLOCK_SKEW_MS, leader_epoch=leader), 1: LATER}
        assert identity(BOTH, within, recorded_topic_id="new") is wanted


@pytest.mark.parametrize(
    "ahead_ms",
    [2000, 10_000, MAX_CLOCK_SKEW_MS * 2],
    ids=["sooner than a leader is elected", "a little", "more than clocks differ"],
)
@pytest.mark.parametrize("recorded", [None, "new"], ids=["no id is known", "the same id"])
def test_end_of_a_log_that_was_lost_and_has_grown_again_is_told_by_its_leader(
    ahead_ms: int, recorded: str | None
) -> None:
    """An unclean election takes the newest records; what is written then has their offsets, and is not read."""
    before = ReadUpTo(NOW - 60_000, {0: 10, 1: 10})

    def found(first: int | None, newer: int | None, **more: Any) -> TopicIdentity:
        asked = {
            FROM_THE_FIRST_MS: {0: FoundRecord(0, NOW - 90_000, leader_epoch=0)},
            NOW - 59_999: {0: FoundRecord(10, NOW - 50_000, leader_epoch=first), 1: FoundRecord(10, NOW - 50_000)},
            NOW + 1: {0: FoundRecord(12, NOW + ahead_ms, leader_epoch=newer), 1: LATER},
        }
        return identify_topic(BOTH, reads=[READ, before], asked=asked, recorded_topic_id=recorded, **more).identity

    is_far = ahead_ms > MAX_CLOCK_SKEW_MS and recorded is None
    otherwise = TopicIdentity.SAME if recorded else TopicIdentity.WITHIN_SKEW
    cut, clock = [TopicIdentity.LOOKS_RECREATED] * 2 if is_far else [TopicIdentity.MAY_BE_RECREATED, otherwise]
    cut = otherwise if ahead_ms == 2000 else cut
    assert (found(3, 4), found(3, 3), found(4, 3)) == (cut, clock, clock)
    assert (found(3, None), found(None, 3)) == (clock, clock)
    told = TopicIdentity.LOOKS_RECREATED if is_far else otherwise if ahead_ms == 2000 else TopicIdentity.SAME
    assert found(3, 4, is_told_the_same=True) is told


def test_clock_that_would_be_wrong_over_several_batches_is_as_likely_another_topic() -> None:
    batches = [ReadUpTo(NOW - 1000 * n, {0: 15 - n, 1: 15 - n}) for n in (1, 2, 3)]
    assert identity(BOTH, {0: FoundRecord(13, NOW + 10), 1: LATER}, *batches) is TopicIdentity.WITHIN_SKEW
    assert identity(BOTH, {0: FoundRecord(12, NOW + 10), 1: LATER}, *batches) is TopicIdentity.MAY_BE_RECREATED


def test_plan_that_is_not_committed_tells_as_well() -> None:
    planned, committed = ReadUpTo(NOW, {0: 15}), ReadUpTo(NOW - 1000, {0: 0})
    one = TopicFacts(partitions={0: PartitionFacts(0, 30)})

    def told(*times: tuple[int, FoundRecord]) -> TopicIdentity:
        asked = {after_ms: {0: record} for after_ms, record in times}
        return identify_topic(one, reads=[planned, committed], asked=asked).identity

    between = (NOW - 999, FoundRecord(0, NOW - 500))
    late = FoundRecord(0, NOW + 2 * MAX_CLOCK_SKEW_MS)
    assert told(between, (NOW + 1, FoundRecord(15, NOW + 1))) is TopicIdentity.SAME
    assert told((NOW - 999, late)) is TopicIdentity.LOOKS_RECREATED
    assert told((NOW + 1, late)) is TopicIdentity.LOOKS_RECREATED
    assert told(between, (NOW + 1, FoundRecord(0, NOW + 1000))) is TopicIdentity.MAY_BE_RECREATED


def test_id_that_is_unknown_today_proves_nothing() -> None:
    blind = TopicFacts(partitions=BOTH.partitions)
    assert identity(blind, {0: LATER, 1: NONE_LATER}, recorded_topic_id="old") is TopicIdentity.SAME


def test_topic_that_ends_before_what_was_read_is_shorter() -> None:
    facts = TopicFacts(partitions={0: PartitionFacts(0, 30), 1: PartitionFacts(0, 5)})
    found = identify_topic(facts, reads=[READ], asked={})
    assert (found.identity, found.partitions) == (TopicIdentity.SHORTER, (1,))


def test_records_that_follow_the_committed_end_are_as_they_should_be() -> None:
    assert identity(BOTH, {0: LATER, 1: NONE_LATER}) is TopicIdentity.SAME


def test_newer_records_below_the_committed_end_look_like_another_topic() -> None:
    far = NOW + MAX_CLOCK_SKEW_MS + 1
    assert identity(BOTH, {0: FoundRecord(0, far), 1: NONE_LATER}) is TopicIdentity.LOOKS_RECREATED
    assert identity(BOTH, {0: FoundRecord(0), 1: NONE_LATER}) is TopicIdentity.LOOKS_RECREATED


def test_records_that_are_newer_by_less_than_clocks_differ_prove_nothing() -> None:
    assert identity(BOTH, {0: FoundRecord(14, NOW + MAX_CLOCK_SKEW_MS), 1: LATER}) is TopicIdentity.WITHIN_SKEW


def test_topic_of_which_all_is_newer_is_as_likely_another_one_as_a_wrong_clock() -> None:
    all_newer = {0: FoundRecord(0, NOW + 2000), 1: FoundRecord(0, NOW + 2000)}
    assert identity(BOTH, all_newer) is TopicIdentity.MAY_BE_RECREATED
    assert identity(BOTH, all_newer, is_told_the_same=True) is TopicIdentity.SAME
    far = {0: FoundRecord(0, NOW + 2 * MAX_CLOCK_SKEW_MS), 1: LATER}
    assert identity(BOTH, far, is_told_the_same=True) is TopicIdentity.LOOKS_RECREATED
    assert identity(BOTH, all_newer, recorded_topic_id="new") is TopicIdentity.SAME
    assert identity(BOTH, all_newer, recorded_topic_id="old", is_told_the_same=True) is TopicIdentity.ANOTHER
    begins_late = TopicFacts(partitions={0: PartitionFacts(12, 30), 1: PartitionFacts(15, 30)})
    assert identity(begins_late, {0: FoundRecord(12, NOW + 2000), 1: LATER}) is TopicIdentity.MAY_BE_RECREATED


def test_older_records_in_any_partition_show_the_topic_that_was_read() -> None:
    assert identity(BOTH, {0: FoundRecord(0, NOW + 2000), 1: FoundRecord(14, NOW + 1)}) is TopicIdentity.WITHIN_SKEW
    assert identity(BOTH, {0: FoundRecord(0, NOW + 2000), 1: NONE_LATER}) is TopicIdentity.WITHIN_SKEW


def test_records_are_held_against_the_batch_that_read_their_offsets() -> None:
    long_before = ReadUpTo(NOW - MAX_CLOCK_SKEW_MS, {0: 5, 1: 5})
    at_the_beginning = {0: FoundRecord(0, NOW + 2000), 1: FoundRecord(0, NOW + 2000)}
    assert identity(BOTH, at_the_beginning, long_before) is TopicIdentity.LOOKS_RECREATED
    assert identity(BOTH, {0: FoundRecord(5, NOW + 2000), 1: LATER}, long_before) is TopicIdentity.WITHIN_SKEW
    went_back = ReadUpTo(NOW - MAX_CLOCK_SKEW_MS, {0: 16, 1: 16})  # what was read then may be of another topic
    assert identity(BOTH, at_the_beginning, went_back, long_before) is TopicIdentity.MAY_BE_RECREATED


OLD = ReadUpTo(NOW - 60_000, {0: 5, 1: 5})


def read_on(
    first: FoundRecord,
    *older: ReadUpTo,
    facts: TopicFacts = BOTH,
    oldest: dict[int, FoundRecord] | None = None,
    **more: Any,
) -> TopicIdentity:
    """Of a topic of which nothing is newer than the newest plan, by what is the first after an older one."""
    between = ReadUpTo(NOW - 30_000, {0: 10, 1: 10})
    reads = [READ, between, *(older or (OLD,))]
    newest = {NOW + 1: {0: LATER, 1: NONE_LATER}, NOW - 29_999: {0: FoundRecord(10, NOW - 29_000), 1: LATER}}
    asked = {**newest, reads[-1].batch_timestamp_ms + 1: {0: first, 1: FoundRecord(0, NOW - 50_000)}}
    asked |= {} if oldest is None else {FROM_THE_FIRST_MS: oldest}
    return identify_topic(facts, reads=reads, asked=asked, **more).identity


def test_topic_in_which_the_query_has_read_on_is_told_by_an_older_plan() -> None:
    """It was created again after that plan: all that is left of what that plan had read is newer than it."""
    anew = FoundRecord(0, NOW - 50_000)
    assert read_on(anew) is TopicIdentity.MAY_BE_RECREATED
    assert read_on(anew, is_told_the_same=True) is TopicIdentity.SAME
    assert read_on(anew, recorded_topic_id="new") is TopicIdentity.SAME
    long_before = ReadUpTo(NOW - 2 * MAX_CLOCK_SKEW_MS, {0: 5, 1: 5})
    assert read_on(anew, long_before) is TopicIdentity.LOOKS_RECREATED
    assert read_on(anew, long_before, recorded_topic_id="new") is TopicIdentity.MAY_BE_RECREATED


def test_older_plan_tells_nothing_where_something_older_is_left_or_all_is_gone() -> None:
    assert read_on(FoundRecord(4, NOW - 50_000)) is TopicIdentity.SAME  # a clock is ahead
    assert read_on(FoundRecord(unknown="no leader")) is TopicIdentity.SAME
    begins_late = TopicFacts(partitions={0: PartitionFacts(5, 30), 1: PartitionFacts(6, 30)})
    assert read_on(FoundRecord(5, NOW - 50_000), facts=begins_late) is TopicIdentity.SAME
    went_back = ReadUpTo(NOW - 60_000, {0: 12, 1: 5})  # what was read before may be of another topic
    assert read_on(FoundRecord(0, NOW - 50_000), went_back) is TopicIdentity.SAME


def test_compacted_topic_begins_with_the_oldest_record_that_is_left() -> None:
    """Compaction leaves the beginning of a partition where it was: nothing older need lie there."""
    compacted = TopicFacts(partitions=BOTH.partitions, config={"cleanup.policy": "compact"})
    newer = {0: FoundRecord(12, NOW + 1000), 1: FoundRecord(14, NOW + 1000)}

    def by(oldest: dict[int, FoundRecord]) -> TopicIdentity:
        asked = {NOW + 1: newer, FROM_THE_FIRST_MS: oldest}
        return identify_topic(compacted, reads=[READ], asked=asked).identity

    assert by(newer) is TopicIdentity.MAY_BE_RECREATED
    assert by({0: FoundRecord(3, NOW - 1000), 1: FoundRecord(14, NOW + 1000)}) is TopicIdentity.WITHIN_SKEW
    assert by({}) is TopicIdentity.MAY_BE_RECREATED


def test_compacted_topic_in_which_the_query_has_read_on_is_told_by_its_oldest_record() -> None:
    compacted = TopicFacts(partitions=BOTH.partitions, config={"cleanup.policy": "compact"})
    anew, other = FoundRecord(3, NOW - 50_000), FoundRecord(0, NOW - 50_000)
    assert read_on(anew, facts=compacted, oldest={0: anew, 1: other}) is TopicIdentity.MAY_BE_RECREATED
    older = FoundRecord(1, NOW - 90_000)
    assert read_on(anew, facts=compacted, oldest={0: older, 1: other}) is TopicIdentity.SAME


def test_partition_that_was_not_asked_by_time_leaves_it_open() -> None:
    found = identify_topic(
        BOTH,
        reads=[READ],
        asked={NOW + 1: {0: LATER, 1: FoundRecord(unknown="no leader")}},
    )
    assert (found.identity, found.because, found.partitions) == (TopicIdentity.UNKNOWN, "no leader", (1,))
    assert identity(BOTH, {}) is TopicIdentity.UNKNOWN


def test_topic_with_fewer_partitions_than_were_read_looks_created_again() -> None:
    one = TopicFacts(partitions={0: PartitionFacts(0, 30)})
    answer = identify_topic(one, reads=[READ], asked={})
    assert (answer.identity, answer.partitions) == (TopicIdentity.LOOKS_RECREATED, (1,))
