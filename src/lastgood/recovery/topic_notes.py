"""Notes down of which topics the offsets of a query are: where it was judged that it goes on in them."""

from __future__ import annotations

from typing import Any

from lastgood.checkpoint.layout import METADATA
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.checkpoint.source_offsets import get_topics
from lastgood.journal.topic_ids import read_topic_ids, write_topic_ids
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import OpenQuery, gather, read_clock_ms
from lastgood.observe.surroundings import look_around
from lastgood.planning.plan import Plan
from lastgood.planning.pricing import find_ends
from lastgood.query.observation import Observation
from lastgood.settings.target import Target
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable

_NOW, _BEFORE = "topic_ids", "topic_ids_before"


def collect_topic_ids(observed: Observation) -> dict[str, Any]:
    """What a plan keeps of the topics that are read; nothing if Kafka told nothing."""
    facts, entry = observed.kafka, observed.checkpoint.newest_offsets
    if facts is None or facts.unknown is not None:
        return {}
    read = [topic for offset in find_ends(entry).values() for topic in get_topics(offset)]
    ids = _list_ids(facts)
    return {_NOW: {topic: ids.get(topic) for topic in read or ids}, _BEFORE: dict(observed.topic_ids)}


def note_topics(plan: Plan, *, undone: bool = False) -> None:
    """The query goes on as a plan says, whose price holds for the topics that were there when it was made.

    Args:
        plan: Carried out, or a plain restart.
        undone: Whether it was taken back.

    Raises:
        StorageError: it cannot be noted down (subclasses).
    """
    ids = plan.options.get(_NOW, {})
    if not any(ids.values()):
        return
    location = parse_location(plan.checkpoint)
    storage = open_writable(location)
    raw = storage.read(location / METADATA, limit=LOG_BYTES_MAX)
    query = None if raw is None else parse_query_metadata(raw)
    if isinstance(query, QueryMetadata):
        known = read_topic_ids(storage, location, query.query_id)
        told = {topic: each or known.get(topic) for topic, each in ids.items()}  # of one that is silent, what it was
        wanted = plan.options.get(_BEFORE, {}) if undone else told
        write_topic_ids(storage, location, query.query_id, {topic: each for topic, each in wanted.items() if each})


def note_before_first_start(found: OpenQuery) -> None:
    """A query without a checkpoint is started: on the topics that are there now, as far as anybody has named them.

    Raises:
        StorageError: it cannot be noted down (subclasses).
    """
    ids = {} if found.seen.kafka is None else _list_ids(found.seen.kafka)
    if ids:
        write_topic_ids(open_writable(found.location), found.location, None, ids)


def note_first_topics(target: Target, options: EvidenceOptions) -> None:
    """The query has begun to read: note down of which topics, if nobody has yet.

    Raises:
        LastgoodError: it cannot be found out, or not be noted down (subclasses).
    """
    if options.kafka is None and options.kafka_config is None:
        return
    found = gather(target, batches=1)
    if found.query_id is None:
        return
    ids = read_topic_ids(found.storage, found.location, found.query_id)
    if not ids:
        kafka = look_around(found, options, now_ms=read_clock_ms(), sinks=False).seen.kafka
        ids = {} if kafka is None else _list_ids(kafka)
    if ids:
        write_topic_ids(open_writable(found.location), found.location, found.query_id, ids)


def _list_ids(facts: KafkaFacts) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in facts.topics.items() if topic.topic_id is not None}
