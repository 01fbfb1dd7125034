"""`verify --data`: every record that a query has read, counted against the rows of its sink."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import platformdirs

import lastgood.spark
from lastgood.checkpoint.contents import Checkpoint, Presence
from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.reader import read_checkpoint, read_file
from lastgood.checkpoint.source_offsets import SourceOffset, topics_of
from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.lab.jars import fetch_jars
from lastgood.lab.spark import default_spark, submit
from lastgood.observe.advice_facts import query_facts
from lastgood.observe.observation import BATCHES
from lastgood.observe.open_query import gather
from lastgood.observe.surroundings import reading
from lastgood.process.child import Child
from lastgood.process.driver import prepare_launch
from lastgood.process.java import find_java
from lastgood.query.topics import identify, recorded_ids
from lastgood.settings.target import Target
from lastgood.sinks.files.kind import FILE_SINK
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.sources.kafka.cluster import ask_kafka
from lastgood.sources.kafka.config import read_kafka_config
from lastgood.sources.kafka.java_properties import parse_properties
from lastgood.sources.kafka.reader import OffsetRange, TopicRecreatedError, committed_ranges, served_ranges
from lastgood.sources.kafka.retention import IdentityAnswer, TopicIdentity
from lastgood.spark.audit import (
    ISOLATION_LEVELS,
    MARK,
    NAMED_TABLE,
    Audit,
    AuditSpec,
    SinkTable,
    parse_columns,
)
from lastgood.storage.reading import Location, Storage, open_storage, parse_location

_JOB = Path(lastgood.spark.__file__).parent / "audit_job.py"
_SAME = (TopicIdentity.SAME, TopicIdentity.WITHIN_SKEW, TopicIdentity.UNKNOWN)
"""Where nothing speaks for another topic."""
_LOCAL_CONF = {"spark.master": "local[*]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "32"}


class NoCommittedBatchError(LastgoodError):
    """A checkpoint holds no committed batch whose offsets can be read."""

    condition = "NO_COMMITTED_BATCH"
    exit_code = 38
    retry = Retry.LATER


class RangeExpiredError(LastgoodError):
    """Kafka serves nothing of what the query has read."""

    condition = "SOURCE_RANGE_EXPIRED"
    exit_code = 63


class SinkUnreadableError(LastgoodError):
    """The sink is not there, or Spark cannot read it as what it is said to be."""

    condition = "SINK_UNREADABLE"
    exit_code = 65
    retry = Retry.AFTER_CHANGE


class AuditFailedError(LastgoodError):
    """The Spark job that compares source and sink failed."""

    condition = "AUDIT_FAILED"
    exit_code = 66
    retry = Retry.LATER


class ColumnMissingError(UsageError):
    """The sink has no such column."""

    condition = "SINK_COLUMN_MISSING"


class ExpressionInvalidError(UsageError):
    """Spark does not understand an SQL expression."""

    condition = "SQL_INVALID"


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """How the job gets to Spark."""

    command: tuple[str, ...] = ()
    """Such as `spark-submit --master yarn`, in client deploy mode; empty: the pyspark of this Python, right here."""
    packages: str | None = None
    """Maven coordinates of Kafka's and the table's libraries, where that Spark has them not."""
    jars: str | None = None


def verify_data(  # noqa: PLR0913 - the options of the command, all by name
    target: Target,
    *,
    kafka: str,
    kafka_config: Path | None = None,
    sink: str,
    keys: Sequence[str] = (),
    compare: Sequence[str] = (),
    where: str | None = None,
    isolation_level: str | None = None,
    topic_is_the_same: bool = False,
    spark: SparkSubmit | None = None,
    progress: Callable[[str], None] | None = None,
) -> Audit:
    """Compare what a query has read from Kafka with what its sink holds, by a Spark job; changes nothing.

    What is compared ends where the newest committed batch ends, so that what is still to come is not called
    lost, and begins where Kafka still has the records.

    Args:
        target: Which query.
        kafka: `bootstrap.servers` of the brokers.
        kafka_config: A `client.properties`, as Kafka's own tools take it.
        sink: A table: `delta:LOCATION`, `file:LOCATION` (Parquet files), `table:NAME`, or a location alone.
        keys: `NAME` or `NAME=SQL`: a column of the sink, and the SQL over the Kafka record that it was made from;
            without SQL the record's own topic, partition, offset or timestamp, else that field of its JSON value.
            None at all: topic, partition and offset, where the sink has these columns.
        compare: As `keys`, for columns whose values are compared too.
        where: SQL over the Kafka record, true for those that the query keeps.
        isolation_level: `read_committed` or `read_uncommitted`, as the query reads; None: find out aborted records
            and report them apart.
        topic_is_the_same: Whether a person says that the topics are those that were read, where clocks leave it open.
        spark: Where the job runs.
        progress: Is told, in a few words, what is being done.

    Raises:
        UsageError: an argument is not understood, or names a column or SQL that does not exist (subclasses).
        NoCommittedBatchError, SourceKindError: there is nothing to verify, or nothing that can be.
        KafkaUnreachableError, TopicMissingError, TopicRecreatedError, RangeExpiredError: the source does not serve it.
        SinkUnreadableError: the sink cannot be read.
        AuditFailedError: the Spark job failed.
        LastgoodError: storage, Java, Python or JVM parts are not there (subclasses).
    """
    if progress is not None:
        progress("reading the checkpoint and asking Kafka")
    spec = audit_spec(
        target,
        kafka=kafka,
        kafka_config=kafka_config,
        sink=sink,
        keys=keys,
        compare=compare,
        where=where,
        isolation_level=isolation_level,
        topic_is_the_same=topic_is_the_same,
    )
    return run_audit(spec, spark=spark, progress=progress)


def run_audit(
    spec: AuditSpec, *, spark: SparkSubmit | None = None, progress: Callable[[str], None] | None = None
) -> Audit:
    """Let a Spark job make one comparison; changes nothing.

    Args:
        spec: What is compared, as `audit_spec` finds it out.
        spark: Where the job runs.
        progress: Is told, in a few words, what is being done.

    Raises:
        UsageError: it names a column or SQL that does not exist (subclasses).
        SinkUnreadableError: the sink cannot be read.
        AuditFailedError: the Spark job failed.
        LastgoodError: Java, Python or JVM parts are not there (subclasses).
    """
    began = time.monotonic()
    result = _run_job(spec, spark or SparkSubmit(), progress or (lambda _: None))
    return Audit.of(result, spec, seconds=time.monotonic() - began)


def audit_spec(  # noqa: PLR0913 - as verify_data
    target: Target,
    *,
    kafka: str,
    kafka_config: Path | None = None,
    sink: str,
    keys: Sequence[str] = (),
    compare: Sequence[str] = (),
    where: str | None = None,
    isolation_level: str | None = None,
    topic_is_the_same: bool = False,
) -> AuditSpec:
    """What `verify_data` asks the Spark job, found out without Spark; arguments and errors are the same."""
    if isolation_level is not None and isolation_level not in ISOLATION_LEVELS:
        raise UsageError("no such isolation level", found=isolation_level, expected=" or ".join(ISOLATION_LEVELS))
    columns, compared = parse_columns(keys), parse_columns(compare)
    table = sink_table(sink)
    checkpoint = target.checkpoint
    committed = read_committed(checkpoint)
    config = None if kafka_config is None else read_kafka_config(kafka_config)
    topics = {each.topic for each in committed.ranges}
    query = gather(target, batches=BATCHES)
    stands = reading(query)
    facts = ask_kafka(kafka, topics, config=config.settings if config else None, times_ms=stands.after)
    ranges = served_ranges(committed.ranges, facts)
    ids = recorded_ids(facts, query_facts(query).topic_ids)
    for topic in sorted(topics):
        _require_same(
            topic,
            identify(
                topic,
                facts,
                stands.reads.get(topic, ()),
                {},
                recorded_id=ids.get(topic),
                is_same_topic=topic_is_the_same,
            ),
        )
    if not any(each.served for each in ranges):
        raise RangeExpiredError(
            "Kafka serves nothing of what the query has read",
            subject=checkpoint,
            found=f"{sum(each.end - each.start for each in ranges)} offsets read, none of them still served",
            expected="records to compare with the sink",
        )
    return AuditSpec(
        checkpoint=checkpoint,
        last_committed=committed.batch_id,
        kafka_options={**_spark_options(kafka_config), "kafka.bootstrap.servers": kafka},
        ranges=ranges,
        is_start_known=committed.is_start_known,
        sink=table,
        keys=columns,
        compare=compared,
        where=where,
        isolation_level=isolation_level,
        compacted=tuple(sorted(name for name, topic in facts.topics.items() if topic.is_compacted)),
    )


def _require_same(topic: str, answer: IdentityAnswer) -> None:
    """See that the offsets of a topic are those that were read: of another one they say nothing of the sink.

    Raises:
        TopicRecreatedError: it is another one, or may be.
    """
    if answer.identity in _SAME:
        return
    is_known = answer.identity is TopicIdentity.ANOTHER
    raise TopicRecreatedError(
        "a topic is not the one that the query has read" if is_known else "a topic may not be the one that was read",
        subject=topic,
        found=answer.because,
        expected="the topic whose offsets the checkpoint holds",
        effect="not compared: what stands at an offset now would be taken for what was read there",
    )


def _spark_options(kafka_config: Path | None) -> dict[str, str]:
    """A `client.properties` as options of Spark's Kafka source: the Java client reads the same keys."""
    if kafka_config is None:
        return {}
    properties = parse_properties(kafka_config.read_bytes())
    return {f"kafka.{name}": value for name, value in properties.items() if name != "bootstrap.servers"}


