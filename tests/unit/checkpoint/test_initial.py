from __future__ import annotations

import pytest

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import FileLogEntry
from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset, parse_source_entry
from lastgood.checkpoint.source_offsets import JsonOffset, KafkaOffset, NumberOffset, SourceOffset

KAFKA = b'\0v1\n{"one":{"0":0,"1":7}}'
START = KafkaOffset({"one": {0: 0, 1: 7}})


def initial(raw: bytes) -> InitialOffset:
    parsed = parse_initial_offset(raw)
    assert isinstance(parsed, InitialOffset)
    assert parsed.to_bytes() == raw
    return parsed


@pytest.mark.parametrize(
    ("raw", "offset", "has_nul"),
    [
        (KAFKA, START, True),
        (b"v1\n1795208223241", NumberOffset(1795208223241), False),
        (b'\x15{"one":{"0":0,"1":7}}', START, True),  # Spark 2.1: the length of the text before it
        (b'\xc8{"one":{"0":0,"1":7}}\n', START, True),
        (b'{{"one":{"0":0,"1":7}}', START, True),  # a length of 123
        (b'v{"one":{"0":0,"1":7}}', START, True),  # of 118
        (b'"{"one":{"0":0,"1":7}}', START, True),  # of 34
        (b'[{"one":{"0":0,"1":7}}', START, True),  # of 91
        (b'\0{"one":{"0":0,"1":7}}', START, True),
        (b'0v1\n{"one":{"0":0,"1":7}}', START, True),  # Spark passes over the byte, whatever it is
        (b"\0v1\n{}", KafkaOffset({}), True),  # a pattern that no topic matched yet
        (b"v1\n{}", JsonOffset({}), False),
        (b'{"version":1}', JsonOffset({"version": 1}), False),
    ],
)
def test_kafka_and_rate_write_down_where_they_began(raw: bytes, offset: SourceOffset, has_nul: bool) -> None:
    parsed = initial(raw)
    assert (parsed.offset, parsed.has_nul) == (offset, has_nul)


def test_another_start_is_written_as_spark_writes_it() -> None:
    assert initial(KAFKA + b"\n").with_offset(KafkaOffset({"x": {0: 5}})).to_bytes() == b'\0v1\n{"x":{"0":5}}'
    assert initial(b"v1\n5").with_offset(NumberOffset(6)).to_bytes() == b"v1\n6"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", Damage(DamageKind.EMPTY)),
        (b"\0", Damage(DamageKind.EMPTY)),
        (b"\0v1", Damage(DamageKind.VERSION_LINE_ONLY, line=2)),
        (b"\0v2\n5", Damage(DamageKind.VERSION_TOO_NEW, "v2", 1)),
        (b"\0v", Damage(DamageKind.VERSION_LINE_ONLY, line=2)),
        (b"\0v\n5", Damage(DamageKind.BAD_VERSION_LINE, "v", 1)),
        (b'\0v1\n{"one', Damage(DamageKind.NO_OFFSETS, '{"one', 2)),
        (b"\0v1\nx", Damage(DamageKind.NO_OFFSETS, "x", 2)),
        (b'v1\n{"on', Damage(DamageKind.TRUNCATED, '{"on', 2)),
        (b'v99\n{"one":{"0":0}}', Damage(DamageKind.NO_OFFSETS, '99\\n{"one":{"0":0}}')),
        (b"text", Damage(DamageKind.NOT_JSON, "text")),
        (b'0v99999\n{"one":{"0":0}}', Damage(DamageKind.VERSION_TOO_NEW, "v99999", 1)),
        (b"0v1", Damage(DamageKind.VERSION_LINE_ONLY, line=2)),
        (b'{"one":{"0":0}}', Damage(DamageKind.NO_OFFSETS, '"one":{"0":0}}')),
        (b'v1\n{"one":{"0":0}}', Damage(DamageKind.NO_OFFSETS, '1\\n{"one":{"0":0}}')),
        (b'2{"one":{"0":', Damage(DamageKind.NO_OFFSETS, '{"one":{"0":')),
        (b"\0\xff", Damage(DamageKind.NO_OFFSETS, "\\xff")),
    ],
)
def test_damage_is_told_apart(raw: bytes, expected: Damage) -> None:
    assert parse_initial_offset(raw) == expected


def test_a_file_of_an_unknown_source_is_what_its_first_bytes_say() -> None:
    assert parse_source_entry(KAFKA) == InitialOffset(START, has_nul=True)
    assert parse_source_entry(b"v1\n5") == InitialOffset(NumberOffset(5), has_nul=False)
    assert isinstance(parse_source_entry(b'v1\n{"path":"p","timestamp":1,"batchId":0}'), FileLogEntry)
    assert isinstance(parse_source_entry(b"v1"), FileLogEntry)
    hudi = JsonOffset({"commitTime": "000"})
    assert parse_source_entry(b'v1\n{"commitTime":"000"}') == InitialOffset(hudi, has_nul=False)
    assert parse_source_entry(b'2{"one":{"0":0,"1":7}}') == InitialOffset(START, has_nul=True)
    assert parse_source_entry(b"0v99999\n{}") == Damage(DamageKind.VERSION_TOO_NEW, "v99999", 1)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b'v1\n{"pa', DamageKind.TRUNCATED),
        (b"v1\nx", DamageKind.NOT_JSON),
        (b'v1\n{"path":"p"}', DamageKind.UNEXPECTED_JSON),
        (b"v1\n{}", DamageKind.UNEXPECTED_JSON),
        (b"\0v1\nx", DamageKind.NO_OFFSETS),
        (b'v1\n{"one":{"0":0}}', DamageKind.NO_OFFSETS),
        (b'{"one":{"0":0}}', DamageKind.NO_OFFSETS),
        (b"MANIFEST", DamageKind.BAD_VERSION_LINE),
    ],
)
def test_a_damaged_file_of_an_unknown_source_is_damaged_as_a_file_log(raw: bytes, expected: DamageKind) -> None:
    parsed = parse_source_entry(raw)
    assert isinstance(parsed, Damage)
    assert parsed.kind is expected


def test_spark_s_own_files_of_another_version_are_read_as_spark_reads_them() -> None:
    """From the test data of Apache Spark (Apache License 2.0): `kafka-source-initial-offset-….bin`."""
    old = b'2{"kafka-initial-offset-2-1-0":{"2":2,"1":1,"0":0}}\n'
    new = b'0v99999\n{"kafka-initial-offset-future-version":{"2":2,"1":1,"0":0}}\n'
    began = parse_source_entry(old)
    assert isinstance(began, InitialOffset)
    assert began.offset == KafkaOffset({"kafka-initial-offset-2-1-0": {0: 0, 1: 1, 2: 2}})
    assert began.to_bytes() == old
    assert began.with_offset(START).to_bytes() == KAFKA
    assert parse_source_entry(new) == Damage(DamageKind.VERSION_TOO_NEW, "v99999", 1)
