from __future__ import annotations

import struct
import zlib

import pytest

from lastgood.checkpoint.checksums import (
    HadoopChecksum,
    SparkChecksum,
    compute_crc32c,
    parse_hadoop_checksum,
    parse_spark_checksum,
)
from lastgood.checkpoint.damage import Damage, DamageKind

SPARK = (
    b'{"algorithm":"CRC32C","value":-486108541,"mainFileSize":9,"timestampMs":1795208174181,'
    b'"creator":{"executorId":"driver","taskInfo":"Task= 0.0, Stage= 247.0"}}'
)


def kind(result: object) -> DamageKind | None:
    return result.kind if isinstance(result, Damage) else None


def test_hadoop_has_one_crc_32_for_each_512_bytes() -> None:
    data = bytes(range(256)) * 3
    checksum = HadoopChecksum.of(data)
    assert checksum.sums == (zlib.crc32(data[:512]), zlib.crc32(data[512:]))
    raw = b"crc\0" + struct.pack(">III", 512, *checksum.sums)
    assert checksum.to_bytes() == raw
    assert parse_hadoop_checksum(raw) == checksum
    assert checksum.check(data) is None


def test_an_empty_file_has_a_checksum_without_sums() -> None:
    assert HadoopChecksum.of(b"").to_bytes() == b"crc\0\0\0\x02\0"
    assert parse_hadoop_checksum(b"crc\0\0\0\x02\0") == HadoopChecksum(512, ())


@pytest.mark.parametrize(
    ("data", "where"),
    [(b"x" * 600, "from byte 512 of 600"), (b"y" * 512, "from byte 0 of 512"), (b"x" * 1500, "from byte 1024 of 1500")],
)
def test_a_checksum_that_lies_says_from_where_on(data: bytes, where: str) -> None:
    assert HadoopChecksum.of(b"x" * 1024).check(data) == Damage(DamageKind.CHECKSUM_MISMATCH, where)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b"crx\0\0\0\x02\0", DamageKind.BAD_HEADER),
        (b"crc\0\0\0\0\0", DamageKind.BAD_HEADER),
        (b"crc\0\xff\xff\xff\xff", DamageKind.BAD_HEADER),
        (b"crc\0\0\0", DamageKind.TRUNCATED),
        (b"crc\0\0\0\x02\0\1", DamageKind.TRUNCATED),
    ],
)
def test_damaged_hadoop_checksums_are_told_apart(raw: bytes, expected: DamageKind) -> None:
    assert kind(parse_hadoop_checksum(raw)) is expected


def test_crc_32c_is_the_one_of_castagnoli() -> None:
    assert compute_crc32c(b"123456789") == 0xE3069283
    assert compute_crc32c(b"") == 0


def test_sparks_checksum_tells_size_and_value() -> None:
    checksum = parse_spark_checksum(SPARK)
    assert isinstance(checksum, SparkChecksum)
    assert (checksum.value, checksum.main_file_size, checksum.to_bytes()) == (-486108541, 9, SPARK)
    assert checksum.check(b"123456789") is None
    assert checksum.check(b"12345678") == Damage(DamageKind.CHECKSUM_MISMATCH, "8 bytes, not 9")
    assert kind(checksum.check(b"123456780")) is DamageKind.CHECKSUM_MISMATCH


def test_a_checksum_for_another_content_is_written_as_spark_writes_it() -> None:
    checksum = parse_spark_checksum(SPARK.replace(b"-486108541", b"5").replace(b":9,", b":1,"))
    assert isinstance(checksum, SparkChecksum)
    assert checksum.for_content(b"123456789").to_bytes() == SPARK


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b"crc\0", DamageKind.NOT_JSON),
        (SPARK[:-5], DamageKind.TRUNCATED),
        (SPARK.replace(b"CRC32C", b"MD5"), DamageKind.UNEXPECTED_JSON),
        (SPARK.replace(b":9,", b":null,"), DamageKind.UNEXPECTED_JSON),
    ],
)
def test_damaged_spark_checksums_are_told_apart(raw: bytes, expected: DamageKind) -> None:
    assert kind(parse_spark_checksum(raw)) is expected
