from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trips import fewest

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe import open_query as operation
from lastgood.observe.open_query import (
    BatchUnknownError,
    CheckpointMissingError,
    collect_mirrored_batches,
    gather,
    make_batch_unknown_error,
    trace_lineage,
)
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, Storage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput
from lastgood.testing.storage import SlowStorage

OTHER_ID = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def mirror(checkpoint: Path, *, at_ms: int = STARTED_MS) -> None:
    location = parse_location(str(checkpoint))
    writer = MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer=f"w{at_ms}",
        now_ms=lambda: at_ms,
    )
    writer.look()
    writer.settle()


@pytest.fixture
def purged(checkpoint: Path) -> Path:
    """Batches 0 to 19 in the mirror, 17 to 19 in the checkpoint, with one more since."""
    query = CheckpointBuilder(checkpoint)
    query.run(20)
    mirror(checkpoint)
    query.run(1)
    query.purge(retain=3)
    return checkpoint


def test_what_the_checkpoint_and_its_mirror_know_is_one_history(purged: Path) -> None:
    found = gather(resolve_target(str(purged)))
    records = found.records()
    assert list(records) == list(range(21))
    assert [n for n, record in records.items() if record.is_mirrored] == list(range(17))
    assert all(record.is_committed for record in records.values())
    assert (found.current, found.query_id, len(found.known)) == (20, QUERY_ID, 21)
    assert found.initial == {"0": KafkaOffset({"orders": {0: 0, 1: 0}})}


def test_the_mirror_is_read_only_where_the_checkpoint_does_not_hold_what_is_wanted(purged: Path) -> None:
    assert gather(resolve_target(str(purged)), batches=4).seen.copies == ()
    assert gather(resolve_target(str(purged)), batches=5).seen.copies != ()
    (purged / "offsets/20").write_bytes(b"")
    damaged = gather(resolve_target(str(purged)), batches=2)
    assert damaged.seen.copies != ()


def test_a_few_batches_can_be_read_more(purged: Path) -> None:
    few = gather(resolve_target(str(purged)), batches=2)
    assert list(few.records()) == [19, 20]
    assert list(few.with_batches([17, 18]).records()) == [17, 18, 19, 20]
    assert few.with_batches([17, -1]).seen.copies == ()
    assert len(few.with_batches([3]).records()) == 21


def test_a_lost_checkpoint_is_known_from_its_mirror(purged: Path) -> None:
    shutil.rmtree(purged)
    found = gather(resolve_target(str(purged)), batches=2)
    assert (found.query_id, found.current, len(found.records())) == (QUERY_ID, 19, 20)
    assert found.initial == {"0": KafkaOffset({"orders": {0: 0, 1: 0}})}


def test_only_copies_of_the_query_itself_count_and_its_forerunners_are_its_lineage(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, query_id=OTHER_ID).run(9)
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    CheckpointBuilder(checkpoint).run(2)
    mirror(checkpoint, at_ms=STARTED_MS + 1)
    found = gather(resolve_target(str(checkpoint)))
    assert list(found.records()) == [0, 1]
    assert [former.query_id for former in trace_lineage(found)] == [OTHER_ID, QUERY_ID]
    assert len(trace_lineage(found)[0].copies) == 20
    shutil.rmtree(checkpoint)
    assert list(gather(resolve_target(str(checkpoint))).records()) == [0, 1]


