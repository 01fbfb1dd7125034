from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.errors import StorageError
from lastgood.observe.recorded import (
    count_recorded_kafka_sources,
    list_recorded_batches,
    list_recorded_runs,
    list_recorded_subscriptions,
    list_recorded_topic_ids,
    read_newest_records,
    read_tail,
    select_newest_files,
)
from lastgood.records.record import (
    Progress,
    QueryStarted,
    Record,
    RecordedFailure,
    RecordedOperator,
    RecordedSource,
    Subscription,
    Terminated,
)
from lastgood.storage.reading import LocalStorage, Location, parse_location
from lastgood.testing.checkpoints import QUERY_ID
from lastgood.testing.storage import SlowStorage

RUN_1, RUN_2 = "run-1", "run-2"
FIRST = "1795220516284-77.000001.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    return parse_location(str(tmp_path))


def record(folder: Location, records: Iterable[Record], name: str = FIRST) -> Path:
    file = Path(folder.path) / name
    file.write_text("".join(json.dumps(each.to_json()) + "\n" for each in records))
    return file


def progress(batch_id: int, at_ms: int, run_id: str = RUN_1, **fields: Any) -> Progress:
    kafka = RecordedSource(
        description="KafkaV2[Subscribe[orders]]",
        subscription=Subscription(kind="subscribe", value="orders"),
        start_offset={"orders": {"0": 10, "1": 10}},
        end_offset={"orders": {"0": 15, "1": 20, "2": 5}},
        latest_offset={"orders": {"0": 16, "1": 20}},
    )
    known = {
        "query_id": QUERY_ID,
        "run_id": run_id,
        "sources": (kafka,),
        "recorded_at_ms": at_ms,
        "trigger_at_ms": at_ms,
    }
    return Progress(batch_id=batch_id, batch_duration_ms=900, num_input_rows=15, **{**known, **fields})


def test_batches_are_counted_in_offsets() -> None:
    state = RecordedOperator(operator_name="stateStoreSave", num_rows_total=7, memory_used_bytes=99)
    with_state = progress(4, 2000, batch_watermark_ms=0, state_operators=(state,))
    first, second = list_recorded_batches([progress(3, 1000), with_state, progress(9, 1, query_id="another")], QUERY_ID)
    assert (first.batch_id, first.offsets, first.behind, first.duration_ms, first.rows) == (3, 15, 1, 900, 15)
    assert (first.has_watermark, first.state_rows, first.state_bytes) == (False, None, None)
    assert (second.has_watermark, second.state_rows, second.state_bytes) == (True, 7, 99)


def test_a_source_that_does_not_tell_its_offsets_makes_the_count_unknown() -> None:
    silent = RecordedSource(description="KafkaV2[Subscribe[x]]", subscription=Subscription(kind="subscribe", value="x"))
    records = [progress(3, 1000, sources=(*progress(3, 0).sources, silent)), progress(4, 1, sources=())]
    assert {(each.offsets, each.behind) for each in list_recorded_batches(records, QUERY_ID)} == {(None, None)}


def read_from(start: int, topic_id: str | None) -> Progress:
    """A batch of one partition that told what id its topic had."""
    offsets = {"start_offset": {"orders": {"0": start}}, "end_offset": {"orders": {"0": start + 10}}}
    source = replace(progress(0, 0).sources[0], topic_ids={"orders": topic_id}, **offsets)
    return progress(start, start, sources=(source,))


def test_topic_in_which_a_query_has_read_on_is_not_the_one_of_its_offsets() -> None:
    first = [read_from(0, "one"), read_from(10, None)]
    assert list_recorded_topic_ids([*first, read_from(20, "two"), read_from(30, "two")], QUERY_ID) == {"orders": "one"}
    assert list_recorded_topic_ids([*first, read_from(0, "two"), read_from(10, "two")], QUERY_ID) == {"orders": "two"}
    assert list_recorded_topic_ids(first, "another") == {}


