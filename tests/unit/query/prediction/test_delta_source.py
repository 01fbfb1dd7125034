from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from foreign import Lines

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.query.observation import Observation
from lastgood.query.prediction.delta_source import open_table, read_range
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import StartStage, StoppedError
from lastgood.query.prediction.source_replay import list_begun_by_options, list_taken_for_tables
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

WHOLE = DeltaFacts("/t", "id", earliest_version=0, latest_version=9)
CLEANED = DeltaFacts("/t", "id", earliest_version=5, latest_version=9, checkpoint_versions=(9,))


def offset(version: int, *, starting: bool = False, table_id: str = "id") -> DeltaOffset:
    return DeltaOffset(1, table_id, version, -1, starting)


def error(table: DeltaFacts, start: DeltaOffset | None, end: DeltaOffset, *, fails: bool = True) -> str | None:
    try:
        assert read_range(table, start, end, fail_on_data_loss=fails) is None
    except StoppedError as stopped:
        return stopped.stop.error if stopped.stop.stage is StartStage.START else "not at the start"
    return None


@pytest.mark.parametrize("fails", [True, False])
def test_table_that_has_the_range_is_read(fails: bool) -> None:
    assert error(WHOLE, offset(3), offset(5), fails=fails) is None
    assert error(CLEANED, offset(5), offset(7), fails=fails) is None


def test_versions_that_are_gone_stop_the_query_unless_the_option_lets_them_go() -> None:
    assert error(CLEANED, offset(3), offset(7)) == "DELTA_MISSING_FILES_UNEXPECTED_VERSION"
    assert error(CLEANED, offset(3), offset(7), fails=False) is None


@pytest.mark.parametrize("fails", [True, False])
def test_first_snapshot_that_cannot_be_rebuilt_stops_the_query_in_any_case(fails: bool) -> None:
    first = offset(6, starting=True)
    assert error(CLEANED, first, offset(7), fails=fails) == "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"


def test_another_table_is_refused() -> None:
    other = offset(5, table_id="other")
    assert error(WHOLE, None, other) == "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


def test_what_nobody_knows_is_said() -> None:
    silent = DeltaFacts("/t", exists=None, unknown="no answer")
    assert read_range(silent, offset(3), offset(5), fail_on_data_loss=True) == "/t: no answer"
    beyond = read_range(WHOLE, offset(12), offset(13), fail_on_data_loss=False)
    assert beyond == "/t: versions 10 to 11 have vanished"


def test_table_that_ends_before_what_was_read_stops_the_query() -> None:
    assert error(WHOLE, offset(6), offset(12)) == "DELTA_STREAMING_TRAILING_COMMIT_MISSING"
    assert error(WHOLE, offset(6), offset(10)) is None


def test_missing_table_is_missed_by_the_application_itself() -> None:
    with pytest.raises(StoppedError) as stopped:
        open_table(DeltaFacts("/t", exists=False))
    assert stopped.value.stop.error == "DELTA_SCHEMA_NOT_SET"
    open_table(WHOLE)


@pytest.mark.parametrize(
    ("ends", "committed", "unread"),
    [((4, 6), 2, "6 to 9"), ((4, 10), 2, None), ((4, 6), 1, "4 to 9"), ((10,), 0, "0 to 9"), ((4, 20), 2, None)],
    ids=str,
)
def test_whether_data_files_that_are_to_be_read_are_there_no_log_tells(
    ends: tuple[int, ...], committed: int, unread: str | None, tmp_path: Path
) -> None:
    CheckpointBuilder(tmp_path, Lines([offset(end).to_text() for end in ends])).run(len(ends))
    for batch in range(committed, len(ends)):
        (tmp_path / f"commits/{batch}").unlink()
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(tmp_path)))
    told = predict(Observation(checkpoint, location="/chk", tables={"0": WHOLE}), SPARK_4_2).unknowns
    told_of_files = [each for each in told if "data files" in each]
    assert told_of_files == (
        []
        if unread is None
        else [f"/t: whether the data files of versions {unread} are there, which VACUUM may have taken away"]
    )


