"""A Kafka source that starts where a recovery said, if there was one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.errors import UsageError
from lastgood.sources.kafka.cluster import ask_kafka
from lastgood.sources.kafka.config import translate_config
from lastgood.sources.kafka.reader import KafkaUnreachableError, TopicMissingError
from lastgood.sources.kafka.start_files import FILE_BYTES_MAX, parse_start, parse_start_value
from lastgood.sources.kafka.starting_offsets import (
    FOLDER_VARIABLE,
    KEY_VARIABLE,
    StartingOffsets,
    StartingOffsetsError,
    name_file,
)
from lastgood.spark.agent.failures import make_failure_of_error
from lastgood.spark.agent.sessions import is_connect
from lastgood.spark.agent.topics import KafkaAdmin
from lastgood.storage.reading import open_storage, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Partitions = Mapping[str, Collection[int]]

_BOOTSTRAP = "kafka.bootstrap.servers"
_STARTING = "startingoffsets"
_STRONGER = ("startingtimestamp", "startingoffsetsbytimestamp")  # Spark heeds them before startingOffsets


def read_kafka(  # noqa: PLR0913 - all but the first two by name
    spark: Any,
    name: str,
    *,
    topic: str | Sequence[str] | None = None,
    subscribe_pattern: str | None = None,
    kafka: str | None = None,
    starting_offsets: str | Path | None = None,
    start_key: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A streaming frame over Kafka topics that starts where a recovery said, else where the options say.

    A recovery that leaves a checkpoint behind (`--via app-config`) writes, for the application's next start, from which
    offsets on the query has to read: into the file that is named here, in any of its forms. As everywhere in Spark, a
    start counts only for a checkpoint without batches: one that has some goes on where it is.

    Args:
        spark: A session, classic or of Spark Connect.
        name: The query's name, by which a recovery calls it.
        topic: The topic to read, or several.
        subscribe_pattern: Else the Java regular expression for the names of topics.
        kafka: `bootstrap.servers`; else the option `kafka.bootstrap.servers`.
        starting_offsets: The file, by its path or location, or a folder with a file `NAME.json` for each query; else
            what `LASTGOOD_STARTING_OFFSETS` names, as `lastgood run` sets it. Without such a file the query starts
            where the options say.
        start_key: Of a properties file, or of `spark-defaults.conf`, the key under which the offsets stand; else
            `LASTGOOD_START_KEY`. Where no file is named, it is looked up in the configuration of the session, which
            has every line of `spark-defaults.conf`. None: the offsets are all of the file.
        options: Options of Spark's Kafka source.

    Returns:
        What `spark.readStream.format("kafka").options(…).load()` does.

    Raises:
        UsageError: not exactly one of `topic` and `subscribe_pattern`, or nobody says where Kafka is.
        StartingOffsetsError, PropertiesError: there is a file for this query, and it cannot be meant so.
        StorageError: a file that is not on this machine cannot be read (subclasses).
        SourcePartitionsGoneError: it names a partition that is not there any more.
        KafkaUnreachableError, TopicMissingError: there is a file, but the topics cannot be asked for their partitions.
        ExtraMissingError: so, with Spark Connect, where confluent-kafka is not installed.

    Example::

        orders = read_kafka(spark, "orders", topic="orders", kafka="broker:9092", options={"startingOffsets": "latest"})
    """
    settled = {key.lower(): str(value) for key, value in (options or {}).items()}
    settled |= _make_subscription(topic, subscribe_pattern)
    if kafka is not None:
        settled[_BOOTSTRAP] = kafka
    if _BOOTSTRAP not in settled:
        raise UsageError("where is Kafka?", found=f"neither kafka= nor the option {_BOOTSTRAP}")
    recovered = _find_recovered(spark, name, starting_offsets, start_key)
    if recovered is not None:
        if isinstance(recovered, str):
            start = recovered
        else:
            start = recovered.option(_list_partitions(spark, settled))
        settled = {key: value for key, value in settled.items() if key not in _STRONGER}
        settled[_STARTING] = start
    frame: DataFrame = spark.readStream.format("kafka").options(**settled).load()
    return frame


