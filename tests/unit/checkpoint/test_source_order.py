from __future__ import annotations

import pytest

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.source_offsets import SourceOffset, parse_source_offset
from lastgood.checkpoint.source_order import OffsetStep, Steps, compare_offsets

TABLE = '"sourceVersion":1,"reservoirId":"{}","isStartingVersion":false'


def offset(text: str) -> SourceOffset:
    found = parse_source_offset(text)
    assert not isinstance(found, Damage)
    return found


def delta(version: int, index: int = -1, table: str = "a") -> str:
    return f'{{{TABLE.format(table)},"reservoirVersion":{version},"index":{index}}}'


def delta_barrier(version: int, index: int) -> str:
    """At a change of the table's schema, as a source with `schemaTrackingLocation` stops there."""
    return delta(version, index).replace('"sourceVersion":1', '"sourceVersion":3')


def iceberg(snapshot: int, position: int) -> str:
    return f'{{"version":1,"snapshot_id":{snapshot},"position":{position},"scan_all_files":false}}'


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ('{"t":{"0":3,"1":4}}', '{"t":{"0":3,"1":5}}'),
        ('{"logOffset":3}', '{"logOffset":4}'),
        ("3", "4"),
        ('{"offset":30,"timestamp":5}', '{"offset":31,"timestamp":4}'),
        ('{"0":{"value":2,"runTimeMs":1}}', '{"0":{"value":3,"runTimeMs":1}}'),
        (delta(4, 7), delta(5)),
        (delta(4), delta(4, 0)),
        (delta(4), delta_barrier(4, -20)),
        (delta_barrier(4, -20), delta_barrier(4, -19)),
        (delta_barrier(4, -19), delta(4, 0)),
        (delta_barrier(4, -19), delta(5)),
        (iceberg(9, 1), iceberg(9, 2)),
    ],
)
def test_a_source_whose_offsets_have_an_order_goes_onward_or_back(lower: str, higher: str) -> None:
    one, other = offset(lower), offset(higher)
    assert [compare_offsets(one, other), compare_offsets(one, one), compare_offsets(other, one)] == [
        OffsetStep.ONWARD,
        OffsetStep.ONWARD,
        OffsetStep.BACK,
    ]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (delta(4), delta(2, table="b")),
        (iceberg(9, 1), iceberg(3, 1)),
        ('{"seqNum":4,"sourceVersion":1}', '{"seqNum":5,"sourceVersion":1}'),
        ("cursor-1", "cursor-1"),
        ('{"t":{"0":3}}', '{"logOffset":4}'),
        ("3", "-"),
    ],
)
def test_of_others_nobody_can_tell(start: str, end: str) -> None:
    assert compare_offsets(offset(start), offset(end)) is OffsetStep.UNKNOWN


def test_a_source_that_comes_back_to_a_snapshot_went_back() -> None:
    steps = Steps()
    found = [steps.step("0", offset(iceberg(a, 0)), offset(iceberg(b, 0))) for a, b in ((1, 2), (2, 2), (2, 3), (3, 1))]
    assert found == [OffsetStep.UNKNOWN, OffsetStep.ONWARD, OffsetStep.UNKNOWN, OffsetStep.BACK]
    assert steps.step("1", offset(iceberg(3, 0)), offset(iceberg(1, 0))) is OffsetStep.UNKNOWN
