"""Findings about a Kafka source by what its broker says: what is gone, what is new, what is not what it was. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import get_topics
from lastgood.diagnosis import kafka_conditions as conditions
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.kafka_reading import (
    KafkaReading,
    describe_ranges,
    list_readings,
    make_status_command,
    name_partitions,
    select_positions,
    select_within,
    to_json,
    turn_ranges,
)
from lastgood.diagnosis.source_conditions import SOURCE_OFFSET_WENT_BACK, SOURCE_UNKNOWN
from lastgood.frozen import dataclass
from lastgood.query.kafka import find_expired
from lastgood.query.observation import Observation
from lastgood.query.prediction.kafka_source import is_without_topics
from lastgood.query.prediction.restart import Restart
from lastgood.query.topics import collect_offset_entries, identify, list_reads
from lastgood.sources.kafka.facts import FoundRecord, TopicFacts
from lastgood.sources.kafka.ranges import Ranges, count_offsets, find_planned_ranges, find_went_back, ranges_to_json
from lastgood.sources.kafka.retention import IdentityAnswer, TopicIdentity

_RECREATED = {
    TopicIdentity.ANOTHER: Severity.ERROR,
    TopicIdentity.SHORTER: Severity.ERROR,
    TopicIdentity.LOOKS_RECREATED: Severity.WARNING,
    TopicIdentity.MAY_BE_RECREATED: Severity.WARNING,
    TopicIdentity.WITHIN_SKEW: Severity.INFO,
}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A topic that may have been deleted and created again since it was read, without an id that proves it."""

    source_id: str
    topic: str
    answer: IdentityAnswer
    never_read: Ranges
    """What of it would never be read if it was."""
    gone: Ranges
    """What is planned of it and in no sink: if it was, these records are gone, and others are read in their place."""

    @property
    def costs(self) -> bool:
        """Whether anything is lost if it was."""
        return bool(self.never_read or self.gone)

    @property
    def is_strong(self) -> bool:
        """Whether it has to be reckoned with that it is another topic."""
        return self.answer.identity is not TopicIdentity.WITHIN_SKEW

    @property
    def is_open(self) -> bool:
        """Whether it is as likely a wrong clock."""
        return self.answer.identity is TopicIdentity.MAY_BE_RECREATED


def list_suspicions(observed: Observation, restart: Restart) -> Iterator[Suspicion]:
    """Topics that look as if they were created again; none where the broker was not asked."""
    for source in list_readings(observed, restart):
        for topic in source.there if source.is_asked else ():
            answer = _judge_identity(source, topic)
            if answer.identity in _RECREATED and answer.identity is not TopicIdentity.ANOTHER:
                yield Suspicion(
                    source.stand.source_id, topic, answer, _find_never_read(source, topic), _find_gone(source, topic)
                )


def judge_identities(observed: Observation, restart: Restart) -> Iterator[tuple[str, IdentityAnswer]]:
    """Whether each topic that the query has read from is still that topic; none where the broker was not asked."""
    for source in list_readings(observed, restart):
        for topic in source.there if source.is_asked else ():
            if source.named.get(topic):
                yield topic, _judge_identity(source, topic)


def find_where_to_read(observed: Observation, restart: Restart, topic: str, *, by_time: bool = True) -> dict[int, int]:
    """Of a topic that was created again, per partition the offset below which the query may have read it meanwhile.

    Args:
        observed: What is known.
        restart: What Spark would do.
        topic: Its name.
        by_time: Whether nothing was read since the newest committed batch: then what is newer was not.
    """
    found: dict[int, int] = {}
    for source in list_readings(observed, restart):
        if topic in source.there:
            ends = source.named.get(topic, {})
        else:
            ends = {}
        latest, newer = source.facts.latest.get(topic, {}), _find_newer(source, topic)
        for partition, end in ends.items():
            record = None
            if newer is not None and by_time:
                record = newer[2].get(partition)
            is_told = record is not None and record.unknown is None and record.offset is not None
            first = None
            if record is not None and is_told:
                first = record.offset
            up_to = min(each for each in (end, latest.get(partition, 0), first) if each is not None)
            found[partition] = max(found.get(partition, 0), up_to)
    return found


