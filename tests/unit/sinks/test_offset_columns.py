"""Rows that carry the offsets that they were made of."""

from __future__ import annotations

import random

import pytest

from lastgood.sinks.offset_columns import (
    OffsetColumns,
    OffsetColumnsError,
    OffsetsSeen,
    TableOffsets,
    find_first_missing,
    parse_offset_columns,
)


def seen(*spans: tuple[int, int], most: int = 100) -> TableOffsets:
    found = OffsetsSeen(most)
    for first, end in spans:
        found.add("orders", 0, first, end)
    return found.table("/lake/out", 7, file_count=3, files_read=1)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("topic,partition,offset", OffsetColumns("partition", "offset", "topic")),
        ("p, o", OffsetColumns("p", "o")),
    ],
)
def test_columns_are_named_as_they_are_typed(text: str, columns: OffsetColumns) -> None:
    assert parse_offset_columns(text) == columns


@pytest.mark.parametrize("text", ["", "offset", "a,b,c,d", "a,,b", "a,a"])
def test_names_that_are_none_get_a_clear_error(text: str) -> None:
    with pytest.raises(OffsetColumnsError) as caught:
        parse_offset_columns(text)
    assert caught.value.expected is not None
    assert "TOPIC,PARTITION,OFFSET" in caught.value.expected


def test_stretches_that_touch_become_one() -> None:
    assert seen((0, 5), (10, 15), (5, 10)).held == {"orders": {0: ((0, 15),)}}


def test_offsets_in_several_rows_are_counted() -> None:
    found = seen((0, 10), (5, 12), (20, 22), (11, 21))
    assert (found.held, found.repeated) == ({"orders": {0: ((0, 22),)}}, {"orders": {0: 5 + 1 + 1}})


def test_any_order_gives_the_same_as_a_set() -> None:
    rng = random.Random(7)
    for _ in range(200):
        spans = [(first, first + rng.randint(1, 6)) for first in rng.sample(range(60), 8)]
        found = seen(*spans)
        rows = [offset for first, end in spans for offset in range(first, end)]
        held = {offset for first, end in found.held["orders"][0] for offset in range(first, end)}
        assert held == set(rows)
        assert found.repeated.get("orders", {}).get(0, 0) == len(rows) - len(set(rows))
        assert found.ends == {"orders": {0: max(rows) + 1}}


def test_too_many_holes_keep_the_lowest_and_the_end() -> None:
    found = seen(*((n, n + 1) for n in range(0, 40, 2)), most=5)
    assert found.held == {"orders": {0: ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))}}
    assert (found.ends, found.scattered) == ({"orders": {0: 39}}, ("orders-0",))


def test_what_is_cut_off_is_never_taken_for_held() -> None:
    rng = random.Random(11)
    for _ in range(200):
        offsets = rng.sample(range(80), 50)
        found = seen(*((n, n + 1) for n in offsets), most=4)
        first = find_first_missing(found.held["orders"], 0, 0)
        assert set(range(first)) <= set(offsets)


def test_first_missing_is_where_the_first_hole_begins() -> None:
    held = {0: ((0, 5), (7, 9))}
    assert [find_first_missing(held, *each) for each in ((0, 0), (0, 3), (0, 5), (0, 7), (1, 4))] == [5, 5, 5, 9, 4]


def test_what_was_read_is_told() -> None:
    assert seen((0, 1)).told == "statistics of 3 files, 1 of them read"
