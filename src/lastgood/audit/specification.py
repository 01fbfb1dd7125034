"""What a comparison of source and sink asks of Spark, found out without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lastgood.audit.committed import read_committed
from lastgood.audit.spark_job import SinkUnreadableError
from lastgood.delta_log.own_files import require_own_files
from lastgood.errors import LastgoodError, UsageError
from lastgood.observe.advice_facts import select_query_facts
from lastgood.observe.observation import BATCHES
from lastgood.observe.open_query import gather
from lastgood.observe.surroundings import make_reading
from lastgood.query.topics import identify, merge_recorded_ids
from lastgood.settings.target import Target
from lastgood.sinks.files.kind import FILE_SINK
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.sources.kafka.cluster import ask_kafka
from lastgood.sources.kafka.config import read_client_properties, read_kafka_config
from lastgood.sources.kafka.reader import TopicRecreatedError, list_served_ranges
from lastgood.sources.kafka.retention import IdentityAnswer, TopicIdentity
from lastgood.spark.audit import (
    ISOLATION_LEVELS,
    NAMED_TABLE,
    AuditSpec,
    SinkTable,
    parse_columns,
)
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import open_storage, parse_location

_LOG_SECONDS = 300.0
_SAME = (TopicIdentity.SAME, TopicIdentity.WITHIN_SKEW, TopicIdentity.UNKNOWN)
"""Where nothing speaks for another topic."""


class RangeExpiredError(LastgoodError):
    """Kafka serves nothing of what the query has read."""

    condition = "SOURCE_RANGE_EXPIRED"
    exit_code = 63


def make_audit_spec(  # noqa: PLR0913 - as verify_data
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
    table = find_sink_table(sink)
    require_own_sink(table)
    checkpoint = target.checkpoint
    committed = read_committed(checkpoint)
    config = None
    if kafka_config is not None:
        config = read_kafka_config(kafka_config)
    topics = {each.topic for each in committed.ranges}
    query = gather(target, batches=BATCHES)
    stands = make_reading(query)
    facts = ask_kafka(kafka, topics, config=config.settings if config else None, times_ms=stands.after)
    ranges = list_served_ranges(committed.ranges, facts)
    ids = merge_recorded_ids(facts, select_query_facts(query).topic_ids)
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
        kafka_options={**_make_spark_options(kafka_config), "kafka.bootstrap.servers": kafka},
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


def _make_spark_options(kafka_config: Path | None) -> dict[str, str]:
    """A `client.properties` as options of Spark's Kafka source: the Java client reads the same keys."""
    if kafka_config is None:
        return {}
    properties = read_client_properties(kafka_config)
    return {f"kafka.{name}": value for name, value in properties.items() if name != "bootstrap.servers"}


def require_own_sink(table: SinkTable) -> None:
    """See that Spark opens nothing but files of the sink that was named, whatever stands in it.

    Raises:
        TableLeadsElsewhereError: the log of a table names a file elsewhere, or something in it is no file.
        StorageError: it cannot be read (subclasses).
    """
    if table.kind == NAMED_TABLE:
        return  # a catalog knows where that is, and lastgood does not
    location = parse_location(table.location)
    require_own_files(open_storage(location), location, deadline=Deadline.after(_LOG_SECONDS))


def find_sink_table(text: str) -> SinkTable:
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
