"""Whether a topic is the one of which batches were planned, by their plans and by what the broker tells. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import get_topics
from lastgood.query.observation import Observation
from lastgood.query.spans import find_orphan
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, TopicFacts
from lastgood.sources.kafka.retention import (
    FROM_THE_FIRST_MS,
    MAX_CLOCK_SKEW_MS,
    IdentityAnswer,
    ReadUpTo,
    TopicIdentity,
    identify_topic,
)

_TIMESTAMP_TYPE: Final = "message.timestamp.type"


def collect_offset_entries(checkpoint: Checkpoint) -> dict[int, OffsetEntry]:
    """The plans that were read and that count: of batches that are done, and of the one that runs again."""
    committed, orphan = checkpoint.last_committed, find_orphan(checkpoint)
    newest = orphan if orphan is not None else committed
    found = checkpoint.offsets.entries.items()
    return {n: entry for n, entry in found if isinstance(entry, OffsetEntry) and newest is not None and n <= newest}


def list_reads(plans: Mapping[int, OffsetEntry], topic: str) -> list[ReadUpTo]:
    """The plans that name a topic, newest first, with how far they read it.

    Of several sources that read the topic the one that is further behind counts.
    """
    found: list[ReadUpTo] = []
    for batch_id in sorted(plans, reverse=True):
        entry = plans[batch_id]
        ends = _find_ends(entry, topic)
        if entry.metadata is not None and ends:
            found.append(ReadUpTo(entry.metadata.batch_timestamp_ms, ends))
    return found


def list_times_to_ask(plans: Mapping[int, OffsetEntry], committed: int | None) -> tuple[int, ...]:
    """From when on a broker is to be asked for first records: right after the newest commit, and the newest plan.

    What was written later stands above where they end, but for clocks that differ; so it is asked once more by how far
    they may: the first record that is newer may be so by little, and one behind it by much.

    A topic may have been created again some batches ago, and the query gone on in it: all that it holds is older than
    the newest plan then. So it is asked by a few older plans as well, of which the oldest tells most, and a newer one
    where what the oldest had read is deleted.

    Of a compacted topic only its oldest record tells what it begins with.
    """
    newest = max(plans, default=None)
    times = _list_right_after(plans, [each for each in (committed, newest) if each is not None])
    later = [max(times) + MAX_CLOCK_SKEW_MS] if times else []
    older = sorted(plans.keys() - {committed, newest})
    before = _list_right_after(plans, [older[0], older[len(older) // 2], older[-1]] if older else [])
    return tuple(dict.fromkeys((*times, *later, *before, *([FROM_THE_FIRST_MS] if times else []))))


def _list_right_after(plans: Mapping[int, OffsetEntry], numbers: Sequence[int]) -> list[int]:
    entries = [plans.get(each) for each in numbers]
    return [entry.metadata.batch_timestamp_ms + 1 for entry in entries if entry is not None and entry.metadata]


def merge_recorded_ids(facts: KafkaFacts | None, noted: Mapping[str, str]) -> dict[str, str]:
    """Ids of the topics of which the offsets of the query are, as far as anybody has written them down.

    Args:
        facts: What the broker said; facts that were written down may know ids of before.
        noted: What a recorder, a mirror or a recovery has noted down; that counts first.
    """
    return {**(facts.topic_ids_before if facts else {}), **noted}


def find_recorded_ids(observed: Observation) -> dict[str, str]:
    """The same of all that was found."""
    return {**observed.advice.topic_ids, **merge_recorded_ids(observed.kafka, observed.topic_ids)}


def list_recreated(observed: Observation) -> tuple[str, ...]:
    """Topics that were deleted and created again since the query read them, as far as ids were recorded."""
    facts, entry = observed.kafka, observed.checkpoint.newest_offsets
    if facts is None or facts.unknown is not None:
        return ()
    before = find_recorded_ids(observed)
    now = {name: topic.topic_id for name, topic in facts.topics.items()}
    others = {name for name, _, _ in find_other_ids(before, now)}
    if entry is not None:  # one that is lost names none
        others &= {topic for topics in entry.topics.values() for topic in topics}
    return tuple(sorted(others))


def find_other_ids(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> Iterator[tuple[str, str, str]]:
    """Topics whose ids prove that they are others now: each with the id before, and the id now.

    Args:
        before: Ids of topics as somebody wrote them down; None where he did not know.
        now: The same, later.
    """
    for topic, topic_id in now.items():
        was = before.get(topic)
        if was is not None and topic_id is not None and was != topic_id:
            yield topic, was, topic_id


def identify(
    name: str,
    facts: KafkaFacts,
    reads: Sequence[ReadUpTo],
    times_ms: Mapping[int, int],
    *,
    recorded_id: str | None,
    is_same_topic: bool,
) -> IdentityAnswer:
    """Whether a topic is the one of which batches were planned.

    Args:
        name: Its name; the broker has told of it.
        facts: What the broker said.
        reads: How far the plans have read it, newest first.
        times_ms: When each batch was planned, for facts that were written down by its number.
        recorded_id: The id that it had then, if somebody wrote it down.
        is_same_topic: Whether a person says that it is the same.
    """
    if not reads:
        return IdentityAnswer(TopicIdentity.SAME, "no batch was planned that could have read another")
    asked: dict[int, Mapping[int, FoundRecord]] = {
        after_ms: records[name] for after_ms, records in facts.first_at.items() if name in records
    }
    for batch_id, records in facts.first_after_batch.items():
        if name in records and batch_id in times_ms:
            asked[times_ms[batch_id] + 1] = records[name]
    found = identify_topic(
        facts.topics[name],
        reads=reads,
        asked=asked,
        recorded_topic_id=recorded_id,
        is_told_the_same=is_same_topic,
    )
    by_time = found.identity is TopicIdentity.SAME and recorded_id is None and not is_same_topic
    if by_time and reads[0].batch_timestamp_ms > facts.asked_at_ms + MAX_CLOCK_SKEW_MS:
        return IdentityAnswer(TopicIdentity.UNKNOWN, "the newest plan is dated after now: times tell nothing")
    if found.identity is TopicIdentity.SAME and not is_same_topic:
        return replace(found, assumes=_explain_times(facts.topics[name], recorded_id))
    return found


def _explain_times(topic: TopicFacts, recorded_id: str | None) -> str | None:
    """What is left open where only the times of records say that a topic is the same; None if something proves it."""
    if None not in (recorded_id, topic.topic_id) or topic.config.get(_TIMESTAMP_TYPE) == "LogAppendTime":
        return None
    return "no id tells it, and the times of its records are set by producers, so that what was copied keeps its own"


def _find_ends(entry: OffsetEntry, topic: str) -> Mapping[int, int]:
    lowest: dict[int, int] = {}
    for line in entry.sources:
        for partition, end in get_topics(line.offset).get(topic, {}).items():
            if end >= 0:
                lowest[partition] = min(end, lowest.get(partition, end))
    return lowest
