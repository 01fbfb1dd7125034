"""A Kafka source that starts where a recovery said, if there was one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.errors import UsageError
from lastgood.sources.kafka import KafkaUnreachableError, TopicMissingError
from lastgood.sources.kafka_cluster import ask_kafka
from lastgood.sources.kafka_config import kafka_config
from lastgood.sources.starting_offsets import (
    FOLDER_VARIABLE,
    StartingOffsets,
    StartingOffsetsError,
    file_name,
    parse_starting_offsets,
)
from lastgood.spark.agent.failures import failure_of_error
from lastgood.spark.agent.sessions import is_connect
from lastgood.spark.agent.topics import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Partitions = Mapping[str, Collection[int]]

_BOOTSTRAP = "kafka.bootstrap.servers"
_STARTING = "startingoffsets"
_STRONGER = ("startingtimestamp", "startingoffsetsbytimestamp")  # Spark heeds them before startingOffsets


def read_kafka(
    spark: Any,
    name: str,
    *,
    topic: str | Sequence[str] | None = None,
    subscribe_pattern: str | None = None,
    kafka: str | None = None,
    starting_offsets: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A streaming frame over Kafka topics that starts where a recovery said, else where the options say.

    A recovery that leaves a checkpoint behind writes, for the application's next start, from which offsets on the query
    `name` has to read. As everywhere in Spark, a start counts only for a checkpoint without batches: one that has some
    goes on where it is.

    Args:
        spark: A session, classic or of Spark Connect.
        name: The query's name, by which a recovery calls it.
        topic: The topic to read, or several.
        subscribe_pattern: Else the Java regular expression for the names of topics.
        kafka: `bootstrap.servers`; else the option `kafka.bootstrap.servers`.
        starting_offsets: The folder with a recovery's files; else that of `LASTGOOD_STARTING_OFFSETS`. A query
            without a file there starts where the options say.
        options: Options of Spark's Kafka source.

    Returns:
        What `spark.readStream.format("kafka").options(…).load()` does.

    Raises:
        UsageError: not exactly one of `topic` and `subscribe_pattern`, or nobody says where Kafka is.
        StartingOffsetsError: there is a file for this query, and it cannot be meant so.
        SourcePartitionsGoneError: it names a partition that is not there any more.
        KafkaUnreachableError, TopicMissingError: there is a file, but the topics cannot be asked for their partitions.
        ExtraMissingError: so, with Spark Connect, where confluent-kafka is not installed.

    Example::

        orders = read_kafka(spark, "orders", topic="orders", kafka="broker:9092", options={"startingOffsets": "latest"})
    """
    settled = {key.lower(): str(value) for key, value in (options or {}).items()}
    settled |= _subscription(topic, subscribe_pattern)
    if kafka is not None:
        settled[_BOOTSTRAP] = kafka
    if _BOOTSTRAP not in settled:
        raise UsageError("where is Kafka?", found=f"neither kafka= nor the option {_BOOTSTRAP}")
    recovered = _recovered(name, starting_offsets)
    if recovered is not None:
        partitions = _partitions(spark, settled)
        settled = {key: value for key, value in settled.items() if key not in _STRONGER}
        settled[_STARTING] = recovered.option(partitions)
    frame: DataFrame = spark.readStream.format("kafka").options(**settled).load()
    return frame


def _subscription(topic: str | Sequence[str] | None, subscribe_pattern: str | None) -> dict[str, str]:
    if (topic is None) == (subscribe_pattern is None):
        raise UsageError("what is to be read?", expected="either topic= or subscribe_pattern=")
    if topic is None:
        return {"subscribepattern": str(subscribe_pattern)}
    return {"subscribe": topic if isinstance(topic, str) else ",".join(topic)}


def _recovered(name: str, folder: str | Path | None) -> StartingOffsets | None:
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        return None
    file = Path(chosen) / file_name(name)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartingOffsetsError(
            "the file that says where to start cannot be read", subject=str(file), found=error.strerror
        ) from error
    return parse_starting_offsets(content, name, str(file))


def _partitions(spark: Any, options: Mapping[str, str]) -> Partitions:
    """The partitions that a source with these options reads."""
    topics = [topic.strip() for topic in options["subscribe"].split(",")] if "subscribe" in options else []
    pattern = options.get("subscribepattern")
    if is_connect(spark):
        return _partitions_by_client(options, topics, pattern)
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a Connect client has no py4j

    broker = Broker(spark._jvm, options)  # noqa: SLF001 - Kafka's client of the driver, with the source's own settings
    try:
        return broker.partitions(topics, pattern)
    except Py4JError as error:
        cause = failure_of_error(error)["causes"][-1]
        if str(cause["class_name"]).endswith(".UnknownTopicOrPartitionException"):
            raise _missing(", ".join(topics), cause["message"]) from error
        raise _unreachable(options, f"{cause['class_name']}: {cause['message']}") from error
    finally:
        broker.close()


def _partitions_by_client(options: Mapping[str, str], topics: list[str], pattern: str | None) -> Partitions:
    prefix = "kafka."
    given = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    facts = ask_kafka(options[_BOOTSTRAP], topics, subscribe_pattern=pattern, config=kafka_config(given).settings)
    if facts.unknown is not None:
        raise _unreachable(options, facts.unknown)
    for name, topic in facts.topics.items():
        if not topic.partitions:
            raise _missing(name, topic.unknown or "no such topic")
    return {name: topic.partitions.keys() for name, topic in facts.topics.items()}


def _missing(topics: str, found: str) -> TopicMissingError:
    return TopicMissingError("the topic cannot be read", subject=topics, found=found, expected="its partitions")


def _unreachable(options: Mapping[str, str], found: str) -> KafkaUnreachableError:
    return KafkaUnreachableError(
        "Kafka does not tell the partitions of the topics",
        subject=options[_BOOTSTRAP],
        found=found,
        expected="an answer",
        effect="the query is not started: where it has to start cannot be said",
    )
