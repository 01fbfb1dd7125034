from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from lastgood.failures.log_entries import LogEntry, read_entries
from lastgood.failures.log_facts import FactsReader, LogFacts, LoggedQuery
from lastgood.records.record import Subscription

LOGS = Path(__file__).with_name("logs")
ONE, TWO, RUN = (digit * 8 + "-0000-0000-0000-000000000000" for digit in "123")


def facts_of(log: bytes) -> LogFacts:
    reader = FactsReader()
    for entry in read_entries(io.BytesIO(log)):
        reader.read(entry)
    return reader.facts()


def query_of(log: bytes, name: str | None = None) -> LoggedQuery:
    (query,) = [each for each in facts_of(log).queries if name in (None, each.name)]
    return query


def engine(text: str, level: str = "INFO") -> bytes:
    return f"26/11/21 12:00:00 {level} MicroBatchExecution: {text}\n".encode()


def starting(query: str = ONE, run: str = RUN) -> bytes:
    return engine(f"Starting orders [id = {query}, runId = {run}]. Use file:/chk/o to store the query checkpoint.")


def test_log_at_info_tells_nearly_all_of_a_query() -> None:
    log = (LOGS / "spark-4.2.0.log").read_bytes()
    query = query_of(log, "expired_to_delta")
    assert query.checkpoint == "file:/data/chk/expired_to_delta"
    (source,) = query.sources
    assert (source.kind, source.subscription) == ("kafka", Subscription(kind="subscribe", value="expired_to_delta"))
    assert source.start_offset == {"expired_to_delta": {"0": 10}}
    assert source.end_offset == {"expired_to_delta": {"0": 20}}
    assert query.sink is not None
    assert (query.sink.kind, query.sink.location) == ("delta", "/data/table/expired_to_delta")
    assert query.sink_options["path"] == "/data/table/expired_to_delta"
    assert (query.last_planned, query.last_committed, query.trigger) == (1, 0, "available_now")
    assert query.fail_on_data_loss is True
    assert (query.state_store_provider or "").endswith(".HDFSBackedStateStoreProvider")
    facts = facts_of(log)
    assert facts.bootstrap_servers == ("127.0.0.1:26216",)
    assert facts.delta_tables == ("file:/data/table/expired_to_delta",)
    assert facts.failed_writes == ("file:/data/table/expired_to_delta", "file:/data/table/poison_to_delta")


def test_log_at_warn_tells_topic_offsets_sink_and_checkpoint() -> None:
    """Only the text of the failed query is there."""
    lines = (LOGS / "spark-4.2.0.log").read_bytes().splitlines(keepends=True)
    blocks, keeps = [], False
    for line in lines:
        if line[:3] == b"26/" or line.startswith(b"Traceback"):
            keeps = b" INFO " not in line[:24]
        blocks += [line] if keeps else []
    query = query_of(b"".join(blocks), "expired_in_foreach_batch")
    assert query.checkpoint == "/data/chk/expired_in_foreach_batch"
    assert query.sources[0].subscription == Subscription(kind="subscribe", value="expired_in_foreach_batch")
    assert query.sources[0].end_offset == {"expired_in_foreach_batch": {"0": 20}}
    assert query.sink is not None
    assert query.sink.kind == "foreach_batch"
    assert query.fail_on_data_loss is True


def test_json_layout_tells_the_same() -> None:
    query = query_of((LOGS / "spark-4.2.0-json.log").read_bytes(), "expired_to_delta")
    assert query.sources[0].end_offset == {"expired_to_delta": {"0": 10}}
    assert query.sink is not None
    assert query.sink.location == "/data/table/expired_to_delta"


@pytest.mark.parametrize(
    ("line", "application"),
    [
        ("INFO Client: Submitted application application_1700000000000_0042", "application_1700000000000_0042"),
        (
            "INFO StandaloneSchedulerBackend: Connected to Spark cluster with app ID app-20261121120000-0003",
            "app-20261121120000-0003",
        ),
        (
            "INFO SingleEventLogFileWriter: Logging events to file:/e/local-1795264908711.inprogress",
            "local-1795264908711",
        ),
    ],
)
def test_application_is_known_by_what_the_cluster_calls_it(line: str, application: str) -> None:
    assert facts_of(f"26/11/21 12:00:00 {line}\n".encode()).application_id == application


def test_options_of_a_file_source_are_told() -> None:
    log = starting() + engine(
        "Using Source [FileStreamSource[file:/in]] from DataSourceV1 named 'FileSource[/in]' [DataSource(org.x.S@1,"
        "json,List(),Some(StructType(StructField(k,StringType,true))),List(),None,"
        "Map(maxFilesPerTrigger -> 1, path -> /in),None)]",
    )
    (source,) = query_of(log).sources
    assert (source.kind, source.location) == ("files", "file:/in")
    assert source.options == {"maxFilesPerTrigger": "1", "path": "/in"}


