from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

import pytest

from lastgood.bundle.stand_ins import make_checksum_stand_in, make_stand_in
from lastgood.checkpoint.checksums import HadoopChecksum, parse_hadoop_checksum
from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.layout import classify
from lastgood.checkpoint.offsets import parse_offset_entry
from lastgood.checkpoint.state_files import (
    ZIP_BYTES_MAX,
    LineageItem,
    SnapshotMetadata,
    find_early_end,
    parse_lineage,
    parse_snapshot,
)

ROW = b"alice@example.com,4242"
UUID = "aaaaaaaa-0000-0000-0000-000000000000"
CHANGELOG = f"state/0/0/5_{UUID}.changelog"


def archive(metadata: bytes | None, name: str = "metadata") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("000009.log", ROW * 100)
        if metadata is not None:
            zipped.writestr(name, metadata)
    return made.getvalue()


def block(content: bytes) -> bytes:
    return struct.pack("<8sBiii", b"LZ4Block", 0x10, len(content), len(content), 0) + content


END = struct.pack("<8sBiii", b"LZ4Block", 0x10, 0, 0, 0)


def utf(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


LINEAGE = utf("v3") + utf('[{"version":4,"checkpointUniqueId":"b"},{"version":3,"checkpointUniqueId":"a"}]')


def kept(path: str, raw: bytes) -> bytes:
    found = make_stand_in(classify(path), raw)
    assert found is not None
    return found


def test_a_log_keeps_its_text_and_loses_its_secrets() -> None:
    raw = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"x.password":"hunter2"}}\n{"orders":{"0":10}}'
    found = kept("offsets/7", raw)
    assert found == raw.replace(b"hunter2", b"***")
    assert not isinstance(parse_offset_entry(found), Damage)
    plain = raw.replace(b'"x.password":"hunter2"', b"")
    assert kept("offsets/7", plain) == plain


def test_user_metadata_of_a_commit_is_left_out() -> None:
    raw = b'v3\n{"nextBatchWatermarkMs":5,"sinkMetadataMap":{"0":{"userMetadata":"alice","name":"s"}}}'
    found = parse_commit_entry(kept("commits/7", raw))
    assert isinstance(found, CommitEntry)
    assert (found.next_batch_watermark_ms, found.sinks) == (5, {"0": {"name": "s"}})
    assert b"alice" not in kept("commits/7", b'v3\n{"userMetadata":"alice"')


@pytest.mark.parametrize("path", ["metadata", "offsets/3", "sources/0/3", "state/0/_metadata/metadata"])
def test_binary_rubbish_in_a_log_is_replaced(path: str) -> None:
    assert kept(path, b"v1\n\xff\xfe" + ROW) == b"\xff\xff"


@pytest.mark.parametrize(
    "path", ["state/0/0/SSTs/a.sst", "notes.txt", "state/0/0/.5.delta.crc", "offsets/.7.crc", "offsets/x.tmp"]
)
def test_nothing_is_kept_of_other_files(path: str) -> None:
    assert make_stand_in(classify(path), ROW) is None


def test_a_schema_is_kept_only_if_it_is_one() -> None:
    schema = utf("v2") + struct.pack(">i", 1) + utf("{}") + struct.pack(">i", 1) + utf("{}")
    assert kept("state/0/0/_metadata/schema", schema) == schema
    assert make_stand_in(classify("state/0/0/_metadata/schema"), ROW) is None


def test_of_a_snapshot_only_the_list_of_its_files_is_kept() -> None:
    metadata = (
        b'v1\n{"sstFiles":[{"localFileName":"a","dfsSstFileName":"a.sst","sizeBytes":7}],"numKeys":3,"row":"alice"}'
    )
    found = kept("state/0/0/5.zip", archive(metadata))
    parsed = parse_snapshot(found)
    assert isinstance(parsed, SnapshotMetadata)
    assert (parsed.files, parsed.keys) == ({"a.sst": 7}, 3)
    with zipfile.ZipFile(io.BytesIO(found)) as zipped:
        assert zipped.namelist() == ["metadata"]
        assert b"alice" not in zipped.read("metadata")


