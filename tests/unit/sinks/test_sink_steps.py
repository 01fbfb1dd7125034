from __future__ import annotations

from dataclasses import replace

import pytest

from lastgood.delta_log.actions import Transaction
from lastgood.planning.steps import FileStep, MoveStep, list_files_after, sort_steps, sum_sink_edits
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.files.step import FileSinkStep
from lastgood.steps.kinds import parse_step
from lastgood.steps.step import SinkEdit

ROWS = DeltaStep(
    table="s3a://lake/orders",
    table_id="t",
    mark=Transaction("q", 8, 5),
    batch=6,
    version=21,
    versions=(18, 20),
    why="it is wanted",
)
MARK = replace(ROWS, versions=(), mark=Transaction("q", 8))
NUMBER = replace(ROWS, versions=(), batch=9)
RENEWED = replace(ROWS, versions=(), batch=8)
ENTRY = FileSinkStep("/lake/files", "_spark_metadata/19.compact", 12, "it is wanted")
STEPS = (ROWS, MARK, NUMBER, RENEWED, ENTRY)


@pytest.mark.parametrize("step", STEPS, ids=["rows", "mark", "number", "renewed", "entry"])
def test_step_is_read_as_it_was_written(step: DeltaStep | FileSinkStep) -> None:
    assert parse_step(step.to_json()) == step


@pytest.mark.parametrize(
    "changed",
    [
        {"versions": [22]},
        {"versions": [-1]},
        {"versions": ["18"]},
        {"batch": 8},
        {"batch": -1},
        {"mark": None},
        {"table": "ftp://nowhere/x"},
        {"why": None},
    ],
    ids=str,
)
def test_step_that_a_table_could_not_take_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_step({**ROWS.to_json(), **changed})


@pytest.mark.parametrize(
    "path",
    [
        "_spark_metadata/../x",
        "_spark_metadata/7.json",
        "part-0.parquet",
        "_spark_metadata/",
        "7",
        "_spark_metadata/.7.crc/x",
        "_spark_metadata/0",
    ],
)
def test_step_cannot_touch_what_is_no_later_entry_of_a_file_sinks_log(path: str) -> None:
    with pytest.raises(ValueError, match=r"no entry|not understood"):
        parse_step({**ENTRY.to_json(), "path": path})


def test_it_says_what_it_does_what_takes_it_back_and_who_will_see_it() -> None:
    assert ROWS.do == "take rows and mark of s3a://lake/orders back from batch 8 to 6: it is wanted"
    assert ROWS.undo == "put rows and mark of batch 8 back into s3a://lake/orders, by one more version"
    assert ROWS.effect is not None
    assert MARK.do == "take the mark of s3a://lake/orders back from batch 8 to 6: it is wanted"
    assert (MARK.effect, NUMBER.effect) == (None, None)
    assert NUMBER.do.startswith("mark batch 9 as written in s3a://lake/orders, without rows: it is wanted; a driver")
    assert NUMBER.undo == "put the mark of batch 8 back into s3a://lake/orders, by one more version"
    assert RENEWED.do == "put the mark of batch 8, which has expired, back into s3a://lake/orders: it is wanted"
    assert RENEWED.undo.endswith("by one more version: the history of the table keeps both")
    assert (RENEWED.effect, RENEWED.uses_up, RENEWED.renews, NUMBER.renews) == (None, False, True, False)
    assert ENTRY.undo == "put /lake/files/_spark_metadata/19.compact back"


def test_sinks_go_before_the_logs_and_their_newest_entries_first() -> None:
    entries = [replace(ENTRY, entry=f"_spark_metadata/{name}") for name in ("18", ".18.crc", "20", "19.compact")]
    drop = FileStep("commits/9", "0" * 64, None, "")
    told = sort_steps([drop, *entries, ROWS])
    assert [step.path.rpartition("/")[2] for step in told] == ["20", "19.compact", "18", ".18.crc", "orders", "9"]


def test_steps_come_to_one_edit_of_each_sink() -> None:
    entries = [replace(ENTRY, entry=f"_spark_metadata/{name}") for name in ("20", "19.compact", "18")]
    found = sum_sink_edits([ROWS, *entries, MoveStep("state/0/0/9.delta", 1, "")])
    assert found == (
        SinkEdit("delta", "s3a://lake/orders", "q", 6, "it is wanted"),
        SinkEdit("file", "/lake/files", None, 17, "it is wanted"),
    )
    assert list_files_after([ROWS, ENTRY, FileStep("commits/9", None, b"x", "")]) == {"commits/9": b"x"}


def test_only_a_number_that_goes_up_is_used_up() -> None:
    assert [step.used_up for step in STEPS] == [None, None, 9, None, None]


def test_step_tells_which_sink_it_changes_and_whose_rows() -> None:
    assert (ROWS.sink, ROWS.writer) == ("s3a://lake/orders", "q")
    assert (ENTRY.sink, ENTRY.writer) == ("/lake/files", None)
    of_none = (FileStep("commits/9", None, b"x", ""), MoveStep("state/0/0/9.delta", 1, ""))
    for step in (ROWS, ENTRY, *of_none):
        assert step.file_outside is None
    for own in of_none:
        assert (own.sink, own.edit, own.writer, own.used_up, own.effect) == (None, None, None, None, None)
