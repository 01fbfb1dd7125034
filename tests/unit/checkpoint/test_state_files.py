from __future__ import annotations

import io
import struct
import zipfile

import pytest

from lastgood.checkpoint import state_files
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.state_files import (
    LineageItem,
    SnapshotMetadata,
    StateFile,
    StateFileKind,
    parse_lineage,
    parse_snapshot,
    parse_snapshot_metadata,
    parse_state_file_name,
)

A = "68ed4850-d346-4756-94d9-8f64625f261a"
B = "ed1ba494-b82c-47ce-b2c9-9c81df159f66"
METADATA = (
    b'v1\n{"sstFiles":[{"localFileName":"000008.sst","dfsSstFileName":"000008-x.sst","sizeBytes":1229}],'
    b'"logFiles":[{"localFileName":"7.log","dfsLogFileName":"7-y.log","sizeBytes":5}],"numKeys":1}'
)
# state/0/0/8_fc46….changelog as Spark 4.3 wrote it: builds on snapshot 6 and changelog 7
CHANGELOG = bytes.fromhex(
    "4c5a34426c6f636b25aa000000d90000006412110df7420002763300955b7b2276657273696f6e223a362c22636865636b70"
    "6f696e74556e697175654964223a2236386564343835302d643334362d343735362d393464392d3866363436323566323631"
    "61227d2c4a001f374a0004f41d65643162613439342d623832632d343763652d623263392d39633831646631353966363622"
    "7d5d00000019000100a402000000100000006b301200071d0010481e000321008000000000ffffffff4c5a34426c6f636b15"
    "000000000000000000000000"
)


def kind(result: object) -> DamageKind | None:
    return result.kind if isinstance(result, Damage) else None


def archive(name: str = "metadata", content: bytes = METADATA) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("CURRENT", b"MANIFEST-000005\n")
        zipped.writestr(name, content)
    return buffer.getvalue()


def lz4(data: bytes, token: int = 0x15) -> bytes:
    return struct.pack("<8sBiii", b"LZ4Block", token, len(data), len(data), 0) + data


def changelog(version: str, lineage: str) -> bytes:
    return b"".join(struct.pack(">H", len(text)) + text.encode() for text in (version, lineage))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("8.delta", StateFile(8, StateFileKind.DELTA)),
        ("6.snapshot", StateFile(6, StateFileKind.SNAPSHOT)),
        ("8.changelog", StateFile(8, StateFileKind.CHANGELOG)),
        ("0.zip", StateFile(0, StateFileKind.ZIP)),
        (f"8_{A}.changelog", StateFile(8, StateFileKind.CHANGELOG, A)),
        (f"8_{A}.zip", StateFile(8, StateFileKind.ZIP, A)),
    ],
)
def test_a_state_file_says_in_its_name_what_it_is(name: str, file: StateFile) -> None:
    assert parse_state_file_name(name) == file
    assert file.name == name
    assert parse_state_file_name(name, 5) == file._replace(size=5)


@pytest.mark.parametrize(
    "name",
    [
        "008.delta",
        "8",
        "8.delta.crc",
        ".8.delta.crc",
        f"8_{A}.delta",
        f"8_{A}.snapshot",
        "8_x.zip",
        "x.zip",
        "-1.zip",
        "٣.zip",
        "9223372036854775808.zip",
        "99999999999999999999.zip",
        "8.sst",
        "8.zip.tmp",
        "",
    ],
)
def test_any_other_name_is_none(name: str) -> None:
    assert parse_state_file_name(name) is None


def test_a_load_can_begin_with_a_snapshot_only() -> None:
    assert [kind.is_snapshot for kind in StateFileKind] == [False, True, False, True]


def test_a_snapshot_names_the_files_beside_it() -> None:
    metadata = parse_snapshot(archive())
    assert isinstance(metadata, SnapshotMetadata)
    assert metadata.files == {"000008-x.sst": 1229, "7-y.log": 5}
    assert (metadata.version, metadata.keys, metadata.to_bytes()) == (1, 1, METADATA)


def test_snapshot_metadata_is_written_as_spark_writes_it() -> None:
    empty = b'v1\n{"sstFiles":[],"numKeys":0}'
    metadata = parse_snapshot_metadata(empty)
    assert isinstance(metadata, SnapshotMetadata)
    assert (metadata.files, metadata.keys) == ({}, 0)
    assert SnapshotMetadata(1, {}, 0, metadata.fields).to_bytes() == empty


