from __future__ import annotations

import pytest

from lastgood.checkpoint import file_logs
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import (
    FileLogEntry,
    SinkFile,
    SourceFile,
    derive_compact_interval,
    is_compaction,
    list_ids_read_at_start,
    make_sink_log_entry,
    make_source_log_entry,
    parse_sink_log_entry,
    parse_source_log_entry,
)

SOURCE = b'v1\n{"path":"file:///data/a%20b.json","timestamp":1790000005000,"batchId":5}\n{"path":"file:///c","timestamp":1,"batchId":6}'
SINK = (
    b'v1\n{"path":"file:///out/part-0.parquet","size":1247,"isDir":false,"modificationTime":1795208374222,'
    b'"blockReplication":1,"blockSize":33554432,"action":"add"}'
)
SOURCE_FILES = [SourceFile("file:///data/a%20b.json", 1790000005000, 5), SourceFile("file:///c", 1, 6)]
SINK_FILE = SinkFile("file:///out/part-0.parquet", 1247, 1795208374222, block_size=33554432)


def kind(result: object) -> DamageKind | None:
    return result.kind if isinstance(result, Damage) else None


def test_a_source_log_entry_lists_input_files() -> None:
    entry = parse_source_log_entry(SOURCE)
    assert isinstance(entry, FileLogEntry)
    assert list(entry) == list(entry) == SOURCE_FILES
    assert entry.to_bytes() == make_source_log_entry(SOURCE_FILES).to_bytes() == SOURCE


def test_a_sink_log_entry_lists_data_files() -> None:
    entry = parse_sink_log_entry(SINK)
    assert isinstance(entry, FileLogEntry)
    assert list(entry) == [SINK_FILE]
    assert entry.to_bytes() == make_sink_log_entry([SINK_FILE]).to_bytes() == SINK


def test_an_empty_batch_leaves_a_version_line_alone() -> None:
    entry = parse_sink_log_entry(b"v1")
    assert isinstance(entry, FileLogEntry)
    assert list(entry) == []
    assert make_sink_log_entry([]).to_bytes() == b"v1"


def test_a_file_without_batch_id_has_the_one_that_spark_gives_it() -> None:
    entry = parse_source_log_entry(b'v1\n{"path":"p","timestamp":1}')
    assert isinstance(entry, FileLogEntry)
    assert [file.log_id for file in entry] == [-1]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", Damage(DamageKind.EMPTY)),
        (b"\n", Damage(DamageKind.BAD_VERSION_LINE, "", 1)),
        (b"v2\n", Damage(DamageKind.VERSION_TOO_NEW, "v2", 1)),
        (b"\xff\n", Damage(DamageKind.NOT_UTF8, "\\xff", 1)),
        (SOURCE + b'\n{"pa', Damage(DamageKind.TRUNCATED, '{"pa', 4)),
        (SOURCE + b"\n\n", Damage(DamageKind.TRUNCATED, "", 4)),
        (SOURCE + b"\nx", Damage(DamageKind.NOT_JSON, "x", 4)),
        (SOURCE + b"\n{}", Damage(DamageKind.UNEXPECTED_JSON, "{}", 4)),
        (SOURCE + b"\n\xfe", Damage(DamageKind.NOT_UTF8, "\\xfe", 4)),
        (b'v1\n{"path":"p","timestamp":"1"}', Damage(DamageKind.UNEXPECTED_JSON, '{"path":"p","timestamp":"1"}', 2)),
    ],
)
def test_damage_is_told_apart(raw: bytes, expected: Damage) -> None:
    assert parse_source_log_entry(raw) == expected


@pytest.mark.parametrize(
    "field", [b'"size":1247', b'"isDir":false', b'"action":"add"', b'"path":"file:///out/part-0.parquet"']
)
def test_a_data_file_needs_all_of_its_fields(field: bytes) -> None:
    assert kind(parse_sink_log_entry(SINK.replace(field, b'"x":0'))) is DamageKind.UNEXPECTED_JSON


def test_a_huge_line_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_logs, "ENTRY_BYTES_MAX", 10)
    assert parse_source_log_entry(b"v1\n" + b"x" * 11) == Damage(DamageKind.TOO_LARGE, "11 bytes", 2)


def test_every_tenth_entry_is_a_compaction() -> None:
    assert [n for n in range(30) if is_compaction(n, 10)] == [9, 19, 29]


@pytest.mark.parametrize(
    ("compact", "default", "expected"),
    [
        ((), 10, 10),
        ((2, 5), 10, 3),
        ((2, 5, 8), 10, 3),
        ((2,), 10, 3),  # the interval was smaller than today's setting
        ((11,), 5, 6),  # Spark's own example: the first divisor of 12 from 5 on
        ((11,), 7, 12),  # no divisor is large enough
        ((11,), 6, 12),
        ((99,), 10, 10),
        ((96,), 10, 97),  # 97 is prime
    ],
)
def test_the_interval_is_derived_from_compact_files_as_spark_does(
    compact: tuple[int, ...], default: int, expected: int
) -> None:
    assert derive_compact_interval(compact, default) == expected


@pytest.mark.parametrize(
    ("newest", "interval", "expected"),
    [(7, 10, (0, 8)), (9, 10, (9, 10)), (12, 10, (9, 13)), (2, 3, (2, 3)), (0, 10, (0, 1))],
)
def test_spark_starts_with_the_newest_compaction(newest: int, interval: int, expected: tuple[int, int]) -> None:
    assert list_ids_read_at_start(newest, interval) == range(*expected)
