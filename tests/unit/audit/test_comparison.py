from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from shared_corpus import CORPUS

from lastgood.audit import spark_job, specification
from lastgood.audit.committed import NoCommittedBatchError, read_committed
from lastgood.audit.spark_job import SinkUnreadableError
from lastgood.audit.specification import find_sink_table, make_audit_spec
from lastgood.errors import LastgoodError, UsageError
from lastgood.process.marked import follow
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts, TopicFacts
from lastgood.sources.kafka.reader import SourceKindError, TopicRecreatedError
from lastgood.spark.audit import MARK, AuditSpec, SinkTable
from lastgood.storage.reading import LocationInvalidError
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder, KafkaInput


def corpus(case: str) -> str:
    if not CORPUS.is_dir():
        pytest.skip("no corpus beside the repository")
    return str(CORPUS / case / "checkpoint")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("delta:/lake/orders", SinkTable("delta", "/lake/orders")),
        ("delta:s3a://lake/orders/", SinkTable("delta", "s3a://lake/orders")),
        ("file:/lake/orders", SinkTable("file", "/lake/orders")),
        ("file:///lake/orders", SinkTable("file", "/lake/orders")),
        ("file:hdfs://nn:8020/orders", SinkTable("file", "hdfs://nn:8020/orders")),
        ("table:lake.sales.orders", SinkTable("table", "lake.sales.orders")),
    ],
)
def test_kind_before_the_colon_says_what_the_sink_is(text: str, table: SinkTable) -> None:
    assert find_sink_table(text) == table


def test_kind_of_a_location_alone_is_told_by_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "files").mkdir()
    assert find_sink_table(f"{tmp_path}/table") == SinkTable("delta", f"{tmp_path}/table")
    assert find_sink_table(f"{tmp_path}/files") == SinkTable("file", f"{tmp_path}/files")
    with pytest.raises(SinkUnreadableError) as caught:
        find_sink_table(f"{tmp_path}/nowhere")
    assert caught.value.subject == f"{tmp_path}/nowhere"


@pytest.mark.parametrize("text", ["", "delta:", "table:", "ftp://lake/orders"])
def test_sink_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(LocationInvalidError):
        find_sink_table(text)


def test_committed_part_of_a_checkpoint_ends_before_its_orphan() -> None:
    case = Path(corpus("4.2-kafka-orphan"))
    committed = read_committed(str(case))
    end = json.loads((case / "offsets" / "2").read_text().splitlines()[-1])
    assert (committed.batch_id, committed.is_start_known) == (2, True)
    assert {(each.topic, each.partition): each.end for each in committed.ranges} == {
        (topic, int(part)): offset for topic, parts in end.items() for part, offset in parts.items()
    }


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("4.2-kafka-first-batch-failed", "batch 0, planned and not committed"),
        ("nowhere", "no such folder"),
    ],
)
def test_checkpoint_without_a_committed_batch_is_refused(case: str, found: str) -> None:
    with pytest.raises(NoCommittedBatchError) as caught:
        read_committed(corpus(case))
    assert caught.value.found == found


def test_committed_batch_without_readable_offsets_is_refused(tmp_path: Path) -> None:
    for name, text in {"commits/3": 'v1\n{"nextBatchWatermarkMs":0}', "offsets/3": "v1\n", "metadata": "{}"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(NoCommittedBatchError) as caught:
        read_committed(str(tmp_path))
    assert caught.value.subject == f"{tmp_path}/offsets/3"


def test_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(SourceKindError):
        read_committed(corpus("4.3-stateless-file-healthy"))


A, B = "4JsV+tHNSU+gPfgSpzeUDQ", "nDEnP2/uQAmNBGp3x9TKJA"
PLANNED_MS = 1_795_220_516_284


def spec_where_kafka_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_id: str | None, first: FoundRecord, **options: Any
) -> AuditSpec:
    """Of a query that has read 0 to 700 of topic A, as lastgood noted down."""
    query = CheckpointBuilder(tmp_path / "chk", KafkaInput("orders", 1, 100), started_ms=PLANNED_MS - 6000)
    query.run(7)
    (tmp_path / "chk.lastgood").mkdir()
    (tmp_path / "chk.lastgood/topics.json").write_text(json.dumps({"query": QUERY_ID, "topics": {"orders": A}}))
    topic = TopicFacts(topic_id, {0: PartitionFacts(0, 1500)}, {"cleanup.policy": "delete"})

    def answer(servers: str, *_: object, times_ms: tuple[int, ...] = (), **__: object) -> KafkaFacts:
        assert PLANNED_MS + 1 in times_ms
        return KafkaFacts(servers, PLANNED_MS, {"orders": topic}, {PLANNED_MS + 1: {"orders": {0: first}}})

    monkeypatch.setattr(specification, "ask_kafka", answer)
    return make_audit_spec(resolve_target(str(tmp_path / "chk")), kafka="k:9092", sink="table:t", **options)


HOUR_LATER, A_MINUTE_LATER = FoundRecord(0, PLANNED_MS + 3_600_000), FoundRecord(0, PLANNED_MS + 60_000)
UNREAD = FoundRecord(700, PLANNED_MS + 3_600_000)


def test_topic_that_was_read_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (compared,) = spec_where_kafka_has(tmp_path, monkeypatch, A, UNREAD).ranges
    assert (compared.begin, compared.end) == (0, 700)


@pytest.mark.parametrize(("topic_id", "first"), [(B, UNREAD), (None, HOUR_LATER), (None, A_MINUTE_LATER)])
def test_topic_that_is_another_or_may_be_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_id: str | None, first: FoundRecord
) -> None:
    with pytest.raises(TopicRecreatedError) as caught:
        spec_where_kafka_has(tmp_path, monkeypatch, topic_id, first)
    assert caught.value.subject == "orders"
    assert "not compared" in str(caught.value.effect)
    if topic_id is not None:
        assert caught.value.found == f"its id was {A} and is {B}"


def test_person_settles_what_clocks_leave_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spec_where_kafka_has(tmp_path, monkeypatch, None, A_MINUTE_LATER, topic_is_the_same=True).ranges


def test_isolation_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        make_audit_spec(resolve_target("/chk"), kafka="broker:9092", sink="table:t", isolation_level="serializable")
    assert caught.value.found == "serializable"


@pytest.mark.parametrize(
    ("kind", "condition", "exit_code"),
    [
        ("no_such_column", "SINK_COLUMN_MISSING", 2),
        ("bad_expression", "SQL_INVALID", 2),
        ("no_key", "USAGE", 2),
        ("sink_unreadable", "SINK_UNREADABLE", 65),
        ("failed", "AUDIT_FAILED", 66),
    ],
)
def test_each_refusal_of_the_job_is_an_error_of_its_own(kind: str, condition: str, exit_code: int) -> None:
    error = spark_job._make_refused_error({"kind": kind, "subject": "what", "found": "why"}, Path("verify.log"))
    assert isinstance(error, LastgoodError)
    assert (error.condition, error.exit_code) == (condition, exit_code)
    assert "why" in " ".join(error.facts().values())


def test_log_is_kept_and_stages_are_passed_on() -> None:
    lines = ["starting\n", f'{MARK}{{"stage": "reading"}}\n', "Exception: no\n", "\tat here\n", "\n"]
    log, told = io.StringIO(), list[str]()
    assert follow(lines, log, MARK, told.append) == "Exception: no"
    assert [spark_job._name_stage(each) for each in told] == ["reading"]
    assert log.getvalue() == "starting\nException: no\n\tat here\n\n"
