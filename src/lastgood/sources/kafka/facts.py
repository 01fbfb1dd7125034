"""What a Kafka cluster said when it was asked: topics, ids, offsets, retention; as values and as JSON. Pure.

Every part may be unknown, with the reason: an unreachable broker or a forbidden topic is an answer too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from lastgood.checkpoint.lines import is_long
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, OFFSET_LATEST
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.redaction import redact
from lastgood.sources.kafka.ranges import Offsets

CONFIG_KEYS = (
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "message.timestamp.type",
    "segment.ms",
    "segment.bytes",
    "min.insync.replicas",
    "remote.storage.enable",
)
"""The settings of a topic that are asked for."""

_GONE = "gone"
"""The names of the topics that do not exist; of one topic, `true`."""
_TOPIC_IDS_BEFORE = "topic_id_when_the_checkpoint_was_written"
_FIRST_AFTER_BATCH = "first_offset_with_timestamp_after_batch_"
"""The number of the batch follows. Of one topic both may stand without its name, and an offset without a record."""

_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)

ValueT = TypeVar("ValueT")


class KafkaFactsError(UsageError):
    """A file of broker facts is none."""

    condition = "KAFKA_FACTS_INVALID"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Where one partition begins and ends."""

    earliest: int | None = None
    """First offset that is still served; equal to `latest` if nothing is. None: unknown."""
    latest: int | None = None
    """One past the newest record."""
    last_stable: int | None = None
    """Where a `read_committed` reader ends: below `latest` while a transaction is open. None: unknown."""
    leader_epoch: int | None = None
    unknown: str | None = None
    """Why an offset is unknown; None if all are known."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic."""

    topic_id: str | None = None
    """Another one after the topic was deleted and created again; 22 characters. None: unknown."""
    partitions: Mapping[int, PartitionFacts] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    """Effective settings, those of `CONFIG_KEYS`."""
    replication_factor: int | None = None
    exists: bool | None = True
    """None: unknown."""
    unknown: str | None = None
    """Why it is not known what the topic holds, or whether it exists; None of one that does not exist."""
    config_unknown: str | None = None
    """Why the settings are not known."""

    def config_number(self, key: str) -> int | None:
        """A setting as a number; None if it is unknown. -1 is Kafka's "no limit"."""
        text = self.config.get(key, "")
        if _NUMBER.fullmatch(text):
            return int(text)
        return None

    @property
    def is_compacted(self) -> bool | None:
        """Whether records with the same key may be gone from its middle; None if unknown."""
        policy = self.config.get("cleanup.policy")
        if policy is None:
            return None
        return "compact" in _parse_policies(policy)

    @property
    def is_deleted_by_age(self) -> bool | None:
        """Whether retention deletes its oldest records; None if unknown."""
        policy = self.config.get("cleanup.policy")
        if policy is None:
            return None
        return "delete" in _parse_policies(policy)


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record that was looked for, by its time or by its offset."""

    offset: int | None = None
    """None: there is none, or it is unknown."""
    timestamp_ms: int | None = None
    """Its time, as its producer or the broker set it; None if it has none or is unknown."""
    unknown: str | None = None
    """Why nobody knows; None if the answer is known, also if it is that there is none."""
    leader_epoch: int | None = None
    """Under which leader of its partition it was written; each has a higher number. None: not told."""


Found = Mapping[str, Mapping[int, FoundRecord]]
"""A record per topic and partition."""


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """What a cluster said at one moment."""

    bootstrap: str
    asked_at_ms: int
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    """Every topic that was asked for, also those that do not exist."""
    first_at: Mapping[int, Found] = field(default_factory=dict)
    """Per time in milliseconds the first record written then or later."""
    unread: Found = field(default_factory=dict)
    """The first unread record of the partitions that have one."""
    oldest: Found = field(default_factory=dict)
    """The oldest record of the partitions that have one, of topics that a number of bytes limits."""
    unknown: str | None = None
    """Why the cluster did not answer at all; None if it did."""
    topic_ids_before: Mapping[str, str] = field(default_factory=dict)
    """Ids that topics had when the checkpoint was written, where somebody wrote them down beside the facts."""
    first_after_batch: Mapping[int, Found] = field(default_factory=dict)
    """As `first_at`, for the time of a batch, by its number."""

    @property
    def earliest(self) -> Offsets:
        """Earliest offsets of the partitions where they are known."""
        return self._offsets(lambda partition: partition.earliest)

    @property
    def latest(self) -> Offsets:
        """Latest offsets of the partitions where they are known."""
        return self._offsets(lambda partition: partition.latest)

    def exists(self, topic: str) -> bool | None:
        """Whether there is such a topic; None if nobody knows, as of one that written facts do not name."""
        if self.unknown is not None:
            return None
        if not self.topics:
            return False  # it answered, and named none at all
        found = self.topics.get(topic)
        if found is None or found.exists is None:
            return None
        if not found.exists:
            return False
        if found.unknown is not None:
            return None
        return bool(found.partitions)  # each topic has one at least

    @property
    def missing_topics(self) -> tuple[str, ...]:
        """Topics of which the cluster said that they do not exist."""
        return tuple(name for name, topic in self.topics.items() if topic.exists is False)

    @property
    def unknowns(self) -> Mapping[str, str]:
        """What is not known, and why: the cluster (empty name), topics, and partitions as `topic/0`."""
        if self.unknown is None:
            found = {}
        else:
            found = {"": self.unknown}
        for name, topic in self.topics.items():
            if topic.unknown is not None:
                found[name] = topic.unknown
            for number, partition in topic.partitions.items():
                if partition.unknown is not None:
                    found[f"{name}/{number}"] = partition.unknown
        return found

    def _offsets(self, get: Callable[[PartitionFacts], int | None]) -> Offsets:
        found: dict[str, dict[int, int]] = {}
        for name, topic in self.topics.items():
            for number, partition in topic.partitions.items():
                offset = get(partition)
                if offset is not None:
                    found.setdefault(name, {})[number] = offset
        return found

    def to_json(self) -> dict[str, Any]:
        """The facts as they are kept in a file; what is not known or not asked is left out."""
        times = {str(time): _found_to_json(found) for time, found in self.first_at.items()}
        gone = self.missing_topics
        return {
            "bootstrap": redact(self.bootstrap),
            "captured_at_ms": self.asked_at_ms,
            "topics": {name: _topic_to_json(topic) for name, topic in self.topics.items() if name not in gone},
            **({_GONE: list(gone)} if gone else {}),
            **_drop_absent({"first_at": times or None, "unread": _found_to_json(self.unread) or None}),
            **_drop_absent({"oldest": _found_to_json(self.oldest) or None}),
            **_drop_absent({"unknown": self.unknown, _TOPIC_IDS_BEFORE: dict(self.topic_ids_before) or None}),
            **{f"{_FIRST_AFTER_BATCH}{n}": _found_to_json(found) for n, found in self.first_after_batch.items()},
        }


def resolve_offsets(offsets: Offsets, facts: KafkaFacts) -> Offsets:
    """Offsets with `OFFSET_EARLIEST` and `OFFSET_LATEST` as the cluster tells them; as they are where it does not."""
    bounds = {OFFSET_EARLIEST: facts.earliest, OFFSET_LATEST: facts.latest}

    def told(topic: str, partition: int, at: int) -> int:
        if at not in bounds:
            return at
        return bounds[at].get(topic, {}).get(partition, at)

    return {
        topic: {partition: told(topic, partition, at) for partition, at in parts.items()}
        for topic, parts in offsets.items()
    }


def facts_from_json(value: object) -> KafkaFacts:
    """Read facts that were written down by `KafkaFacts.to_json`, or by hand; keys that are not known are ignored.

    A topic that does not exist stands among the names in `gone`. One that is named nowhere may exist or not.

    Raises:
        KafkaFactsError: the value has another shape.
    """
    facts = _require_object(value, "the facts")
    topics = _require_object(facts.get("topics", {}), "topics")
    times = _require_object(facts.get("first_at", {}), "first_at")
    after = {key: found for key, found in facts.items() if key.startswith(_FIRST_AFTER_BATCH)}
    return KafkaFacts(
        bootstrap=_require_typed(facts, "bootstrap", str, "the facts") or "",
        asked_at_ms=_require_number(facts, "captured_at_ms", "the facts") or 0,
        topics={
            **{name: _topic_from_json(topic, f"topic {name}") for name, topic in topics.items()},
            **dict.fromkeys(_gone_from_json(facts.get(_GONE, []), topics), TopicFacts(exists=False)),
        },
        first_at={
            _parse_key(time, "first_at"): _found_from_json(found, f"first_at {time}") for time, found in times.items()
        },
        unread=_found_from_json(facts.get("unread", {}), "unread"),
        oldest=_found_from_json(facts.get("oldest", {}), "oldest"),
        unknown=_require_typed(facts, "unknown", str, "the facts"),
        topic_ids_before=_topic_ids_from_json(facts.get(_TOPIC_IDS_BEFORE, {}), topics),
        first_after_batch={
            _parse_key(key.removeprefix(_FIRST_AFTER_BATCH), key): _first_after_from_json(found, topics, key)
            for key, found in after.items()
        },
    )


def _parse_policies(text: str) -> set[str]:
    return {policy.strip() for policy in text.split(",")}


def _drop_absent(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _topic_to_json(topic: TopicFacts) -> dict[str, Any]:
    partitions = {}
    for number, partition in topic.partitions.items():
        known = {"earliest": partition.earliest, "latest": partition.latest, "last_stable": partition.last_stable}
        partitions[str(number)] = _drop_absent(
            {**known, "leader_epoch": partition.leader_epoch, "unknown": partition.unknown}
        )
    fields = _drop_absent({"topic_id": topic.topic_id, "replication_factor": topic.replication_factor})
    if not topic.exists:
        fields["exists"] = None
    fields["partitions"] = partitions
    if topic.config:
        fields["config"] = dict(topic.config)
    return fields | _drop_absent({"unknown": topic.unknown, "config_unknown": topic.config_unknown})


def _topic_from_json(value: object, where: str) -> TopicFacts:
    topic = _require_object(value, where)
    partitions = _require_object(topic.get("partitions", {}), f"partitions of {where}")
    config = _require_object(topic.get("config", {}), f"config of {where}")
    if "exists" in topic:
        exists = _require_typed(topic, "exists", bool, where)
    else:
        exists = True
    if exists is False or _require_typed(topic, _GONE, bool, where):
        if partitions:
            raise _make_wrong_error(where, list(partitions), "no partitions of a topic that is gone")
        return TopicFacts(exists=False)
    return TopicFacts(
        topic_id=_require_typed(topic, "topic_id", str, where),
        partitions={
            _parse_key(number, where): _partition_from_json(partition, f"{where}, partition {number}")
            for number, partition in partitions.items()
        },
        config={key: str(setting) for key, setting in config.items()},
        replication_factor=_require_number(topic, "replication_factor", where),
        exists=exists,
        unknown=_require_typed(topic, "unknown", str, where),
        config_unknown=_require_typed(topic, "config_unknown", str, where),
    )


def _gone_from_json(value: object, topics: Mapping[str, Any]) -> list[str]:
    """The names of the topics that do not exist."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _make_wrong_error(_GONE, value, "a list of the names of topics")
    for name in value:
        if name in topics and _topic_from_json(topics[name], f"topic {name}").partitions:
            raise _make_wrong_error(
                f"topic {name}", list(topics[name]["partitions"]), "no partitions of a topic that is gone"
            )
    return value


