from __future__ import annotations

import pytest

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.source_offsets import (
    ContinuousRateOffset,
    DeltaOffset,
    FileOffset,
    IcebergOffset,
    JsonOffset,
    KafkaOffset,
    NumberOffset,
    RateMicroBatchOffset,
    SourceOffset,
    TextOffset,
    VoidOffset,
    parse_source_offset,
)

TABLE = "5b92bbb6-0931-49c1-8dc1-a9e6344ea1c6"
OFFSETS: list[tuple[str, SourceOffset]] = [
    ("-", VoidOffset()),
    ('{"m.b":{"0":14},"m.a":{"0":14,"1":15}}', KafkaOffset({"m.b": {0: 14}, "m.a": {0: 14, 1: 15}})),
    ('{"f":{"0":-1,"1":-2}}', KafkaOffset({"f": {0: -1, 1: -2}})),
    ('{"logOffset":5}', FileOffset(5)),
    ('{"logOffset":-1}', FileOffset(-1)),
    ("3", NumberOffset(3)),
    ("-1", NumberOffset(-1)),
    ('{"offset":30,"timestamp":1700000003000}', RateMicroBatchOffset(30, 1700000003000)),
    (
        '{"0":{"value":-2,"runTimeMs":1795208580624},"1":{"value":-1,"runTimeMs":1795208580625}}',
        ContinuousRateOffset({0: (-2, 1795208580624), 1: (-1, 1795208580625)}),
    ),
    (
        f'{{"sourceVersion":1,"reservoirId":"{TABLE}","reservoirVersion":4,"index":-1,"isStartingVersion":false}}',
        DeltaOffset(1, TABLE, 4, -1, is_starting_version=False),
    ),
    (
        '{"version":1,"snapshot_id":7316371,"position":2,"scan_all_files":false}',
        IcebergOffset(1, 7316371, 2, scan_all_files=False),
    ),
    ('{"shardId-000":{"iteratorType":"AFTER"}}', JsonOffset({"shardId-000": {"iteratorType": "AFTER"}})),
    ('"text"', JsonOffset("text")),
    ("[1,2]", JsonOffset([1, 2])),
    ("{}", JsonOffset({})),
    ("cursor-17", TextOffset("cursor-17")),
    ("", TextOffset("")),
]


@pytest.mark.parametrize(("text", "offset"), OFFSETS, ids=[text for text, _ in OFFSETS])
def test_an_offset_is_recognised_by_its_shape_and_written_back(text: str, offset: SourceOffset) -> None:
    assert parse_source_offset(text) == offset
    assert offset.to_text() == text


def test_the_order_of_topics_and_partitions_makes_no_other_kafka_offset() -> None:
    one = parse_source_offset('{"m.b":{"0":14},"m.a":{"0":14,"1":15}}')
    assert one == parse_source_offset('{ "m.a": {"1": 15, "0": 14}, "m.b": {"0": 14} }')
    assert one != parse_source_offset('{"m.b":{"0":14},"m.a":{"0":14,"1":16}}')


def test_kafka_partitions_are_written_ascending_as_spark_does() -> None:
    assert KafkaOffset({"t": {10: 1, 2: 3}}).to_text() == '{"t":{"2":3,"10":1}}'


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{}}',
        '{"t":{"00":1}}',
        '{"t":{"+1":1}}',
        '{"t":{"0":"1"}}',
        '{"t":{"0":1.5}}',
        '{"t":{"0":true}}',
        '{"t":{"0":9223372036854775808}}',
        '{"t":{"0":1},"u":5}',
        '{"logOffset":"5"}',
        '{"logOffset":5,"more":1}',
        '{"offset":30,"timestamp":null}',
        '{"0":{"value":4}}',
        '{"0":{"value":4,"runTimeMs":"x"}}',
        '{"x":{"value":4,"runTimeMs":5}}',
        '{"version":1,"snapshot_id":1,"position":2}',
        '{"version":2,"snapshot_id":1,"position":2,"scan_all_files":false}',
        '{"sourceVersion":1,"reservoirId":7,"reservoirVersion":4,"index":-1}',
        '{"sourceVersion":2,"reservoirId":"t","reservoirVersion":4,"index":-1}',
        '{"sourceVersion":4,"reservoirId":"t","reservoirVersion":4,"index":-1}',
    ],
)
def test_what_only_resembles_a_known_offset_stays_json(text: str) -> None:
    assert isinstance(parse_source_offset(text), JsonOffset)


def test_delta_may_leave_out_that_the_first_snapshot_is_read() -> None:
    text = '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":4,"index":-1}'
    assert parse_source_offset(text) == DeltaOffset(1, "t", 4, -1, is_starting_version=False)


@pytest.mark.parametrize("text", ["99999999999999999999", "+5", "5 apples", "1.5", "true", "null", "v1"])
def test_what_is_neither_a_number_nor_json_is_text(text: str) -> None:
    assert parse_source_offset(text) == TextOffset(text)


@pytest.mark.parametrize(
    ("text", "expected"), [('{"l', DamageKind.TRUNCATED), ("{x}", DamageKind.NOT_JSON), ("[1,", DamageKind.TRUNCATED)]
)
def test_what_begins_as_json_and_is_none_is_damaged(text: str, expected: DamageKind) -> None:
    assert parse_source_offset(text, 3) == Damage(expected, text, 3)
