from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from foreign import Lines

from lastgood.checkpoint.file_logs import SourceFile, make_source_log_entry
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import (
    ContinuousRateOffset,
    DeltaOffset,
    FileOffset,
    IcebergOffset,
    JsonOffset,
    KafkaOffset,
    NumberOffset,
    RateMicroBatchOffset,
    SourceOffset,
)
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.rules_sources import CONDITIONS, find_sources
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.sources.files.facts import FileFacts, FileState, WrittenAgain
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput

INFO, WARNING, ERROR = Severity
TABLE = "5b92bbb6-0931-49c1-8dc1-a9e6344ea1c6"
DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Given:
    """A source whose batches end where the test says."""

    offsets: tuple[SourceOffset, ...]
    per_batch: int = 1

    def end(self, ends: Sequence[int]) -> SourceOffset:
        return self.offsets[len(ends) - 1]

    def log(self, ends: Sequence[int]) -> None:
        del ends


def query(folder: Path, *offsets: SourceOffset, committed: int) -> None:
    builder = CheckpointBuilder(folder, Given(offsets))
    for number in range(len(offsets)):
        builder.plan()
        if number < committed:
            builder.commit()


def find(folder: Path, **others: Any) -> list[Finding]:
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(folder)))
    observed = Observation(checkpoint, location="/chk", **others)
    return list(find_sources(observed, predict(observed, SPARK_4_2)))


def told(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(finding.condition.name, finding.severity) for finding in findings]


# --- going back -----------------------------------------------------------------------------------------------------


def kafka(offset: int) -> KafkaOffset:
    return KafkaOffset({"t": {0: offset, 1: 5}})


def delta(version: int, index: int = -1, *, starting: bool = False, table: str = TABLE) -> DeltaOffset:
    return DeltaOffset(1, table, version, index, starting)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (kafka(20), kafka(17)),
        (RateMicroBatchOffset(30, 1), RateMicroBatchOffset(20, 2)),
        (delta(4, 2), delta(4, 1)),
    ],
)
def test_committed_batch_that_went_back_is_told(tmp_path: Path, before: SourceOffset, after: SourceOffset) -> None:
    query(tmp_path, before, after, committed=2)
    (found,) = find(tmp_path)
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_OFFSET_WENT_BACK", WARNING, "offsets/1")
    assert found.next == "lastgood inspect /chk --batch 1"


def test_batch_that_a_recovery_moved_back_is_no_trouble(tmp_path: Path) -> None:
    query(tmp_path, kafka(20), kafka(17), committed=2)
    (found,) = find(tmp_path, rewritten={1: "20261121-160058-7f3a"})
    assert (found.condition.name, found.severity) == ("SOURCE_OFFSET_WENT_BACK", INFO)
    assert found.effect.startswith("Recovery 20261121-160058-7f3a moved the query back: the batch after it reads again")
    assert found.next == "lastgood report 20261121-160058-7f3a --checkpoint /chk"


def test_file_source_that_went_back_is_asked_once_more_and_stops_the_query(tmp_path: Path) -> None:
    query(tmp_path, FileOffset(5), FileOffset(3), committed=2)
    (found,) = find(tmp_path)
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_OFFSET_WENT_BACK", ERROR, "offsets/1")
    assert found.effect.startswith("The query cannot start")


@pytest.mark.parametrize("end", [FileOffset(3), RateMicroBatchOffset(20, 2), delta(3)])
def test_planned_batch_that_goes_back_cannot_run(tmp_path: Path, end: SourceOffset) -> None:
    starts = {"file": FileOffset(5), "rate-micro-batch": RateMicroBatchOffset(30, 1), "delta": delta(4)}
    query(tmp_path, starts[end.kind], end, committed=1)
    assert told(find(tmp_path)) == [("ORPHAN_UNREPLAYABLE", ERROR)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (kafka(20), kafka(20)),
        (FileOffset(4), FileOffset(4)),
        (delta(3, 2, starting=True), delta(4)),
        (delta(4), DeltaOffset(3, TABLE, 4, -20, False)),
        (DeltaOffset(3, TABLE, 4, -20, False), DeltaOffset(3, TABLE, 4, -19, False)),
        (delta(9), delta(2, table="another")),
        (FileOffset(5), RateMicroBatchOffset(1, 1)),
        (JsonOffset({"pos": 5}), JsonOffset({"pos": 3})),
    ],
)
def test_offsets_that_stand_still_or_have_no_order_do_not_go_back(
    tmp_path: Path, before: SourceOffset, after: SourceOffset
) -> None:
    query(tmp_path, before, after, committed=2)
    assert [each for each in find(tmp_path) if each.condition.name != "SOURCE_OFFSET_REFUSED"] == []


