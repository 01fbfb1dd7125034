"""Real Delta tables, asked for the offsets that their rows carry."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lastgood.errors import StorageError
from lastgood.sinks.delta.offsets import read_offsets
from lastgood.sinks.offset_columns import OffsetColumnsError, TableOffsets, parse_offset_columns
from lastgood.storage.reading import parse_location

COLUMNS = "topic,partition,offset"
Row = tuple[str | None, int | None, int | None]


def write(table: Path, rows: Iterable[Row], **options: Any) -> None:
    """One file, or one per partition of the table."""
    topics, partitions, offsets = zip(*rows, strict=True)
    data = pa.table(
        {
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "value": ["x"] * len(offsets),
        }
    )
    write_deltalake(table, data, mode="append", **options)


def of(topic: str, partition: int, offsets: Iterable[int]) -> list[Row]:
    return [(topic, partition, offset) for offset in offsets]


def asked(table: Path, columns: str = COLUMNS, **options: Any) -> TableOffsets:
    return read_offsets(parse_location(str(table)), parse_offset_columns(columns), **options)


def test_statistics_suffice_where_each_file_is_of_one_partition(tmp_path: Path) -> None:
    write(tmp_path, of("orders", 0, range(3)))
    write(tmp_path, of("orders", 1, range(4)))
    write(tmp_path, of("orders", 0, range(3, 8)))
    found = asked(tmp_path, files_read=0)
    assert found.held == {"orders": {0: ((0, 8),), 1: ((0, 4),)}}
    assert (found.ends, found.repeated, found.version) == ({"orders": {0: 8, 1: 4}}, {}, 2)
    assert (found.file_count, found.files_read) == (3, 0)
    assert asked(tmp_path).held == found.held


def test_file_of_several_partitions_is_read_and_the_others_are_not(tmp_path: Path) -> None:
    write(tmp_path, of("orders", 0, range(3)))
    write(tmp_path, of("orders", 0, range(3, 5)) + of("orders", 1, range(2)) + of("other", 1, range(9)))
    found = asked(tmp_path, files_read=0)
    assert found.held == {"orders": {0: ((0, 5),), 1: ((0, 2),)}, "other": {1: ((0, 9),)}}
    assert found.files_read == 1


@pytest.mark.parametrize("files_read", [0, 9])
def test_it_is_told_when_the_files_with_the_highest_offsets_were_written(files_read: int, tmp_path: Path) -> None:
    for offsets in (range(3), range(5, 7), range(3, 5), range(6, 7)):
        write(tmp_path, of("orders", 0, offsets))
    tables = [pa.table(DeltaTable(tmp_path, version=version).get_add_actions()) for version in range(4)]
    times = [max(each.column("modification_time").to_pylist()) for each in tables]
    found = asked(tmp_path, files_read=files_read, since={"orders": {0: 3}})
    assert found.written_ms == found.since_ms == {"orders": {0: times[1]}}
    assert asked(tmp_path, files_read=files_read, since={"orders": {0: 2}}).since_ms == {"orders": {0: times[0]}}
    assert asked(tmp_path, files_read=files_read, since={"orders": {0: 7}}).since_ms == {}


def test_holes_and_repeats_in_one_file_and_between_files_are_found(tmp_path: Path) -> None:
    write(tmp_path, of("orders", 0, [0, 1, 1, 2, 5]))
    write(tmp_path, of("orders", 0, [5, 6, 7]))
    found = asked(tmp_path, files_read=0)
    assert (found.held, found.repeated) == ({"orders": {0: ((0, 3), (5, 8))}}, {"orders": {0: 2}})


def test_repeat_beside_a_hole_is_found_in_files_that_are_read_though_statistics_would_do(tmp_path: Path) -> None:
    write(tmp_path, of("orders", 0, [0, 1, 1, 3]))
    assert asked(tmp_path).held == {"orders": {0: ((0, 2), (3, 4))}}


def test_topic_that_is_longer_than_statistics_keep_is_read(tmp_path: Path) -> None:
    name = "orders-of-the-northern-warehouses-and-their-suppliers"
    write(tmp_path, of(name, 0, range(3)))
    found = asked(tmp_path, files_read=0)
    assert (found.held, found.files_read) == ({name: {0: ((0, 3),)}}, 1)


@pytest.mark.parametrize("files_read", [0, 9])
def test_columns_may_be_those_by_which_the_table_is_partitioned(tmp_path: Path, files_read: int) -> None:
    rows = of("a b/c=%25", 0, range(3)) + of("d", 1, range(2))
    write(tmp_path, rows, partition_by=["topic", "partition"])
    found = asked(tmp_path, files_read=files_read)
    assert found.held == {"a b/c=%25": {0: ((0, 3),)}, "d": {1: ((0, 2),)}}


def test_rows_of_one_topic_need_no_column_for_it(tmp_path: Path) -> None:
    write(tmp_path, of("ignored", 0, range(3)))
    assert asked(tmp_path, "partition,offset", topic="orders").held == {"orders": {0: ((0, 3),)}}


def test_rows_without_an_offset_are_counted(tmp_path: Path) -> None:
    write(tmp_path, [*of("orders", 0, range(3)), ("orders", 0, None), (None, 0, 7)])
    found = asked(tmp_path, files_read=0)
    assert (found.held, found.unplaced) == ({"orders": {0: ((0, 3),)}}, 2)


def test_rows_that_were_deleted_are_not_held(tmp_path: Path) -> None:
    write(tmp_path, of("orders", 0, range(6)))
    DeltaTable(tmp_path).delete("offset = 3")
    assert asked(tmp_path, files_read=0).held == {"orders": {0: ((0, 3), (4, 6))}}


@pytest.mark.parametrize("files_read", [0, 9])
def test_table_that_delta_rs_alone_can_read_is_read_by_it(tmp_path: Path, files_read: int) -> None:
    write(tmp_path, of("orders", 0, range(6)), configuration={"delta.enableDeletionVectors": "true"})
    write(tmp_path, of("orders", 1, range(6)))
    found = asked(tmp_path, files_read=files_read)
    assert found.held == {"orders": {0: ((0, 6),), 1: ((0, 6),)}}
    assert found.files_read == min(files_read, 2)
    DeltaTable(tmp_path).delete("offset = 3 and partition = 0")
    assert asked(tmp_path, files_read=files_read).held == {"orders": {0: ((0, 3), (4, 6)), 1: ((0, 6),)}}


def test_table_without_statistics_is_read(tmp_path: Path) -> None:
    write(tmp_path, of("orders", 0, range(6)), configuration={"delta.dataSkippingNumIndexedCols": "0"})
    found = asked(tmp_path, files_read=0)
    assert (found.held, found.files_read) == ({"orders": {0: ((0, 6),)}}, 1)


@pytest.mark.parametrize(
    ("columns", "sentence", "found"),
    [
        ("topic,partition,nothing", "the table has no column nothing", "offset long"),
        ("topic,value,offset", "the column value holds no number", "value string"),
        ("partition,topic,offset", "the column partition holds no topic", "partition integer"),
    ],
)
def test_columns_that_cannot_be_meant_get_a_clear_error(
    tmp_path: Path, columns: str, sentence: str, found: str
) -> None:
    write(tmp_path, of("orders", 0, range(3)))
    with pytest.raises(OffsetColumnsError, match=sentence) as caught:
        asked(tmp_path, columns)
    assert caught.value.found is not None
    assert found in caught.value.found


def test_folder_without_a_table_gets_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be asked"):
        asked(tmp_path)
