"""Real checkpoints with what stood around them: the findings are what Spark then did, and healthy ones have none.

The large corpus and the sink samples lie beside the repository where there is one.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from shared_corpus import ABSENT, CORPUS, SAMPLES, list_or_skip

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.rules_kafka import find_kafka
from lastgood.diagnosis.rules_sinks import find_sinks
from lastgood.diagnosis.rules_sources import find_sources
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.query.spans import list_spans
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.fence.sink import FenceTable, open_fence
from lastgood.sinks.iceberg.sink import IcebergMetadata, parse_iceberg_metadata
from lastgood.sinks.iceberg.sink import judge_metadata as iceberg_evidence_of
from lastgood.sinks.opening import open_sink
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.sources.files.folders import ask_files
from lastgood.sources.kafka.facts import KafkaFacts, facts_from_json
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

NOW = 1_795_300_000_000  # a day after the samples were made
SAMPLE_QUERY = "11111111-2222-3333-4444-555555555555"
INFO, WARNING, ERROR = Severity

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason=ABSENT)


def cases(pattern: str) -> list[str]:
    return sorted(case.parent.name for case in CORPUS.glob(f"*/{pattern}"))


def read(folder: Path) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(folder)))


def shown(sink: Path | str, checkpoint: Checkpoint, app_id: str | None = None) -> SinkEvidence:
    assert isinstance(checkpoint.query, QueryMetadata)
    return open_sink(str(sink), app_id=app_id).evidence(checkpoint.query.query_id, now_ms=NOW)


def broker(case: Path) -> KafkaFacts | None:
    file = case / "kafka.json"
    return facts_from_json(json.loads(file.read_text())) if file.is_file() else None


def find(checkpoint: Checkpoint, *sinks: SinkEvidence, **others: Any) -> list[Finding]:
    observed = Observation(checkpoint, location="/chk", now_ms=NOW, sinks=sinks, **others)
    restart = predict(observed, SPARK_4_2)
    return [*find_kafka(observed, restart), *find_sources(observed, restart), *find_sinks(observed, restart)]


def bad(findings: list[Finding]) -> list[str]:
    """What a healthy query has none of."""
    return [finding.condition.name for finding in findings if finding.severity > INFO]


# --- the corpus -----------------------------------------------------------------------------------------------------

KAFKA = {
    "4.2-kafka-delta-ahead": ["SINK_WOULD_SKIP"],
    "4.2-kafka-expired": ["SOURCE_RANGE_EXPIRED"],
    "4.2-kafka-recreated-larger": ["SOURCE_TOPIC_RECREATED"],
}


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("name", list_or_skip(cases("kafka.json")))
def test_what_spark_then_lost_or_skipped_is_found_and_nothing_else(name: str, fail_on_data_loss: bool) -> None:
    case = CORPUS / name
    checkpoint = read(case / "checkpoint")
    sink = shown(case / "sink", checkpoint)
    found = find(checkpoint, sink, kafka=broker(case), fail_on_data_loss=fail_on_data_loss)
    assert bad(found) == KAFKA.get(name, [])
    assert all(finding.severity is ERROR for finding in found if finding.condition.name in bad(found))


def test_expired_range_is_the_one_that_spark_then_lost() -> None:
    case = CORPUS / "4.2-kafka-expired"
    (found,) = find(read(case / "checkpoint"), kafka=broker(case))
    about = json.loads((case / "about.json").read_text())
    assert found.evidence["lost"] == {"exp": {"0": [[15, 20]]}}
    assert found.evidence["lost_offsets"] == about["restart_failOnDataLoss_false"]["sink_after"]["lost"]


def test_other_topic_of_the_same_name_is_proven_by_its_id_and_else_told_by_its_times() -> None:
    case = CORPUS / "4.2-kafka-recreated-larger"
    raw = json.loads((case / "kafka.json").read_text())
    (proven,) = find(read(case / "checkpoint"), kafka=facts_from_json(raw))
    del raw["topic_id_when_the_checkpoint_was_written"]
    (hinted,) = find(read(case / "checkpoint"), kafka=facts_from_json(raw))
    assert (proven.severity, hinted.severity) == (ERROR, WARNING)
    about = json.loads((case / "about.json").read_text())
    ranges = [span for spans in proven.evidence["never_read"]["reclarger"].values() for span in spans]
    assert sum(end - start for start, end in ranges) == about["restart"]["sink_after"]["lost"]


def test_new_partitions_are_told() -> None:
    case = CORPUS / "4.2-kafka-partitions-added"
    (found,) = find(read(case / "checkpoint"), kafka=broker(case))
    assert (found.condition.name, found.subject) == ("SOURCE_PARTITIONS_ADDED", "add-2, add-3")


def test_batches_of_sparks_own_sink_are_told_from_those_of_a_function() -> None:
    checkpoint = read(CORPUS / "4.2-kafka-healthy" / "checkpoint")
    own = shown(CORPUS / "4.2-kafka-healthy" / "sink", checkpoint)
    sample = SAMPLES / "delta-foreachbatch-const-appid"
    by_function = shown(sample / "table", read(sample / "checkpoint"), "my-app")
    assert {batch.is_streaming for batch in own.batches} == {True}
    assert {batch.is_streaming for batch in by_function.batches} == {False}


@pytest.mark.parametrize("name", list_or_skip(cases("spark_metadata")))
def test_batches_that_a_file_sink_then_dropped_are_found(name: str, tmp_path: Path) -> None:
    case = CORPUS / name
    shutil.copytree(case / "spark_metadata", tmp_path / "_spark_metadata")
    checkpoint = read(case / "checkpoint")
    found = find(checkpoint, shown(tmp_path, checkpoint))
    about = json.loads((case / "about.json").read_text())
    dropped = [batch_id for batch_id, rows in about.get("restart", {}).get("batches", ()) if rows == 0]
    assert bad(found) == (["SINK_WOULD_SKIP"] if dropped else [])
    if dropped:
        assert found[0].evidence["would_skip"] == [dropped[0], dropped[-1]]


@pytest.mark.parametrize("name", list_or_skip(cases("checkpoint")))
def test_checkpoint_alone_shows_no_fault_of_its_sources(name: str) -> None:
    assert bad(find(read(CORPUS / name / "checkpoint"))) == []


def test_orphan_whose_files_are_gone_would_be_committed_empty() -> None:
    checkpoint = read(CORPUS / "4.3-file-orphan-uncommitted" / "checkpoint")
    entry = checkpoint.sources[0].entries[2]
    files = ask_files(list(entry))  # type: ignore[arg-type]  # it is a file source
    assert bad(find(checkpoint, files={"0": files})) == ["SOURCE_FILES_GONE"]


# --- the samples of sinks ---------------------------------------------------------------------------------------------

SAMPLE_FINDINGS: dict[tuple[str, str | None], list[str]] = {
    ("delta-empty-batches", None): [],
    ("delta-foreachbatch-const-appid", None): ["SINK_BATCHES_SKIPPED"],
    ("delta-foreachbatch-const-appid", "my-app"): ["SINK_BATCHES_SKIPPED"],
    ("delta-fresh-checkpoint", None): [],
    ("delta-inplace-rollback", None): ["SINK_BATCHES_SKIPPED"],
    ("delta-restore-with-rewind", None): [],
    ("filesink-inplace-rollback", None): ["SINK_BATCHES_SKIPPED"],
    ("filesink-layout", None): [],
    ("filesink-numbered-above", None): [],
    ("filesink-rolled-back", None): [],
}


@pytest.mark.parametrize(("name", "app_id"), SAMPLE_FINDINGS)
def test_what_a_sample_lost_is_found_and_nothing_else(name: str, app_id: str | None) -> None:
    case = SAMPLES / name
    checkpoint = read(case / "checkpoint")
    sink = next(folder for folder in (case / "table", case / "sink") if folder.is_dir())
    found = find(checkpoint, shown(sink, checkpoint, app_id))
    assert bad(found) == SAMPLE_FINDINGS[name, app_id]
    lost = json.loads((case / "about.json").read_text())["expect"].get("lost", [])
    assert bool(bad(found)) is bool(lost)
    is_presumed = name == "delta-foreachbatch-const-appid" and app_id is None
    assert [finding.severity for finding in found if finding.severity > INFO] == [
        WARNING if is_presumed else ERROR
    ] * bool(lost)


def test_former_checkpoint_of_a_table_is_told() -> None:
    case = SAMPLES / "delta-fresh-checkpoint"
    checkpoint = read(case / "checkpoint")
    (found,) = find(checkpoint, shown(case / "table", checkpoint))
    assert (found.condition.name, list(found.evidence["others"].values())) == ("SINK_KNOWS_OTHER_QUERY", [3])


def test_fence_that_knows_numbers_only_is_told(tmp_path: Path) -> None:
    case = SAMPLES / "foreachbatch-fence"
    checkpoint = read(case / "checkpoint")
    assert isinstance(checkpoint.query, QueryMetadata)
    file = tmp_path / "sink.db"
    connection = sqlite3.connect(file)
    connection.executescript((case / "sink.sql").read_text())
    connection.close()
    table = FenceTable("fence", "q", "b", None, None, None, None, None)
    evidence = open_fence(f"sqlite:///{file}", table=table).evidence(checkpoint.query.query_id, now_ms=NOW)
    assert [finding.condition.name for finding in find(checkpoint, evidence)] == ["SINK_NOTES"]


def committed(folder: Path, batches: int) -> Checkpoint:
    """A query that had planned its batches before the samples were written."""
    CheckpointBuilder(folder, query_id=SAMPLE_QUERY, started_ms=1_700_000_000_000).run(batches)
    return read(folder)


@pytest.mark.parametrize(
    ("name", "batches", "expected"),
    [
        ("delta-rs-log-cleaned", 8, ["SINK_BATCHES_MISSING"]),  # batch 6 was never written
        ("delta-rs-unpublish", 2, []),
        ("delta-rs-unpublish", 4, ["SINK_BEHIND"]),
    ],
)
def test_tables_without_a_checkpoint_are_held_against_one(
    tmp_path: Path, name: str, batches: int, expected: list[str]
) -> None:
    checkpoint = committed(tmp_path, batches)
    evidence = open_sink(str(SAMPLES / name / "table")).evidence(SAMPLE_QUERY, now_ms=1_795_208_717_851)
    assert bad(find(checkpoint, evidence)) == expected


@pytest.mark.parametrize(
    ("number", "ref", "batches", "expected"),
    [
        (4, "main", 4, []),
        (5, "main", 4, ["SINK_BEHIND"]),
        (5, "main", 2, []),
        (7, "main", 4, []),
        (8, "main", 4, []),
        (9, "main", 4, []),
        (11, "audit", 11, []),
    ],
)
def test_iceberg_tables_are_held_against_a_checkpoint(
    tmp_path: Path, number: int, ref: str, batches: int, expected: list[str]
) -> None:
    raw = (SAMPLES / "iceberg-summaries" / f"{number:02d}.metadata.json").read_bytes()
    metadata = parse_iceberg_metadata(raw)
    assert isinstance(metadata, IcebergMetadata)
    evidence = iceberg_evidence_of(metadata, SAMPLE_QUERY, location="t", ref=ref)
    assert bad(find(committed(tmp_path, batches), evidence)) == expected


@pytest.mark.parametrize("name", ["a", "b", "c2"])
def test_delta_sources_of_the_samples_need_the_versions_of_their_last_batch(name: str) -> None:
    checkpoint = read(SAMPLES / "delta-source-offsets" / name)
    last = list_spans(checkpoint)[-1]
    assert isinstance(last.end, DeltaOffset)
    table_id, newest = last.end.table_id, last.end.table_version

    def table(earliest: int, table_id: str = table_id) -> dict[str, DeltaFacts]:
        return {"0": DeltaFacts("/in", table_id, earliest_version=earliest, latest_version=newest + 3)}

    assert bad(find(checkpoint, tables=table(0))) == []
    assert bad(find(checkpoint, tables=table(newest + 1))) == ["SOURCE_VERSIONS_GONE"]
    assert bad(find(checkpoint, tables=table(0, "another"))) == ["SOURCE_TABLE_REPLACED"]


def test_every_sample_is_looked_at() -> None:
    looked_at = Path(__file__).read_text()
    assert [case.name for case in SAMPLES.iterdir() if f'"{case.name}"' not in looked_at] == []