def sink_table(text: str) -> SinkTable:
    """The table that `--sink` names; its kind told from what is there where the text does not say it.

    Raises:
        UsageError: nothing is named.
        SinkUnreadableError: there is no such folder.
        StorageError: the location is not understood or cannot be read (subclasses).
    """
    kind, colon, rest = text.partition(":")
    if kind == NAMED_TABLE and colon and rest:
        return SinkTable(kind, rest)
    named = SINK_KINDS.get(kind)
    if kind == NAMED_TABLE or (named is not None and named.traits.reader is not None):
        return SinkTable(kind, str(parse_location(rest)))
    location = parse_location(text)
    storage = open_storage(location)
    for each in SINK_KINDS.values():
        if each.traits.reader is not None and each.is_at is not None and each.is_at(storage, location):
            return SinkTable(each.name, str(location))
    if storage.stat(location) is None:
        raise SinkUnreadableError("there is no such table", subject=text, found="no such folder", expected="a table")
    return SinkTable(FILE_SINK.name, str(location))  # a folder of Parquet files, whoever has written it


@dataclass(frozen=True, slots=True)
class CommittedReads:
    """What a query has read and committed."""

    batch_id: int
    ranges: tuple[OffsetRange, ...]
    is_start_known: bool
    """False if the checkpoint no longer tells where the query began."""


