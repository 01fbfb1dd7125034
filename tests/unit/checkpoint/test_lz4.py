from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lastgood.checkpoint.damage import DamageKind
from lastgood.checkpoint.lz4 import HEADER, MAGIC, PACKED, RAW, find_corruption, unpack_block

CASES = Path(__file__).resolve().parents[2] / "corpus" / "cases"
PACKED_FILES = sorted(
    path
    for case in ("3.5-agg-hdfs-healthy", "4.0-agg-rocksdb-changelog-healthy", "4.3-agg-rocksdb-ckptv2-healthy")
    for path in (CASES / case / "checkpoint/state").rglob("*")
    if path.suffix in (".delta", ".snapshot", ".changelog")
)
END = HEADER.pack(MAGIC, RAW | 5, 0, 0, 0)


def block(content: bytes, checksum: int, *, token: int = RAW | 5, size: int | None = None) -> bytes:
    return HEADER.pack(MAGIC, token, len(content), len(content) if size is None else size, checksum) + content


def first_block(raw: bytes) -> bytes | None:
    _, token, packed, size, _ = HEADER.unpack_from(raw)
    content = raw[HEADER.size : HEADER.size + packed]
    return content if token & 0xF0 == RAW else unpack_block(content, size)


def test_nothing_that_spark_packed_is_corrupt() -> None:
    assert len(PACKED_FILES) > 40
    assert {find_corruption(path.read_bytes()) for path in PACKED_FILES} == {None}


@pytest.mark.parametrize("path", PACKED_FILES[::9], ids=lambda path: path.name)
def test_a_bit_turned_in_a_block_or_its_checksum_is_noticed(path: Path) -> None:
    """Unless the block says the same: what is repeated may have stood at several places."""
    content = path.read_bytes()
    for at in range(HEADER.size - 4, len(content) - len(END)):
        turned = bytearray(content)
        turned[at] ^= 1
        assert find_corruption(bytes(turned)) is not None or first_block(turned) == first_block(content), at


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", None),  # another codec, or none
        (b"\x28\xb5\x2f\xfd of zstd", None),
        (END, None),
        (block(b"abc", 1) + END, DamageKind.CHECKSUM_MISMATCH),
        (block(b"abc", 0x2D153E) + b"LZ4block" + END[8:], DamageKind.CHECKSUM_MISMATCH),
        (block(b"abc", 1, token=0x35) + END, DamageKind.CHECKSUM_MISMATCH),  # packed in no known way
        (block(b"abc", 1, size=2**20) + END, DamageKind.CHECKSUM_MISMATCH),  # larger than its level
        (block(b"abc", 1, token=PACKED | 5) + END, DamageKind.CHECKSUM_MISMATCH),
        (block(b"abc", 1)[:-1], DamageKind.CHECKSUM_MISMATCH),
        (MAGIC, DamageKind.TRUNCATED),
    ],
)
def test_what_a_reader_stumbles_over_is_named(raw: bytes, expected: DamageKind | None) -> None:
    found = find_corruption(raw)
    assert (found and found.kind) == expected


def test_a_stream_that_ends_between_two_blocks_is_cut() -> None:
    content = next(path.read_bytes() for path in PACKED_FILES if len(path.read_bytes()) > 60)
    found = find_corruption(content[: -len(END)])
    assert found is not None
    assert found.kind is DamageKind.TRUNCATED
    foreign = find_corruption(content[: -len(END)] + b"no magic" + END[8:])
    assert foreign is not None
    assert foreign.kind is DamageKind.BAD_HEADER


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        (b"\x30abc", b"abc"),
        (b"\x11a\x01\x00\x10b", b"aaaaaab"),  # a match that overlaps itself
        (b"\xf0\x00" + b"x" * 15, b"x" * 15),  # a length in a byte of its own
        (b"\x10a\x02\x00", None),  # from before the beginning
    ],
)
def test_blocks_are_unpacked(packed: bytes, expected: bytes | None) -> None:
    assert unpack_block(packed, 100) == expected


def test_copies_may_overlap_and_lengths_may_be_long() -> None:
    packed = bytes([0x1F]) + b"a" + struct.pack("<H", 1) + bytes([255, 3])  # one literal, then it 15+255+3+4 times
    assert unpack_block(packed, 1000) == b"a" * 278
    literals = bytes([0xF0, 255, 10]) + b"x" * 280
    assert unpack_block(literals, 1000) == b"x" * 280


def test_a_block_that_unpacks_to_gigabytes_is_not_unpacked() -> None:
    bomb = bytes([0x1F]) + b"a" + struct.pack("<H", 1) + b"\xff" * 1_000_000 + b"\0"
    unpacked = unpack_block(bomb, 1000)
    assert unpacked is not None
    assert len(unpacked) < 3000
