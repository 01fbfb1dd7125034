from __future__ import annotations

import pytest

from lastgood.checkpoint.layout import (
    CheckpointFile,
    ForeignFile,
    HadoopChecksumFile,
    ImmutableFile,
    LogFile,
    LogName,
    OperatorMetadataFile,
    QueryMetadataFile,
    SparkChecksumFile,
    StateSchemaFile,
    StateStoreFile,
    TemporaryFile,
    classify,
    find_newest_batch,
    parse_batch,
    parse_folder_number,
    parse_log_name,
)
from lastgood.checkpoint.state_files import StateFile, StateFileKind

A = "68ed4850-d346-4756-94d9-8f64625f261a"
SEVEN = LogName(7, is_compact=False, is_canonical=True)
DELTA = StateStoreFile(0, 1, "default", StateFile(8, StateFileKind.DELTA))
CHANGELOG = StateStoreFile(0, 0, "default", StateFile(8, StateFileKind.CHANGELOG, A))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata", QueryMetadataFile()),
        (".metadata.crc", HadoopChecksumFile(QueryMetadataFile())),
        ("offsets/7", LogFile("offsets", SEVEN)),
        ("commits/7", LogFile("commits", SEVEN)),
        ("offsets/006", LogFile("offsets", LogName(6, is_compact=False, is_canonical=False))),
        ("offsets/-1", LogFile("offsets", LogName(-1, is_compact=False, is_canonical=False))),
        ("commits/+7", LogFile("commits", LogName(7, is_compact=False, is_canonical=False))),
        ("offsets/.7.crc", HadoopChecksumFile(LogFile("offsets", SEVEN))),
        ("offsets/7.crc", SparkChecksumFile(LogFile("offsets", SEVEN))),
        (f"commits/.7.{A}.tmp", TemporaryFile(LogFile("commits", SEVEN))),
        (f"commits/..7.{A}.tmp.crc", HadoopChecksumFile(TemporaryFile(LogFile("commits", SEVEN)))),
        ("sources/0/7", LogFile("sources/0", SEVEN)),
        ("sources/orders/9.compact", LogFile("sources/orders", LogName(9, is_compact=True, is_canonical=True))),
        ("_spark_metadata/19.compact", LogFile("_spark_metadata", LogName(19, is_compact=True, is_canonical=True))),
        ("state/0/1/8.delta", DELTA),
        ("state/0/1/.8.delta.crc", HadoopChecksumFile(DELTA)),
        (f"state/0/1/.8.delta.{A}.TID217.tmp", TemporaryFile(DELTA)),
        (f"state/0/0/8_{A}.changelog", CHANGELOG),
        (f"state/0/0/8_{A}.changelog.crc", SparkChecksumFile(CHANGELOG)),
        (f"state/0/0/.8_{A}.changelog.crc.crc", HadoopChecksumFile(SparkChecksumFile(CHANGELOG))),
        ("state/2/3/4.zip", StateStoreFile(2, 3, "default", StateFile(4, StateFileKind.ZIP))),
        ("state/0/0/SSTs/000008-x.sst", ImmutableFile(0, 0, "default", "000008-x.sst")),
        ("state/0/0/logs/7-x.log", ImmutableFile(0, 0, "default", "7-x.log")),
        (
            "state/0/0/left-keyToNumValues/6.snapshot",
            StateStoreFile(0, 0, "left-keyToNumValues", StateFile(6, StateFileKind.SNAPSHOT)),
        ),
        ("state/0/0/right-x/SSTs/1.sst", ImmutableFile(0, 0, "right-x", "1.sst")),
        ("state/0/0/_metadata/schema", StateSchemaFile(0, "default")),
        ("state/0/0/left-x/_metadata/schema", StateSchemaFile(0, "left-x")),
        ("state/1/_metadata/metadata", OperatorMetadataFile(1, None)),
        ("state/0/_metadata/v2/12", OperatorMetadataFile(0, 12)),
        (f"state/0/_stateSchema/default/0_{A}", StateSchemaFile(0, "default", 0, A)),
        ("state/0/_stateSchema/default/0", StateSchemaFile(0, "default", 0)),
    ],
)
def test_a_path_tells_what_the_file_is(path: str, expected: CheckpointFile) -> None:
    assert classify(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "readme.txt",
        "offsets",
        "offsets/6.bak",
        "offsets/9.compact",
        "offsets/7/8",
        "offsets/9223372036854775808",
        "offsets/.hidden",
        "commits/.crc",
        "sources/7",
        "sources/0/rocksdb/CURRENT",
        "sources/0/_schema_log",
        "state/8.delta",
        "state/x/0/8.delta",
        "state/00/0/8.delta",
        "state/0/x/8.delta",
        "state/0/0/8.sst",
        "state/0/0/store/deep/8.delta",
        "state/0/_metadata/other",
        "state/0/_metadata/v2/x",
        "state/0/_metadata/v3/1",
        "state/0/_stateSchema/default/x",
        "state/0/0/_metadata/other",
        "state/0/metadata",
        "a/" + "x" * 300,
    ],
)
def test_what_spark_does_not_write_is_foreign(path: str) -> None:
    assert classify(path) == ForeignFile(path)


def test_side_files_of_foreign_files_are_known_as_such() -> None:
    assert classify("offsets/.6.bak.crc") == HadoopChecksumFile(ForeignFile("offsets/6.bak"))


def test_a_log_name_is_what_spark_lists() -> None:
    assert parse_log_name("٣") == LogName(3, is_compact=False, is_canonical=False)
    assert parse_log_name("07.compact", compactible=True) == LogName(7, is_compact=True, is_canonical=False)
    assert parse_log_name("7.compact") is None
    assert [parse_log_name(name) for name in ("", "x", "6_0", " 6", "6L", "1" * 31)] == [None] * 6


def test_folders_of_the_state_have_canonical_numbers() -> None:
    assert [parse_folder_number(name) for name in ("0", "17", "01", "-1", "_metadata")] == [0, 17, None, None, None]


@pytest.mark.parametrize(
    ("path", "batch"),
    [("offsets/7", 7), ("offsets/0", 0)]
    + [
        (path, None)
        for path in (
            "commits/7",
            "offsets/07",
            "offsets/+7",
            "offsets/\u0667",
            "offsets/7 ",
            "offsets/-1",
            "7",
            "offsets/",
        )
    ]
    + [(f"offsets/{2**63}", None), ("offsets/7.compact", None), ("a/offsets/7", None)],
)
def test_only_what_spark_can_open_is_the_entry_of_a_batch(path: str, batch: int | None) -> None:
    assert parse_batch(path, "offsets") == batch


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        ([], None),
        (["7", "8", ".9.crc"], 8),
        (["7", "008"], 8),
        (["7", "+8"], 8),
        (["7", str(2**63), "1" * 30, "9/"], 7),
        (["-1"], None),
        (["x", "8.compact"], None),
    ],
)
def test_newest_batch_is_the_one_that_spark_sees(names: list[str], newest: int | None) -> None:
    assert find_newest_batch(names) == newest
