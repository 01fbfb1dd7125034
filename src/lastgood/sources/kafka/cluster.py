"""Asking a Kafka cluster. Whatever it says, or does not say in time, becomes a value: nothing here hangs or raises.

Nothing is written to the cluster, and no consumer group is left on it.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar

from lastgood.errors import ExtraMissingError, UsageError
from lastgood.frozen import dataclass
from lastgood.sources.kafka.config import SECRET_SETTINGS
from lastgood.sources.kafka.facts import (
    CONFIG_KEYS,
    Found,
    FoundRecord,
    KafkaFacts,
    PartitionFacts,
    TopicFacts,
    resolve_offsets,
)
from lastgood.sources.kafka.ranges import Offsets

TIMEOUT_SECONDS = 10.0
"""How long all questions together may take."""

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 2.0
"""How long a cluster may look dead before we believe it: a broker that restarts is back within that."""
_HOPELESS = ("_AUTHENTICATION", "_SSL")
_FETCH_BYTES = 65_536

_NO_TOPIC_ID = "A" * 22  # from brokers older than topic ids

Place: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class _Answer(Generic[AnswerT]):
    value: AnswerT | None
    code: str = ""
    """Kafka's name for what is wrong; empty if nothing is."""
    because: str = ""


def ask_kafka(  # noqa: PLR0913 - what to ask, whom, and how: all by name
    bootstrap: str,
    topics: Collection[str] = (),
    *,
    subscribe_pattern: str | None = None,
    config: Mapping[str, str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    times_ms: Collection[int] = (),
    next_offsets: Offsets | None = None,
    clock: Callable[[], float] = time.time,
) -> KafkaFacts:
    """Ask a cluster for topics, their ids, settings and offsets; an answer within `timeout_seconds`, whatever happens.

    Args:
        bootstrap: `bootstrap.servers`.
        topics: Names of topics.
        subscribe_pattern: Regular expression that matches the whole name of further topics.
        config: Settings for confluent-kafka, as `KafkaConfig.settings` has them.
        timeout_seconds: For all questions together.
        times_ms: For each, the first record written then or later is looked for in every partition.
        next_offsets: Where it points to unread records, the first one is fetched, for its time; and the oldest one of
            each partition that `retention.bytes` limits.
        clock: Gives the seconds since 1970.

    Returns:
        Facts; every part that could not be found out says why.

    Raises:
        ExtraMissingError: confluent-kafka is not installed.
        UsageError: the pattern is no regular expression.
    """
    pattern = _compile(subscribe_pattern)
    asked_at_ms = int(clock() * 1000)
    cluster = _Cluster(bootstrap, config or {}, time.monotonic() + timeout_seconds)
    if cluster.refused is not None:
        return KafkaFacts(bootstrap, asked_at_ms, _make_unknown(topics, cluster.refused), unknown=cluster.refused)
    names, unlisted = cluster.topics(topics, pattern)
    described = cluster.describe(names)
    facts = {name: _describe_topic(described[name]) for name in names}
    dead = unlisted or (cluster.is_silent and next((topic.unknown for topic in facts.values()), None)) or None
    if dead is not None:
        return KafkaFacts(bootstrap, asked_at_ms, facts, unknown=dead)
    places = [(name, number) for name, topic in facts.items() for number in topic.partitions]
    with_partitions = [name for name, topic in facts.items() if topic.partitions]
    asked_configs = cluster.ask_configs(with_partitions)
    offsets = cluster.offsets(places, times_ms)
    configs = cluster.take_configs(asked_configs)
    facts = {name: _complete_topic(name, topic, offsets.limits, configs.get(name)) for name, topic in facts.items()}
    answered = KafkaFacts(bootstrap, asked_at_ms, facts, first_at=offsets.first_at)
    if next_offsets is None:
        return answered
    unread = _list_unread(next_offsets, answered)
    found, oldest = cluster.records(unread), cluster.records(_list_oldest(facts))
    return KafkaFacts(bootstrap, asked_at_ms, facts, offsets.first_at, found, oldest)


def ask_offsets_for_times(
    bootstrap: str,
    times_ms: Offsets,
    *,
    config: Mapping[str, str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Found:
    """The first record written at a time or later, per partition, each with a time of its own.

    Args:
        bootstrap: `bootstrap.servers`.
        times_ms: Per topic and partition the time.
        config: Settings for confluent-kafka.
        timeout_seconds: For all together.

    Returns:
        One record for each; without an offset where nothing was written that late.

    Raises:
        ExtraMissingError: confluent-kafka is not installed.
    """
    cluster = _Cluster(bootstrap, config or {}, time.monotonic() + timeout_seconds)
    places = {(topic, number): time_ms for topic, parts in times_ms.items() for number, time_ms in parts.items()}
    if cluster.refused is not None:
        return _nest({place: FoundRecord(unknown=cluster.refused) for place in places})
    return _nest(cluster.first_records(places))


def ask_record_times(
    bootstrap: str,
    next_offsets: Offsets,
    *,
    config: Mapping[str, str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Found:
    """The first record at an offset or after it, per partition, with its time: how old is what is unread.

    Args:
        bootstrap: `bootstrap.servers`.
        next_offsets: Per topic and partition the first unread offset.
        config: Settings for confluent-kafka.
        timeout_seconds: For all together.

    Returns:
        One record for each; without an offset where nothing readable follows.

    Raises:
        ExtraMissingError: confluent-kafka is not installed.
    """
    cluster = _Cluster(bootstrap, config or {}, time.monotonic() + timeout_seconds)
    places = {(topic, number): offset for topic, parts in next_offsets.items() for number, offset in parts.items()}
    if cluster.refused is not None:
        return _nest({place: FoundRecord(unknown=cluster.refused) for place in places})
    return cluster.records(places)


@dataclass(frozen=True, slots=True)
class _Offsets:
    limits: Mapping[str, Mapping[Place, _Answer[Any]]]
    first_at: Mapping[int, Found]


class _Cluster:
    """One admin client, kept until all its answers are in, with what it complained about meanwhile."""

    def __init__(self, bootstrap: str, config: Mapping[str, str], deadline: float) -> None:
        self._kafka = _import_confluent("confluent_kafka")
        self._admin_api = _import_confluent("confluent_kafka.admin")
        self._deadline = deadline
        self._secrets = tuple(config[name] for name in SECRET_SETTINGS & config.keys() if config[name])
        self._complaints: dict[str, str] = {}
        self._down_since: float | None = None
        self._settings: dict[str, Any] = {
            **config,
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "allow.auto.create.topics": False,
            "error_cb": _make_error_callback(self),
        }
        self.is_silent = True
        """Whether no question was answered so far."""
        self.refused: str | None = None
        """Why there can be no client with these settings; None if there is one."""
        try:
            self._admin = self._admin_api.AdminClient(self._settings)
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            self.refused = f"the settings of the client are refused: {self._text(error)}"

    def topics(self, names: Iterable[str], pattern: re.Pattern[str] | None) -> tuple[list[str], str | None]:
        """The topics to ask about, and why those of the pattern are not known; None if they are."""
        wanted = dict.fromkeys(names)
        if pattern is None:
            return list(wanted), None
        listed: Future[Any] = Future()

        def ask() -> None:  # a blocking call, while the callbacks of the client have to be served here
            try:
                listed.set_result(self._admin.list_topics(timeout=self._left))
            except self._kafka.KafkaException as error:
                listed.set_exception(error.with_traceback(None))

        threading.Thread(target=ask, daemon=True).start()
        answer = self._answers({"": listed})[""]
        if answer.value is None:
            return list(wanted), answer.because
        return list(wanted | {name: None for name in sorted(answer.value.topics) if pattern.fullmatch(name)}), None

    def describe(self, names: Collection[str]) -> Mapping[str, _Answer[Any]]:
        if not names:
            return {}
        wanted = self._kafka.TopicCollection(list(names))
        return self._answers(
            self._asked(names, lambda: self._admin.describe_topics(wanted, request_timeout=self._left))
        )

    def offsets(self, places: Collection[Place], times_ms: Collection[int]) -> _Offsets:
        """All limits and times at once: one request each, for all partitions."""
        spec, isolation = self._admin_api.OffsetSpec, self._kafka.IsolationLevel.READ_COMMITTED
        asked = {
            "earliest": self._list_offsets(dict.fromkeys(places, spec.earliest())),
            "latest": self._list_offsets(dict.fromkeys(places, spec.latest())),
            "last_stable": self._list_offsets(dict.fromkeys(places, spec.latest()), isolation),
        }
        timed = {
            time_ms: self._list_offsets(dict.fromkeys(places, spec.for_timestamp(time_ms))) for time_ms in times_ms
        }
        limits = {name: self._answers(futures) for name, futures in asked.items()}
        found = {time_ms: self._answers(futures) for time_ms, futures in timed.items()}
        return _Offsets(
            limits,
            {
                time_ms: _nest({at: _make_found(each) for at, each in answers.items()})
                for time_ms, answers in found.items()
            },
        )

    def first_records(self, times_ms: Mapping[Place, int]) -> Mapping[Place, FoundRecord]:
        spec = self._admin_api.OffsetSpec.for_timestamp
        answers = self._answers(self._list_offsets({place: spec(time_ms) for place, time_ms in times_ms.items()}))
        return {place: _make_found(answer) for place, answer in answers.items()}

    def ask_configs(self, names: Collection[str]) -> Mapping[Any, Future[Any]]:
        """Ask for the settings of topics; `take_configs` waits for the answers."""
        if not names:
            return {}
        kind = self._admin_api.ResourceType.TOPIC
        resources = [self._admin_api.ConfigResource(kind, name) for name in names]
        return self._asked(resources, lambda: self._admin.describe_configs(resources, request_timeout=self._left))

    def take_configs(self, asked: Mapping[Any, Future[Any]]) -> Mapping[str, _Answer[Any]]:
        return {resource.name: answer for resource, answer in self._answers(asked).items()}

    def records(self, next_offsets: Mapping[Place, int]) -> Found:
        """Fetch the first record of each partition: all are assigned at once, each is let go when it has answered."""
        if not next_offsets:
            return {}
        settings = {
            **self._settings,
            "group.id": "lastgood",  # the client insists on one; without a commit it is never made
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            "fetch.message.max.bytes": _FETCH_BYTES,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 10,  # else a second for each partition after the first
        }
        found: dict[Place, FoundRecord] = {}
        try:
            consumer = self._kafka.Consumer(settings)
            try:
                self._poll(consumer, next_offsets, found)
            finally:
                consumer.close()
        except self._kafka.KafkaException as error:
            self._complaints["_FAIL"] = self._text(error)
        late = FoundRecord(unknown=self._silence)
        return _nest({place: found.get(place, late) for place in next_offsets})

    def _poll(self, consumer: Any, next_offsets: Mapping[Place, int], found: dict[Place, FoundRecord]) -> None:
        partition = self._kafka.TopicPartition
        consumer.assign([partition(*place, offset) for place, offset in next_offsets.items()])
        while len(found) < len(next_offsets) and self._left > 0 and not self._is_hopeless:
            message = consumer.poll(min(_POLL_SECONDS, self._left))
            if message is None or message.topic() is None:
                continue
            place = (message.topic(), message.partition())
            if place not in found:
                found[place] = self._record(message)
                consumer.incremental_unassign([partition(*place)])

    def _record(self, message: Any) -> FoundRecord:
        error = message.error()
        if error is None:
            self.is_silent = False
            kind, timestamp_ms = message.timestamp()
            known = kind != self._kafka.TIMESTAMP_NOT_AVAILABLE and timestamp_ms >= 0
            return FoundRecord(message.offset(), timestamp_ms if known else None)
        if error.name() == "_PARTITION_EOF":
            return FoundRecord()
        return FoundRecord(unknown=self._without_secrets(error.str()))

    def _list_offsets(self, specs: Mapping[Place, Any], isolation: Any = None) -> dict[Place, Future[Any]]:
        if not specs:
            return {}
        wanted = {self._kafka.TopicPartition(*place): spec for place, spec in specs.items()}
        if isolation is None:
            how = {}
        else:
            how = {"isolation_level": isolation}
        futures = self._asked(wanted, lambda: self._admin.list_offsets(wanted, request_timeout=self._left, **how))
        return {(partition.topic, partition.partition): future for partition, future in futures.items()}

    def _asked(self, wanted: Iterable[Any], ask: Callable[[], Mapping[Any, Future[Any]]]) -> Mapping[Any, Future[Any]]:
        """The futures of a request; where the client does not even take it, they are broken."""
        try:
            return ask()
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            broken: Future[Any] = Future()
            broken.set_exception(error.with_traceback(None))
            return dict.fromkeys(wanted, broken)

    def _answers(self, futures: Mapping[AnswerT, Future[Any]]) -> dict[AnswerT, _Answer[Any]]:
        waiting = set(futures.values())
        while waiting and self._left > 0 and not self._is_hopeless:
            waiting = concurrent.futures.wait(waiting, timeout=min(_POLL_SECONDS, self._left)).not_done
            self._admin.poll(0)
        return {key: self._answer(future) for key, future in futures.items()}

    def _answer(self, future: Future[Any]) -> _Answer[Any]:
        if not future.done():
            return _Answer(None, "_TIMED_OUT", self._silence)
        error = future.exception()
        if error is None:
            self.is_silent = False
            return _Answer(future.result())
        if not isinstance(error, self._kafka.KafkaException):
            return _Answer(None, "_INVALID_ARG", self._text(error))
        reason = error.args[0]
        if reason.name() in ("_TIMED_OUT", "_TRANSPORT", "_DESTROY"):
            return _Answer(None, reason.name(), self._silence)
        self.is_silent = False
        return _Answer(None, reason.name(), self._text(error))

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def _is_hopeless(self) -> bool:
        """Whether to give up early. A cluster that has answered once is given all the time there is."""
        if not self.is_silent:
            return False
        if any(code in self._complaints for code in _HOPELESS):
            return True
        return self._down_since is not None and time.monotonic() - self._down_since > _GRACE_SECONDS

    @property
    def _silence(self) -> str:
        """Why there is no answer: what the client complained about most tellingly, else just that there is none."""
        told = [
            self._complaints[code]
            for code in (*_HOPELESS, "_RESOLVE", "_TRANSPORT", "_FAIL")
            if code in self._complaints
        ]
        if not told:
            return "no answer in time"
        return told[0]

    def complain(self, error: Any) -> None:
        """What the client says meanwhile."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._down_since = self._down_since or time.monotonic()
        else:
            self._complaints[error.name()] = self._without_secrets(error.str())

    def _text(self, error: BaseException) -> str:
        if error.args:
            reason = error.args[0]
        else:
            reason = error
        return self._without_secrets(reason.str() if isinstance(reason, self._kafka.KafkaError) else str(reason))

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _make_error_callback(cluster: _Cluster) -> Callable[[Any], None]:
    """A callback that does not keep the client alive in a circle, nor does any error keep its traceback.

    A client that is left to the garbage collector may be freed by a thread of its own, and that aborts the process.
    """
    listening = weakref.ref(cluster)

    def told(error: Any) -> None:
        found = listening()
        if found is not None:
            found.complain(error)

    return told


def _import_confluent(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissingError(extra="kafka", module="confluent_kafka", needed_for="asking Kafka") from error


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError("the pattern is no regular expression", subject=pattern, found=str(error)) from error


def _make_unknown(topics: Iterable[str], because: str) -> dict[str, TopicFacts]:
    return {name: TopicFacts(exists=None, unknown=because) for name in topics}


def _describe_topic(answer: _Answer[Any]) -> TopicFacts:
    if answer.value is not None:
        replicas = [len(partition.replicas) for partition in answer.value.partitions]
        topic_id = str(answer.value.topic_id)
        return TopicFacts(
            topic_id=None if topic_id == _NO_TOPIC_ID else topic_id,
            partitions={partition.id: PartitionFacts() for partition in answer.value.partitions},
            replication_factor=min(replicas, default=None),
        )
    if answer.code == "UNKNOWN_TOPIC_OR_PART":
        return TopicFacts(exists=False)
    return TopicFacts(exists=None, unknown=answer.because)


def _complete_topic(
    name: str, topic: TopicFacts, limits: Mapping[str, Mapping[Place, _Answer[Any]]], config: _Answer[Any] | None
) -> TopicFacts:
    settings: dict[str, str] = {}
    if config is not None and config.value is not None:
        settings = {key: config.value[key].value for key in CONFIG_KEYS if key in config.value}
    return TopicFacts(
        topic_id=topic.topic_id,
        partitions={
            number: _make_limits({kind: answers[name, number] for kind, answers in limits.items()})
            for number in topic.partitions
        },
        config=settings,
        replication_factor=topic.replication_factor,
        exists=topic.exists,
        unknown=topic.unknown,
        config_unknown=config.because or None if config is not None else None,
    )


def _make_limits(answers: Mapping[str, _Answer[Any]]) -> PartitionFacts:
    known = {kind: answer.value.offset for kind, answer in answers.items() if answer.value is not None}
    epochs = [answer.value.leader_epoch for answer in answers.values() if answer.value is not None]
    reasons = [f"{kind}: {answer.because}" for kind, answer in answers.items() if answer.because]
    latest, last_stable = known.get("latest"), known.get("last_stable")
    if latest is not None and last_stable is not None:
        latest = max(latest, last_stable)  # asked for at the same time: a transaction may have ended in between
    return PartitionFacts(
        earliest=known.get("earliest"),
        latest=latest,
        last_stable=last_stable,
        leader_epoch=max((epoch for epoch in epochs if epoch is not None), default=None),
        unknown="; ".join(reasons) or None,
    )


def _make_found(answer: _Answer[Any]) -> FoundRecord:
    if answer.value is None:
        return FoundRecord(unknown=answer.because)
    offset, timestamp_ms, epoch = answer.value.offset, answer.value.timestamp, answer.value.leader_epoch
    if offset < 0:
        return FoundRecord()
    known_ms = timestamp_ms if timestamp_ms >= 0 else None
    is_told = epoch is not None and epoch >= 0
    return FoundRecord(offset, known_ms, leader_epoch=epoch if is_told else None)


def _nest(flat: Mapping[Place, FoundRecord]) -> Found:
    nested: dict[str, dict[int, FoundRecord]] = {}
    for (topic, number), record in flat.items():
        nested.setdefault(topic, {})[number] = record
    return nested


def _list_oldest(topics: Mapping[str, TopicFacts]) -> dict[Place, int]:
    """Where the oldest record stands of the partitions that a number of bytes limits, and that have had older ones."""
    return {
        (name, number): partition.earliest
        for name, topic in topics.items()
        if (topic.config_number("retention.bytes") or 0) > 0
        for number, partition in topic.partitions.items()
        if partition.earliest and partition.latest is not None and partition.earliest < partition.latest
    }


def _list_unread(next_offsets: Offsets, facts: KafkaFacts) -> dict[Place, int]:
    """Where the first unread record is still served: elsewhere there is nothing to fetch."""
    return {
        (topic, number): offset
        for topic, parts in resolve_offsets(next_offsets, facts).items()
        for number, offset in parts.items()
        if facts.earliest.get(topic, {}).get(number, offset + 1)
        <= offset
        < facts.latest.get(topic, {}).get(number, offset)
    }