def read_committed(checkpoint: str) -> CommittedReads:
    """What the newest committed batch of a checkpoint had read.

    Raises:
        NoCommittedBatchError: there is none, its entry in the offset log cannot be read, or that was given another
            end, such as the earliest, by which nobody can tell how far the batch had read.
        SourceKindError: a source of the query is not Kafka.
        StorageError: the checkpoint cannot be read (subclasses).
    """
    location = parse_location(checkpoint)
    storage = open_storage(location)
    found = read_checkpoint(storage, location)
    if found.last_committed is None or found.offsets.ids.oldest is None:
        raise NoCommittedBatchError(
            "the checkpoint holds no committed batch",
            subject=checkpoint,
            found=_nothing_committed(found),
            expected="a checkpoint whose query has committed a batch",
        )
    committed = _offset_entry(storage, location, found.last_committed)
    if not all(_is_resolved(line.offset) for line in committed.sources):
        raise NoCommittedBatchError(
            "how far the query has read is not written down",
            subject=f"{checkpoint}/{OFFSETS}/{found.last_committed}",
            found="the newest committed plan was made to end at the earliest or the latest offset",
            expected="a batch that was committed since then",
        )
    initial = {source.name: source.initial.offset for source in found.sources if source.initial is not None}
    initial = {name: began for name, began in initial.items() if _is_resolved(began)}
    is_start_known = all(line.source_id in initial for line in committed.sources)
    # A running query may remove its oldest entry at any time: it is asked for only if it is needed.
    oldest = committed if is_start_known else _offset_entry(storage, location, found.offsets.ids.oldest)
    return CommittedReads(found.last_committed, committed_ranges(committed, initial, oldest), is_start_known)


def _is_resolved(offset: SourceOffset) -> bool:
    """Whether an offset is a position: the earliest and the latest are none."""
    return all(each >= 0 for parts in topics_of(offset).values() for each in parts.values())


def _nothing_committed(found: Checkpoint) -> str:
    if found.presence is not Presence.PRESENT:
        return "no such folder" if found.presence is Presence.MISSING else "an empty folder"
    return "no batch" if found.last_planned is None else f"batch {found.last_planned}, planned and not committed"