def garbled() -> bytes:
    raw = bytearray(archive(b"v1\n{}" * 50))
    at = raw.rindex(b"metadata", 0, raw.rindex(b"PK\1\2") - 60) + len(b"metadata")
    raw[at : at + 8] = b"\xff" * 8
    return bytes(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        ROW * 9,
        b"PK\3\4" + ROW,
        archive(None),
        archive(b""),
        archive(b"v1\n[1]"),
        archive(b"v1\n{"),
        archive(b"v7\n{}"),
        archive(b"\xff" + ROW),
        archive(b'v1\n{"sstFiles":[{}]}'),
        garbled(),
        b"PK\3\4" + bytes(ZIP_BYTES_MAX),
    ],
)
def test_a_damaged_snapshot_is_replaced_by_one_that_is_damaged_alike(raw: bytes) -> None:
    found, expected = parse_snapshot(kept("state/0/0/5.zip", raw)), parse_snapshot(raw)
    assert isinstance(expected, Damage)
    assert isinstance(found, Damage)
    assert found.kind is expected.kind
    assert ROW not in kept("state/0/0/5.zip", raw)


@pytest.mark.parametrize("tail", [END, block(ROW * 9) + END])
def test_of_a_changelog_only_the_lineage_is_kept(tail: bytes) -> None:
    found = kept(CHANGELOG, block(LINEAGE + ROW) + tail)
    assert parse_lineage(found) == (LineageItem(3, "a"), LineageItem(4, "b"))
    assert find_early_end(found) is None
    assert ROW not in found


@pytest.mark.parametrize(
    "raw",
    [
        b"LZ4Bl",
        block(LINEAGE)[:40],
        block(utf("v3") + utf("{]") + ROW) + END,
        block(utf("v1") + ROW) + END,
        block(LINEAGE) + ROW * 5,
        block(ROW) + block(ROW),
        ROW * 5,
        block(LINEAGE) + block(ROW * 4000) + block(ROW)[:30],
        struct.pack("<8sBiii", b"LZ4Block", 0x10, len(LINEAGE), len(LINEAGE), 5) + LINEAGE + END,
    ],
)
def test_a_damaged_changelog_is_replaced_by_one_that_is_damaged_alike(raw: bytes) -> None:
    found = kept(CHANGELOG, raw)
    assert kinds(found, parse_lineage, find_early_end) == kinds(raw, parse_lineage, find_early_end)
    assert ROW not in found


@pytest.mark.parametrize("path", ["state/0/0/5.delta", "state/0/0/5.snapshot", "state/0/0/5.changelog"])
@pytest.mark.parametrize("raw", [block(ROW) + END, block(ROW), block(ROW)[:30], block(ROW) + ROW * 5, ROW * 5, b"LZ"])
def test_of_other_state_only_whether_it_is_whole(path: str, raw: bytes) -> None:
    found = kept(path, raw)
    assert kinds(found, find_early_end) == kinds(raw, find_early_end)
    assert ROW not in found
    if find_early_end(raw) == Damage(DamageKind.TRUNCATED, f"{len(raw)} bytes"):
        assert find_early_end(found) == find_early_end(raw)


def kinds(raw: bytes, *parsers: Callable[[bytes], object]) -> list[object]:
    seen = [parse(raw) for parse in parsers]
    return [each.kind if isinstance(each, Damage) else each for each in seen]


def test_a_checksum_fits_what_is_kept_if_it_fitted_what_was_there() -> None:
    raw, changed = b"v1\n{}", b"v1\n***"
    good, bad = HadoopChecksum.of(raw).to_bytes(), HadoopChecksum.of(b"other").to_bytes()
    assert make_checksum_stand_in(good, raw, raw) == good
    mended = parse_hadoop_checksum(make_checksum_stand_in(good, raw, changed))
    assert isinstance(mended, HadoopChecksum)
    assert mended.check(changed) is None
    assert make_checksum_stand_in(bad, raw, changed) == bad


@pytest.mark.parametrize("checksum", [b"", ROW, b"crc\0" + ROW[:3]])
def test_a_damaged_checksum_is_replaced(checksum: bytes) -> None:
    found = make_checksum_stand_in(checksum, b"a", b"a")
    assert kinds(found, parse_hadoop_checksum) == kinds(checksum, parse_hadoop_checksum)
    assert not checksum or checksum not in found