def _partition_from_json(value: object, where: str) -> PartitionFacts:
    fields = _require_object(value, where)
    return PartitionFacts(
        earliest=_require_number(fields, "earliest", where),
        latest=_require_number(fields, "latest", where),
        last_stable=_require_number(fields, "last_stable", where),
        leader_epoch=_require_number(fields, "leader_epoch", where),
        unknown=_require_typed(fields, "unknown", str, where),
    )


def _found_to_json(found: Found) -> dict[str, Any]:
    return {
        topic: {
            str(number): _drop_absent(
                {
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "leader_epoch": record.leader_epoch,
                    "unknown": record.unknown,
                }
            )
            for number, record in records.items()
        }
        for topic, records in found.items()
    }


def _found_from_json(value: object, where: str) -> Found:
    return {
        topic: {
            _parse_key(number, where): _record_from_json(record, f"{where}, {topic}/{number}")
            for number, record in _require_object(records, where).items()
        }
        for topic, records in _require_object(value, where).items()
    }


def _record_from_json(value: object, where: str) -> FoundRecord:
    fields = _require_object(value, where)
    return FoundRecord(
        offset=_require_number(fields, "offset", where),
        timestamp_ms=_require_number(fields, "timestamp_ms", where),
        unknown=_require_typed(fields, "unknown", str, where),
        leader_epoch=_require_number(fields, "leader_epoch", where),
    )