def test_plan_that_ends_in_another_table_than_it_begins_in_is_refused(tmp_path: Path) -> None:
    query(tmp_path, delta(9), delta(2, table="another"), committed=2)
    assert told(find(tmp_path)) == [("SOURCE_OFFSET_REFUSED", ERROR)]


# --- files ----------------------------------------------------------------------------------------------------------


def files(*states: FileState) -> dict[str, tuple[FileFacts, ...]]:
    each = (SourceFile(f"file:///in/f{n}", 1, n) for n in range(len(states)))
    return {"0": tuple(FileFacts(file, state, because="x") for file, state in zip(each, states, strict=True))}


def file_query(folder: Path, *, committed: bool) -> None:
    builder = CheckpointBuilder(folder, FileInput())
    builder.run(1)
    builder.plan()
    if committed:
        builder.commit()


def test_planned_batch_whose_files_are_gone_is_committed_without_rows(tmp_path: Path) -> None:
    file_query(tmp_path, committed=False)
    (found,) = find(tmp_path, files=files(FileState.MISSING))
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_FILES_GONE", ERROR, "sources/0")
    assert found.evidence["files"] == ["file:///in/f0"]
    assert found.effect == "Batch 1 runs with no rows at all, and is committed without an error."


def test_planned_batch_keeps_the_rows_of_the_files_that_are_left(tmp_path: Path) -> None:
    file_query(tmp_path, committed=False)
    (found,) = find(tmp_path, files=files(FileState.MISSING, FileState.PRESENT))
    assert "the rows of the others only" in found.effect


def test_files_of_a_committed_batch_may_be_gone(tmp_path: Path) -> None:
    file_query(tmp_path, committed=True)
    assert told(find(tmp_path, files=files(FileState.MISSING))) == [("SOURCE_FILES_GONE", INFO)]


@pytest.mark.parametrize(("committed", "level"), [(True, INFO), (False, WARNING)])
def test_file_that_was_written_again_is_not_read_again(tmp_path: Path, committed: bool, level: Severity) -> None:
    file_query(tmp_path, committed=committed)
    assert told(find(tmp_path, files=files(FileState.CHANGED))) == [("SOURCE_FILES_CHANGED", level)]


@pytest.mark.parametrize(("committed", "level"), [(True, INFO), (False, WARNING)])
def test_files_that_nobody_could_look_at_are_unknown(tmp_path: Path, committed: bool, level: Severity) -> None:
    file_query(tmp_path, committed=committed)
    assert told(find(tmp_path, files=files(FileState.UNKNOWN))) == [("SOURCE_UNKNOWN", level)]


@pytest.mark.parametrize("committed", [True, False])
def test_files_that_are_noted_down_to_be_read_next_are_lost_if_they_are_gone(tmp_path: Path, committed: bool) -> None:
    file_query(tmp_path, committed=committed)
    waiting = files(FileState.PRESENT, FileState.PRESENT, FileState.MISSING)
    (found,) = find(tmp_path, files=waiting)
    assert (found.condition.name, found.severity, found.evidence["files"]) == (
        "SOURCE_FILES_GONE",
        ERROR,
        ["file:///in/f2"],
    )
    assert found.effect == "They are noted down to be read next, and the next batch leaves them out without an error."


def test_files_that_are_noted_down_and_nobody_could_look_at_are_unknown(tmp_path: Path) -> None:
    file_query(tmp_path, committed=True)
    waiting = files(FileState.PRESENT, FileState.PRESENT, FileState.UNKNOWN)
    assert told(find(tmp_path, files=waiting)) == [("SOURCE_UNKNOWN", WARNING)]


def test_files_that_are_there_are_no_news(tmp_path: Path) -> None:
    file_query(tmp_path, committed=False)
    assert find(tmp_path, files=files(FileState.PRESENT)) == []


@pytest.mark.parametrize(("age_ms", "expected"), [(8 * DAY_MS, [("SOURCE_FILES_TOO_OLD", INFO)]), (DAY_MS, [])])
def test_old_files_of_a_plan_would_not_be_found_again(
    tmp_path: Path, age_ms: int, expected: list[tuple[str, Severity]]
) -> None:
    file_query(tmp_path, committed=False)
    newest_ms = 1_790_000_000_000
    old = SourceFile("file:///in/old", newest_ms - age_ms, 1)
    (tmp_path / "sources/0/1").write_bytes(make_source_log_entry([old]).to_bytes())
    assert told(find(tmp_path)) == expected