def test_a_batch_that_began_at_the_earliest_is_not_counted() -> None:
    begun = replace(progress(3, 0).sources[0], start_offset={"orders": {"0": -2, "1": 10}})
    (found,) = list_recorded_batches([progress(3, 1000, sources=(begun,))], QUERY_ID)
    assert (found.offsets, found.behind) == (None, 1)


@pytest.mark.parametrize("kind", ["subscribe", "subscribe_pattern", "assign"])
def test_how_the_newest_batch_reads_kafka_is_told(kind: Any) -> None:
    source = replace(progress(3, 0).sources[0], subscription=Subscription(kind=kind, value="orders"))
    records = [progress(3, 1000), progress(4, 2000, sources=(source,)), progress(9, 3000, query_id="another")]
    assert list_recorded_subscriptions(records, QUERY_ID) == (kind,)
    assert list_recorded_subscriptions(records, "a third") == ()


@pytest.mark.parametrize(
    ("description", "count"),
    [
        ("KafkaV2[Subscribe[orders]]", 1),
        ("KafkaSourceV1[Subscribe[orders]]", 1),
        ("org.apache.spark.sql.eventhubs.EventHubsSource@6f1c", 0),
    ],
)
def test_sources_that_are_kafka_are_counted(description: str, count: int) -> None:
    records = [progress(3, 1000, sources=(RecordedSource(description=description),))]
    assert count_recorded_kafka_sources(records, QUERY_ID) == count
    assert count_recorded_kafka_sources(records, "another") is None
    assert count_recorded_kafka_sources([progress(3, 1000, sources=())], QUERY_ID) is None


def test_runs_tell_when_they_lived_and_how_they_ended() -> None:
    conflict = RecordedFailure(condition="CONCURRENT_STREAM_LOG_UPDATE")
    records = [
        progress(3, 1000),
        QueryStarted(recorded_at_ms=2000, query_id=QUERY_ID, run_id=RUN_2, spark_version="4.2.0"),
        Terminated(recorded_at_ms=4000, query_id=QUERY_ID, run_id=RUN_1, failure=conflict),
        progress(4, 5000, RUN_2),
        Terminated(recorded_at_ms=6000, query_id=QUERY_ID, run_id=RUN_2),
    ]
    one, two = list_recorded_runs(records)
    assert (one.run_id, one.first_ms, one.last_ms, one.conflict_ms) == (RUN_1, 1000, 1000, 4000)
    assert (two.run_id, two.first_ms, two.last_ms, two.conflict_ms, two.spark) == (RUN_2, 2000, 5000, None, "4.2.0")


def test_only_the_newest_files_are_read_in_the_order_of_time(folder: Location) -> None:
    names = [f"{1795220516284 + n}-77.000001.jsonl" for n in range(6)]
    for n, name in enumerate(names):
        record(folder, [progress(n, 100 - n)], name)
    assert select_newest_files([*names, "77.trouble.txt", "x.jsonl"]) == names[-4:]
    assert [each.recorded_at_ms for each in read_newest_records(LocalStorage(), folder, names)] == [95, 96, 97, 98]


def test_of_a_long_record_file_only_the_end_is_read(folder: Location) -> None:
    many = [progress(n, n) for n in range(2000)]
    assert record(folder, many).stat().st_size > 1_000_000
    read = read_newest_records(LocalStorage(), folder, [FIRST])
    assert 100 < len(read) < 1000
    assert read == many[-len(read) :]


def test_objects_are_read_whole(folder: Location) -> None:
    file = record(folder, [progress(n, n) for n in range(500)])
    assert read_tail(SlowStorage(seconds=0), folder / FIRST) == file.read_bytes()


def test_a_file_that_was_removed_meanwhile_is_empty_and_one_that_cannot_be_read_is_an_error(folder: Location) -> None:
    assert read_tail(LocalStorage(), folder / "gone.jsonl") == b""
    assert read_tail(LocalStorage(), folder) == b""
    with pytest.raises(StorageError):
        read_tail(LocalStorage(), folder / ("x" * 300))
