from __future__ import annotations

from pathlib import Path

import pytest
from planning import broker, query, read

from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, NumberOffset, SourceOffset, VoidOffset
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import Reached, choose_weakest, list_files_between, price_batch, price_start
from lastgood.testing.checkpoints import FileInput


def at(*offsets: int) -> dict[str, SourceOffset]:
    return {"0": KafkaOffset({"t": dict(enumerate(offsets))})}


def price(folder: Path, new: dict[str, SourceOffset], reached: Reached) -> SourcePrice:
    (found,) = price_start(new, reached, read(folder), None)
    return found


@pytest.mark.parametrize(
    ("new", "least", "most", "lost", "duplicated", "bound"),
    [
        ((10,), (10,), (10,), {}, {}, False),
        ((7,), (10,), (10,), {}, {"t": {0: ((7, 10),)}}, False),
        ((12,), (10,), (10,), {"t": {0: ((10, 12),)}}, {}, False),
        ((12,), (10,), (15,), {"t": {0: ((10, 12),)}}, {"t": {0: ((12, 15),)}}, True),
        ((7, 12), (10, 10), (10, 10), {"t": {1: ((10, 12),)}}, {"t": {0: ((7, 10),)}}, False),
        ((10, 4), (10,), (10,), {"t": {1: ((0, 4),)}}, {}, False),
        ((10,), (10, 10), (10, 10), {}, {}, True),
        ((10,), (10,), (10, 5), {}, {"t": {1: ((0, 5),)}}, True),
        ((-2,), (10,), (10,), {}, {"t": {0: ((0, 10),)}}, True),
    ],
    ids=["there", "back", "ahead", "between", "apart", "new partition", "gone partition", "added by plan", "earliest"],
)
def test_price_of_kafka_lies_between_where_it_starts_and_where_the_sinks_are(
    tmp_path: Path,
    new: tuple[int, ...],
    least: tuple[int, ...],
    most: tuple[int, ...],
    lost: object,
    duplicated: object,
    bound: bool,
) -> None:
    found = price(tmp_path, at(*new), Reached(at(*least), at(*most), at(*most)))
    assert (found.lost, found.duplicated, found.bound) == (lost, duplicated, bound)


def test_earliest_is_priced_by_what_the_broker_serves(tmp_path: Path) -> None:
    reached = Reached(at(10), at(10), at(10))
    (found,) = price_start(at(-2), reached, read(tmp_path), broker((12, 20), topic="t"))
    assert (found.lost, found.duplicated, found.bound) == ({"t": {0: ((10, 12),)}}, {}, True)


def test_files_are_priced_by_name(tmp_path: Path) -> None:
    query(tmp_path, 4, source=FileInput(folder="file:///in"))
    reached = Reached({"0": FileOffset(1)}, {"0": FileOffset(2)}, {"0": FileOffset(3)})
    found = price(tmp_path, {"0": FileOffset(1)}, reached)
    assert (found.lost_files, found.duplicated_files) == ((), ("file:///in/f002.json",))
    assert found.reread_files == ("file:///in/f002.json", "file:///in/f003.json")
    assert price(tmp_path, {"0": FileOffset(3)}, reached).lost_files == ("file:///in/f002.json", "file:///in/f003.json")
    assert list_files_between(read(tmp_path), "7", 0, 9) == ()


def test_source_that_has_read_nothing_yet_costs_nothing(tmp_path: Path) -> None:
    none: dict[str, SourceOffset] = {"0": VoidOffset()}
    assert price(tmp_path, none, Reached(none, none, none)).guarantee is Guarantee.EXACTLY_ONCE


def test_source_of_an_unknown_kind_is_exact_only_where_nothing_moves(tmp_path: Path) -> None:
    here: dict[str, SourceOffset] = {"0": NumberOffset(3)}
    assert not price(tmp_path, here, Reached(here, here, here)).bound
    assert price(tmp_path, here, Reached(here, {"0": NumberOffset(4)}, here)).bound


def test_range_that_is_read_once_more_is_doubled_only_where_sinks_may_have_it(tmp_path: Path) -> None:
    (once,) = price_batch(read(tmp_path), at(10), at(15), is_repeated=False)
    (twice,) = price_batch(read(tmp_path), at(10), at(15), is_repeated=True)
    assert once.reread == twice.reread == twice.duplicated == {"t": {0: ((10, 15),)}}
    assert (once.duplicated, once.bound, twice.bound) == ({}, False, True)


def test_weakest_word_counts() -> None:
    words = list(Guarantee)
    assert choose_weakest(words) is Guarantee.LOSSY
    assert choose_weakest(words[:2]) is Guarantee.AT_LEAST_ONCE
    assert choose_weakest([]) is Guarantee.EXACTLY_ONCE
