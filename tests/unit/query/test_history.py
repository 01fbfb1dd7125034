from __future__ import annotations

from collections.abc import Mapping

import pytest

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, KafkaOffset
from lastgood.load.position import LoadPosition
from lastgood.query.history import (
    BatchRecord,
    Seam,
    SourceRead,
    find_seams,
    find_seams_between,
    find_source_reads,
    merge,
)

COMMITTED = CommitEntry.of(1, next_batch_watermark_ms=0)
EMPTY = Damage(DamageKind.EMPTY)


def plan(*lines: str, watermark_ms: int = 0, at_ms: int = 1000) -> OffsetEntry:
    metadata = f'{{"batchWatermarkMs":{watermark_ms},"batchTimestampMs":{at_ms},"conf":{{}}}}'
    entry = parse_offset_entry("\n".join(["v1", metadata, *lines]).encode())
    assert isinstance(entry, OffsetEntry)
    return entry


def kafka(**partitions: int) -> str:
    """`kafka(t0=5)` is topic t, partition 0, offset 5."""
    topics: dict[str, list[str]] = {}
    for name, offset in partitions.items():
        topics.setdefault(name[0], []).append(f'"{name[1:]}":{offset}')
    return "{" + ",".join(f'"{topic}":{{{",".join(parts)}}}' for topic, parts in topics.items()) + "}"


def read(end: str, start: str | None, *, is_first: bool = False) -> SourceRead:
    (found,) = find_source_reads(plan(end), None if start is None else plan(start), is_first=is_first)
    return found


def record(batch_id: int, line: str, *, committed: bool = True) -> BatchRecord:
    return BatchRecord(batch_id, plan(line), COMMITTED if committed else None)


def test_a_batch_reads_from_where_the_plan_before_it_ends() -> None:
    found = read(kafka(t0=15, t1=7), kafka(t0=10, t1=7))
    assert (found.kind, found.ranges, found.count, found.unit) == ("kafka", {"t": {0: ((10, 15),)}}, 5, "offsets")
    assert found.to_json() == {
        "source": "0",
        "kind": "kafka",
        "end": kafka(t0=15, t1=7),
        "count": 5,
        "unit": "offsets",
        "ranges": {"t": {"0": [[10, 15]]}},
        "file_log": None,
        "went_back": {},
        "added": {},
        "gone": {},
    }


def test_partitions_that_went_back_came_or_went_are_named() -> None:
    found = read(kafka(t0=5, t2=9), kafka(t0=10, t1=7))
    assert (found.ranges, found.count) == ({}, None)
    assert found.went_back == {"t": {0: (10, 5)}}
    assert found.added == {"t": {2: 9}}
    assert found.gone == {"t": {1: 7}}
    assert found.to_json()["went_back"] == {"t": {"0": [10, 5]}}


def test_how_much_is_read_of_a_new_partition_nobody_wrote_down() -> None:
    found = read(kafka(t0=8, t1=10, t2=0), kafka(t0=4))
    assert (found.ranges, found.count) == ({"t": {0: ((4, 8),)}}, None)
    assert found.open_spans == {"t": {1: (OFFSET_EARLIEST, 10)}}
    assert found.to_json()["added"] == {"t": {"1": 10, "2": 0}}


def test_new_partition_that_ends_at_its_first_offset_leaves_nothing_open() -> None:
    found = read(kafka(t0=8, t1=0), kafka(t0=4))
    assert (found.open_spans, found.count) == ({}, 4)


def test_the_first_batch_begins_where_its_source_wrote_down_that_it_began() -> None:
    (found,) = find_source_reads(plan(kafka(t0=5)), None, {"0": KafkaOffset({"t": {0: 2}})}, is_first=True)
    assert found.ranges == {"t": {0: ((2, 5),)}}
    (unknown,) = find_source_reads(plan(kafka(t0=5)), None, is_first=True)
    assert (unknown.ranges, unknown.added, unknown.count) == (None, {"t": {0: 5}}, None)


def test_a_file_source_reads_entries_of_its_own_log() -> None:
    assert read('{"logOffset":4}', '{"logOffset":2}').files == (3, 5)
    assert read('{"logOffset":1}', None, is_first=True).files == (0, 2)
    assert read('{"logOffset":1}', "-").files == (0, 2)
    found = read('{"logOffset":2}', '{"logOffset":2}')
    assert (found.count, found.unit, found.to_json()["file_log"]) == (0, "log entries", [3, 3])


def load(file: int, position: int) -> str:
    return f'{{"lastgood_load":1,"file":{file},"position":{position}}}'


def test_a_load_reads_bytes_of_its_files() -> None:
    within = read(load(2, 500), load(2, 200))
    assert (within.kind, within.count, within.unit) == ("load", 300, "bytes")
    over = read(load(4, 7), load(2, 200))
    assert (over.count, over.positions) == (None, (LoadPosition(2, 200), LoadPosition(4, 7)))
    first = read(load(0, 200), None, is_first=True)
    assert (first.count, first.positions) == (200, (LoadPosition(0, 0), LoadPosition(0, 200)))
    assert read(load(0, 200), None).positions is None
    assert read(load(0, 200), '{"file":0,"position":100}').positions is None
    told = within.to_json()
    assert told["positions"][0] == {"lastgood_load": 1, "file": 2, "position": 200}
    assert "positions" not in read(kafka(**{"0": 20}), kafka(**{"0": 10})).to_json()


def test_a_batch_whose_predecessor_is_not_known_does_not_claim_to_have_read_everything_before() -> None:
    found = read('{"logOffset":41}', None)
    assert (found.files, found.count) == (None, None)
    assert read(kafka(t0=5), None).ranges is None