def test_line_that_names_no_query_is_of_the_only_one_that_runs() -> None:
    resuming = engine(
        'Resuming at batch 7 with committed offsets {KafkaV2[SubscribePattern[o.*]]: {"o":{"0":3}}, '
        'FileStreamSource[file:/in]: {"logOffset":1}} and available offsets '
        '{KafkaV2[SubscribePattern[o.*]]: {"o":{"0":4}}, '
        'FileStreamSource[file:/in]: {"logOffset":2}}',
    )
    query = query_of(starting() + resuming)
    assert query.last_planned == 7
    assert [(each.kind, each.start_offset, each.end_offset) for each in query.sources] == [
        ("kafka", {"o": {"0": 3}}, {"o": {"0": 4}}),
        ("files", {"logOffset": 1}, {"logOffset": 2}),
    ]
    assert query.sources[0].subscription == Subscription(kind="subscribe_pattern", value="o.*")
    both = facts_of(starting() + starting(TWO, TWO) + resuming)
    assert [each.last_planned for each in both.queries] == [None, None]
    over = engine(f"Async log purge executor pool for query orders [id = {TWO}, runId = {TWO}] has been shutdown")
    first, second = facts_of(starting() + starting(TWO, TWO) + over + resuming).queries
    assert (first.last_planned, second.last_planned) == (7, None)


def test_number_of_a_batch_that_none_can_be_is_left_out() -> None:
    told = f'{{"id": "{ONE}", "batchId": 1e999, "sources": [], "sink": {{"description": "x"}}}}'
    log = starting() + engine(f"Streaming query made progress: {told}")
    assert query_of(log).last_planned is None


def test_files_that_were_written_tell_planned_and_committed_batches() -> None:
    written = "26/11/21 12:00:00 INFO CheckpointFileManager: Renamed temp file file:/chk/o/.x.tmp to file:/chk/o/{}\n"
    query = query_of(starting() + written.format("offsets/8").encode() + written.format("commits/7").encode())
    assert (query.last_planned, query.last_committed) == (8, 7)


def test_tasks_tell_the_batch_of_a_query_that_is_known_only_by_its_end() -> None:
    task = f"26/11/21 12:00:00 WARN TaskSetManager: [queryId = {ONE[:5]}] [batchId = 9] Lost task 0.0\n".encode()
    end = engine(f"Query orders [id = {ONE}, runId = {RUN}] terminated with error", "ERROR")
    assert query_of(task + end).last_planned == 9
    assert query_of(starting() + task).last_planned == 9


def test_source_that_may_lose_data_says_so() -> None:
    warned = (
        b"26/11/21 12:00:00 WARN KafkaMicroBatchStream: Set(t-1) are gone. Some data may have been missed.. "
        b'If you want your streaming query to fail on such cases, set the source option "failOnDataLoss" to "true".\n'
    )
    assert query_of(starting() + warned).fail_on_data_loss is False


@pytest.mark.parametrize(
    ("description", "kind", "location"),
    [
        ("FileSink[s3a://lake/out]", "files", "s3a://lake/out"),
        ("org.apache.spark.sql.execution.datasources.noop.NoopTable$@2f83d89f", "NoopTable", None),
        ("org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@1", "kafka", None),
        ("ForeachBatchSink", "foreach_batch", None),
        ("MemorySink", "MemorySink", None),
    ],
)
def test_sinks_are_known_by_what_spark_calls_them(description: str, kind: str, location: str | None) -> None:
    progress = {"id": ONE, "batchId": 3, "sources": [], "sink": {"description": description}}
    sink = query_of(engine("Streaming query made progress: " + json.dumps(progress))).sink
    assert sink is not None
    assert (sink.kind, sink.location) == (kind, location)


@pytest.mark.parametrize("told", ["{", "{}", '{"id":"q","batchId":"x"}', "[]", "null"])
def test_progress_that_is_cut_tells_nothing(told: str) -> None:
    assert facts_of(engine("Streaming query made progress: " + told)).queries == ()


def test_records_of_the_agent_tell_what_a_log_does() -> None:
    common = {"recorded_at_ms": 1, "query_id": "q", "run_id": "r", "query_name": "n", "checkpoint": "file:/c"}
    kafka = {
        "description": "KafkaV2[Subscribe[a,b]]",
        "subscription": {"kind": "subscribe", "value": "a,b"},
        "start_offset": {"a": {"0": 1}},
        "end_offset": {"a": {"0": 2}},
    }
    records = [
        {**common, "kind": "started", "spark_version": "4.2.0", "application_id": "local-1"},
        {**common, "kind": "progress", "batch_id": 2, "sources": [kafka], "sink": {"description": "DeltaSink[/t]"}},
        {**common, "kind": "terminated", "batch_id": 3},
    ]
    facts = facts_of("".join(json.dumps(each) + "\n" for each in records).encode())
    assert (facts.spark_version, facts.application_id) == ("4.2.0", "local-1")
    (query,) = facts.queries
    assert (query.last_planned, query.last_committed, query.checkpoint) == (3, 2, "file:/c")
    assert query.sources[0].subscription == Subscription(kind="subscribe", value="a,b")
    assert query.sink is not None
    assert query.sink.location == "/t"


def test_json_of_facts_holds_values_only() -> None:
    facts = facts_of((LOGS / "spark-4.2.0.log").read_bytes())
    assert json.loads(json.dumps(facts.to_json()))["queries"][0]["name"] == "udf"


def test_reader_can_be_asked_before_the_end() -> None:
    reader = FactsReader()
    assert reader.query(None) is None
    reader.read(LogEntry(first_line=1, last_line=1, level="INFO", logger="MicroBatchExecution", text=""))
    assert reader.query(ONE) is None
