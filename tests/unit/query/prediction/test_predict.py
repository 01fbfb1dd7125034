"""Each damage of the logs with what every Spark makes of it, and what a person is told: one row for each."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from predicting import (
    BATCHES,
    Does,
    Edit,
    both,
    change,
    copy,
    does,
    fails,
    fails_after_sink,
    folder_named,
    line,
    nothing,
    of_spark_2_1,
    remove,
    report,
    reports,
    reruns,
    resumes,
    without_conf,
    write,
)

from lastgood.diagnosis.findings import Severity
from lastgood.query.prediction.restart import Outcome, SinkCalled
from lastgood.query.prediction.spark_version import (
    SPARK_3_5,
    SPARK_4_0,
    SPARK_4_1,
    SPARK_4_2,
    SparkVersion,
)
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput

TOO_NEW = "maximum supported log version is v{}, but encountered v{}"


@dataclass(frozen=True)
class Row:
    """One damage."""

    name: str
    edit: Edit
    does: Does
    told: tuple[str, ...] = ()
    """Conditions above `info`, worst first."""
    since: SparkVersion | None = None
    then: Does | None = None
    """What Spark does from `since` on, where that is something else."""
    told_then: tuple[str, ...] | None = None

    def expected(self, spark: SparkVersion) -> tuple[Does, tuple[str, ...]]:
        if self.since is None or self.then is None or spark < self.since:
            return self.does, self.told
        return self.then, self.told if self.told_then is None else self.told_then


LATE, NEWEST, BEFORE = "Previous batch {} not found in offset log", "offsets/5", "offsets/4"
END = "Unexpected end-of-input"
INCOMPLETE = "Incomplete log file"
CONCURRENT = "Multiple streaming queries are concurrently using"
NO_TRACKER = "WatermarkTracker.updateWatermark("
COUNT = "There are [{}] sources in the checkpoint offsets and now there are [1] sources"

ROWS = [
    Row("none", nothing, resumes()),
    Row("commit below the newest removed", remove("commits/3"), resumes()),
    Row("commit below the newest empty", write("commits/3", ""), resumes()),
    Row("plan far below removed", remove("offsets/2"), resumes()),
    Row("plan far below empty", write("offsets/2", ""), resumes()),
    Row("newest commit removed", remove("commits/5"), reruns(), ("ORPHAN_BATCH",)),
    Row("two commits", remove("commits/[45]"), reruns(), ("UNCOMMITTED_BATCHES_SKIPPED", "ORPHAN_BATCH")),
    Row("three commits", remove("commits/[345]"), reruns(), ("UNCOMMITTED_BATCHES_SKIPPED", "ORPHAN_BATCH")),
    Row("all commits", remove("commits/*"), reruns(), ("UNCOMMITTED_BATCHES_SKIPPED", "ORPHAN_BATCH")),
    Row("logs of Spark 2.1, which keeps no commits", of_spark_2_1, reruns(), ("ORPHAN_BATCH",)),
    Row("newest plan removed", remove(NEWEST), fails_after_sink(4), ("COMMITS_AHEAD",)),
    Row("two plans removed", remove("offsets/[45]"), fails_after_sink(3), ("COMMITS_AHEAD",)),
    Row("commit without a plan", copy("commits/5", "commits/6"), fails_after_sink(5), ("COMMITS_AHEAD",)),
    Row("newest batch removed", remove(NEWEST, "commits/5"), resumes(5)),
    Row("three batches removed", remove("offsets/[345]", "commits/[345]"), resumes(3)),
    Row("newest plan empty", write(NEWEST, ""), fails(INCOMPLETE), ("OFFSET_LOG_DAMAGED",)),
    Row(
        "newest plan empty, with its old checksum",
        write(NEWEST, "", crc=True),
        fails(INCOMPLETE),
        ("OFFSET_LOG_DAMAGED", "STALE_CHECKSUM_FILE"),
    ),
    Row(
        "newest plan empty, not committed",
        both(write(NEWEST, ""), remove("commits/5")),
        fails(INCOMPLETE),
        ("OFFSET_LOG_DAMAGED", "ORPHAN_BATCH"),
    ),
    Row("cut in a source line", change(NEWEST, lambda text: text[:-6]), fails(END), ("OFFSET_LOG_DAMAGED",)),
    Row("cut in the metadata", change(NEWEST, lambda text: text[:60]), fails(END), ("OFFSET_LOG_DAMAGED",)),
    Row("version line alone", write(NEWEST, "v1"), fails("next on empty iterator"), ("OFFSET_LOG_DAMAGED",)),
    Row(
        "no source line",
        change(NEWEST, lambda text: text.rpartition("\n")[0]),
        fails(COUNT.format(0)),
        ("OFFSET_LOG_DAMAGED",),
    ),
    Row(
        "a source line too many",
        change(NEWEST, lambda text: f'{text}\n{{"logOffset":1}}'),
        fails(COUNT.format(2)),
        ("SOURCE_COUNT_CHANGED",),
    ),
    Row(
        "a source line of plain text",
        change(NEWEST, line(2, "garbage")),
        fails("Unrecognized token"),
        ("OFFSET_LOG_DAMAGED",),
    ),
    Row(
        "blank metadata",
        change(NEWEST, line(1, "")),
        fails('WatermarkTracker.currentWatermark()" because'),
        ("OFFSET_LOG_DAMAGED",),
    ),
    Row(
        "blank metadata, not committed",
        both(change(NEWEST, line(1, "")), remove("commits/5")),
        fails_after_sink(5, NO_TRACKER),
        ("OFFSET_LOG_DAMAGED", "ORPHAN_BATCH"),
        SPARK_4_2,
        fails("Batch 5 metadata not found"),
    ),
    Row(
        "blank metadata beside a commit ahead",
        both(change(NEWEST, line(1, "")), copy("commits/5", "commits/6")),
        fails_after_sink(5, NO_TRACKER),
        ("COMMITS_AHEAD", "OFFSET_LOG_DAMAGED"),
    ),
    Row("blank metadata before", change(BEFORE, line(1, "")), resumes()),
    Row(
        "blank metadata before, newest not committed",
        both(change(BEFORE, line(1, "")), remove("commits/5")),
        reruns(),
        ("ORPHAN_BATCH",),
        SPARK_4_2,
        fails("Previous batch 4 metadata not found"),
        ("OFFSET_LOG_DAMAGED", "ORPHAN_BATCH"),
    ),
    Row(
        "blank metadata in version 2",
        change(NEWEST, lambda text: line(1, "")(line(0, "v2")(text))),
        fails(TOO_NEW.format(1, 2)),
        ("OFFSET_LOG_DAMAGED",),
        SPARK_4_2,
        fails("VERSION_2 offset log requires metadata"),
    ),
    Row("source line void", change(NEWEST, line(2, "-")), resumes(), ("SOURCE_OFFSET_VOID",)),
    Row(
        "another offset, with its old checksum",
        change(NEWEST, line(2, '{"logOffset":4}'), crc=True),
        resumes(),
        ("STALE_CHECKSUM_FILE",),
    ),
    Row(
        "offset below the one before",
        change(NEWEST, line(2, '{"logOffset":3}')),
        fails("assertion failed"),
        ("SOURCE_OFFSET_WENT_BACK",),
    ),
    Row(
        "offset above its log",
        change(NEWEST, line(2, '{"logOffset":9}')),
        fails("exist (startId: Some(5), endId: Some(9))"),
        ("SOURCE_LOG_DAMAGED",),
    ),
    Row("newline at the end", change(NEWEST, lambda text: f"{text}\n"), resumes()),
    Row("plan before removed", remove(BEFORE), fails("batch 4 doesn't exist"), ("OFFSET_LOG_GAP",)),
    Row("plan before empty", write(BEFORE, ""), fails(INCOMPLETE), ("OFFSET_LOG_DAMAGED",)),
    Row(
        "plan before removed, newest not committed",
        remove(BEFORE, "commits/5"),
        fails("batch 4 doesn't exist"),
        ("OFFSET_LOG_GAP", "ORPHAN_BATCH"),
        SPARK_4_2,
        fails(LATE.format(4)),
    ),
    Row(
        "plan ahead with a gap",
        copy(NEWEST, "offsets/7"),
        fails("batch 6 doesn't exist"),
        ("OFFSET_LOG_GAP", "ORPHAN_BATCH"),
        SPARK_4_2,
        fails(LATE.format(6)),
    ),
    Row(
        "nothing but what an interrupted write has left",
        both(
            remove("offsets/*", "commits/*", "sources/0"),
            write("commits/.7.00000000-0000-4000-8000-000000000000.tmp", "x"),
        ),
        Does(Outcome.STARTS, 0),
        (),
        SPARK_4_1,
        fails("STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"),
        ("FOREIGN_FILES",),
    ),
    Row("both logs emptied", remove("offsets/*", "commits/*", "sources/0"), Does(Outcome.STARTS, 0)),
    Row(
        "newest commit empty",
        write("commits/5", ""),
        fails("Incomplete log file in the offset commit log"),
        ("COMMIT_LOG_DAMAGED",),
    ),
    Row("newest commit cut", change("commits/5", lambda text: text[:8]), fails(END), ("COMMIT_LOG_DAMAGED",)),
    Row("commit with a version line alone", write("commits/5", "v1"), resumes()),
    Row("commit without a watermark", write("commits/5", "v1\n{}"), resumes()),
    Row("source log removed", remove("sources/0"), fails("batch 5 doesn't exist"), ("SOURCE_LOG_DAMAGED",)),
    Row("newest source entry removed", remove("sources/0/5"), fails("batch 5 doesn't exist"), ("SOURCE_LOG_DAMAGED",)),
    Row(
        "source entry below removed",
        remove("sources/0/2"),
        fails("sources/0/2 doesn't exist (latestId: 5, compactInterval: 10)"),
        ("SOURCE_LOG_DAMAGED",),
    ),
    *(
        Row(
            f"first source entry {name}",
            write("sources/0/0", text),
            fails("failed to read correct log version from"),
            ("SOURCE_LOG_DAMAGED",),
        )
        for name, text in (
            ("a byte", "\0"),
            ("a byte and a version line", "\0v1"),
            ("a byte and another version", "\0v99\n{}"),
            ("as Kafka writes it", '\0v1\n{"orders":{"0":0}}'),
        )
    ),
    Row("newest source entry empty", write("sources/0/5", ""), fails(INCOMPLETE), ("SOURCE_LOG_DAMAGED",)),
    Row("source entry cut", change("sources/0/5", lambda text: text[:30]), fails(END), ("SOURCE_LOG_DAMAGED",)),
    Row(
        "source entry removed beside a foreign file",
        both(write("sources/0/readme.txt", "x"), remove("sources/0/5")),
        fails("batch 5 doesn't exist"),
        ("SOURCE_LOG_DAMAGED",),
    ),
    Row(
        "unfinished writes, foreign files and a folder",
        both(write("offsets/.6.0000.tmp", "x"), write("offsets/6.bak", "x"), folder_named("offsets/9")),
        resumes(),
    ),
    Row(
        "folder in the way",
        folder_named("offsets/6"),
        fails("Multiple streaming jobs detected for 6", 6),
        ("NAME_TAKEN",),
    ),
    Row(
        "name with a zero",
        copy(NEWEST, "offsets/006"),
        fails("does not exist"),
        ("LOG_NAME_NOT_CANONICAL", "ORPHAN_BATCH"),
    ),
    Row(
        "checksum left over",
        write("offsets/.6.crc", "x", crc=True),
        fails(CONCURRENT, 6, leaves_orphan=True),
        ("STALE_CHECKSUM_FILE",),
    ),
    Row(
        "metadata removed",
        remove("metadata"),
        resumes(),
        ("QUERY_ID_LOST",),
        SPARK_4_2,
        fails("STREAMING_CHECKPOINT_MISSING_METADATA_FILE"),
    ),
    Row("metadata empty", write("metadata", ""), fails("No content to map"), ("QUERY_ID_LOST",)),
    Row("metadata no JSON", write("metadata", "text"), fails("Unrecognized token"), ("QUERY_ID_LOST",)),
    Row("metadata with more in it", change("metadata", lambda text: text.replace("}", ',"x":1}')), resumes()),
    Row(
        "version line of no log",
        change(NEWEST, line(0, "hello")),
        fails("failed to read correct log version from"),
        ("OFFSET_LOG_DAMAGED",),
    ),
    Row(
        "version that nobody writes yet",
        change(NEWEST, line(0, "v99")),
        fails(TOO_NEW.format(1, 99)),
        ("LOG_VERSION_UNREADABLE",),
        SPARK_4_2,
        fails(TOO_NEW.format(2, 99)),
    ),
    Row("no pinned settings, no state", change(NEWEST, without_conf), resumes()),
]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy") / "checkpoint"
    CheckpointBuilder(folder, FileInput(), checksums=True).run(BATCHES)
    return folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_damage_of_the_logs_is_told_as_each_spark_takes_it(row: Row, healthy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(healthy, folder)
    row.edit(folder)
    for spark, found in reports(folder).items():
        wanted, conditions = row.expected(spark)
        seen = does(found)
        assert (wanted.error or "") in (seen.error or ""), spark
        assert seen == Does(wanted.outcome, wanted.batch, seen.error, wanted.leaves_orphan), spark
        bad = [finding for finding in found.findings if finding.severity > Severity.INFO]
        assert tuple(finding.condition.name for finding in bad) == conditions, spark
        assert all(finding.next and finding.effect.endswith(".") for finding in bad), spark
        assert (found.restart.stop is None) or bad[0].severity is Severity.ERROR, spark


def test_commits_without_any_plan_are_taken_differently_by_every_line(healthy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(healthy, folder)
    remove("offsets/*")(folder)
    seen = {spark: does(found) for spark, found in reports(folder).items()}
    assert seen[SPARK_3_5] == seen[SPARK_4_0] == fails_after_sink(0)
    assert seen[SPARK_4_1] == fails("STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY")
    assert seen[SPARK_4_2] == fails("assertion failed")


@pytest.mark.parametrize("plan", [NEWEST, BEFORE])
def test_plan_without_pinned_partitions_keeps_one_spark_from_its_look_for_a_repartition(
    plan: str, healthy: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(healthy, folder)
    both(change(plan, without_conf), remove("commits/5"))(folder)
    found = reports(folder)
    stopped = found.pop(SPARK_4_2)
    assert {does(other) for other in found.values()} == {reruns()}
    assert does(stopped) == fails("None.get")
    assert [finding.condition.name for finding in stopped.findings][:1] == ["OFFSET_LOG_DAMAGED"]


def test_commit_of_version_2_goes_only_where_it_is_understood(healthy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(healthy, folder)
    change("commits/5", line(0, "v2"))(folder)
    assert does(report(folder, SPARK_3_5)).error == "maximum supported log version is v1, but encountered v2"
    assert does(report(folder, SPARK_4_0)).error == "The only supported log version is v1, but encountered v2"
    assert does(report(folder, SPARK_4_2)) == resumes()


@pytest.mark.parametrize(
    ("row", "called"), [("newest plan removed", SinkCalled.YES), ("two plans removed", SinkCalled.YES)]
)
def test_sink_gets_an_old_batch_again_where_commits_are_ahead(
    row: str, called: SinkCalled, healthy: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(healthy, folder)
    next(each for each in ROWS if each.name == row).edit(folder)
    assert {found.restart.sink_called for found in reports(folder).values()} == {called}


def test_batch_that_only_moved_the_watermark_shows_that_there_was_state(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path, FileInput())
    builder.run(3)
    before = (tmp_path / "offsets/1").read_text().split("\n")[2]
    moved = (tmp_path / "offsets/2").read_text().replace('"batchWatermarkMs":0', '"batchWatermarkMs":60000')
    write("offsets/2", line(2, before)(moved))(tmp_path)
    found = report(tmp_path, SPARK_4_2)
    assert does(found) == fails("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY", 3, leaves_orphan=True)
    assert found.findings[0].condition.name == "STATE_FOLDER_MISSING"


def test_watermark_alone_leaves_open_whether_there_was_state(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path, FileInput())
    builder.run(3)
    change("offsets/2", lambda text: text.replace('"batchWatermarkMs":0', '"batchWatermarkMs":60000'))(tmp_path)
    found = report(tmp_path, SPARK_4_2)
    assert found.restart.outcome is Outcome.RESUMES
    assert any("whether the query keeps state" in each for each in found.restart.unknowns)
    (doubt,) = (each for each in found.findings if each.condition.name == "STATE_FOLDER_MISSING")
    assert doubt.severity is Severity.INFO


@pytest.mark.parametrize(
    ("removed", "told"),
    [("commits/[45]", "Batch 4 is treated as done"), ("commits/[345]", "Batches 3 to 4 are treated")],
)
def test_one_batch_that_is_skipped_is_told_of_as_one(removed: str, told: str, healthy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(healthy, folder)
    remove(removed)(folder)
    found = report(folder, SPARK_4_2).findings
    skipped = next(each for each in found if each.condition.name == "UNCOMMITTED_BATCHES_SKIPPED")
    assert told in skipped.effect