def test_sources_that_cannot_be_counted_keep_their_end() -> None:
    found = read('{"offset":40,"timestamp":9}', '{"offset":20,"timestamp":8}')
    assert (found.kind, found.count, found.to_json()["unit"]) == ("rate-micro-batch", None, None)
    assert found.end == '{"offset":40,"timestamp":9}'


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (BatchRecord(1, plan("-", watermark_ms=9, at_ms=8), COMMITTED), (True, 8, 9)),
        (BatchRecord(1, plan("-"), None), (False, 1000, None)),
        (BatchRecord(1, EMPTY, EMPTY), (True, None, None)),
        (BatchRecord(1, None, COMMITTED), (True, None, None)),
    ],
)
def test_what_is_known_of_a_batch(record: BatchRecord, expected: object) -> None:
    assert (record.is_committed, record.time_ms, record.watermark_ms) == expected


def mirrored(*records: BatchRecord) -> list[BatchRecord]:
    return [BatchRecord(each.batch_id, each.offsets, each.commit, is_mirrored=True) for each in records]


def test_the_mirror_fills_in_what_was_purged() -> None:
    old = mirrored(record(0, kafka(t0=1)), record(1, kafka(t0=2)))
    found = merge([record(2, kafka(t0=4)), record(1, kafka(t0=3))], old)
    assert list(found) == [0, 1, 2]
    assert [each.is_mirrored for each in found.values()] == [True, False, False]
    assert found[1].offsets == plan(kafka(t0=3))  # what the checkpoint still has counts


def test_the_mirror_stands_in_for_a_damaged_or_missing_plan() -> None:
    old = mirrored(record(3, kafka(t0=1)), record(4, kafka(t0=2)))
    found = merge([BatchRecord(3, EMPTY, COMMITTED), BatchRecord(4, None, COMMITTED)], old)
    assert all(each.is_mirrored and each.is_committed for each in found.values())
    assert merge([BatchRecord(3, EMPTY, None)], [])[3].offsets == EMPTY
    assert merge([BatchRecord(3, EMPTY, None)], mirrored(BatchRecord(3, EMPTY, COMMITTED)))[3] == BatchRecord(
        3, EMPTY, None
    )


def test_a_batch_that_is_to_run_again_is_not_committed_because_it_once_was() -> None:
    """Somebody removed commits/5 so that batch 5 runs again; the mirror still has it."""
    old = mirrored(*(record(n, kafka(t0=n)) for n in range(6)))
    now: list[BatchRecord] = [record(n, kafka(t0=n)) for n in range(5)]
    assert not merge([*now, record(5, kafka(t0=5), committed=False)], old)[5].is_committed
    now[3] = record(3, kafka(t0=3), committed=False)  # one that Spark does not look into any more
    assert merge(now, old)[3].is_committed


def test_contiguous_batches_have_no_seam() -> None:
    assert find_seams([record(n, kafka(t0=n * 5, t1=n)) for n in range(4)]) == []


def test_sources_that_change_places_read_each_other_s_topics_again() -> None:
    ends = ((kafka(a0=5), kafka(b0=7)), (kafka(a0=10), kafka(b0=14)), (kafka(b0=20), kafka(a0=15)))
    told = find_seams(BatchRecord(n, plan(*each), COMMITTED) for n, each in enumerate(ends))
    assert told == [Seam("OVERLAP", 2, "b", 0, (0, 14)), Seam("OVERLAP", 2, "a", 0, (0, 10))]


def test_partition_that_another_source_still_reads_is_no_seam() -> None:
    ends = ((kafka(a0=5), kafka(a0=5)), (kafka(a0=5, b0=3), kafka(a0=5)), (kafka(a0=9, b0=3), kafka(a0=9, b0=4)))
    assert find_seams(BatchRecord(n, plan(*each), COMMITTED) for n, each in enumerate(ends)) == []


def test_what_was_read_twice_and_what_is_not_known_is_a_seam() -> None:
    found = find_seams(
        [
            record(0, kafka(t0=10, t1=4)),
            record(1, kafka(t0=7)),
            BatchRecord(2, EMPTY, COMMITTED),
            record(3, kafka(t0=9, t1=2)),
        ]
    )
    assert found == [
        Seam("OVERLAP", 1, "t", 0, (7, 10)),
        Seam("UNKNOWN", 3),
        Seam("OVERLAP", 3, "t", 1, (0, 2)),
    ]
    assert found[0].to_json() == {
        "condition": "OVERLAP",
        "batch": 1,
        "topic": "t",
        "partition": 0,
        "offsets": [7, 10],
        "source": None,
        "positions": None,
    }
    assert found[1].to_json()["offsets"] is None


def test_a_query_that_writes_its_progress_sparsely_has_no_holes() -> None:
    sparse = [record(0, kafka(t0=1)), record(4, kafka(t0=9))]
    assert find_seams(sparse) == [Seam("UNKNOWN", 4)]
    assert find_seams(sparse, is_sparse=True) == []


@pytest.mark.parametrize(
    ("began", "expected"),
    [
        ({0: 10}, []),
        ({0: 14}, [Seam("GAP", 0, "t", 0, (10, 14))]),
        ({0: 3}, [Seam("OVERLAP", 0, "t", 0, (3, 10))]),
        ({1: 3}, []),
    ],
)
def test_a_new_query_is_compared_with_where_the_one_before_had_committed(
    began: Mapping[int, int], expected: list[Seam]
) -> None:
    assert find_seams_between(plan(kafka(t0=10)), {"0": KafkaOffset({"t": dict(began)})}) == expected


def test_queries_on_other_sources_are_not_compared() -> None:
    assert find_seams_between(plan('{"logOffset":4}'), {"0": KafkaOffset({"t": {0: 1}})}) == []
    assert find_seams_between(plan(kafka(t0=10)), {}) == []
