"""Sinks and Kafka, asked once for many checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from lastgood.errors import UsageError
from lastgood.observe.broker import Broker, open_broker
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.surroundings import (
    ONE_SECONDS,
    Question,
    ask_questions,
    look_around,
    make_reading,
    make_sink_question,
)
from lastgood.query.kafka import Reading
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.kafka.cluster import ask_offsets_for_times, ask_record_times
from lastgood.sources.kafka.facts import Found, FoundRecord, KafkaFacts, resolve_offsets
from lastgood.sources.kafka.ranges import Offsets
from lastgood.storage.parallel import Deadline


def look_around_all(queries: Sequence[OpenQuery], options: EvidenceOptions, *, now_ms: int) -> list[OpenQuery]:
    """For each checkpoint what `look_around` tells of one.

    Which query writes to which sink is told by the sinks: one that goes by its folder, and not by query, has no say.

    Raises:
        UsageError: a name under which one query writes is given for several.
        LastgoodError: see `look_around`.
    """
    if options.txn_app_id is not None and len(queries) > 1:
        raise UsageError(
            "several queries do not write under one name",
            subject=f"--txn-app-id {options.txn_app_id}",
            found=f"{len(queries)} checkpoints",
            expected="the checkpoint of the query that writes so",
        )
    broker = open_broker(options.kafka, options.kafka_config)
    if broker:
        readings = [make_reading(query) for query in queries]
    else:
        readings = []
    kafka = [None] * len(queries) if broker is None else _ask_kafka(broker, readings, options, now_ms)
    if options.txn_app_id is not None:  # no table can tell of which query that is
        return [look_around(each, options, now_ms=now_ms, headroom=True) for each in queries]
    sinks = _ask_sinks(options.sinks, [query.query_id for query in queries], now_ms)
    return [
        replace(query, seen=replace(query.seen, sinks=shown, kafka=facts))
        for query, shown, facts in zip(queries, sinks, kafka, strict=True)
    ]


def _ask_kafka(
    broker: Broker, readings: Sequence[Reading], options: EvidenceOptions, now_ms: int
) -> list[KafkaFacts | None]:
    topics = tuple(dict.fromkeys((*options.topics, *(topic for each in readings for topic in each.topics))))
    ask = partial(
        broker.ask,
        topics,
        now_ms=now_ms,
        timeout_seconds=ONE_SECONDS,
        subscribe_pattern=options.subscribe_pattern,
    )
    facts: KafkaFacts = ask_questions([Question(ask, partial(broker.silent, now_ms=now_ms))], broker.bootstrap)[0]
    each_facts = [facts] * len(readings)
    if broker.facts is None and facts.unknown is None:
        deadline = Deadline.after(ONE_SECONDS)
        fetch, seek = (
            partial(ask, broker.bootstrap, config=broker.settings) for ask in (ask_record_times, ask_offsets_for_times)
        )
        unread = _ask_in_turns(fetch, deadline, [_select_unread(each, facts) for each in readings])
        times = [(where, after_ms) for where in readings for after_ms in where.after]
        later = _ask_in_turns(seek, deadline, [_list_times_after(where, after_ms) for where, after_ms in times])
        first_at: dict[int, dict[int, Found]] = {}
        for (where, after_ms), found in zip(times, later, strict=True):
            first_at.setdefault(id(where), {})[after_ms] = found
        each_facts = [
            replace(facts, unread=records, first_at=first_at.get(id(where), {}))
            for records, where in zip(unread, readings, strict=True)
        ]
    facts_of_each = []
    for told, where in zip(each_facts, readings, strict=True):
        facts_of_each.append(told if where.topics else None)
    return facts_of_each


def _select_unread(where: Reading, facts: KafkaFacts) -> Offsets:
    """The first unread offsets that are still served: elsewhere there is nothing to fetch."""
    earliest, latest = facts.earliest, facts.latest
    return {
        topic: {
            each: offset
            for each, offset in parts.items()
            if earliest.get(topic, {}).get(each, offset + 1) <= offset < latest.get(topic, {}).get(each, offset)
        }
        for topic, parts in resolve_offsets(where.next_offsets, facts).items()
    }


def _list_times_after(where: Reading, after_ms: int) -> Offsets:
    """For each partition the time from which on records are sought."""
    return {topic: dict.fromkeys(parts, after_ms) for topic, parts in where.next_offsets.items()}


def _ask_in_turns(ask: Callable[..., Found], deadline: Deadline, wanted: Sequence[Offsets]) -> list[Found]:
    """What each query wants to know of its partitions.

    A partition is asked about one thing at a time, so queries that stand at different places of it take turns; all
    turns together have the time of one answer.
    """
    places = sorted({(t, n, at) for offsets in wanted for t, parts in offsets.items() for n, at in parts.items()})
    turns: list[dict[str, dict[int, int]]] = []
    for topic, number, at in places:
        turn = next((each for each in turns if number not in each.get(topic, {})), None)
        if turn is None:
            turn = {}
            turns.append(turn)
        turn.setdefault(topic, {})[number] = at
    found: dict[tuple[str, int, int], FoundRecord] = {}
    for turn in turns:
        records = ask(turn, timeout_seconds=deadline.left)
        found |= {(t, n, turn[t][n]): record for t, parts in records.items() for n, record in parts.items()}
    return [
        {topic: {each: found[topic, each, at] for each, at in parts.items()} for topic, parts in offsets.items()}
        for offsets in wanted
    ]


def _ask_sinks(texts: Sequence[str], query_ids: Sequence[str | None], now_ms: int) -> list[tuple[SinkEvidence, ...]]:
    """Each sink says once whose batches it holds; then each query is asked for at its own sinks."""
    overviews: list[SinkEvidence] = ask_questions(
        [make_sink_question(text, "", now_ms=now_ms) for text in texts], "the sinks"
    )
    asked = [
        (number, make_sink_question(text, query_id, now_ms=now_ms))
        for number, query_id in enumerate(query_ids)
        for text, overview in zip(texts, overviews, strict=True)
        if query_id is not None and query_id in overview.others
    ]
    unknown = [overview for overview in overviews if not overview.known]
    found: list[list[SinkEvidence]] = [[*unknown] for _ in query_ids]
    told = ask_questions([each for _, each in asked], "the sinks")
    for (number, _), evidence in zip(asked, told, strict=True):
        found[number].append(evidence)
    return [tuple(each) for each in found]