def test_large_log_of_a_file_source_slows_every_compaction(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path, FileInput(compact_interval=2))
    builder.run(2)
    many = [SourceFile(f"file:///in/{'x' * 200}{n}", 1, 0) for n in range(5000)]
    (tmp_path / "sources/0/1.compact").write_bytes(make_source_log_entry(many).to_bytes())
    (found,) = find(tmp_path)
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_LOG_LARGE", INFO, "sources/0/1.compact")


# --- Delta tables ---------------------------------------------------------------------------------------------------


def table(earliest: int | None = 0, latest: int | None = 9, **others: Any) -> dict[str, DeltaFacts]:
    return {
        "0": DeltaFacts("/lake/in", **{"table_id": TABLE, **others}, earliest_version=earliest, latest_version=latest)
    }


def test_table_that_has_what_is_asked_for_is_healthy(tmp_path: Path) -> None:
    query(tmp_path, delta(4), delta(6), committed=2)
    assert find(tmp_path, tables=table(4)) == []


@pytest.mark.parametrize("committed", [1, 2])
@pytest.mark.parametrize(("end", "version"), [(delta(6), 5), (delta(6, 3), 6), (delta(5, starting=True), 5)])
def test_version_that_is_younger_than_the_plan_that_read_it_is_another_one(
    tmp_path: Path, end: DeltaOffset, version: int, committed: int
) -> None:
    query(tmp_path, delta(4), end, committed=committed)
    planned_ms = STARTED_MS + 1000
    late = planned_ms + 6 * 60 * 1000
    (found,) = find(tmp_path, tables=table(written_ms={version: late}))
    assert told([found]) == [("SOURCE_OFFSET_WENT_BACK", ERROR)]
    assert (found.evidence["version"], found.evidence["written_at_ms"]) == (version, late)
    assert "360 seconds after batch 1 was planned" in found.effect
    for others in ({version: planned_ms + 60_000}, {version: planned_ms - DAY_MS}, {}):  # clocks differ; or not told
        assert find(tmp_path, tables=table(written_ms=others)) == []
    assert find(tmp_path, tables=table(written_ms={version: late}), rewritten={1: "r"}) == []


def test_log_must_reach_back_to_where_the_last_committed_batch_began(tmp_path: Path) -> None:
    query(tmp_path, delta(4), delta(6), committed=2)
    (found,) = find(tmp_path, tables=table(6))
    assert (found.condition.name, found.severity, found.subject) == ("SOURCE_VERSIONS_GONE", ERROR, "/lake/in")
    assert found.evidence["missing_versions"] == [4, 6]
    assert found.evidence["unread_versions"] is None
    assert "nothing unread is missing" in found.effect
    (silent,) = find(tmp_path, tables=table(6), fail_on_data_loss=False)
    assert silent.effect == "The query starts; nothing unread is lost."


def test_unread_versions_that_are_gone_are_named(tmp_path: Path) -> None:
    query(tmp_path, delta(4), delta(6), committed=2)
    (found,) = find(tmp_path, tables=table(8))
    assert found.evidence["unread_versions"] == [6, 8]
    (silent,) = find(tmp_path, tables=table(8), fail_on_data_loss=False)
    assert silent.effect == "The query starts; versions 6 to 7 are skipped without a word."


def test_planned_batch_needs_its_own_versions(tmp_path: Path) -> None:
    query(tmp_path, delta(4), delta(6), committed=1)
    (found,) = find(tmp_path, tables=table(5))
    assert (found.condition.name, found.evidence["unread_versions"]) == ("SOURCE_VERSIONS_GONE", [4, 5])


def test_first_snapshot_that_cannot_be_rebuilt_stops_the_query_in_any_case(tmp_path: Path) -> None:
    query(tmp_path, delta(3, 2, starting=True), delta(4), committed=2)
    for fail_on_data_loss in (True, False):
        (found,) = find(tmp_path, tables=table(5), fail_on_data_loss=fail_on_data_loss)
        assert (found.condition.name, found.severity) == ("SOURCE_VERSIONS_GONE", ERROR)
        assert "cannot start" in found.effect
    assert find(tmp_path, tables=table(4, checkpoint_versions=(3,))) == []