def test_a_batch_that_was_taken_back_is_not_current(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(6)
    mirror(checkpoint)
    query.drop_plan()
    query.drop_plan()
    found = gather(resolve_target(str(checkpoint)))
    assert found.current == 3
    assert list(found.records()) == [0, 1, 2, 3, 4, 5]
    query.plan(1)
    mirror(checkpoint, at_ms=STARTED_MS + 1)
    again = gather(resolve_target(str(checkpoint)))
    assert list(again.records()) == [0, 1, 2, 3, 4]
    assert not again.records()[4].is_committed


@pytest.mark.parametrize(
    ("prepare", "found"),
    [
        (lambda folder: None, "no such folder"),
        (lambda folder: folder.mkdir(), "an empty folder"),
        (lambda folder: (folder / "x").mkdir(parents=True), "a folder without offsets and commits"),
    ],
)
def test_a_place_without_a_checkpoint_is_told(prepare: object, found: str, checkpoint: Path) -> None:
    assert callable(prepare)
    prepare(checkpoint)
    with pytest.raises(CheckpointMissingError) as missing:
        gather(resolve_target(str(checkpoint)))
    assert (missing.value.subject, missing.value.found) == (str(checkpoint), found)
    assert missing.value.next == (f"lastgood status {checkpoint}" if "without" in found else None)


def test_a_checkpoint_that_lost_its_logs_is_still_one(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint)
    for name in ("offsets", "commits"):
        (checkpoint / name).rmdir()
    found = gather(resolve_target(str(checkpoint)))
    assert (found.current, found.query_id) == (None, QUERY_ID)


def test_a_pipelines_name_is_resolved(purged: Path, tmp_path: Path) -> None:
    config = tmp_path / "lastgood.toml"
    config.write_text(f'[pipeline.orders]\ncommand = ["x"]\ncheckpoint = "{purged}"\nsink = "delta:/t"\n')
    found = gather(resolve_target("orders", Config(config)))
    assert (str(found.location), found.target.sink) == (str(purged), "delta:/t")


def test_a_batch_that_nobody_knows_names_those_that_are(purged: Path) -> None:
    error = make_batch_unknown_error(gather(resolve_target(str(purged))), 42)
    assert isinstance(error, BatchUnknownError)
    assert (error.found, error.next) == ("batches 0 to 20", f"lastgood inspect {purged}")
    shutil.rmtree(f"{purged}.lastgood")
    assert make_batch_unknown_error(gather(resolve_target(str(purged))), 3).found == "batches 17 to 20"


@pytest.mark.parametrize("count", [1, 2, 3, 17, 150])
def test_the_batch_planned_at_a_time_is_searched_for(count: int, checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(count)
    found = gather(resolve_target(str(checkpoint)), batches=2)
    for batch_id in {0, 1, count // 2, count - 1} & set(range(count)):
        assert found.planned_at(STARTED_MS + 1000 * batch_id) == batch_id
        assert found.planned_at(STARTED_MS + 1000 * batch_id + 999) == batch_id
    assert found.planned_at(STARTED_MS - 1) is None


def test_damaged_plans_have_no_time_and_are_passed_over(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(60)
    for batch_id in range(60):
        if batch_id % 7:
            (checkpoint / f"offsets/{batch_id}").write_bytes(b"")
    found = gather(resolve_target(str(checkpoint)), batches=2)
    assert found.planned_at(STARTED_MS + 1000 * 30) == 28
    for batch_id in range(60):
        (checkpoint / f"offsets/{batch_id}").write_bytes(b"")
    assert found.planned_at(STARTED_MS + 1000 * 30) is None


def test_a_search_in_a_long_log_takes_few_round_trips(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointBuilder(checkpoint).run(1000)

    def measure() -> int:
        slow = SlowStorage(seconds=0.02)

        def open_slow(location: object) -> Storage:
            return slow

        monkeypatch.setattr(operation, "open_storage", open_slow)
        found = gather(resolve_target(str(checkpoint)), batches=2)
        before = slow.round_trips
        assert found.planned_at(STARTED_MS + 1000 * 623) == 623
        return slow.round_trips - before

    assert fewest(measure, enough=6) <= 6


def test_input_files_are_known_from_the_sources_log_whole_compact_or_purged(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint, FileInput(compact_interval=4))
    query.run(7)
    mirror(checkpoint)
    for name in ("0", "1", "2", "3.compact"):
        (checkpoint / "sources/0" / name).unlink()
    found = gather(resolve_target(str(checkpoint)))
    assert sorted(file.path[-9:] for file in found.source_files("0")) == [f"f{n:03d}.json" for n in range(7)]
    assert list(found.source_files("1")) == []


def test_a_compact_file_that_is_too_large_to_be_read_for_nothing_is_read_when_it_is_asked_for(
    checkpoint: Path,
) -> None:
    CheckpointBuilder(checkpoint, FileInput(compact_interval=2)).run(3)
    line = {"path": f"file:///data/{'x' * 2_000_000}", "timestamp": 1, "batchId": 0}
    (checkpoint / "sources/0/1.compact").write_text("v1\n" + json.dumps(line))
    assert any(file.path.endswith("xxx") for file in gather(resolve_target(str(checkpoint))).source_files("0"))


def test_of_the_mirror_only_what_is_asked_for_is_parsed(purged: Path) -> None:
    found = gather(resolve_target(str(purged)))
    assert list(found.records([3, 19])) == [3, 17, 18, 19, 20]
    batches = collect_mirrored_batches(found.copies)
    assert list(batches) == list(range(20))
    assert batches[3].record(3) == found.records()[3]


def test_the_newest_committed_batch_is_found_wherever_it_stands(purged: Path) -> None:
    found = gather(resolve_target(str(purged)))
    assert [found.newest_committed(n) for n in (20, 25, 19, 5, -1)] == [20, 20, 19, 5, None]
    (purged / "commits/20").unlink()
    assert gather(resolve_target(str(purged))).newest_committed(20) == 19
    shutil.rmtree(purged)
    assert gather(resolve_target(str(purged)), batches=2).newest_committed(19) == 19


@given(st.lists(st.tuples(st.sampled_from(["offsets", "commits"]), st.integers(0, 5), st.integers(0, 3)), max_size=14))
def test_of_some_batches_the_same_copies_count_as_of_all(seen: list[tuple[str, int, int]]) -> None:
    """Plans that were made anew take back what came after them, also where that was not asked for."""
    texts = {"offsets": 'v1\n{"batchTimestampMs":%d}\n-', "commits": 'v1\n{"nextBatchWatermarkMs":%d}'}
    copies = [
        Copy("q", f"{log}/{batch_id}", at_ms, at_ms, b"" if version == 3 else (texts[log] % (9 + version)).encode())
        for at_ms, (log, batch_id, version) in enumerate(seen)
    ]
    whole = collect_mirrored_batches(copies)
    for wanted in ([0], [2, 3], [5], []):
        found = collect_mirrored_batches(copies, wanted)
        assert [found.get(each) for each in wanted] == [whole.get(each) for each in wanted]
