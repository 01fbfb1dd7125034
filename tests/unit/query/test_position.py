from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.query.position import locate
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, make_unknown_evidence
from lastgood.storage.reading import open_storage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder


def read(folder: Path) -> Checkpoint:
    location = parse_location(str(folder))
    return read_checkpoint(open_storage(location), location)


def sink(last: int | None, skips: int | None = None) -> SinkEvidence:
    return SinkEvidence("delta", "/table", DedupeKey.QUERY_ID, last, known=True, because="its log", skips_up_to=skips)


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(4)
    return query


def test_of_a_healthy_query_the_newest_committed_batch_is_the_last_good_one(query: CheckpointBuilder) -> None:
    position = locate(read(query.folder), [sink(3, skips=3)])
    assert (position.planned, position.committed, position.state, position.sink) == (3, 3, None, 3)
    assert (position.last_good, position.skipped_up_to, position.orphan, position.reasons) == (3, 3, None, ())


def test_a_batch_in_flight_is_the_orphan_and_not_good(query: CheckpointBuilder) -> None:
    query.plan()
    position = locate(read(query.folder))
    assert (position.orphan, position.last_good) == (4, 3)
    assert position.reasons == ("no sink was asked",)


def test_a_sink_that_is_behind_says_what_is_good(query: CheckpointBuilder) -> None:
    position = locate(read(query.folder), [sink(3), sink(1)])
    assert (position.sink, position.last_good) == (1, 1)
    assert position.reasons == ("the sink shows batches up to 1, 3 is committed",)


def test_a_sink_that_shows_none_leaves_no_good_batch(query: CheckpointBuilder) -> None:
    position = locate(read(query.folder), [sink(None)])
    assert (position.sink, position.sink_known, position.last_good) == (None, True, None)


def test_a_sink_that_does_not_answer_is_not_taken_for_an_empty_one(query: CheckpointBuilder) -> None:
    silent = make_unknown_evidence("delta", "/table", DedupeKey.QUERY_ID, "no answer within 10 s")
    position = locate(read(query.folder), [silent, sink(3)])
    assert (position.sink_known, position.last_good) == (False, 3)
    assert position.reasons == ("/table: not known what it shows: no answer within 10 s",)


def test_a_lost_plan_takes_the_last_good_batch_down_with_it(query: CheckpointBuilder) -> None:
    (query.folder / "offsets/3").unlink()
    position = locate(read(query.folder))
    assert (position.planned, position.committed, position.last_good) == (2, 3, 2)
    assert position.reasons[0] == "batch 3 is not planned in offsets"


def test_a_damaged_commit_is_no_good_batch(query: CheckpointBuilder) -> None:
    (query.folder / "commits/3").write_bytes(b"")
    position = locate(read(query.folder))
    assert position.last_good == 2
    assert position.reasons[0] == "commits/3 is damaged: empty"


def test_without_a_commit_nothing_is_good(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.plan()
    position = locate(read(query.folder))
    assert (position.last_good, position.orphan) == (None, 0)