def test_table_that_was_created_again_has_another_id(tmp_path: Path) -> None:
    query(tmp_path, delta(4), delta(6), committed=2)
    (found,) = find(tmp_path, tables=table(table_id="another"))
    assert (found.condition.name, found.severity) == ("SOURCE_TABLE_REPLACED", ERROR)
    assert (found.evidence["table_id_before"], found.evidence["table_id"]) == (TABLE, "another")


def test_table_that_is_shorter_than_what_was_read_went_back(tmp_path: Path) -> None:
    query(tmp_path, delta(4), delta(6), committed=2)
    assert told(find(tmp_path, tables=table(0, 4))) == [("SOURCE_OFFSET_WENT_BACK", ERROR)]
    assert find(tmp_path, tables=table(0, 5)) == []


def test_table_that_is_gone_and_one_that_does_not_answer_are_told_apart(tmp_path: Path) -> None:
    query(tmp_path, delta(4), delta(6), committed=2)
    assert told(find(tmp_path, tables=table(exists=False))) == [("SOURCE_TABLE_GONE", ERROR)]
    assert told(find(tmp_path, tables=table(exists=None, unknown="denied"))) == [("SOURCE_UNKNOWN", WARNING)]


def came_again(*files: tuple[str, float, float]) -> dict[str, WrittenAgain]:
    """Path, and on which day a file was read and changed; the newest file is of day 100."""
    facts = [
        FileFacts(SourceFile(path, int(read * DAY_MS), 0), FileState.CHANGED, int(now * DAY_MS))
        for path, read, now in files
    ]
    return {"0": WrittenAgain(tuple(facts), 100 * DAY_MS, 5, 5)}


def test_files_that_come_again_under_their_name_are_told(tmp_path: Path) -> None:
    query(tmp_path, FileOffset(0), FileOffset(1), committed=2)
    again = came_again(("file:/in/a", 99, 101), ("file:/in/b", 2, 101), ("file:/in/c", 2, 3))
    ignored, read = find(tmp_path, files_again=again)
    assert (ignored.condition.name, ignored.severity, ignored.subject) == (
        "SOURCE_FILE_IGNORED",
        WARNING,
        "sources/0",
    )
    assert (ignored.evidence["files"], ignored.evidence["of"]) == (["file:/in/a", "file:/in/c"], 5)
    assert ignored.evidence["forgotten_after_ms"] == 106 * DAY_MS
    assert ignored.next == "lastgood inspect /chk --file file:/in/a"
    assert (read.condition.name, read.severity) == ("SOURCE_FILES_CHANGED", WARNING)
    assert read.evidence["files"] == ["file:/in/b"]
    assert "reads them again" in read.effect


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((("file:/in/a", 99, 101),), "since the source's log holds their names:"),
        ((("file:/in/c", 2, 3),), "since they are older than the newest file by more than maxFileAge:"),
        ((("file:/in/a", 99, 101), ("file:/in/c", 2, 3)), "holds their names, or they are older"),
    ],
)
def test_why_such_a_file_is_not_read_is_told(
    tmp_path: Path, files: tuple[tuple[str, float, float], ...], why: str
) -> None:
    query(tmp_path, FileOffset(0), FileOffset(1), committed=2)
    (ignored,) = find(tmp_path, files_again=came_again(*files))
    assert why in ignored.effect


@pytest.mark.parametrize(
    "offsets",
    [
        (NumberOffset(4), NumberOffset(9), NumberOffset(5)),
        tuple(IcebergOffset(1, snapshot, 0, scan_all_files=False) for snapshot in (7, 3, 7)),
        tuple(IcebergOffset(1, 7, position, scan_all_files=False) for position in (2, 4, 3)),
        tuple(ContinuousRateOffset({0: (value, 1)}) for value in (2, 4, 3)),
    ],
    ids=["number", "snapshots", "position", "continuous-rate"],
)
def test_any_source_whose_offsets_have_an_order_can_go_back(tmp_path: Path, offsets: tuple[SourceOffset, ...]) -> None:
    for committed, severity in ((3, WARNING), (2, ERROR)):
        query(tmp_path / str(committed), *offsets, committed=committed)
        (found,) = find(tmp_path / str(committed))
        assert (found.condition.name, found.subject, found.severity) == (
            "SOURCE_OFFSET_WENT_BACK",
            "offsets/2",
            severity,
        )


def test_the_time_when_rate_began_is_no_offset(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path, Lines(("3", "5"), began_ms=1_790_000_000_000))
    builder.run(2)
    assert find(tmp_path) == []


def test_conditions_have_names_of_their_own_and_stories() -> None:
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)
    assert all(len(condition.story) > 200 and "." not in condition.title[-1] for condition in CONDITIONS)
