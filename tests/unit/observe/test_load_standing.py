"""How far a load has come, by its checkpoint."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from foreign import KINESIS, Lines
from typed import call

from lastgood.journal.holding import HoldReason, locate_lock_file
from lastgood.load.kept import ChunkCount, keep_count, keep_spec
from lastgood.load.specification import InputFile, LoadFormat, LoadSpec, ParseMode
from lastgood.observe.find import NotFoundInHistoryError, find_file
from lastgood.observe.load_standing import LoadStanding
from lastgood.operations.status import status
from lastgood.recovery.hold import hold_checkpoint
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import open_writable
from lastgood.testing.checkpoints import CheckpointBuilder

FILES = tuple(
    InputFile(location=f"/in/{each}.csv", size=100, modified_ms=1, head="", tail="", begins=0, is_ended=True)
    for each in range(3)
)
SPEC = LoadSpec(
    table="delta:/lake/t",
    form=LoadFormat.CSV,
    schema="id INT",
    infers=False,
    options={},
    mode=ParseMode.PERMISSIVE,
    files=FILES,
)
PLANS = tuple(
    f'{{"lastgood_load":1,"file":{file},"position":{position}}}' for file, position in ((0, 60), (1, 30), (2, 100))
)


def build(folder: Path, committed: int, plans: tuple[str, ...] = PLANS, spec: LoadSpec | None = SPEC) -> str:
    builder = CheckpointBuilder(folder, Lines(plans))
    builder.run(committed)
    if committed < len(plans):
        builder.plan()
    where = parse_location(str(folder))
    if spec is not None:
        keep_spec(open_writable(where), where, spec)
    for batch in range(committed):
        keep_count(open_writable(where), where, batch, ChunkCount(10 + batch, batch))
    return str(folder)


def look(checkpoint: str) -> LoadStanding | None:
    return status(resolve_target(checkpoint)).load


@pytest.mark.parametrize(
    ("committed", "done", "rows", "corrupt", "is_whole"),
    [(0, 0, 0, 0, False), (1, 60, 10, 0, False), (2, 130, 21, 1, False), (3, 300, 33, 3, True)],
)
def test_a_load_is_told_by_bytes_and_records(
    tmp_path: Path, committed: int, done: int, rows: int, corrupt: int, is_whole: bool
) -> None:
    assert look(build(tmp_path / "chk", committed)) == LoadStanding(
        table="delta:/lake/t",
        files=3,
        done=done,
        size=300,
        rows=rows,
        corrupt=corrupt,
        chunks=committed,
        uncounted=0,
        is_whole=is_whole,
        unit="bytes",
        per_second=None,
        seconds_left=None,
    )


def look_while(work: HoldReason, checkpoint: Location) -> LoadStanding:
    with hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint), work):
        found = look(str(checkpoint))
    assert found is not None
    return found


def build_now(folder: Path, *seconds: float, plans: tuple[str, ...] = PLANS, spec: LoadSpec = SPEC) -> Location:
    """A load with a plan at each of these times from now; the last one is not committed."""
    builder, now_ms = CheckpointBuilder(folder, Lines(plans)), time.time_ns() // 1_000_000
    for each in seconds:
        builder.plan(at_ms=now_ms + round(each * 1000))
        if each != seconds[-1]:
            builder.commit()
    where = parse_location(str(folder))
    keep_spec(open_writable(where), where, spec)
    return where


def test_one_that_goes_on_is_told_with_its_pace(tmp_path: Path) -> None:
    checkpoint = build_now(tmp_path / "chk", 100, 101, 102)
    with hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint), HoldReason.LOAD):
        told = call("status", checkpoint).stdout
    assert f"  held by      lastgood load, process {os.getpid()} on " in told
    assert "  pace         70 bytes/s in the newest chunks, 2 s left\n" in told
    found = look_while(HoldReason.LOAD, checkpoint)
    assert (found.per_second, found.seconds_left) == (70.0, 2.4)
    assert "pace" not in call("status", checkpoint).stdout


@pytest.mark.parametrize("work", [HoldReason.UNDO, HoldReason.RUN, HoldReason.APPLY])
def test_who_does_something_else_has_no_pace(tmp_path: Path, work: HoldReason) -> None:
    found = look_while(work, build_now(tmp_path / "chk", 100, 101, 102))
    assert (found.per_second, found.seconds_left) == (None, None)


def test_chunks_of_an_earlier_run_tell_no_pace(tmp_path: Path) -> None:
    """A folder that is loaded once a day: the next plan comes a day later."""
    found = look_while(HoldReason.LOAD, build_now(tmp_path / "chk", -86400, -7, 100))
    assert found.per_second is None


@pytest.mark.parametrize("position", ["9" * 400, "300", "-1"])
def test_a_plan_beyond_the_files_tells_no_pace(tmp_path: Path, position: str) -> None:
    wrong = PLANS[1].replace("30", position)
    found = look_while(HoldReason.LOAD, build_now(tmp_path / "chk", 100, 101, 102, plans=(PLANS[0], wrong, PLANS[2])))
    assert (found.done, found.per_second) == (60, None)


def test_versions_are_counted_from_the_first_that_is_read(tmp_path: Path) -> None:
    table = "7e4b0fa2-7c4e-4a3b-9c0a-1d2e3f405162"
    offset = '{"sourceVersion":1,"reservoirId":"%s","reservoirVersion":%d,"index":-1,"isStartingVersion":false}'
    plans = tuple(offset % (table, version) for version in (5001, 5002, 5003))
    files = (replace(FILES[0], size=5010, begins=5000),)
    spec = replace(SPEC, form=LoadFormat.DELTA, files=files, starting_version=5000)
    found = look_while(HoldReason.LOAD, build_now(tmp_path / "chk", 100, 101, 102, plans=plans, spec=spec))
    assert (found.done, found.size, found.unit, found.per_second, found.seconds_left) == (2, 10, "versions", 1.0, 8.0)
    grown = look(str(build_now(tmp_path / "grown", 0, 1, plans=(offset % (table, 5012), plans[0]), spec=spec)))
    assert grown is not None
    assert (grown.done, grown.size, grown.is_whole) == (12, 12, True)


def test_a_table_is_told_by_rows(tmp_path: Path) -> None:
    plans = ('{"lastgood_load": 1, "file": 0, "position": 60, "upto": "7"}', PLANS[1].replace(":1,", ":0,"))
    spec = replace(SPEC, form=LoadFormat.DELTA, files=FILES[:1], order_by="id")
    found = look(build(tmp_path / "chk", 1, plans, spec))
    assert found is not None
    assert (found.done, found.size, found.unit, found.is_whole) == (60, 100, "rows", False)
    told = call("status", tmp_path / "chk").stdout
    assert "60 %: 60 of 100 rows of a table, 10 records in 1 chunk" in told
    assert "60 rows" in call("inspect", tmp_path / "chk").stdout


@pytest.mark.parametrize(
    ("committed", "states", "done"),
    [
        (0, ["waiting", "waiting", "waiting"], [0, 0, 0]),
        (1, ["partly", "waiting", "waiting"], [60, 0, 0]),
        (2, ["loaded", "partly", "waiting"], [100, 30, 0]),
        (3, ["loaded", "loaded", "loaded"], [100, 100, 100]),
    ],
)
def test_its_files_are_listed(tmp_path: Path, committed: int, states: list[str], done: list[int]) -> None:
    checkpoint = build(tmp_path / "chk", committed)
    told = json.loads(call("inspect", checkpoint, "--files", "--format", "json").stdout)
    assert [each["state"] for each in told["files"]] == states
    assert [each["done"] for each in told["files"]] == done
    assert [each["location"] for each in told["files"]] == [each.location for each in FILES]
    shown = call("inspect", checkpoint, "--files").stdout
    assert "/in/1.csv" in shown
    assert f"{states.count('loaded')} of 3 files are loaded into delta:/lake/t" in shown


def test_what_loads_no_files_has_no_list_of_them(tmp_path: Path) -> None:
    refused = call("inspect", build(tmp_path / "chk", 1, spec=None), "--files")
    assert (refused.returncode, "only a load of files has a list of them" in refused.stderr) == (2, True)


def test_chunks_that_nobody_has_counted_are_told(tmp_path: Path) -> None:
    checkpoint = build(tmp_path / "chk", 2)
    (tmp_path / "chk.lastgood/load/1").unlink()
    found = look(checkpoint)
    assert found is not None
    assert (found.chunks, found.uncounted, found.rows) == (2, 1, 10)


def test_its_source_needs_nobody_to_vouch_for_it(tmp_path: Path) -> None:
    """It looks itself whether its files are what they were, and stops where not."""
    ours = status(resolve_target(build(tmp_path / "ours", 2))).to_json()
    assert not any("--source-replays" in line for line in ours["unknowns"])
    other = status(resolve_target(build(tmp_path / "other", 2, KINESIS[:3], None))).to_json()
    assert any("--source-replays" in line for line in other["unknowns"])
    assert "load" not in other


@pytest.mark.parametrize("written", [None, "", "{}", '{"files": 1}', "[" * 10_000])
def test_what_is_not_understood_beside_it_is_left_to_load(tmp_path: Path, written: str | None) -> None:
    checkpoint = build(tmp_path / "chk", 2)
    file = tmp_path / "chk.lastgood/load.json"
    file.unlink()
    if written is not None:
        file.write_text(written)
    assert look(checkpoint) is None


def test_a_login_in_what_lies_beside_it_is_not_told(tmp_path: Path) -> None:
    spec = LoadSpec.from_json({**SPEC.to_json(), "table": "delta:s3a://me:p4ss@lake/t"})
    found = look(build(tmp_path / "chk", 1, spec=spec))
    assert found is not None
    assert "p4ss" not in found.table


@pytest.mark.parametrize(("name", "batch"), [("0.csv", 0), ("1.csv", 1), ("in/2.csv", 2)])
def test_batch_that_began_a_file_is_found_by_its_name(tmp_path: Path, name: str, batch: int) -> None:
    row, path, _ = find_file(resolve_target(build(tmp_path / "chk", 3)), name)
    assert (row.batch, path.endswith(name)) == (batch, True)


def test_file_that_no_batch_has_read_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundInHistoryError):
        find_file(resolve_target(build(tmp_path / "chk", 3)), "3.csv")
    with pytest.raises(NotFoundInHistoryError):
        find_file(resolve_target(build(tmp_path / "begun", 1, PLANS[:1])), "2.csv")