def find_broker(source: KafkaReading) -> Iterator[Finding]:
    """Findings about one source whose broker has answered."""
    identities = {topic: _judge_identity(source, topic) for topic in source.there}
    for topic in source.named:
        if topic not in identities:
            if _may_be_gone(source, topic):
                yield _make_topic_gone(source, topic)
            else:
                yield _make_silent(source, topic)
            continue
        found = source.there[topic]
        yield from _check_silent_partitions(source, topic, found)
        yield from _check_recreated(source, topic, identities[topic])
        yield from _check_gone_partitions(source, topic, found)
        yield from _check_new_partitions(source, topic, found)
        yield from _check_nature(source, topic, found)
    others = [topic for topic, answer in identities.items() if answer.identity is TopicIdentity.ANOTHER]
    yield from _check_expired(source, others)
    yield from _check_went_back(source)


def _may_be_gone(source: KafkaReading, topic: str) -> bool:
    return source.is_gone(topic) or topic not in source.facts.topics


def _make_silent(source: KafkaReading, topic: str) -> Finding:
    effect = f"Nobody knows whether what is to be read of {topic} is still there."
    evidence = {"because": source.facts.topics[topic].unknown}
    return source.finding(SOURCE_UNKNOWN, topic, effect, evidence, make_status_command(source.observed))


def _check_silent_partitions(source: KafkaReading, topic: str, found: TopicFacts) -> Iterator[Finding]:
    because = {
        p: each.unknown or "an offset was not told"
        for p, each in found.partitions.items()
        if p in source.named[topic] and None in (each.earliest, each.latest)
    }
    if because:
        subject = name_partitions({topic: because})
        effect = f"Nobody knows whether what is to be read of {subject} is still there."
        evidence = {"because": {str(p): why for p, why in because.items()}}
        yield source.finding(SOURCE_UNKNOWN, subject, effect, evidence, make_status_command(source.observed))


def _make_topic_gone(source: KafkaReading, topic: str) -> Finding:
    """It does not exist; of one that facts from a file leave out, that is not sure."""
    effect = _describe_without(source)
    is_sure = source.is_gone(topic)
    if not is_sure:
        effect = f"The facts about Kafka do not name it. If it does not exist: {effect[:1].lower()}{effect[1:]}"
    evidence = {"unread_from": to_json({topic: source.start.get(topic, {})})}
    level = None if is_sure else Severity.WARNING
    command = source.topics_command("--list")
    return source.finding(conditions.SOURCE_TOPIC_GONE, topic, effect, evidence, command, level)


def _describe_without(source: KafkaReading) -> str:
    """What becomes of a query one of whose topics does not exist."""
    observed, batch_id = source.observed, source.stand.batch_id
    is_planned = source.stand.is_rerun
    if is_planned:
        cannot = f"no batch after {batch_id} can be planned"
    else:
        cannot = "the query cannot start"
    by_name = f"{cannot}, whatever failOnDataLoss says, and what was unread in it is lost."
    by_pattern = source.planning_fails("its partitions count as deleted", "goes on and forgets where it stood in them")
    if is_without_topics(source.named, source.facts, is_pattern=True):
        by_pattern = "The query starts and reads nothing of it, without an error, and what was unread in it is lost."
    if observed.is_by_name:
        return f"{by_name[:1].upper()}{by_name[1:]}"
    if observed.is_pattern:
        return by_pattern
    return f"Subscribed by name, {by_name} By a pattern: {by_pattern[:1].lower()}{by_pattern[1:]}"


def _judge_identity(source: KafkaReading, topic: str) -> IdentityAnswer:
    """Whether it is the topic that was read: by its id, else by its end, its partitions, its times."""
    plans = collect_offset_entries(source.observed.checkpoint)
    return identify(
        topic,
        source.facts,
        list_reads(plans, topic),
        {n: entry.metadata.batch_timestamp_ms for n, entry in plans.items() if entry.metadata is not None},
        recorded_id=source.recorded_id(topic),
        is_same_topic=source.observed.is_same_topic,
    )


