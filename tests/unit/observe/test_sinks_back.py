"""What a draft wants of sinks becomes steps, or is refused because a sink has moved meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lastgood.delta_log.actions import Transaction as Mark
from lastgood.observe.sinks_back import find_fenceable, make_sink_steps
from lastgood.planning.draft import RepairRefusedError
from lastgood.sinks.delta.sink import DeltaSink
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, make_unknown_evidence
from lastgood.sinks.files.step import FileSinkStep
from lastgood.steps.step import SinkEdit
from lastgood.storage.reading import LocalStorage, parse_location

Q = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


def table(folder: Path, batches: int = 4) -> Path:
    for batch in range(batches):
        mark = CommitProperties(app_transactions=[Transaction(Q, batch, 5)])
        write_deltalake(folder, pa.table({"batch": [batch]}), mode="append", commit_properties=mark)
    return folder


def files(folder: Path, *names: str) -> Path:
    (folder / "_spark_metadata").mkdir(parents=True)
    for name in names:
        (folder / "_spark_metadata" / name).write_text("v1")
    return folder


def evidence(folder: Path) -> SinkEvidence:
    return DeltaSink(LocalStorage(), parse_location(str(folder))).evidence(Q, now_ms=9)


def test_versions_above_the_batch_go(tmp_path: Path) -> None:
    folder = table(tmp_path / "t")
    write_deltalake(folder, pa.table({"batch": [99]}), mode="append")
    (step,) = make_sink_steps([SinkEdit("delta", str(folder), Q, 1, "why")])
    assert isinstance(step, DeltaStep)
    assert (step.version, step.versions, step.batch) == (4, (2, 3), 1)
    assert (step.mark.version, step.mark.last_updated_ms) == (3, 5)
    assert step.table_id == str(DeltaTable(folder).metadata().id)


def test_number_above_the_mark_takes_no_version(tmp_path: Path) -> None:
    folder = str(table(tmp_path / "t"))
    for batch in (4, 6):  # of one orphan, and of three
        (step,) = make_sink_steps([SinkEdit("delta", folder, Q, batch, "why", after=3)])
        assert isinstance(step, DeltaStep)
        assert (step.versions, step.uses_up) == ((), True)


def test_number_is_not_used_up_once_the_mark_has_moved(tmp_path: Path) -> None:
    """A driver that was still alive has written the batch meanwhile."""
    folder = str(table(tmp_path / "t"))
    for batch, after in ((4, 2), (3, 2), (5, 4)):
        with pytest.raises(RepairRefusedError):
            list(make_sink_steps([SinkEdit("delta", folder, Q, batch, "why", after=after)]))


def test_mark_that_is_made_again_is_kept_as_it_was(tmp_path: Path) -> None:
    (step,) = make_sink_steps([SinkEdit("delta", str(table(tmp_path / "t")), Q, 3, "why", renews=True)])
    assert isinstance(step, DeltaStep)
    assert (step.renews, step.mark, step.versions) == (True, Mark(Q, 3, 5), ())


def test_mark_that_is_not_of_the_batch_any_more_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(RepairRefusedError) as refused:
        list(make_sink_steps([SinkEdit("delta", str(table(tmp_path / "t")), Q, 2, "why", renews=True)]))
    assert refused.value.found == "mark 3"


@pytest.mark.parametrize(("app_id", "batch"), [(Q, 5), ("another", 1), (None, 1)])
def test_table_that_has_moved_is_refused(tmp_path: Path, app_id: str | None, batch: int) -> None:
    folder = table(tmp_path / "t")
    with pytest.raises(RepairRefusedError, match="cannot be taken back"):
        list(make_sink_steps([SinkEdit("delta", str(folder), app_id, batch, "why")]))
    with pytest.raises(RepairRefusedError, match="cannot be taken back"):
        list(make_sink_steps([SinkEdit("delta", str(tmp_path / "none"), Q, batch, "why")]))


def test_rows_that_were_rewritten_meanwhile_are_refused(tmp_path: Path) -> None:
    folder = table(tmp_path / "t")
    DeltaTable(folder).optimize.compact()
    with pytest.raises(RepairRefusedError) as refused:
        list(make_sink_steps([SinkEdit("delta", str(folder), Q, 1, "why")]))
    assert "OPTIMIZE" in str(refused.value.found)


def test_entries_above_the_batch_go_with_their_checksums(tmp_path: Path) -> None:
    folder = files(tmp_path / "f", "0", "1", "2", ".2.crc", "3")
    found = list(make_sink_steps([SinkEdit("file", str(folder), None, 1, "why")]))
    assert {step.entry for step in found if isinstance(step, FileSinkStep)} == {
        "_spark_metadata/2",
        "_spark_metadata/.2.crc",
        "_spark_metadata/3",
    }


def test_entries_that_what_is_left_needs_have_to_be_there(tmp_path: Path) -> None:
    folder = files(tmp_path / "f", "2.compact", "3")
    with pytest.raises(RepairRefusedError, match="cannot be taken back to batch 1"):
        list(make_sink_steps([SinkEdit("file", str(folder), None, 1, "why")]))


def test_table_is_fenced_under_the_name_of_the_query_where_it_can_be(tmp_path: Path) -> None:
    found = evidence(table(tmp_path / "t"))
    assert find_fenceable(found) == Q
    assert find_fenceable(replace(found, write_obstacles=("table feature rowTracking",))) is None
    assert find_fenceable(replace(found, presumed_app_id="orders")) is None
    assert find_fenceable(replace(found, location="gs://lake/t")) is None
    assert find_fenceable(make_unknown_evidence("delta", "/lake/t", DedupeKey.QUERY_ID, "no answer")) is None
    assert find_fenceable(replace(found, kind="fence", location="sqlite:///f#fence")) is None