def _offset_entry(storage: Storage, checkpoint: Location, batch_id: int) -> OffsetEntry:
    file = checkpoint / f"{OFFSETS}/{batch_id}"
    entry = read_file(storage, file, parse_offset_entry)
    if isinstance(entry, OffsetEntry):
        return entry
    raise NoCommittedBatchError(
        "the offsets of a committed batch cannot be read",
        subject=str(file),
        found="no such file" if entry is None else str(entry),
        expected="an entry of the offset log",
    )


def _run_job(spec: AuditSpec, spark: SparkSubmit, tell: Callable[[str], None]) -> Mapping[str, Any]:
    """What the job found."""
    log = platformdirs.user_log_path("lastgood", ensure_exists=True) / "verify.log"
    with tempfile.TemporaryDirectory(prefix="lastgood-verify-") as folder:
        question, answer = Path(folder) / "spec.json", Path(folder) / "answer.json"
        question.write_text(json.dumps(spec.to_json()))
        reader, writer = os.pipe()
        with os.fdopen(reader, errors="replace") as lines:
            with os.fdopen(writer, "wb") as output:
                child = _submit(spark, [str(question), str(answer)], output, tell)
            with child, log.open("w") as kept:
                tell("starting Spark")
                last = _follow(lines, kept, tell)
                ending = child.wait()
        found = json.loads(answer.read_text()) if answer.exists() else {}
    if "result" in found:
        result: Mapping[str, Any] = found["result"]
        return result
    if "error" in found:
        raise _refused(found["error"], log)
    raise _failed(f"the job ended with {ending}: {last}" if last else f"the job ended with {ending}", log)


def _follow(lines: Iterable[str], log: IO[str], tell: Callable[[str], None]) -> str:
    """Keep Spark's log, pass on what the job does; return the last line that is no part of a stack trace."""
    last = ""
    for line in lines:
        if line.startswith(MARK):
            tell(json.loads(line.removeprefix(MARK))["stage"])
            continue
        log.write(line)
        if line.strip() and not line[0].isspace():
            last = line.strip()
    return last


def _submit(spark: SparkSubmit, arguments: Sequence[str], output: IO[bytes], tell: Callable[[str], None]) -> Child:
    """Start the job on the Spark that is asked for, or on the one of this Python."""
    if spark.command:
        options = (*_option("--packages", spark.packages), *_option("--jars", spark.jars))
        launch = prepare_launch([*spark.command, *options, str(_JOB), *arguments], os.environ)
        return Child(launch.command, env=launch.env, output=output)
    environment, java = default_spark(), find_java(os.environ)
    conf = dict(_LOCAL_CONF)
    if spark.packages is None and spark.jars is None:
        if environment.jar_set is None:
            raise UsageError(
                f"the libraries of Kafka and Delta for Spark {environment.version} are not known",
                expected="their coordinates",
                next="--packages GROUP:ARTIFACT:VERSION,… added to the same command",
            )
        jars = fetch_jars([environment.jar_set], java=java, progress=tell)[environment.jar_set]
        return submit(_JOB, arguments, environment=environment, java=java, jars=jars, conf=conf, output=output)
    if spark.packages is not None:
        conf["spark.jars.packages"] = spark.packages
    if spark.jars is not None:
        conf["spark.jars"] = spark.jars
    return submit(_JOB, arguments, environment=environment, java=java, conf=conf, output=output)


def _option(name: str, value: str | None) -> tuple[str, ...]:
    return () if value is None else (name, value)


def _refused(error: Mapping[str, str], log: Path) -> LastgoodError:
    subject, found = error["subject"], error["found"]
    match error["kind"]:
        case "no_such_column":
            return ColumnMissingError(
                "the sink has no such column", found=subject, expected=f"one of {found}", next="--key NAME"
            )
        case "bad_expression":
            return ExpressionInvalidError("Spark does not understand the SQL", subject=subject, found=found)
        case "no_key":
            return UsageError(
                "a key is needed to tell the rows of this sink apart",
                found=f"the columns {found}",
                expected="columns topic, partition and offset, or a key",
                next="--key NAME, or --key 'NAME=SQL over the Kafka record'",
            )
        case "sink_unreadable":
            return SinkUnreadableError("the sink cannot be read", subject=subject, found=found)
    return _failed(found, log)


def _failed(found: str, log: Path) -> AuditFailedError:
    return AuditFailedError(
        "the Spark job that compares source and sink failed",
        found=found,
        effect="nothing is known about the sink",
        next=f"see {log}",
    )