def _find_newer(source: KafkaReading, topic: str) -> tuple[int, Mapping[int, int], Mapping[int, FoundRecord]] | None:
    """The newest batch for whose time the broker was asked: that time, where it ended, and the first newer records."""
    for span in reversed(source.read):
        entry = source.observed.checkpoint.offsets.entries.get(span.batch_id)
        metadata = entry.metadata if isinstance(entry, OffsetEntry) else None
        time_ms = metadata.batch_timestamp_ms if metadata else 0
        after = source.facts.first_at.get(time_ms + 1, {})
        records = source.facts.first_after_batch.get(span.batch_id, after).get(topic)
        ends = select_positions(get_topics(span.end)).get(topic)
        if records and ends:
            return time_ms, ends, records
    return None


def _check_recreated(source: KafkaReading, topic: str, answer: IdentityAnswer) -> Iterator[Finding]:
    if answer.identity not in _RECREATED:
        return
    found, facts, ends = source.there[topic], source.facts, source.start.get(topic, {})
    is_short = bool(find_went_back({topic: ends}, facts.latest))
    never = _find_never_read(source, topic)
    is_proven = answer.identity is TopicIdentity.ANOTHER
    effect = f"{'What' if is_proven else 'If it was created again: what'} was unread of the old topic is gone"
    if never:
        effect += f", and {describe_ranges(never)} of the new one is never read"
        effect += "" if is_short else ", without a message and whatever failOnDataLoss says"
    if is_short and source.observed.fail_on_data_loss:
        effect += "; Spark plans a batch, fails, and that plan fails at every start"
    elif is_short:
        effect += "; the offsets go back without a message"
    evidence = {
        "because": answer.because,
        "topic_id": found.topic_id,
        "topic_id_before": source.recorded_id(topic),
        "partitions": sorted(answer.partitions),
        "never_read": ranges_to_json(never),
        "message.timestamp.type": found.config.get("message.timestamp.type"),
    }
    level, command = _RECREATED[answer.identity], source.topics_command("--describe", "--topic", topic)
    if answer.identity is TopicIdentity.MAY_BE_RECREATED:
        effect += (
            ". What settles it is an id that the topic had before, from a mirror or a recorder, or a person who knows"
            " that it is the same (--topic-is-the-same)"
        )
    yield source.finding(conditions.SOURCE_TOPIC_RECREATED, topic, f"{effect}.", evidence, command, level)


def _find_never_read(source: KafkaReading, topic: str) -> Ranges:
    """What there is below where the next new batch begins, or the one that runs again."""
    latest = source.facts.latest.get(topic, {})
    begins = source.end if source.is_in_sinks else source.start
    passed = {topic: {p: min(end, latest.get(p, end)) for p, end in begins.get(topic, {}).items()}}
    return find_planned_ranges(select_within(source.facts.earliest, passed), passed)


def _find_gone(source: KafkaReading, topic: str) -> Ranges:
    if source.is_in_sinks:
        return {}
    return find_planned_ranges({topic: source.start.get(topic, {})}, {topic: source.end.get(topic, {})})


def _check_gone_partitions(source: KafkaReading, topic: str, found: TopicFacts) -> Iterator[Finding]:
    gone = {topic: {p: at for p, at in source.named[topic].items() if p not in found.partitions}}
    if gone[topic]:
        effect = source.planning_fails(
            f"{name_partitions(gone)} is not there any more", "goes on and forgets where it stood there"
        )
        unread = select_within(source.start, gone) or gone
        evidence = {"unread_from": to_json(unread), "partitions_now": sorted(found.partitions)}
        command = source.topics_command("--describe", "--topic", topic)
        yield source.finding(conditions.SOURCE_PARTITIONS_GONE, name_partitions(gone), effect, evidence, command)


