from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.delta_log.listing import name_commit
from lastgood.sources.delta.facts import DeltaFacts, Serving, can_serve, find_newest_read, find_starting_version
from lastgood.sources.delta.table import ask_data_files, ask_delta, locate_data_file
from lastgood.storage.reading import LocalStorage, Location, parse_location

ROWS = pa.table({"i": [1, 2, 3]})


def offset(version: int, index: int = -1, *, starting: bool = False, table_id: str = "t", form: int = 1) -> DeltaOffset:
    return DeltaOffset(form, table_id, version, index, starting)


def ask(folder: Path) -> DeltaFacts:
    return ask_delta(LocalStorage(), parse_location(str(folder)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 9, a checkpoint at 5."""
    folder = tmp_path / "table"
    for version in range(10):
        write_deltalake(folder, ROWS, mode="append")
        if version == 5:
            DeltaTable(folder).create_checkpoint()
    return folder


def clean_up(folder: Path, below: int) -> None:
    for version in range(below):
        (folder / "_delta_log" / name_commit(version)).unlink()


def test_facts_tell_which_versions_are_left(table: Path) -> None:
    facts = ask(table)
    assert (facts.earliest_version, facts.latest_version, facts.checkpoint_versions) == (0, 9, (5,))
    assert facts.table_id == str(DeltaTable(table).metadata().id)
    clean_up(table, 4)
    assert ask(table).earliest_version == 4
    assert ask(table).table_id == facts.table_id


def test_facts_tell_when_versions_were_written_that_are_asked_about(table: Path) -> None:
    told = {each["version"]: each["timestamp"] for each in DeltaTable(table).history()}
    clean_up(table, 4)
    facts = ask_delta(LocalStorage(), parse_location(str(table)), versions=(3, 4, 9, 12))
    assert facts.written_ms == {4: told[4], 9: told[9]}


@pytest.mark.parametrize(
    ("read", "newest"),
    [(offset(0), None), (offset(3), 2), (offset(3, 0), 3), (offset(3, starting=True), 3), (offset(3, -20), 2)],
)
def test_newest_version_that_is_read_at_an_offset(read: DeltaOffset, newest: int | None) -> None:
    assert find_newest_read(read) == newest


def test_table_that_is_not_there_or_is_damaged_is_an_answer(table: Path, tmp_path: Path) -> None:
    assert ask(tmp_path / "none").exists is False
    assert can_serve(ask(tmp_path / "none"), offset(0)).serving is Serving.NO
    (table / "_delta_log" / name_commit(8)).unlink()
    facts = ask(table)
    assert (facts.exists, name_commit(8) in (facts.unknown or "")) == (None, True)
    assert can_serve(facts, offset(0)).serving is Serving.UNKNOWN


@pytest.mark.parametrize(
    "action",
    [
        {"protocol": {"minReaderVersion": 4, "minWriterVersion": 7, "writerFeatures": []}},
        {"metaData": {"id": "t", "configuration": {"delta.redirectReaderWriter-preview": "{}"}}},
        {"metaData": {"id": "t", "configuration": {"delta.coordinatedCommits.commitCoordinator-preview": "x"}}},
        {"txn": {"version": 5}},
    ],
)
def test_table_that_cannot_be_judged_by_its_log_is_an_answer(table: Path, action: dict[str, object]) -> None:
    newest = ask(table).latest_version or 0
    (table / "_delta_log" / name_commit(newest + 1)).write_text(json.dumps(action))
    facts = ask(table)
    assert facts.unknown is not None
    assert can_serve(facts, offset(newest)).serving is Serving.UNKNOWN
    assert isinstance(ask_data_files(LocalStorage(), parse_location(str(table)), offset(newest)), str)


def test_storage_that_does_not_answer_is_an_answer(table: Path) -> None:
    class Dead(LocalStorage):
        gate = threading.Event()

        def names(self, folder: Location) -> None:
            self.gate.wait(60)

    facts = ask_delta(Dead(), parse_location(str(table)), timeout_seconds=0.2)
    files = ask_data_files(Dead(), parse_location(str(table)), offset(0), timeout_seconds=0.2)
    Dead.gate.set()
    assert facts.exists is None
    assert "no answer within 0.2 s" in (facts.unknown or "")
    assert isinstance(files, str)


FACTS = DeltaFacts("/t", "t", earliest_version=4, latest_version=9, checkpoint_versions=(5, 8))


@pytest.mark.parametrize(
    ("start", "serving", "lost"),
    [
        (offset(4), Serving.YES, range(0)),
        (offset(9, 3), Serving.YES, range(0)),
        (offset(10), Serving.YES, range(0)),
        (offset(2), Serving.NO, range(2, 4)),
        (offset(12), Serving.NO, range(10, 12)),
        (offset(3, starting=True), Serving.NO, range(0)),
        (offset(4, starting=True), Serving.NO, range(0)),
        (offset(5, 2, starting=True), Serving.YES, range(0)),
        (offset(7, starting=True), Serving.YES, range(0)),
        (offset(9, 2, starting=True), Serving.YES, range(0)),
        (offset(5, table_id="old"), Serving.NO, range(0)),
    ],
)
def test_offset_is_served_while_its_versions_are_in_the_log(start: DeltaOffset, serving: Serving, lost: range) -> None:
    found = can_serve(FACTS, start)
    assert (found.serving, found.lost_versions) == (serving, lost)


def test_first_snapshot_needs_a_checkpoint_or_the_whole_log() -> None:
    assert DeltaFacts("/t", "t", 0, 9).can_rebuild(3)
    assert not DeltaFacts("/t", "t", 1, 9, ()).can_rebuild(3)
    assert not DeltaFacts("/t", "t", 8, 9, (5,)).can_rebuild(9)
    assert DeltaFacts("/t", "t", None, 5, (5,)).can_rebuild(5)
    assert not FACTS.can_rebuild(10)


def test_log_that_is_left_in_a_checkpoint_only_serves_what_comes_next() -> None:
    only = DeltaFacts("/t", "t", None, 5, (5,))
    assert can_serve(only, offset(6)).serving is Serving.YES
    assert can_serve(only, offset(5)).lost_versions == range(5, 6)


@pytest.mark.parametrize(
    ("at", "version"),
    [
        (offset(4), 4),
        (offset(4, 0), None),
        (offset(4, starting=True), None),
        (offset(4, -19, form=3), None),
        (offset(4, -20, form=3), None),
    ],
)
def test_new_query_goes_on_at_whole_versions_only(at: DeltaOffset, version: int | None) -> None:
    assert find_starting_version(at) == version


def test_data_files_that_are_gone_are_named(table: Path) -> None:
    location = parse_location(str(table))
    assert ask_data_files(LocalStorage(), location, offset(6)) == ()
    newest, *_ = DeltaTable(table).get_add_actions().column("path").to_pylist()[:1]
    (table / newest).unlink()
    assert ask_data_files(LocalStorage(), location, offset(0)) == (newest,)


def test_data_files_of_a_missing_table_are_not_known(tmp_path: Path) -> None:
    assert ask_data_files(LocalStorage(), parse_location(str(tmp_path)), offset(0)) == "there is no table"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("part-0.parquet", "/lake/t/part-0.parquet"),
        ("day=a%20b/part-0.parquet", "/lake/t/day=a b/part-0.parquet"),
        ("s3a://other/part", "s3a://other/part"),
        ("/abs/part", "/abs/part"),
    ],
)
def test_names_in_the_log_are_uris_relative_to_the_table(name: str, place: str) -> None:
    assert str(locate_data_file(parse_location("/lake/t"), name)) == place
