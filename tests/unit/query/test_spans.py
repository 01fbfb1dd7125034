from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset, VoidOffset
from lastgood.query.spans import SourceStand, Span, find_orphan, list_spans, list_stands, read_nothing
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput


@dataclass(frozen=True)
class Given:
    """A source whose batches end where the test says."""

    offsets: tuple[SourceOffset, ...]
    per_batch: int = 1

    def end(self, ends: Sequence[int]) -> SourceOffset:
        return self.offsets[len(ends) - 1]

    def log(self, ends: Sequence[int]) -> None:
        del ends


def at(offset: int) -> KafkaOffset:
    return KafkaOffset({"orders": {0: offset, 1: offset}})


def read(query: CheckpointBuilder) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(query.folder)))


def test_batch_begins_where_the_one_before_it_ends_and_the_first_where_its_source_began(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(2)
    query.plan()
    assert list_spans(read(query)) == [
        Span(0, "0", at(0), at(5), is_done=True),
        Span(1, "0", at(5), at(10), is_done=True),
        Span(2, "0", at(10), at(15), is_done=False),
    ]


def test_query_that_committed_all_goes_on_at_its_newest_end(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(2)
    assert list_stands(read(query)) == [SourceStand("0", 2, at(10))]


def test_planned_batch_runs_again_with_its_own_range(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(2)
    query.plan()
    (stand,) = list_stands(read(query))
    assert (stand, stand.is_rerun, find_orphan(read(query))) == (SourceStand("0", 2, at(10), at(15)), True, 2)


def test_query_without_a_plan_stands_where_its_source_began(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.plan()
    (tmp_path / "offsets/0").unlink()
    assert list_stands(read(query)) == [SourceStand("0", 0, at(0))]


def test_plan_that_nobody_can_read_is_made_again_from_the_newest_commit_on(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(2)
    query.plan()
    (tmp_path / "offsets/2").write_bytes(b"")
    assert list_stands(read(query)) == [SourceStand("0", 2, at(10))]


def test_where_a_batch_begins_is_unknown_without_the_plan_before_it(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(3)
    (tmp_path / "offsets/1").unlink()
    starts = {span.batch_id: span.start for span in list_spans(read(query))}
    assert starts == {0: at(0), 2: None}


def test_first_batch_of_files_begins_before_the_first_file(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path, FileInput())
    query.run(1)
    assert list_spans(read(query)) == [Span(0, "0", FileOffset(-1), FileOffset(0), is_done=True)]


def test_source_that_had_nothing_yet_begins_with_its_first_offset(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path, Given((VoidOffset(), FileOffset(0))))
    query.run(2)
    assert list_spans(read(query)) == [Span(1, "0", FileOffset(-1), FileOffset(0), is_done=True)]


def test_batch_reads_nothing_only_if_all_its_sources_surely_stand_still() -> None:
    still, moved = Span(1, "0", at(5), at(5), is_done=True), Span(1, "1", at(5), at(6), is_done=True)
    unknown = Span(1, "0", None, at(5), is_done=True)
    assert [read_nothing(each) for each in ([still], [still, moved], [unknown], [])] == [True, False, False, False]