def _check_new_partitions(source: KafkaReading, topic: str, found: TopicFacts) -> Iterator[Finding]:
    """Partitions that no plan names yet."""
    new = {p: each for p, each in found.partitions.items() if p not in source.named[topic]}
    late = {topic: {p: ((0, each.earliest),) for p, each in new.items() if each.earliest}}
    begun = source.begun.get(topic, {})
    again = {topic: {p: at for p, at in begun.items() if p in new}}
    if again[topic]:
        effect = (
            f"The query began with {name_partitions(again)}, and a batch has left it out since: the next batch reads it"
            " from its beginning, and what had been read of it comes twice."
        )
        evidence = {"began_at": to_json(again)}
        subject = name_partitions(again)
        yield source.finding(conditions.SOURCE_SUBSCRIPTION_CHANGED, subject, effect, evidence, level=Severity.WARNING)
    added = {p: each for p, each in new.items() if p not in begun}
    whole = {p: each for p, each in added.items() if not each.earliest}
    if whole:
        subject = name_partitions({topic: whole})
        effect = f"The next batch reads {subject} from the beginning, whatever startingOffsets says; nothing is lost."
        evidence = {"up_to": to_json({topic: {p: each.latest for p, each in whole.items()}})}
        yield source.finding(conditions.SOURCE_PARTITIONS_ADDED, subject, effect, evidence)
    if late[topic]:
        effect = source.planning_fails(
            f"{describe_ranges(late)} is deleted before the query has read it", "begins after it without a word"
        )
        lost = {"lost": ranges_to_json(late)}
        command = make_status_command(source.observed)
        yield source.finding(conditions.SOURCE_PARTITION_STARTS_LATE, name_partitions(late), effect, lost, command)


def _check_nature(source: KafkaReading, topic: str, found: TopicFacts) -> Iterator[Finding]:
    """What keeps counts of offsets from proving anything."""
    if found.is_compacted:
        effect = "Fewer rows than offsets are no loss here, and reading again does not give the same rows."
        evidence = {"cleanup.policy": found.config.get("cleanup.policy")}
        yield source.finding(conditions.SOURCE_TOPIC_COMPACTED, topic, effect, evidence)
    bounds = {p: (each.last_stable, each.latest) for p, each in found.partitions.items()}
    held = {p: ((stable, end),) for p, (stable, end) in bounds.items() if stable is not None and end and stable < end}
    if held:
        effect = "A query with kafka.isolation.level=read_committed reads no further until the transaction ends."
        ranges = {"held_back": ranges_to_json({topic: held})}
        yield source.finding(conditions.SOURCE_TRANSACTION_OPEN, name_partitions({topic: held}), effect, ranges)


def _check_expired(source: KafkaReading, others: Collection[str]) -> Iterator[Finding]:
    """Unread offsets below the beginning of their partition; of another topic of that name they say nothing."""
    unread = source.end if source.is_in_sinks else source.start
    lost = {t: parts for t, parts in find_expired(unread, source.facts).items() if t not in others}
    if not lost:
        return
    batch_id = source.stand.batch_id + source.is_in_sinks  # what the sinks have is not read again
    leaves_orphan = source.restart.leaves_orphan or source.is_in_sinks
    if not source.observed.fail_on_data_loss:
        effect = f"{describe_ranges(lost)} is skipped without a word: batch {batch_id} is committed with what is left."
    elif leaves_orphan:
        effect = (
            f"{describe_ranges(lost)} can no longer be read: batch {batch_id} is planned and fails in its tasks, and"
            " its plan stays behind and fails at every start."
        )
    else:
        effect = f"{describe_ranges(lost)} can no longer be read: batch {batch_id} fails in its tasks, at every start."
    evidence = {
        "lost": ranges_to_json(lost),
        "lost_offsets": count_offsets(lost),
        "earliest": to_json(select_within(source.facts.earliest, lost)),
        "batch": batch_id,
    }
    command = make_status_command(source.observed)
    yield source.finding(conditions.SOURCE_RANGE_EXPIRED, name_partitions(lost), effect, evidence, command)


def _check_went_back(source: KafkaReading) -> Iterator[Finding]:
    """Partitions that end below the position."""
    back = find_went_back(source.start, source.facts.latest)
    if back:
        effect = source.planning_fails(
            f"{name_partitions(back)} ends below the position of the query",
            "takes the lower offset, reads nothing, and goes on",
        )
        evidence = {
            "position": to_json(select_within(source.start, back)),
            "above_end": ranges_to_json(turn_ranges(back)),
        }
        yield source.finding(
            SOURCE_OFFSET_WENT_BACK, name_partitions(back), effect, evidence, make_status_command(source.observed)
        )