def test_version_2_of_spark_4_0_is_read_too() -> None:
    metadata = parse_snapshot_metadata(b'v2\n{"sstFiles":null,"columnFamilyMapping":{"default":1}}')
    assert isinstance(metadata, SnapshotMetadata)
    assert (metadata.version, metadata.files, metadata.keys) == (2, {}, -1)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b"no zip", DamageKind.BAD_ARCHIVE),
        (archive()[:-30], DamageKind.BAD_ARCHIVE),
        (archive()[40:], DamageKind.BAD_ARCHIVE),
        (archive("other"), DamageKind.BAD_ARCHIVE),
        (archive(content=b""), DamageKind.EMPTY),
        (archive(content=b"v3\n{}"), DamageKind.VERSION_TOO_NEW),
        (archive(content=b"v1\n{"), DamageKind.TRUNCATED),
        (archive(content=b'v1\n{"sstFiles":[5]}'), DamageKind.UNEXPECTED_JSON),
        (archive(content=b'v1\n{"sstFiles":[{"dfsSstFileName":"x"}]}'), DamageKind.UNEXPECTED_JSON),
    ],
)
def test_damaged_snapshots_are_told_apart(raw: bytes, expected: DamageKind) -> None:
    assert kind(parse_snapshot(raw)) is expected


def test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked() -> None:
    bomb = archive(content=b"v1\n" + b" " * 64_000_000)
    assert len(bomb) < 100_000
    assert kind(parse_snapshot(bomb)) is DamageKind.TOO_LARGE


def test_a_huge_archive_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "ZIP_BYTES_MAX", 4)
    assert kind(parse_snapshot(b"12345")) is DamageKind.TOO_LARGE


def test_a_changelog_that_spark_wrote_names_what_it_builds_on() -> None:
    assert parse_lineage(CHANGELOG) == (LineageItem(6, A), LineageItem(7, B))
    assert parse_lineage(CHANGELOG[:0xC0]) == (LineageItem(6, A), LineageItem(7, B))  # the first block is enough


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_a_lineage_is_read_in_order_from_blocks_of_any_kind(version: str) -> None:
    items = f'[{{"version":7,"checkpointUniqueId":"{B}"}},{{"version":6,"checkpointUniqueId":"{A}"}}]'
    raw = changelog(version, items) + b"records"
    expected = (LineageItem(6, A), LineageItem(7, B))
    assert parse_lineage(lz4(raw)) == expected
    assert parse_lineage(lz4(raw[:20]) + lz4(raw[20:])) == expected
    assert parse_lineage(lz4(changelog(version, "[]"))) == ()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b"LZ4", DamageKind.TRUNCATED),
        (b"\x28\xb5\x2f\xfd", DamageKind.UNKNOWN_CODEC),
        (b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\x5d\xb8\x02\x30\0\x02v3", DamageKind.UNKNOWN_CODEC),
        (CHANGELOG[:60], DamageKind.TRUNCATED),
        (CHANGELOG[:70] + b"x" + CHANGELOG[71:], DamageKind.CHECKSUM_MISMATCH),
        (lz4(b""), DamageKind.TRUNCATED),
        (lz4(b"\0"), DamageKind.TRUNCATED),
        (lz4(b"\0\1\xff\0\0"), DamageKind.BAD_HEADER),
        (lz4(changelog("v2", "[]")), DamageKind.BAD_HEADER),
        (lz4(changelog("v3", "{}")), DamageKind.BAD_HEADER),
        (lz4(changelog("v3", "[5]")), DamageKind.BAD_HEADER),
        (lz4(changelog("v3", '[{"version":"6"}]')), DamageKind.BAD_HEADER),
        (lz4(changelog("v3", "[{")), DamageKind.TRUNCATED),
        (lz4(b"\xff\xff", token=0x99), DamageKind.BAD_HEADER),
        (lz4(b"\xf0\xff", token=0x25), DamageKind.BAD_HEADER),
        (lz4(b"\x10a\x05\0", token=0x25), DamageKind.BAD_HEADER),
        (struct.pack("<8sBiii", b"LZ4Block", 0x15, -5, 10, 0), DamageKind.BAD_HEADER),
        (struct.pack("<8sBiii", b"LZ4Block", 0x15, 5, -10, 0) + b"12345", DamageKind.BAD_HEADER),
        (lz4(b"\0\x02v") + b"no block at all, more than a header", DamageKind.BAD_HEADER),
    ],
)
def test_damaged_changelogs_are_told_apart(raw: bytes, expected: DamageKind) -> None:
    assert kind(parse_lineage(raw)) is expected