def _topic_ids_from_json(value: object, topics: Mapping[str, Any]) -> Mapping[str, str]:
    if isinstance(value, str):
        return _spread_to_one_topic(value, topics, _TOPIC_IDS_BEFORE)
    ids = _require_object(value, _TOPIC_IDS_BEFORE)
    for topic in ids:
        _require_typed(ids, topic, str, _TOPIC_IDS_BEFORE)
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}


def _first_after_from_json(value: object, topics: Mapping[str, Any], where: str) -> Found:
    found = _require_object(value, where)
    if found and not any(isinstance(records, dict) for records in found.values()):
        found = _spread_to_one_topic(found, topics, where)
    return {
        topic: {
            _parse_key(number, where): _first_from_json(records, number, f"{where}, {topic}")
            for number in _require_object(records, where)
        }
        for topic, records in found.items()
    }


def _first_from_json(records: Mapping[str, Any], number: str, where: str) -> FoundRecord:
    """A record, or just its offset; Kafka's own answer for "none" is -1."""
    if isinstance(records[number], dict):
        return _record_from_json(records[number], f"{where}/{number}")
    offset = _require_number(records, number, where)
    if offset is None:
        return FoundRecord(unknown="it was not written down")
    return FoundRecord(None if offset < 0 else offset)


def _spread_to_one_topic(value: ValueT, topics: Mapping[str, Any], where: str) -> dict[str, ValueT]:
    """What is said without the name of a topic; of no topic that is known there is nothing to say."""
    if len(topics) > 1:
        raise _make_wrong_error(where, value, "an object with the names of the topics, since there are several")
    return dict.fromkeys(topics, value)


def _require_object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _make_wrong_error(where, value, "an object")
    return value


def _require_typed(fields: Mapping[str, Any], key: str, kind: type[ValueT], where: str) -> ValueT | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, kind):
        raise _make_wrong_error(f"{key} of {where}", value, f"a value of type {kind.__name__}")
    return value


def _require_number(fields: Mapping[str, Any], key: str, where: str) -> int | None:
    value = fields.get(key)
    if value is None or is_long(value):
        return value
    raise _make_wrong_error(f"{key} of {where}", value, "a whole number")


def _parse_key(text: str, where: str) -> int:
    if not _NUMBER.fullmatch(text) or text.startswith("-"):
        raise _make_wrong_error(f"a key of {where}", text, "a whole number")
    return int(text)


def _make_wrong_error(subject: str, found: object, expected: str) -> KafkaFactsError:
    return KafkaFactsError(
        "the facts about Kafka are not understood", subject=subject, found=repr(found)[:80], expected=expected
    )


def is_compacted(facts: KafkaFacts | None, topic: str) -> bool | None:
    """Whether records of a topic may be gone from between its offsets; None: Kafka was not asked, or did not say."""
    if facts is None or topic not in facts.topics:
        return None
    return facts.topics[topic].is_compacted
