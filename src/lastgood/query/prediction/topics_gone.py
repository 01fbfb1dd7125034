"""Whether a start comes to another end where topics are gone, by what is not known of them. Pure.

Two things are not in any file of a checkpoint: whether topics are subscribed by their names (`subscribe`, `assign`) or
by a pattern, and, where facts about Kafka were written down, whether there is a topic that these do not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lastgood.checkpoint.source_offsets import get_topics
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart
from lastgood.query.spans import list_stands
from lastgood.sources.kafka.facts import TopicFacts

_BY_PATTERN = "whether topics are subscribed by a pattern (--subscribe-pattern)"


def find_other_endings(
    observed: Observation, restart: Restart, predict: Callable[[Observation], Restart]
) -> Iterator[str]:
    """What could not be known and changes the answer; one line each, none where every reading ends alike.

    Args:
        observed: What is known.
        restart: What Spark will do as far as that tells: topics that nobody says are gone exist, and others are
            subscribed by their names where nobody knows.
        predict: What Spark would do where something else is so.
    """
    if observed.kafka is None or observed.kafka.unknown is not None:
        return
    named = _list_named(observed)
    unnamed = [topic for topic in named if observed.kafka.topics and topic not in observed.kafka.topics]
    if any(observed.kafka.exists(topic) is False for topic in named):
        yield from _predict_by_pattern(observed, restart, predict, f"{_BY_PATTERN}; if so")
    if not unnamed:
        return
    gone = dict.fromkeys(unnamed, TopicFacts(exists=False))
    without = replace(observed, kafka=replace(observed.kafka, topics={**observed.kafka.topics, **gone}))
    ending = predict(without)
    names = ", ".join(unnamed)
    if _identify_end(ending) != _identify_end(restart):
        yield f"whether {names} exists, which the facts about Kafka do not name; if not, {_describe_end(ending)}"
    yield from _predict_by_pattern(without, ending, predict, f"{_BY_PATTERN}; if so, and without {names},")


def _predict_by_pattern(
    observed: Observation, restart: Restart, predict: Callable[[Observation], Restart], asked: str
) -> Iterator[str]:
    if observed.is_pattern or observed.is_by_name:
        return
    other = predict(replace(observed, is_pattern=True))
    if _identify_end(other) != _identify_end(restart):
        yield f"{asked} {_describe_end(other)}"


def _list_named(observed: Observation) -> list[str]:
    """The topics of which the next batch needs to know."""
    offsets = (offset for stand in list_stands(observed.checkpoint) for offset in (stand.start, stand.end))
    return list(dict.fromkeys(topic for offset in offsets for topic in get_topics(offset)))


def _identify_end(restart: Restart) -> tuple[object, ...]:
    return restart.outcome, restart.batch, restart.error, restart.leaves_orphan


def _describe_end(restart: Restart) -> str:
    outcome = f"Spark {restart.spark} {restart.outcome.value}"
    if restart.error is None:
        return f"{outcome}, batch {restart.batch}"
    told = f"{outcome}: {restart.error}"
    if restart.leaves_orphan:
        told += ", and leaves its plan behind"
    return told
