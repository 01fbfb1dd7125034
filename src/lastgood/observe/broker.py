"""The Kafka that the options name: servers to ask, or a file of what a broker said before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.sources.kafka.cluster import ask_kafka
from lastgood.sources.kafka.config import KafkaConfig, read_kafka_config
from lastgood.sources.kafka.facts import KafkaFacts, KafkaFactsError, facts_from_json
from lastgood.sources.kafka.ranges import Offsets

_FACTS_BYTES_MAX = 256 * 1024 * 1024
"""Topics of more partitions than any broker has take less."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Somebody who knows about topics. Make one with `open_broker`."""

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For confluent-kafka. Holds secrets."""
    facts: KafkaFacts | None = None
    """What was written down before: then nobody is asked."""

    def ask(
        self,
        topics: Collection[str],
        *,
        now_ms: int,
        timeout_seconds: float,
        subscribe_pattern: str | None = None,
        times_ms: Collection[int] = (),
        next_offsets: Offsets | None = None,
    ) -> KafkaFacts:
        """What it says of these topics; see `ask_kafka`.

        Raises:
            ExtraMissingError: confluent-kafka is not installed.
            UsageError: the pattern is no regular expression.
        """
        if self.facts is not None:
            return self.facts
        if not topics and subscribe_pattern is None:
            return self.silent("no log names a topic: --topic NAME or --subscribe-pattern REGEX does", now_ms=now_ms)
        return ask_kafka(
            self.bootstrap,
            topics,
            subscribe_pattern=subscribe_pattern,
            config=self.settings,
            timeout_seconds=timeout_seconds,
            times_ms=times_ms,
            next_offsets=next_offsets,
        )

    def silent(self, because: str, *, now_ms: int) -> KafkaFacts:
        """The facts of a cluster that told nothing."""
        return KafkaFacts(self.bootstrap, now_ms, unknown=because)


def open_broker(kafka: str | None, config: Path | None) -> Broker | None:
    """The broker that `--kafka` and `--kafka-config` name; nothing is asked yet. None if they name none.

    Args:
        kafka: `bootstrap.servers`, or the path of a file of facts.
        config: A `client.properties`; it may name the servers too.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        KafkaFactsError, KafkaConfigError, PropertiesError: it is not understood.
    """
    if kafka is not None and _is_file(kafka):
        facts = read_facts(Path(kafka))
        return Broker(facts.bootstrap, facts=facts)
    if config is None:
        client = KafkaConfig()
    else:
        client = read_kafka_config(config)
    bootstrap = kafka or client.bootstrap
    if bootstrap is None:
        return None
    return Broker(bootstrap, client.settings)


def read_facts(file: Path) -> KafkaFacts:
    """Facts about Kafka that were written down before, in the shape of `KafkaFacts.to_json`.

    Raises:
        UsageError: the file cannot be read.
        KafkaFactsError: it holds something else.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(_FACTS_BYTES_MAX + 1)
        if len(raw) > _FACTS_BYTES_MAX:
            expected = f"at most {_FACTS_BYTES_MAX:,} bytes"
            raise KafkaFactsError("the facts about Kafka are too long", subject=str(file), expected=expected)
        return facts_from_json(read_json(raw))
    except OSError as error:
        raise UsageError("the facts about Kafka cannot be read", subject=str(file), found=error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise KafkaFactsError("the facts about Kafka are no JSON", subject=str(file), found=str(error)[:80]) from error


def is_file_of_facts(kafka: str) -> bool:
    """Whether what was given for Kafka is to be a file of facts, by its name alone."""
    return kafka.endswith(".json") or ("/" in kafka and "://" not in kafka)


def _is_file(kafka: str) -> bool:
    file, found = Path(kafka), "no such file"
    try:
        if file.is_file():
            return True
        if file.is_dir():
            found = "a folder"
    except OSError as error:  # a list of several brokers is longer than any name of a file
        found = error.strerror or found
    if is_file_of_facts(kafka):
        raise UsageError(
            "there is no such file of facts about Kafka",
            subject=kafka,
            found=found,
            expected="bootstrap.servers such as broker:9092, or a file of facts",
        )
    return False
