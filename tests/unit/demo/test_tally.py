from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lastgood.demo.tally import Compared, DemoTally
from lastgood.sources.kafka.ranges import Ranges
from lastgood.spark.audit import Audit, Difference, PartitionDifference

NOTHING = Difference(0)
LOST: Ranges = {"flights": {0: ((10, 20),), 2: ((5, 6),)}}
DOUBLED: Ranges = {"flights": {1: ((0, 3),)}}


def found(ranges: Ranges, *, topic: str = "flights-archive", left_out: int = 0, more: int = 0) -> Difference:
    partitions = tuple(
        PartitionDifference(topic, partition, sum(end - start for start, end in spans) + more, spans, left_out)
        for partition, spans in ranges["flights"].items()
    )
    return Difference(sum(each.total for each in partitions), partitions)


def audit(**differences: Any) -> Audit:
    return Audit(
        checkpoint="chk",
        last_committed=7,
        kafka="broker:9092",
        sink="delta:table",
        sink_version=8,
        sink_rows=100,
        keys=("id",),
        isolation_level="read_uncommitted",
        ranges=(),
        source_records=100,
        **{"lost": NOTHING, "duplicated": NOTHING, "changed": NOTHING, "unknown": NOTHING, **differences},
        aborted_records=0,
        aborted_rows=0,
        rows_before=0,
        rows_after=0,
        rows_not_verifiable=0,
        seconds=1.0,
    )


def tally(said_lost: Ranges | None = None, said_doubled: Ranges | None = None, **differences: Any) -> DemoTally:
    return DemoTally(sent=100, audit=audit(**differences), said_lost=said_lost or {}, said_doubled=said_doubled or {})


def test_nothing_said_and_nothing_found_is_exact() -> None:
    told = tally().to_json()
    assert (told["as_said"], told["exact"]) == (True, True)
    assert list(tally().compare()) == []


def test_exactly_what_was_said_is_as_said_and_not_exact() -> None:
    kept = tally(LOST, DOUBLED, lost=found(LOST), duplicated=found(DOUBLED))
    told = kept.to_json()
    assert (told["as_said"], told["exact"]) == (True, False)
    assert (
        told["said"]
        == told["counted"]
        == {
            "lost": {"flights": {"0": [[10, 20]], "2": [[5, 6]]}},
            "doubled": {"flights": {"1": [[0, 3]]}},
        }
    )
    assert list(kept.compare()) == [
        Compared(kind="lost", partition=0, start=10, end=20, said=10, counted=10),
        Compared(kind="lost", partition=2, start=5, end=6, said=1, counted=1),
        Compared(kind="doubled", partition=1, start=0, end=3, said=3, counted=3),
    ]


@pytest.mark.parametrize(
    "otherwise",
    [
        tally(LOST),
        tally(lost=found(LOST)),
        tally(LOST, lost=found({"flights": {0: ((10, 21),)}})),
        tally(LOST, lost=found(LOST, left_out=1)),
        tally(said_doubled=DOUBLED, duplicated=found(DOUBLED, more=1)),
        tally(changed=Difference(1)),
        tally(unknown=Difference(1)),
        replace(tally(), sent=101),
    ],
    ids=["not there", "not said", "elsewhere", "not told whole", "three times", "changed", "unknown", "not counted"],
)
def test_anything_else_is_not_as_said(otherwise: DemoTally) -> None:
    assert not otherwise.is_as_said
    assert not otherwise.to_json()["as_said"]


def test_ranges_of_which_only_a_part_is_there_are_compared_where_they_are() -> None:
    half = tally(DOUBLED, lost=found({"flights": {1: ((2, 4),)}}))
    assert list(half.compare()) == [Compared(kind="lost", partition=1, start=0, end=4, said=3, counted=2)]