def test_that_a_table_is_as_it_was_read_is_assumed_where_nobody_has_looked(tmp_path: Path) -> None:
    """An older copy of it has the same id; written on, it has other rows under the versions that were read."""
    CheckpointBuilder(tmp_path, Lines([offset(4).to_text()])).run(1)
    observed = Observation(read_checkpoint(LocalStorage(), parse_location(str(tmp_path))))
    (told,) = list_taken_for_tables(observed)
    assert told.startswith("the assumption that the table of source 0 is as it was read")
    assert list_taken_for_tables(replace(observed, tables={"0": WHOLE})) == []


@pytest.mark.parametrize("batches", [1, 2])
def test_where_a_first_batch_begins_that_is_not_done_is_assumed(batches: int, tmp_path: Path) -> None:
    """With `startingVersion` `latest` it begins elsewhere at the next start: seen with real Delta."""
    inside, through = offset(4, starting=True), offset(4)
    for number, (end, is_told) in enumerate(((inside, False), (through, True))):
        folder = tmp_path / str(number)
        CheckpointBuilder(folder, Lines([end.to_text()] * batches)).run(batches)
        done = Observation(read_checkpoint(LocalStorage(), parse_location(str(folder))))
        assert list_begun_by_options(done) == []
        (folder / f"commits/{batches - 1}").unlink()
        dead = Observation(read_checkpoint(LocalStorage(), parse_location(str(folder))))
        assert len(list_begun_by_options(dead)) == (is_told and batches == 1)


def test_where_no_batch_was_planned_and_no_source_has_noted_its_beginning_that_is_assumed(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path, Lines([offset(4).to_text()]))
    builder.run(1)
    (tmp_path / "commits/0").unlink()
    (tmp_path / "offsets/0").write_bytes(b"")
    torn = Observation(read_checkpoint(LocalStorage(), parse_location(str(tmp_path))))
    (told,) = list_begun_by_options(torn)
    assert told.startswith("no source begins at the latest")
    (tmp_path / "offsets/0").unlink()
    none = Observation(read_checkpoint(LocalStorage(), parse_location(str(tmp_path))))
    assert list_begun_by_options(none) == [told]
    (tmp_path / "metadata").unlink()
    never = Observation(read_checkpoint(LocalStorage(), parse_location(str(tmp_path))))
    assert list_begun_by_options(never) == []


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"sourceVersion": 0}, "DELTA_INVALID_SOURCE_VERSION"),
        ({"sourceVersion": -1}, "DELTA_INVALID_SOURCE_VERSION"),
        ({"sourceVersion": 2}, "DELTA_INVALID_SOURCE_VERSION"),
        ({"sourceVersion": 9}, "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION"),
        ({"sourceVersion": 3}, "assertion failed: Index should never be -1"),
        ({"reservoirId": "other"}, "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"),
        ({"sourceVersion": 3, "index": -20}, None),
        ({"sourceVersion": 3, "index": 0}, None),
        ({"sourceVersion": "1"}, None),
    ],
)
@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_offset_that_delta_does_not_take_stops_the_start(
    tmp_path: Path, changed: dict[str, object], refused: str | None, batch: int, *, is_committed: bool
) -> None:
    plain = {"sourceVersion": 1, "reservoirId": "id", "index": -1, "isStartingVersion": False}
    texts = [json.dumps({**plain, "reservoirVersion": n, **(changed if n == batch else {})}) for n in range(3)]
    query = CheckpointBuilder(tmp_path, Lines(texts, None))
    query.run(2)
    query.plan()
    if is_committed:
        query.commit()
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(tmp_path)))
    assert predict(Observation(checkpoint), SPARK_4_2).error == refused
