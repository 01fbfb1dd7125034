"""What a diagnosis does not know of sinks and topics: one line each, none only where nothing is unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.diagnosis.rules_kafka_broker import judge_identities
from lastgood.diagnosis.rules_links import select_links_that_matter
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart
from lastgood.query.sink_batches import find_planned_anew
from lastgood.sources.files.facts import describe_assumed_max_age, find_least_age_to_hold
from lastgood.sources.kafka.retention import TopicIdentity

_OPEN = (TopicIdentity.UNKNOWN, TopicIdentity.LOOKS_RECREATED, TopicIdentity.MAY_BE_RECREATED)

_LINKS_SHOWN = 5


def find_unknowns(world: Observation, restart: Restart) -> Iterator[str]:
    """What sinks and broker were not asked, or did not tell.

    Args:
        world: What was found and asked.
        restart: What Spark will do.
    """
    for path, target in sorted(select_links_that_matter(world.links, world.folder).items())[:_LINKS_SHOWN]:
        yield f"what {path} holds: it is a link to {target}, which Spark follows and lastgood does not"
    orphan = world.checkpoint.orphan
    if not world.sinks:
        has = "holds what is committed, and no more" if orphan is None else f"has batch {orphan}"
        yield f"whether the sink {has}: none was asked (--sink)"
    if world.memory is not None and world.memory.unknown is not None:
        yield f"whether the query has run here before: the ledger {world.memory.place}: {world.memory.unknown}"
    yield from _list_of_sinks(world)
    for source_id, again in world.files_again.items():
        least_ms = find_least_age_to_hold(again)
        if least_ms is not None:
            told = describe_assumed_max_age(source_id, least_ms)
            yield f"whether {told}: else files that were written again are read once more"
    for topic, answer in judge_identities(world, restart):
        if answer.identity in _OPEN:
            yield f"whether {topic} is the topic that was read: {answer.because}"


def _list_of_sinks(world: Observation) -> Iterator[str]:
    for sink in world.sinks:
        if not sink.known:
            yield f"{sink.location}: what it shows: {sink.because}"
        elif sink.presumed_app_id is not None:
            yield f"{sink.location}: whether the query writes there as {sink.presumed_app_id} (--txn-app-id)"
        elif sink.unclear is not None:
            yield f"{sink.location}: which of its batches are still there: {sink.unclear}"
        anew = find_planned_anew(world.checkpoint, sink)
        if anew is not None:
            yield f"{sink.location}: which plan its batch {world.checkpoint.orphan} is of: {anew.because}"
