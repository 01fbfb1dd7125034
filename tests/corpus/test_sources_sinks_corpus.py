"""Real sinks and brokers: what Spark then did on restart is what we foretell from their logs.

The large corpus and the sink samples lie beside the repository where there is one.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from shared_corpus import ABSENT, CORPUS, SAMPLES, list_or_skip

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.file_logs import FileLogEntry
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import ALL_BATCHES, read_checkpoint
from lastgood.checkpoint.source_offsets import DeltaOffset, KafkaOffset
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.query.sink_batches import find_origins
from lastgood.sinks.delta.sink import DeltaSink, judge_table_log
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.fence.sink import FenceTable, open_fence
from lastgood.sinks.files.sink import FileSink, FileSinkLog
from lastgood.sinks.iceberg.sink import IcebergMetadata, parse_iceberg_metadata
from lastgood.sinks.iceberg.sink import judge_metadata as iceberg_evidence_of
from lastgood.sinks.opening import open_sink
from lastgood.sources.delta.facts import find_starting_version
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, facts_from_json
from lastgood.sources.kafka.ranges import (
    Offsets,
    count_offsets,
    find_planned_ranges,
    find_went_back,
    select_below,
    select_from_on,
    select_only_in,
    select_served,
)
from lastgood.sources.kafka.retention import ReadUpTo, TopicIdentity, identify_topic
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import LocalStorage, parse_location

NOW = 1_795_300_000_000  # a day after the samples were made
SAMPLE_QUERY = "11111111-2222-3333-4444-555555555555"

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason=ABSENT)


def cases(pattern: str) -> list[str]:
    return sorted(case.name for case in CORPUS.glob(pattern))


def about(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "about.json").read_text())
    return found


def read(folder: Path) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(folder)), batches=ALL_BATCHES)


def query_id(checkpoint: Checkpoint) -> str:
    assert isinstance(checkpoint.query, QueryMetadata)
    return checkpoint.query.query_id


def restarts(case: Path) -> list[dict[str, Any]]:
    return [run for key, run in about(case).items() if key.startswith("restart")]


def planned_ms(checkpoint: Checkpoint) -> dict[int, int]:
    return {
        batch_id: entry.metadata.batch_timestamp_ms
        for batch_id, entry in checkpoint.offsets.entries.items()
        if isinstance(entry, OffsetEntry) and entry.metadata
    }


def log_of(table: Path) -> TableLog:
    log = read_table_log(LocalStorage(), parse_location(str(table)), deadline=Deadline.after(60))
    assert isinstance(log, TableLog)
    return log


# --- the tables of the corpus -------------------------------------------------------------------------------------

SHOWN = {
    "4.2-kafka-delta-ahead": 4,
    "4.2-kafka-expired": 2,
    "4.2-kafka-healthy": 3,
    "4.2-kafka-multi-topic": 3,
    "4.2-kafka-orphan": 2,
    "4.2-kafka-partitions-added": 2,
    "4.2-kafka-recreated-larger": 2,
    "4.2-kafka-window-healthy": 4,
}


@pytest.mark.parametrize(
    "name", list_or_skip([name for name in cases("4.2-kafka-*") if (CORPUS / name / "sink").is_dir()])
)
def test_table_shows_what_spark_had_written_and_skips_what_spark_then_skipped(name: str) -> None:
    case = CORPUS / name
    checkpoint = read(case / "checkpoint")
    found = open_sink(str(case / "sink")).evidence(query_id(checkpoint), now_ms=NOW)
    assert (found.kind, found.last_batch, found.known, found.skips_up_to) == ("delta", SHOWN[name], True, SHOWN[name])
    assert [batch.batch_id for batch in found.batches] == list(range(SHOWN[name] + 1))
    assert all(batch.is_live and batch.row_count is not None for batch in found.batches)
    assert (found.others, found.notes, found.write_obstacles) == ({}, (), ())
    for run in restarts(case):
        skipped = [int(re.findall(r"epoch (\d+)", line)[0]) for line in run["delta_skips"]]
        assert [batch_id for batch_id in run["batches_run"] if found.would_skip(batch_id)] == skipped


def test_query_without_a_table_has_written_nothing() -> None:
    case = CORPUS / "4.2-kafka-first-batch-failed"
    found = open_sink(str(case / "sink")).evidence(query_id(read(case / "checkpoint")), now_ms=NOW)
    assert (found.kind, found.last_batch, found.known) == ("absent", None, True)


@pytest.mark.parametrize("name", list_or_skip(cases("*-file-sink-*")))
def test_file_sink_skips_what_spark_then_skipped(name: str, tmp_path: Path) -> None:
    case = CORPUS / name
    shutil.copytree(case / "spark_metadata", tmp_path / "_spark_metadata")
    found = open_sink(str(tmp_path)).evidence("any", now_ms=NOW)
    assert (found.kind, found.last_batch, found.complete_from, found.notes) == ("file", 6, 0, ())
    for run in restarts(case):
        skipped = [batch_id for batch_id, rows in run["batches"] if rows == 0]
        assert [batch_id for batch_id, _ in run["batches"] if found.would_skip(batch_id)] == skipped


# --- the brokers of the corpus ------------------------------------------------------------------------------------


def facts_of(name: str) -> KafkaFacts:
    return facts_from_json(json.loads((CORPUS / name / "kafka.json").read_text()))


def kafka_end(checkpoint: Checkpoint, batch_id: int) -> Offsets:
    entry = checkpoint.offsets.entries[batch_id]
    assert isinstance(entry, OffsetEntry)
    offset = entry.sources[0].offset
    assert isinstance(offset, KafkaOffset)
    return offset.topics


def next_offsets(checkpoint: Checkpoint) -> Offsets:
    """Where the next fresh batch begins; in these cases each has a committed batch or an initial offset."""
    committed = checkpoint.commits.newest
    if committed is not None:
        return kafka_end(checkpoint, committed)
    initial = checkpoint.sources[0].initial
    assert initial is not None
    assert isinstance(initial.offset, KafkaOffset)
    return initial.offset.topics


@pytest.mark.parametrize("name", list_or_skip(cases("4.2-kafka-*")))
def test_facts_of_the_corpus_are_kept_as_they_are(name: str) -> None:
    raw = json.loads((CORPUS / name / "kafka.json").read_text())
    facts = facts_of(name)
    assert raw.items() >= {key: facts.to_json()[key] for key in ("bootstrap", "captured_at_ms", "topics")}.items()
    assert facts_from_json(facts.to_json()) == facts
    assert facts.unknowns == {}


@pytest.mark.parametrize("name", list_or_skip(cases("4.2-kafka-*")))
def test_ranges_that_spark_then_read_are_served_but_for_what_had_expired(name: str) -> None:
    checkpoint, facts = read(CORPUS / name / "checkpoint"), facts_of(name)
    start = next_offsets(checkpoint)
    for run in restarts(CORPUS / name):
        if not run["ranges"]:
            continue
        ends = [end for [[_, end]] in run["ranges"]]
        last = {topic: {int(part): offset for part, offset in parts.items()} for topic, parts in ends[-1].items()}
        asked = find_planned_ranges(start, last)
        assert find_went_back(start, last) == {}
        assert select_from_on(asked, facts.latest) == {}
        gone = select_below(asked, facts.earliest)
        assert count_offsets(asked) == count_offsets(
            select_served(asked, facts.earliest, facts.latest)
        ) + count_offsets(gone)
        if name == "4.2-kafka-expired":
            assert gone == {"exp": {0: ((15, 20),)}}
            assert count_offsets(gone) == run["sink_after"]["lost"]
        else:
            assert gone == {}


def test_partitions_that_were_added_are_those_that_the_offsets_do_not_name() -> None:
    name = "4.2-kafka-partitions-added"
    facts = facts_of(name)
    start = next_offsets(read(CORPUS / name / "checkpoint"))
    assert select_only_in(facts.latest, start) == {"add": {2: 6, 3: 6}}
    assert select_only_in(start, facts.latest) == {}


@pytest.mark.parametrize("recorded", [True, False])
def test_topic_that_was_created_again_is_told_by_its_id_and_else_by_its_times(*, recorded: bool) -> None:
    name = "4.2-kafka-recreated-larger"
    raw = json.loads((CORPUS / name / "kafka.json").read_text())
    checkpoint = read(CORPUS / name / "checkpoint")
    entry = checkpoint.offsets.entries[2]
    assert isinstance(entry, OffsetEntry)
    assert entry.metadata is not None
    found = identify_topic(
        facts_of(name).topics["reclarger"],
        reads=[ReadUpTo(entry.metadata.batch_timestamp_ms, next_offsets(checkpoint)["reclarger"])],
        asked={
            entry.metadata.batch_timestamp_ms + 1: {
                int(p): FoundRecord(at) for p, at in raw["first_offset_with_timestamp_after_batch_2"].items()
            }
        },
        recorded_topic_id=raw["topic_id_when_the_checkpoint_was_written"] if recorded else None,
    )
    assert found.identity is (TopicIdentity.ANOTHER if recorded else TopicIdentity.LOOKS_RECREATED)


# --- the samples of sinks -----------------------------------------------------------------------------------------


def sample(name: str) -> tuple[Path, dict[str, Any]]:
    return SAMPLES / name, about(SAMPLES / name).get("expect", {})


def delta_sample(name: str, app_id: str | None = None) -> tuple[SinkEvidence, dict[str, Any], Path]:
    case, expect = sample(name)
    query = query_id(read(case / "checkpoint"))
    sink = open_sink(str(case / "table"), app_id=app_id)
    assert sink.kind == "delta"
    return sink.evidence(query, now_ms=NOW), expect, case


def live_rows(found: SinkEvidence) -> int:
    return sum(batch.row_count or 0 for batch in found.batches if batch.is_live)


def source_files(case: Path, batch_ids: tuple[int, ...]) -> list[str]:
    """Names, without their endings, of the files that these batches planned."""
    log = read(case / "checkpoint").sources[0]
    entries = [log.entries[batch_id] for batch_id in batch_ids]
    return [Path(file.path).stem for entry in entries if isinstance(entry, FileLogEntry) for file in entry]


def test_empty_batches_are_versions_without_rows() -> None:
    found, expect, _ = delta_sample("delta-empty-batches")
    assert {str(batch.batch_id): batch.version for batch in found.batches} == expect["batch_to_version"]
    assert [batch.batch_id for batch in found.batches if batch.row_count == 0] == expect["empty_batches"]


def of_older_plans(found: SinkEvidence, planned_ms: dict[int, int]) -> tuple[int, ...]:
    return tuple(number for number, held in sorted(find_origins(found, planned_ms).items()) if held.origin.is_doubtful)


def test_batch_that_was_planned_anew_in_place_was_skipped() -> None:
    found, expect, case = delta_sample("delta-inplace-rollback")
    assert found.skips_up_to == expect["last_txn"]
    assert {str(batch.batch_id): batch.version for batch in found.batches} == expect["batch_to_version"]
    assert live_rows(found) == sum(expect["rows"].values())
    skipped = of_older_plans(found, planned_ms(read(case / "checkpoint")))
    assert source_files(case, skipped) == expect["lost"]


def test_constant_application_id_skipped_the_new_checkpoint() -> None:
    found, expect, case = delta_sample("delta-foreachbatch-const-appid", "my-app")
    assert found.skips_up_to == 5
    skipped = of_older_plans(found, planned_ms(read(case / "checkpoint")))
    assert source_files(case, skipped) == expect["lost"]
    by_query, _, _ = delta_sample("delta-foreachbatch-const-appid")
    assert (by_query.presumed_app_id, by_query.last_batch) == (expect["app_id"], 5)


def test_fresh_checkpoint_is_another_query_that_writes_all_again() -> None:
    found, expect, _ = delta_sample("delta-fresh-checkpoint")
    assert 1 + len(found.others) == expect["query_ids"]
    case, _ = sample("delta-fresh-checkpoint")
    log = log_of(case / "table")
    rows = [live_rows(judge_table_log(log, app_id, now_ms=NOW)) for app_id in log.transactions]
    assert sum(rows) == sum(expect["rows"].values())
    assert len(set(rows)) == 1


def test_restore_that_lowers_the_marker_is_followed_batch_by_batch() -> None:
    found, expect, _ = delta_sample("delta-restore-with-rewind")
    assert (found.last_batch, found.skips_up_to) == (expect["last_txn"], expect["last_txn"])
    for batch_id, versions in expect["epoch_versions"].items():
        assert list(found.versions(int(batch_id))) == versions
    for batch_id, version in expect["live_version"].items():
        assert found.live_version(int(batch_id)) == version
    assert live_rows(found) == sum(expect["rows"].values())
    assert found.holes == ()


def up_to(case: Path, version: int, folder: Path) -> TableLog:
    """The log as it was at a version."""
    target = folder / f"v{version}" / "_delta_log"
    target.mkdir(parents=True)
    for file in (case / "table" / "_delta_log").iterdir():
        if file.name[:20].isdecimal() and int(file.name[:20]) <= version:
            (target / file.name).symlink_to(file)
    return log_of(target.parent)


def test_cleaned_log_keeps_the_markers_until_they_expire(tmp_path: Path) -> None:
    case, expect = sample("delta-rs-log-cleaned")
    log = up_to(case, 10, tmp_path)
    assert log.transactions[SAMPLE_QUERY].version == expect["txn_q_at_v10"]
    assert log.transactions["old-app"].version == expect["old_app_at_v10"]
    after = DeltaSink(LocalStorage(), parse_location(str(case / "table")))
    old = after.evidence("old-app", now_ms=NOW)
    assert (old.skips_up_to, old.last_batch, old.known) == (expect["old_app_after_retention"], None, False)
    query = after.evidence(SAMPLE_QUERY, now_ms=1_795_208_717_851)
    assert (query.last_batch, query.skips_up_to, query.complete_from) == (7, 7, 5)


def test_batches_that_were_unpublished_are_taken_back(tmp_path: Path) -> None:
    case, expect = sample("delta-rs-unpublish")
    for version, marker in ((5, expect["txn_at_v5"]), (6, expect["txn_at_v6"])):
        found = judge_table_log(up_to(case, version, tmp_path), SAMPLE_QUERY, now_ms=NOW)
        assert (found.last_batch, found.skips_up_to) == (marker, marker)
        assert {batch.batch_id for batch in found.batches if batch.is_live} == set(range(marker + 1))


def file_sample(name: str) -> tuple[FileSinkLog, SinkEvidence, dict[str, Any], Path]:
    case, expect = sample(name)
    sink = FileSink(LocalStorage(), parse_location(str(case / "sink")))
    log = sink.read()
    assert log is not None
    return log, sink.evidence("any", now_ms=NOW), expect, case


def test_layout_of_a_file_sink_is_read() -> None:
    log, found, expect, _ = file_sample("filesink-layout")
    assert found.last_batch == expect["latest_batch"]
    entries = {
        f"{batch_id}{'.compact' if batch_id in log.listing.compact else ''}": len(list(entry))
        for batch_id, entry in log.entries.items()
        if isinstance(entry, FileLogEntry)
    }
    assert expect["entries"].items() <= entries.items()
    assert log.interval == 3
    assert [len(log.files_of(batch_id) or ()) for batch_id in range(8)] == [1] * 8


def test_file_sink_skipped_the_batch_that_was_planned_anew() -> None:
    _, found, expect, case = file_sample("filesink-inplace-rollback")
    skipped = of_older_plans(found, planned_ms(read(case / "checkpoint")))
    assert source_files(case, skipped) == expect["lost"]


def test_file_sink_that_is_numbered_on_skips_nothing() -> None:
    _, found, expect, case = file_sample("filesink-numbered-above")
    assert found.last_batch == expect["latest_batch"]
    planned_here = {batch_id: at for batch_id, at in planned_ms(read(case / "checkpoint")).items() if batch_id > 3}
    assert list(of_older_plans(found, planned_here)) == expect["lost"]


def test_rolled_back_file_sink_leaves_files_that_nobody_lists() -> None:
    log, found, expect, case = file_sample("filesink-rolled-back")
    listed = {Path(file.path).name for file in log.listed_files or ()}
    there = set((case / "files.txt").read_text().split())
    assert (len(listed), len(there)) == (expect["listed_files"], expect["data_files"])
    assert listed < there
    assert found.notes == ()


def test_fence_knew_the_batches_and_lost_what_it_took_for_one_of_them(tmp_path: Path) -> None:
    case, expect = sample("foreachbatch-fence")
    file = tmp_path / "sink.db"
    connection = sqlite3.connect(file)
    connection.executescript((case / "sink.sql").read_text())
    in_sink = {name for (name,) in connection.execute("SELECT f FROM sink")}
    connection.close()
    table = FenceTable("fence", "q", "b", None, None, None, None, None)
    found = open_fence(f"sqlite:///{file}", table=table).evidence(query_id(read(case / "checkpoint")), now_ms=NOW)
    assert [batch.batch_id for batch in found.batches] == expect["fence"]
    assert found.skips_up_to == 2
    assert not in_sink & {*expect["lost"], *source_files(case, (2,))}
    assert found.notes


@pytest.mark.parametrize(
    ("number", "ref", "last", "known", "skips"),
    [
        (4, "main", 3, True, 3),
        (5, "main", 1, True, 1),
        (7, "main", 3, True, 3),
        (8, "main", 3, True, 3),
        (9, "main", None, False, None),
        (11, "main", None, False, None),
        (11, "audit", 10, True, None),
    ],
)
def test_iceberg_tables_are_walked_as_spark_does(
    number: int, ref: str, last: int | None, known: bool, skips: int | None
) -> None:
    raw = (SAMPLES / "iceberg-summaries" / f"{number:02d}.metadata.json").read_bytes()
    metadata = parse_iceberg_metadata(raw)
    assert isinstance(metadata, IcebergMetadata)
    found = iceberg_evidence_of(metadata, SAMPLE_QUERY, location="t", ref=ref)
    assert (found.last_batch, found.known, found.skips_up_to) == (last, known, skips)
    if number == 7:
        assert [batch.is_live for batch in found.batches] == [True, True, False, False, True, True]


@pytest.mark.parametrize(("query", "ends"), [("a", [None, 4, 5]), ("b", [4]), ("c2", [4, 5, 6])])
def test_offsets_of_a_delta_source_tell_where_a_new_query_would_go_on(query: str, ends: list[int | None]) -> None:
    found: list[int | None] = []
    for batch_id in range(len(ends)):
        entry = parse_offset_entry((SAMPLES / "delta-source-offsets" / query / "offsets" / str(batch_id)).read_bytes())
        assert isinstance(entry, OffsetEntry)
        offset = entry.sources[0].offset
        assert isinstance(offset, DeltaOffset)
        found.append(find_starting_version(offset))
    assert found == ends


def test_every_sample_is_looked_at() -> None:
    looked_at = Path(__file__).read_text()
    assert [case.name for case in SAMPLES.iterdir() if f'"{case.name}"' not in looked_at] == []
