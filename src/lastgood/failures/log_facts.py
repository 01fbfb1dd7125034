"""What a driver's log tells beside its failures: queries, checkpoints, topics, offsets, sinks, settings. Pure.

At INFO a log tells nearly all of this; at WARN what stands in the text of a failed query: its ids, its offsets with
the topics that it reads, and its plan with the sink. Nobody logs the options of a Kafka source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from lastgood.failures.causes import take_simple_name
from lastgood.failures.log_entries import LogEntry
from lastgood.frozen import dataclass
from lastgood.records.record import Progress, QueryStarted, Record, RecordedSource, Subscription, Terminated
from lastgood.values import JsonValue

_TABLES_MAX = 100

_ID = r"\[id = (?P<query>[0-9a-f-]{36}), runId = (?P<run>[0-9a-f-]{36})\]"
_STARTING = re.compile(rf"Starting (?:(?P<name>.+) )?{_ID}\. Use (?P<checkpoint>.+) to store the query checkpoint\.")
_OVER = re.compile(rf"{_ID} (?:has been shutdown|was stopped)")
_TERMINATED = re.compile(rf"Query (?:(?P<name>.+) )?{_ID} terminated with error")
_IDENTIFIER = re.compile(rf"^Identifier: (?:(?P<name>.+) )?{_ID}", re.MULTILINE)
_COMMITTED = re.compile(r"^Current Committed Offsets: (.+)$", re.MULTILINE)
_AVAILABLE = re.compile(r"^Current Available Offsets: (.+)$", re.MULTILINE)
_RESUMING = re.compile(r"Resuming at batch (\d{1,18}) with committed offsets (.+) and available offsets (\{.+)")
_SOURCE_V1 = re.compile(r"Using Source \[(.+?)\] from DataSourceV1 named .*?,Map\(([^)]*)\)")
_PLAN_V1 = re.compile(
    r"WriteToMicroBatchDataSourceV1 (?P<sink>.+?), (?P<query>[0-9a-f-]{36}), \[(?P<options>[^\]]*)\]", re.MULTILINE
)
_PLAN_V2 = re.compile(r"WriteToMicroBatchDataSource (\S+)")
_PLANNED = re.compile(
    r"Committed offsets for batch (\d{1,18})\. Metadata OffsetSeqMetadata\w*\(-?\d+,\d+,\w*Map\((.*?)\)"
)
_WRITTEN = re.compile(r"Renamed temp file \S+ to (\S+)/(offsets|commits)/(\d{1,18})$")
_TASK = re.compile(r"\[queryId = ([0-9a-f]+)\] \[batchId = (\d{1,18})\]")
_VERSION = re.compile(r"Running Spark version (\S+)")
_APPLICATION = re.compile(r"\b(application_\d+_\d+|app-\d{14}-\d+|local-\d{13}|spark-[0-9a-f]{32})\b")
_BOOTSTRAP = re.compile(r"bootstrap\.servers = \[([^\]]*)\]")
_DELTA_COMMIT = re.compile(r"Committed delta #\d+ to (\S+)/_delta_log")
_WRITE_FAILED = re.compile(r"\[TASK_WRITE_FAILED\] Task failed while writing rows to (\S+?)\.(?:\s|$)")
_REMOVED_IDLE = "removed due to idle timeout"
_TRIGGERS = {
    "MultiBatchExecutor.execute": "available_now",
    "SingleBatchExecutor.execute": "once",
    "ProcessingTimeExecutor.execute": "processing_time",
    "ContinuousExecution.": "continuous",
}
_FAILS_ON_LOSS = re.compile(r"set the source option \"?failOnDataLoss\"? to \"?(true|false)\"?")
_KAFKA = re.compile(r"Kafka(?:V\d|Source)?\[(Subscribe|SubscribePattern|Assign)\[(.*)\]\]", re.DOTALL)
_SUBSCRIPTIONS: Mapping[str, Any] = {
    "Subscribe": "subscribe",
    "SubscribePattern": "subscribe_pattern",
    "Assign": "assign",
}
_DESCRIBED = re.compile(r"(\w+?)(?:V\d)?\[(.*)\]", re.DOTALL)
_SOURCE_KINDS = {"FileStreamSource": "files", "DeltaSource": "delta", "Kafka": "kafka", "KafkaSource": "kafka"}
_SINK_KINDS = {"DeltaSink": "delta", "FileSink": "files", "ForeachBatchSink": "foreach_batch", "KafkaTable": "kafka"}
_SINKS_IN_PLACES = frozenset(("DeltaSink", "FileSink"))
"""Whose description holds where they lie."""
_ENGINES = frozenset(("MicroBatchExecution", "ContinuousExecution", "StreamExecution", "ProgressReporter"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """One source of a query."""

    description: str
    kind: str
    """`kafka`, `files`, `delta`; else Spark's own word."""
    subscription: Subscription | None = None
    """None unless it is Kafka."""
    location: str | None = None
    """Of files or a table."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Those that the log tells: of files and Delta, at INFO."""
    start_offset: Any = None
    """Where the newest batch that is told of begins; Spark's JSON value."""
    end_offset: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFacts:
    """The sink of a query."""

    description: str
    kind: str
    """`delta`, `files`, `foreach_batch`, `kafka`; else Spark's own word."""
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedQuery:
    """One query, by what the log tells of it last."""

    query_id: str
    run_id: str | None = None
    name: str | None = None
    checkpoint: str | None = None
    """As Spark names it."""
    sources: tuple[SourceFacts, ...] = ()
    sink: SinkFacts | None = None
    sink_options: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    """`available_now`, `processing_time`, `once` or `continuous`: from the stack of a failure."""
    last_planned: int | None = None
    """The newest batch that was planned."""
    last_committed: int | None = None
    state_store_provider: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    """What Spark pinned in the offset log."""
    fail_on_data_loss: bool | None = None
    """Of the source that lost data; None where no line says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts(JsonValue):
    """What a log tells."""

    spark_version: str | None = None
    application_id: str | None = None
    bootstrap_servers: tuple[str, ...] = ()
    """Each as one list of servers, as a Kafka client was told; several clients, several lists."""
    delta_tables: tuple[str, ...] = ()
    """That were committed to, by whomever in this driver."""
    failed_writes: tuple[str, ...] = ()
    """Folders and tables to which a task could not finish writing, for whatever reason."""
    queries: tuple[LoggedQuery, ...] = ()
    """In the order in which they are first told of."""
    executors_removed_idle: int = 0
    """How often dynamic allocation took executors away because they had nothing to do."""


class FactsReader:
    """Gathers what entries tell, in their order."""

    def __init__(self) -> None:
        self._facts = LogFacts()
        self._queries: dict[str, LoggedQuery] = {}
        self._running: dict[str, str] = {}  # run → query
        self._batches: dict[str, int] = {}  # by the beginning of the id of a query that is not known yet
        self._by_logger: Mapping[str, Callable[[LogEntry], None]] = {
            "SparkContext": self._read_context,
            "Client": self._read_application,
            "YarnClientSchedulerBackend": self._read_application,
            "StandaloneSchedulerBackend": self._read_application,
            "SingleEventLogFileWriter": self._read_application,
            "RollingEventLogFilesWriter": self._read_application,
            "AdminClientConfig": self._read_kafka_client,
            "ConsumerConfig": self._read_kafka_client,
            "OptimisticTransaction": self._read_delta_commit,
            "CheckpointFileManager": self._read_written,
            "TaskSetManager": self._read_task,
            "ExecutorAllocationManager": self._read_allocation,
        }

    def facts(self) -> LogFacts:
        """What was told so far."""
        return replace(self._facts, queries=tuple(self._queries.values()))

    def query(self, query_id: str | None) -> LoggedQuery | None:
        """What was told of one query so far."""
        return self._queries.get(query_id or "")

    def read(self, entry: LogEntry) -> None:
        """Take up what an entry tells."""
        if entry.record is not None:
            self._read_record(entry.record)
            return
        if entry.logger in _ENGINES:
            self._read_engine(entry)
        elif entry.logger in self._by_logger:
            self._by_logger[entry.logger](entry)
        if entry.level in ("", "WARN", "ERROR", "FATAL"):
            self._read_trouble(entry)

    def _read_context(self, entry: LogEntry) -> None:
        found = _VERSION.match(entry.text)
        if found:
            self._facts = replace(self._facts, spark_version=found[1])

    def _read_application(self, entry: LogEntry) -> None:
        found = _APPLICATION.search(entry.text)
        if found:
            self._facts = replace(self._facts, application_id=found[1])

    def _read_allocation(self, entry: LogEntry) -> None:
        if _REMOVED_IDLE in entry.text:
            times = self._facts.executors_removed_idle + 1
            self._facts = replace(self._facts, executors_removed_idle=times)

    def _read_kafka_client(self, entry: LogEntry) -> None:
        found = _BOOTSTRAP.search(entry.text)
        if found:
            known = self._facts.bootstrap_servers
            self._facts = replace(self._facts, bootstrap_servers=_add_new(known, found[1].replace(" ", "")))

    def _read_delta_commit(self, entry: LogEntry) -> None:
        found = _DELTA_COMMIT.search(entry.text)
        if found:
            self._facts = replace(self._facts, delta_tables=_add_new(self._facts.delta_tables, found[1]))

    def _read_written(self, entry: LogEntry) -> None:
        found = _WRITTEN.search(entry.text)
        query = found and next((each for each in self._queries.values() if each.checkpoint == found[1]), None)
        if found and query:
            name = "last_planned" if found[2] == "offsets" else "last_committed"
            self._change(query.query_id, **{name: int(found[3])})

    def _read_task(self, entry: LogEntry) -> None:
        found = _TASK.match(entry.text)
        of = [each for each in self._queries if found and each.startswith(found[1])]
        if found and len(of) == 1:
            self._change(of[0], last_planned=int(found[2]))
        elif found and len(self._batches) < _TABLES_MAX:
            self._batches[found[1]] = int(found[2])

    def _read_engine(self, entry: LogEntry) -> None:
        found = _STARTING.match(entry.text)
        if found:
            self._running = {run: query for run, query in self._running.items() if query != found["query"]}
            self._running[found["run"]] = found["query"]
            self._change(
                found["query"], run_id=found["run"], name=found["name"], checkpoint=found["checkpoint"].strip()
            )
            return
        over = _OVER.search(entry.text)
        if over:
            self._running.pop(over["run"], None)
            return
        _, is_progress, told = entry.text.partition("Streaming query made progress: ")
        if is_progress:
            self._read_progress(told)
            return
        query = entry.context.get("QUERY_ID") or self._only_running()
        if query is not None:
            self._read_planning(query, entry.text)

    def _only_running(self) -> str | None:
        """Whose a line is that names no query: the only one's that runs."""
        running = set(self._running.values())
        if len(running) == 1:
            return running.pop()
        return None

    def _read_planning(self, query: str, text: str) -> None:
        if found := _RESUMING.match(text):
            self._change(query, last_planned=int(found[1]))
            self._change_offsets(query, found[2], found[3])
        elif found := _PLANNED.match(text):
            conf = dict(_parse_options(found[2], " -> "))
            provider = conf.get("spark.sql.streaming.stateStore.providerClass")
            self._change(query, last_planned=int(found[1]), conf=conf, state_store_provider=provider)
        elif found := _SOURCE_V1.match(text):
            source = replace(_parse_source(found[1]), options=dict(_parse_options(found[2], " -> ")))
            self._change(query, sources=_merge_sources(self._queries.get(query), source))
        elif text.startswith("Finish initializing with logical plan"):
            self._read_plan(query, text)

    def _read_plan(self, query: str | None, text: str) -> None:
        if found := _PLAN_V1.search(text):
            options = dict(_parse_options(found["options"], "="))
            self._change(found["query"], sink=_parse_sink(found["sink"]), sink_options=options)
            if self._queries[found["query"]].checkpoint is None:
                self._change(found["query"], checkpoint=options.get("checkpointLocation"))
        elif query is not None and (found := _PLAN_V2.search(text)):
            self._change(query, sink=_parse_sink(found[1]))

    def _read_progress(self, told: str) -> None:
        try:
            progress = json.loads(told)
            query, batch = str(progress["id"]), int(progress["batchId"])
            sources = [
                replace(
                    _parse_source(each["description"]), start_offset=each["startOffset"], end_offset=each["endOffset"]
                )
                for each in progress["sources"]
            ]
            sink = _parse_sink(str(progress["sink"]["description"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return  # cut, or of a version that nobody knows
        known = self._queries.get(query)
        self._change(query, run_id=progress.get("runId"), name=progress.get("name"), sink=sink)
        self._change(query, last_planned=batch, last_committed=batch, sources=_merge_sources(known, *sources))

    def _read_trouble(self, entry: LogEntry) -> None:
        """What failures tell; also where nothing below WARN is logged."""
        text = entry.text
        for found in _WRITE_FAILED.finditer(text):
            self._facts = replace(self._facts, failed_writes=_add_new(self._facts.failed_writes, found[1]))
        ended = _TERMINATED.match(text) or _IDENTIFIER.search(text)
        if ended is None:
            query = self._only_running()
        else:
            query = ended["query"]
            self._running.pop(ended["run"], None)
            self._change(query, run_id=ended["run"], name=ended["name"])
            trigger = next((trigger for frame, trigger in _TRIGGERS.items() if frame in text), None)
            batch = next((batch for begin, batch in self._batches.items() if query.startswith(begin)), None)
            self._change(query, trigger=trigger, last_planned=self._queries[query].last_planned or batch)
            if (start := _COMMITTED.search(text)) and (end := _AVAILABLE.search(text)):
                self._change_offsets(query, start[1], end[1])
            self._read_plan(query, text.partition("Logical Plan:")[2])
        if query is not None and (loss := _FAILS_ON_LOSS.search(text)):
            self._change(query, fail_on_data_loss=loss[1] == "false")  # it says what to set for the other

    def _change_offsets(self, query: str, start: str, end: str) -> None:
        starts, ends = dict(_parse_offsets(start)), dict(_parse_offsets(end))
        sources = [
            replace(_parse_source(each), start_offset=starts.get(each), end_offset=ends.get(each))
            for each in {**starts, **ends}
        ]
        if sources:
            self._change(query, sources=_merge_sources(self._queries.get(query), *sources))

    def _read_record(self, record: Record) -> None:
        if isinstance(record, QueryStarted):
            self._facts = replace(
                self._facts,
                spark_version=record.spark_version or self._facts.spark_version,
                application_id=record.application_id or self._facts.application_id,
            )
        if record.query_id is None:
            return
        query = record.query_id
        self._change(query, run_id=record.run_id, name=record.query_name, checkpoint=record.checkpoint)
        if isinstance(record, Progress):
            sources = [_merge_recorded(each) for each in record.sources]
            sink = None
            if record.sink.description:
                sink = _parse_sink(record.sink.description)
            self._change(query, last_planned=record.batch_id, last_committed=record.batch_id, sink=sink)
            self._change(query, sources=_merge_sources(self._queries.get(query), *sources))
        elif isinstance(record, Terminated) and record.batch_id is not None:
            self._change(query, last_planned=record.batch_id)

    def _change(self, query: str, **told: Any) -> None:
        """Take up what is told now; what is not told stays as it was."""
        known = self._queries.get(query) or LoggedQuery(query_id=query)
        self._queries[query] = replace(
            known, **{name: value for name, value in told.items() if value not in (None, {})}
        )


def _add_new(known: tuple[str, ...], new: str) -> tuple[str, ...]:
    if new in known or len(known) >= _TABLES_MAX:
        return known
    return (*known, new)


def _parse_options(text: str, between: str) -> Iterator[tuple[str, str]]:
    for each in text.split(", "):
        name, is_told, value = each.partition(between)
        if is_told:
            yield name, value


def _parse_offsets(text: str) -> Iterator[tuple[str, Any]]:
    """The sources and their offsets of `{KafkaV2[Subscribe[a]]: {"a":{"0":1}}, …}`."""
    at = 1
    decoder = json.JSONDecoder()
    while (end := text.find("]: ", at)) > 0:
        description = text[at : end + 1]
        try:
            offset, at = decoder.raw_decode(text, end + 3)
        except (ValueError, RecursionError):
            return
        yield description, offset
        at += 2


def _parse_source(description: str) -> SourceFacts:
    kafka = _KAFKA.fullmatch(description)
    if kafka:
        subscription = Subscription(kind=_SUBSCRIPTIONS[kafka[1]], value=kafka[2])
        return SourceFacts(description=description, kind="kafka", subscription=subscription)
    found = _DESCRIBED.fullmatch(description)
    if not found:
        return SourceFacts(description=description, kind=description, location=None)
    kind = _SOURCE_KINDS.get(found[1])
    location = None
    if kind:
        location = found[2]
    return SourceFacts(description=description, kind=kind or found[1], location=location)


def _merge_recorded(source: RecordedSource) -> SourceFacts:
    known = _parse_source(source.description)
    return replace(
        known,
        subscription=source.subscription or known.subscription,
        start_offset=source.start_offset,
        end_offset=source.end_offset,
    )


def _parse_sink(description: str) -> SinkFacts:
    found = _DESCRIBED.fullmatch(description)
    if found:
        word = found[1]
    else:
        word = take_simple_name(description.partition("@")[0])
    kind = _SINK_KINDS.get(word, word)
    location = None
    if found and word in _SINKS_IN_PLACES:
        location = found[2]
    return SinkFacts(description=description, kind=kind, location=location)


def _merge_sources(known: LoggedQuery | None, *told: SourceFacts) -> tuple[SourceFacts, ...]:
    """The sources that are known, with what is told now."""
    sources_before = known.sources if known else ()
    sources = {each.description: each for each in sources_before}
    for each in told:
        before = sources.get(each.description)
        if before is not None:
            start_offset = before.start_offset if each.start_offset is None else each.start_offset
            end_offset = before.end_offset if each.end_offset is None else each.end_offset
            each = replace(  # noqa: PLW2901 - the same source, better known
                each,
                options=each.options or before.options,
                start_offset=start_offset,
                end_offset=end_offset,
            )
        sources[each.description] = each
    return tuple(sources.values())
