from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lastgood.sources.kafka.ranges import (
    Ranges,
    count_offsets,
    find_planned_ranges,
    find_went_back,
    intersect,
    is_onward,
    ranges_to_json,
    select_below,
    select_from_on,
    select_only_in,
    select_served,
    subtract,
    unite,
)

START = {"a": {0: 10, 1: 10}, "b": {0: 5}}
END = {"a": {0: 20, 1: 10, 2: 6}, "b": {0: 3}}

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4).map(
    lambda pairs: tuple(sorted(pair) for pair in pairs)
)
any_ranges = st.builds(
    lambda pairs: unite(*({"t": {0: tuple((a, b) for a, b in one if a < b)}} for one in (pairs, ()))), spans
)


def offsets_of(ranges: Ranges) -> set[int]:
    return {n for start, to in ranges.get("t", {}).get(0, ()) for n in range(start, to)}


def test_planned_ranges_are_what_both_ends_name() -> None:
    assert find_planned_ranges(START, END) == {"a": {0: ((10, 20),)}}


def test_partition_that_went_back_is_told_apart() -> None:
    assert find_went_back(START, END) == {"b": {0: (5, 3)}}


def test_a_line_goes_on_only_if_no_partition_came_went_or_went_back() -> None:
    ahead = {"a": {0: 10, 1: 11}, "b": {0: 5}}
    assert is_onward(START, START)
    assert is_onward(START, ahead)
    assert not is_onward(ahead, START)
    assert not any(is_onward(START, {**START, **other}) for other in ({"c": {0: 1}}, {"b": {0: 5, 1: 1}}, {"b": {}}))
    assert not is_onward(START, {"a": START["a"]})


def test_added_and_gone_partitions_are_the_difference_of_the_names() -> None:
    assert select_only_in(END, START) == {"a": {2: 6}}
    assert select_only_in(START, {"a": {0: 0, 1: 0}}) == {"b": {0: 5}}


def test_expired_part_is_below_the_earliest_offset() -> None:
    ranges = find_planned_ranges({"t": {0: 15, 1: 15}}, {"t": {0: 25, 1: 25}})
    earliest, latest = {"t": {0: 20, 1: 0}}, {"t": {0: 25, 1: 25}}
    assert select_below(ranges, earliest) == {"t": {0: ((15, 20),)}}
    assert select_served(ranges, earliest, latest) == {"t": {0: ((20, 25),), 1: ((15, 25),)}}
    assert count_offsets(select_below(ranges, earliest)) == 5


def test_part_beyond_the_end_of_the_topic_is_not_served() -> None:
    ranges = find_planned_ranges({"t": {0: 15}}, {"t": {0: 20}})
    assert select_from_on(ranges, {"t": {0: 17}}) == {"t": {0: ((17, 20),)}}
    assert select_served(ranges, {"t": {0: 0}}, {"t": {0: 17}}) == {"t": {0: ((15, 17),)}}


def test_partition_about_which_nothing_is_known_is_neither_lost_nor_served() -> None:
    ranges = find_planned_ranges({"t": {0: 1}}, {"t": {0: 2}})
    assert select_below(ranges, {}) == {}
    assert select_from_on(ranges, {}) == {}
    assert select_served(ranges, {}, {}) == {}


def test_neighbouring_ranges_become_one() -> None:
    assert unite({"t": {0: ((0, 5),)}}, {"t": {0: ((5, 9),), 1: ((1, 2),)}}) == {"t": {0: ((0, 9),), 1: ((1, 2),)}}


def test_json_has_partitions_as_text_and_in_order() -> None:
    ranges = {"orders": {10: ((0, 1),), 2: ((10, 20), (30, 31))}}
    assert ranges_to_json(ranges) == {"orders": {"2": [[10, 20], [30, 31]], "10": [[0, 1]]}}
    assert list(ranges_to_json(ranges)["orders"]) == ["2", "10"]


@given(any_ranges, any_ranges)
def test_ranges_are_sets_of_offsets(one: Ranges, other: Ranges) -> None:
    left, right = offsets_of(one), offsets_of(other)
    assert offsets_of(unite(one, other)) == left | right
    assert offsets_of(intersect(one, other)) == left & right
    assert offsets_of(subtract(one, other)) == left - right
    assert count_offsets(one) == len(left)
    for ranges in (unite(one, other), intersect(one, other), subtract(one, other)):
        for parts in ranges.values():
            for found in parts.values():
                assert found
                bounds = [bound for span in found for bound in span]
                assert bounds == sorted(set(bounds))
