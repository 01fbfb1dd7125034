from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.open_query import BatchUnknownError
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.reader import SourceKindError
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 to 9 committed and in the mirror, 10 planned; the checkpoint itself still has 6 to 10."""
    folder = tmp_path / "checkpoint"
    query = CheckpointBuilder(folder)
    query.run(10)
    location = parse_location(str(folder))
    MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer="w",
        now_ms=lambda: STARTED_MS,
    ).look()
    query.plan()
    query.purge(retain=4)
    return folder


def change(checkpoint: Path, batch_id: int, source: str) -> None:
    """Another end offset in the plan of a batch."""
    file = checkpoint / f"offsets/{batch_id}"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], source]))


@pytest.mark.parametrize(
    ("asked", "batch", "offset"),
    [
        ({}, 9, 50),
        ({"batch": 10}, 10, 55),
        ({"batch": 7}, 7, 40),
        ({"batch": 0}, 0, 5),
        ({"stable_lag": 0}, 10, 55),
        ({"stable_lag": 3}, 7, 40),
        ({"stable_lag": 8}, 2, 15),
        ({"time_ms": STARTED_MS + 8999}, 8, 45),
        ({"time_ms": STARTED_MS + 3000}, 3, 20),
        ({"time_ms": STARTED_MS * 2}, 10, 55),
    ],
)
def test_a_query_stood_where_the_plan_of_a_batch_ends(
    asked: dict[str, int], batch: int, offset: int, checkpoint: Path
) -> None:
    standing = find_offsets_after(resolve_target(str(checkpoint)), **asked)
    assert (standing.batch, standing.current, standing.is_committed) == (batch, 10, batch < 10)
    assert standing.time_ms == STARTED_MS + 1000 * batch
    assert standing.starting_offsets() == {"orders": {"0": offset, "1": offset}}


def test_the_json_names_every_field(checkpoint: Path) -> None:
    assert find_offsets_after(resolve_target(str(checkpoint))).to_json() == {
        "checkpoint": str(checkpoint),
        "batch": 9,
        "current": 10,
        "committed": True,
        "time_ms": STARTED_MS + 9000,
        "sources": {"0": {"starting_offsets": {"orders": {"0": 50, "1": 50}}}},
        "expired": None,
        "sinks": [],
    }


def test_only_one_batch_can_be_meant(checkpoint: Path) -> None:
    for asked in ({"batch": 1, "time_ms": 2}, {"batch": 1, "stable_lag": 0}, {"time_ms": 1, "stable_lag": 0}):
        with pytest.raises(UsageError):
            find_offsets_after(resolve_target(str(checkpoint)), **asked)


@pytest.mark.parametrize("asked", [{"batch": 11}, {"stable_lag": 11}, {"time_ms": STARTED_MS - 1}])
def test_a_batch_that_nobody_knows_is_refused_and_the_oldest_is_named(asked: dict[str, int], checkpoint: Path) -> None:
    with pytest.raises(BatchUnknownError) as unknown:
        find_offsets_after(resolve_target(str(checkpoint)), **asked)
    assert "batch" in (unknown.value.found or "")
    assert " 0" in (unknown.value.found or "")


def test_a_lost_checkpoint_is_answered_from_its_mirror(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    standing = find_offsets_after(resolve_target(str(checkpoint)), stable_lag=2)
    assert (standing.batch, standing.current, standing.is_committed) == (7, 9, True)
    assert find_offsets_after(resolve_target(str(checkpoint))).batch == 9
    assert find_offsets_after(resolve_target(str(checkpoint)), time_ms=STARTED_MS + 500).batch == 0


def test_a_checkpoint_without_any_plan_has_no_offsets(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "new")
    with pytest.raises(BatchUnknownError) as unknown:
        find_offsets_after(resolve_target(str(tmp_path / "new")))
    assert unknown.value.found == "no batch"


def test_a_damaged_plan_is_answered_from_the_mirror_or_refused(checkpoint: Path) -> None:
    (checkpoint / "offsets/8").write_bytes(b"")
    assert find_offsets_after(resolve_target(str(checkpoint)), batch=8).starting_offsets() == {
        "orders": {"0": 45, "1": 45}
    }
    (checkpoint / "offsets/10").write_bytes(b"")
    with pytest.raises(BatchUnknownError):
        find_offsets_after(resolve_target(str(checkpoint)), stable_lag=0)
    assert find_offsets_after(resolve_target(str(checkpoint))).batch == 9


def test_what_the_mirror_knows_beyond_the_checkpoint_is_not_current(checkpoint: Path) -> None:
    for log, batch_ids in (("offsets", (9, 10)), ("commits", (9,))):
        for batch_id in batch_ids:
            (checkpoint / log / str(batch_id)).unlink()
    standing = find_offsets_after(resolve_target(str(checkpoint)))
    assert (standing.batch, standing.current) == (8, 8)
    assert find_offsets_after(resolve_target(str(checkpoint)), batch=9).batch == 9  # history, all the same


def test_partitions_and_topics_that_came_later_stand_at_their_beginning(checkpoint: Path) -> None:
    """Spark refuses a JSON that leaves one out; the query read them from their beginning."""
    change(checkpoint, 10, '{"orders":{"0":55,"1":55,"2":5},"new":{"0":1}}')
    assert find_offsets_after(resolve_target(str(checkpoint)), batch=7).starting_offsets() == {
        "new": {"0": -2},
        "orders": {"0": 40, "1": 40, "2": -2},
    }


@pytest.fixture
def facts(tmp_path: Path) -> str:
    """Partition 0 begins at 20; 2 and 10 are new."""
    parts = {each: {"earliest": 20 if each == 0 else 0, "latest": 60} for each in (0, 1, 10, 2)}
    topics = {"orders": {"partitions": parts}, "other": {"partitions": {"0": {"earliest": 5, "latest": 9}}}}
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({"bootstrap": "b:9092", "captured_at_ms": 5, "topics": topics}))
    return str(file)


def test_partitions_that_exist_now_are_named_too(checkpoint: Path, facts: str) -> None:
    standing = find_offsets_after(resolve_target(str(checkpoint)), options=EvidenceOptions(kafka=facts))
    assert standing.starting_offsets() == {"orders": {"0": 50, "1": 50, "2": -2, "10": -2}}
    assert list(standing.starting_offsets()["orders"]) == ["0", "1", "2", "10"]
    assert (standing.expired, standing.to_json()["expired"]) == ({}, {})


def test_what_kafka_no_longer_has_of_them_is_told(checkpoint: Path, facts: str) -> None:
    standing = find_offsets_after(resolve_target(str(checkpoint)), batch=2, options=EvidenceOptions(kafka=facts))
    assert standing.expired == {"orders": {0: ((15, 20),)}}
    assert standing.to_json()["expired"] == {"orders": {"0": [[15, 20]]}}
    assert find_offsets_after(resolve_target(str(checkpoint)), batch=2).to_json()["expired"] is None


def test_the_sinks_are_asked_where_they_are_named(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "table" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "table" / "_spark_metadata" / "0").write_text("v1")
    sink = str(tmp_path / "table")
    told = find_offsets_after(resolve_target(str(checkpoint)), options=EvidenceOptions(sinks=(sink,))).to_json()
    assert told["sinks"] == [{"location": sink, "known": True, "last_batch": 0}]


def test_one_of_several_sources_has_to_be_chosen(checkpoint: Path) -> None:
    for batch_id in (9, 10):
        change(checkpoint, batch_id, '{"a":{"0":1}}\n{"logOffset":3}\n{"b":{"0":2}}')
    standing = find_offsets_after(resolve_target(str(checkpoint)))
    assert standing.starting_offsets("2") == {"b": {"0": 2}}
    assert standing.to_json()["sources"] == {
        "0": {"starting_offsets": {"a": {"0": 1}}},
        "2": {"starting_offsets": {"b": {"0": 2}}},
    }
    for source, sentence in ((None, "which source?"), ("1", "the query has no Kafka source '1'")):
        with pytest.raises(UsageError, match=sentence.replace("?", "")) as refused:
            standing.starting_offsets(source)
        assert refused.value.found == "0, 2"
        assert refused.value.next == f"lastgood offsets {checkpoint} --batch 9 --source 0"


def test_a_query_without_kafka_has_no_starting_offsets(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "files", FileInput()).run(2)
    with pytest.raises(SourceKindError) as refused:
        find_offsets_after(resolve_target(str(tmp_path / "files")))
    assert refused.value.found == "'file'"


@pytest.mark.parametrize("source", ["garbage", "-"])
def test_a_batch_before_tells_of_kafka_where_the_newest_plan_does_not(source: str, checkpoint: Path) -> None:
    change(checkpoint, 10, source)
    assert find_offsets_after(resolve_target(str(checkpoint)), stable_lag=1).starting_offsets() == {
        "orders": {"0": 50, "1": 50}
    }


def test_a_long_log_is_not_read_whole(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "long").run(800)
    for asked in ({}, {"batch": 400}, {"stable_lag": 300}, {"time_ms": STARTED_MS + 200_000}):
        assert len(find_offsets_after(resolve_target(str(tmp_path / "long")), **asked).query.records()) < 10
