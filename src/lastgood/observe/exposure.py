"""What Kafka holds that a query has not read, and what of it is at risk."""

from __future__ import annotations

from lastgood.observe.advice_facts import select_query_facts
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import BATCHES
from lastgood.observe.open_query import OpenQuery, gather, read_clock_ms
from lastgood.observe.surroundings import look_around, make_reading
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.kafka import Exposure, judge_exposure
from lastgood.query.sink_batches import is_in_sinks
from lastgood.settings.target import Target


def judge_exposure_to_kafka(
    query: OpenQuery, facts: AdviceFacts, options: EvidenceOptions, *, at_ms: int
) -> Exposure | None:
    """What is unread and at risk; None where Kafka was not asked.

    Args:
        query: Its sinks and Kafka were asked, with `headroom`.
        facts: From `select_query_facts` at least.
        options: By what they were asked.
        at_ms: The time, milliseconds since 1970.
    """
    checkpoint, facts_of_kafka = query.checkpoint, query.seen.kafka
    if facts_of_kafka is None:
        return None
    held = checkpoint.orphan if is_in_sinks(checkpoint, query.seen.sinks) else None
    return judge_exposure(
        make_reading(query),
        facts_of_kafka,
        now_ms=at_ms,
        noted_ids=facts.topic_ids,
        is_same_topic=options.topic_is_the_same,
        in_sinks=None if held is None else make_reading(query, through=held).next_offsets,
    )


def has_unread(target: Target, options: EvidenceOptions) -> bool:
    """Whether Kafka holds more than the query has planned, as far as Kafka tells; no sink is asked.

    Args:
        target: Which query.
        options: Which Kafka is asked.

    Raises:
        LastgoodError: the checkpoint cannot be read, or an option is not understood (subclasses).
    """
    query = gather(target, batches=BATCHES)
    at_ms = read_clock_ms()
    query = look_around(query, options, now_ms=at_ms, headroom=True, sinks=False)
    exposure = judge_exposure_to_kafka(query, select_query_facts(query), options, at_ms=at_ms)
    return exposure is not None and bool(exposure.unread)
