"""Which Kafka topics a query reads, by the id that tells a topic from a later one of the same name.

The broker is that of the query itself: its options stand in the query's plan, and Kafka's client is on the driver's
class path. Options hold secrets; they are given back to Java and go nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

_PREFIX = "kafka."
_BOOTSTRAP = "kafka.bootstrap.servers"
ASK_SECONDS = 10.0
AFTER_TROUBLE_SECONDS = 60.0
_ANSWER_SECONDS = 5
_CONNECTING = (
    "bootstrap.",
    "security.",
    "sasl.",
    "ssl.",
    "client.dns.",
    "socket.",
    "reconnect.",
    "retry.",
    "metadata.",
)
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what a broker says that gives its topics no ids
_OPTIONS = {"subscribe": "subscribe", "subscribe_pattern": "subscribepattern", "assign": "assign"}


class KafkaTopics:
    """The topic ids of one query; belongs to one thread, may wait for the broker."""

    def __init__(self, jvm: Any, plan: Any) -> None:
        """Ask for the sources of a query.

        Args:
            jvm: The way into Java.
            plan: The query's analyzed logical plan, in Java.
        """
        self._jvm = jvm
        leaves = (dict(leaf) for leaf in _list_kafka_options(plan))
        self._brokers = [KafkaAdmin(jvm, options) for options in leaves if _BOOTSTRAP in options]

    def fill_in(self, sources: Iterable[dict[str, Any]]) -> None:
        """Write `topic_ids` and the time of the answer into the sources of a progress record."""
        for source in sources:
            told = source["subscription"]
            end = source["end_offset"]
            if told is None or not isinstance(end, Mapping):
                continue
            brokers = [broker for broker in self._brokers if broker.serves(told)]
            if len({broker.bootstrap for broker in brokers}) == 1:
                source["topic_ids"], source["topic_ids_at_ms"] = brokers[0].topic_ids(end)

    def close(self) -> None:
        """Let the connections go."""
        for broker in self._brokers:
            broker.close()


def _list_kafka_options(plan: Any) -> Iterable[Any]:
    """The options of each Kafka source in a plan; Java's map has its keys in lower case, as Kafka's are."""
    leaves = plan.collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == "kafka":
            yield leaf.extraOptions()


class KafkaAdmin:
    """Kafka's own admin client, in Java, with the settings of one source."""

    def __init__(self, jvm: Any, options: Mapping[str, str]) -> None:
        """Ask with the options of a Kafka source, their names in lower case; nothing is asked yet."""
        self._jvm = jvm
        self._options = options
        self._admin: Any = None
        self._known: tuple[dict[str, str | None] | None, int | None] = (None, None)
        self._ask_at = 0.0
        self.bootstrap = options[_BOOTSTRAP]

    def serves(self, told: Mapping[str, str]) -> bool:
        """Whether a source with this subscription reads from here."""
        own = self._options.get(_OPTIONS[told["kind"]])
        return own is not None and (told["kind"] == "assign" or _split_words(own) == _split_words(told["value"]))

    def topic_ids(self, topics: Iterable[str]) -> tuple[dict[str, str | None] | None, int | None]:
        """The id of each topic, and when the broker said so; the last answer where it is young enough."""
        wanted = set(topics)
        ids, _ = self._known
        if time.monotonic() < self._ask_at and (ids is None or wanted <= ids.keys()):
            return self._known
        self._ask_at = time.monotonic() + AFTER_TROUBLE_SECONDS
        self._known = (None, None)
        described = self._described(sorted(wanted))
        self._known = (
            {topic: translate_topic_id(each.topicId().toString()) for topic, each in described.items()},
            _read_clock_ms(),
        )
        self._ask_at = time.monotonic() + ASK_SECONDS
        return self._known

    def partitions(self, topics: Iterable[str], pattern: str | None) -> dict[str, list[int]]:
        """The partitions of these topics, and of those whose whole name the Java pattern matches."""
        wanted = set(topics)
        if pattern is not None:
            matches = self._jvm.java.util.regex.Pattern.matches
            listed = self._answer(self._client().listTopics().names())
            wanted |= {name for name in listed if matches(pattern, name)}
        return {
            topic: [each.partition() for each in described.partitions()]
            for topic, described in self._described(sorted(wanted)).items()
        }

    def close(self) -> None:
        """Let the connections go."""
        if self._admin is not None:
            self._admin.close(self._jvm.java.time.Duration.ZERO)
            self._admin = None

    def _described(self, topics: list[str]) -> dict[str, Any]:
        names = self._jvm.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        return dict(self._answer(self._client().describeTopics(names).allTopicNames()))

    def _answer(self, future: Any) -> Any:
        return future.get(_ANSWER_SECONDS, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _client(self) -> Any:
        if self._admin is None:
            settings = self._jvm.java.util.HashMap()
            for option, value in self._options.items():
                name = option[len(_PREFIX) :]
                if option.startswith(_PREFIX) and name.startswith(_CONNECTING):
                    settings.put(name, value)
            settings.put("client.id", "lastgood")
            settings.put("default.api.timeout.ms", str(_ANSWER_SECONDS * 1000))
            settings.put("request.timeout.ms", str(_ANSWER_SECONDS * 1000))
            self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        return self._admin


def translate_topic_id(told: str) -> str | None:
    """A topic id in the base64 of confluent-kafka, `+` and `/`, where Java has `-` and `_`; None if there is none."""
    if told == _NO_ID:
        return None
    return told.replace("-", "+").replace("_", "/")


def _split_words(text: str) -> list[str]:
    return sorted(word.strip() for word in text.split(","))


def _read_clock_ms() -> int:
    return int(time.time() * 1000)