def _make_subscription(topic: str | Sequence[str] | None, subscribe_pattern: str | None) -> dict[str, str]:
    if (topic is None) == (subscribe_pattern is None):
        raise UsageError("what is to be read?", expected="either topic= or subscribe_pattern=")
    if topic is None:
        return {"subscribepattern": str(subscribe_pattern)}
    return {"subscribe": topic if isinstance(topic, str) else ",".join(topic)}


def _find_recovered(spark: Any, name: str, chosen: str | Path | None, key: str | None) -> StartingOffsets | str | None:
    """What is said of where the query starts; None if nothing is."""
    if chosen is None and key is None:
        chosen, key = os.environ.get(FOLDER_VARIABLE), os.environ.get(KEY_VARIABLE)
    if not chosen:
        value = None
        if key is not None:
            value = spark.conf.get(key, None)
        if value is None:
            return None
        return parse_start_value(value, name, f"{key} in the session's configuration")
    content, subject = _read_file(str(chosen), name)
    if content is None:
        return None
    return parse_start(content, name, subject, key=key)


def _read_file(chosen: str, name: str) -> tuple[bytes | None, str]:
    """What the file of a query holds, None if there is none; and what it is called."""
    place = parse_location(chosen)
    if place.scheme != "file":
        return open_storage(place).read(place, limit=FILE_BYTES_MAX), chosen
    path = Path(place.path)
    if path.is_dir() or not (path.suffix or path.exists()):
        path /= name_file(name)
    try:
        return path.read_bytes(), str(path)
    except FileNotFoundError:
        return None, str(path)
    except OSError as error:
        raise StartingOffsetsError(
            "the file that says where to start cannot be read", subject=str(path), found=error.strerror
        ) from error


def _list_partitions(spark: Any, options: Mapping[str, str]) -> Partitions:
    """The partitions that a source with these options reads."""
    if "subscribe" in options:
        topics = [topic.strip() for topic in options["subscribe"].split(",")]
    else:
        topics = []
    pattern = options.get("subscribepattern")
    if is_connect(spark):
        return _list_partitions_by_client(options, topics, pattern)
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a Connect client has no py4j

    broker = KafkaAdmin(spark._jvm, options)  # noqa: SLF001 - Kafka's client of the driver, with the source's own settings
    try:
        return broker.partitions(topics, pattern)
    except Py4JError as error:
        cause = make_failure_of_error(error)["causes"][-1]
        if str(cause["class_name"]).endswith(".UnknownTopicOrPartitionException"):
            raise _make_missing_error(", ".join(topics), cause["message"]) from error
        raise _make_unreachable_error(options, f"{cause['class_name']}: {cause['message']}") from error
    finally:
        broker.close()


def _list_partitions_by_client(options: Mapping[str, str], topics: list[str], pattern: str | None) -> Partitions:
    prefix = "kafka."
    given = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    facts = ask_kafka(options[_BOOTSTRAP], topics, subscribe_pattern=pattern, config=translate_config(given).settings)
    if facts.unknown is not None:
        raise _make_unreachable_error(options, facts.unknown)
    for name, topic in facts.topics.items():
        if not topic.partitions:
            raise _make_missing_error(name, topic.unknown or "no such topic")
    return {name: topic.partitions.keys() for name, topic in facts.topics.items()}


def _make_missing_error(topics: str, found: str) -> TopicMissingError:
    return TopicMissingError("the topic cannot be read", subject=topics, found=found, expected="its partitions")


def _make_unreachable_error(options: Mapping[str, str], found: str) -> KafkaUnreachableError:
    return KafkaUnreachableError(
        "Kafka does not tell the partitions of the topics",
        subject=options[_BOOTSTRAP],
        found=found,
        expected="an answer",
        effect="the query is not started: where it has to start cannot be said",
    )
