"""How long Kafka will still serve what is unread, and whether a topic is the one that was read. Pure.

Both are told from facts; times are milliseconds since 1970.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence

from lastgood.frozen import dataclass
from lastgood.sources.kafka.facts import FoundRecord, TopicFacts

MAX_CLOCK_SKEW_MS = 5 * 60 * 1000
"""How far the clocks of producers, brokers and drivers are taken to be apart."""


_ELECTION_MS = 5000
"""No leader that says nothing is replaced sooner (`broker.session.timeout.ms` is nine seconds), and no clock that is
kept is wrong by as much: what is newer by less than this is no sign of an election."""

FROM_THE_FIRST_MS = 0
"""Asked for the first record from this time on, a broker tells the oldest that it has, whatever was compacted."""


class HeadroomKind(enum.Enum):
    """What retention will do to the unread part of a partition."""

    LOST = "lost"
    """It has begun: some unread offsets are gone."""
    LIMITED = "limited"
    """Not before `Headroom.ms` have passed."""
    UNKNOWN = "unknown"
    NOTHING_UNREAD = "nothing_unread"
    UNLIMITED = "unlimited"
    """Nothing is deleted by age."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """How long the first unread record of a partition stays."""

    kind: HeadroomKind
    because: str
    ms: int | None = None
    """A lower bound, since a segment goes as a whole; 0 if it may go at any moment. Set if the kind is LIMITED."""
    limited_by_size: bool = False
    """Whether `retention.bytes` may end it earlier, which no single look can tell: see `estimate_size_headroom_ms`."""


def estimate_headroom(
    topic: TopicFacts, partition: int, next_offset: int, unread: FoundRecord | None, now_ms: int
) -> Headroom:
    """How long Kafka will still serve the first unread record of a partition.

    Args:
        topic: Facts of the topic.
        partition: Its number.
        next_offset: First unread offset.
        unread: The record there, as `KafkaFacts.unread` has it.
        now_ms: The time by which to judge.
    """
    offsets = topic.partitions.get(partition)
    if offsets is None or offsets.earliest is None or offsets.latest is None:
        reason = (offsets.unknown if offsets else topic.unknown) or "the offsets of the partition are not known"
        return Headroom(HeadroomKind.UNKNOWN, reason)
    if next_offset < offsets.earliest:
        return Headroom(HeadroomKind.LOST, f"offsets [{next_offset}, {offsets.earliest}) are gone")
    if next_offset >= offsets.latest:
        return Headroom(HeadroomKind.NOTHING_UNREAD, f"all up to {offsets.latest} is read")
    if topic.is_deleted_by_age is False:
        return Headroom(HeadroomKind.UNLIMITED, "cleanup.policy is compact")
    return _estimate_until_deleted(topic, unread or FoundRecord(), now_ms)


def _estimate_until_deleted(topic: TopicFacts, unread: FoundRecord, now_ms: int) -> Headroom:
    by_size = (topic.config_number("retention.bytes") or 0) > 0
    retention_ms = topic.config_number("retention.ms")
    if topic.is_deleted_by_age is None or retention_ms is None:
        reason = topic.config_unknown or "the settings of the topic are not known"
        return Headroom(HeadroomKind.UNKNOWN, reason, limited_by_size=by_size)
    if retention_ms < 0:
        return Headroom(HeadroomKind.UNLIMITED, "retention.ms is -1", limited_by_size=by_size)
    if unread.timestamp_ms is None:
        reason = unread.unknown or "the time of the first unread record is not known"
        return Headroom(HeadroomKind.UNKNOWN, reason, limited_by_size=by_size)
    age_ms = now_ms - unread.timestamp_ms
    reason = f"the first unread record is {max(0, age_ms)} ms old, retention.ms is {retention_ms}"
    return Headroom(HeadroomKind.LIMITED, reason, max(0, retention_ms - age_ms), by_size)


def choose_least_headroom(each: Sequence[Headroom]) -> Headroom | None:
    """The one that a person must hear of first: lost, then the shortest, then unknown; None if there are none."""
    order = list(HeadroomKind)
    return min(each, key=lambda one: (order.index(one.kind), one.ms or 0), default=None)


def estimate_size_headroom_ms(looks: Sequence[tuple[int, int]], next_offset: int) -> int | None:
    """An estimate, from earlier looks, of when retention by size reaches `next_offset`, counted from the last look.

    Args:
        looks: Pairs of time and earliest offset, oldest first.
        next_offset: First unread offset.

    Returns:
        Milliseconds; 0 if it is reached already; None if nothing was deleted between the looks.
    """
    if not looks:
        return None
    (first_ms, first), (last_ms, last) = looks[0], looks[-1]
    if next_offset <= last:
        return 0
    if last <= first or last_ms <= first_ms:
        return None
    return (next_offset - last) * (last_ms - first_ms) // (last - first)


class TopicIdentity(enum.Enum):
    """Whether a topic is the one that a query has read."""

    SAME = "same"
    """Proven by its id, or no sign of anything else."""
    ANOTHER = "another"
    """Proven by its id: it was deleted and created again."""
    SHORTER = "shorter"
    """It ends before what was read: created again, or cut by an unclean election."""
    LOOKS_RECREATED = "looks_recreated"
    """It has fewer partitions, or records below the committed end are newer than the batch that read up to there: a
    strong hint, no proof."""
    MAY_BE_RECREATED = "may_be_recreated"
    """All that it holds below the committed end is newer than the batch, or than one before it, by so little that
    clocks may be the reason: as likely another topic as a wrong clock."""
    WITHIN_SKEW = "within_skew"
    """The newest of what it holds below the committed end is newer than the batch, by so little that clocks may be the
    reason; what is older stands there too, so it is the topic that was read."""
    UNKNOWN = "unknown"


_NO_SIGN = (TopicIdentity.SAME, TopicIdentity.WITHIN_SKEW)
"""So it is answered where nothing, or next to nothing, speaks for another topic."""


@dataclass(frozen=True, slots=True)
class IdentityAnswer:
    """What was found out about the identity of a topic."""

    identity: TopicIdentity
    because: str
    partitions: tuple[int, ...] = ()
    """Those that show it."""
    assumes: str | None = None
    """On what it rests that nobody proves; None if on nothing."""


@dataclass(frozen=True, slots=True)
class ReadUpTo:
    """How far one batch has read a topic, and when it was planned: what it read is older than that."""

    batch_timestamp_ms: int
    ends: Mapping[int, int]
    """First offset of each partition that it did not read."""


def identify_topic(
    topic: TopicFacts,
    *,
    reads: Sequence[ReadUpTo],
    asked: Mapping[int, Mapping[int, FoundRecord]],
    recorded_topic_id: str | None = None,
    is_told_the_same: bool = False,
    max_clock_skew_ms: int = MAX_CLOCK_SKEW_MS,
) -> IdentityAnswer:
    """Tell whether a topic was deleted and created again since a batch was planned from it.

    Args:
        topic: Facts of today.
        reads: The newest plan that names it, committed or not, and those before it as far as they are known, newest
            first.
        asked: From which time on, in milliseconds since 1970, and per partition: the first record that was written
            then or later, from `KafkaFacts.first_at`. It tells most where it was asked right after a plan.
        recorded_topic_id: The id that was written down while the query ran, if it was.
        is_told_the_same: Whether a person says that it is the topic that was read: settles what clocks leave open.
        max_clock_skew_ms: How far clocks may be apart.
    """
    oldest = asked.get(FROM_THE_FIRST_MS, {})
    first = _find_first_offsets(topic, oldest)
    asked = {after_ms: records for after_ms, records in asked.items() if after_ms != FROM_THE_FIRST_MS}
    found = _identify_by_id(topic, recorded_topic_id) or _identify_by_size(topic, reads[0].ends)
    if found is None or found.identity is TopicIdentity.SAME:
        newest = _select_asked_by_newest(reads, asked)
        newer = _find_newer_than_read(reads, newest, max_clock_skew_ms)
        if found:
            by_time = _identify_written_anew(topic, reads[0].ends, newer, found, first)
        else:
            by_time = _identify_by_time(topic, reads, newest, newer, first)
        if by_time.identity in _NO_SIGN:
            by_time = _cut(newer, [*asked.values(), oldest], first) or by_time
        is_open = by_time.identity in _NO_SIGN
        is_proven = found is not None
        since = None
        if is_open:
            since = _read_on(first, reads, asked, max_clock_skew_ms, is_proven=is_proven)
        found = since or by_time
    if found.identity is TopicIdentity.MAY_BE_RECREATED and is_told_the_same:
        return IdentityAnswer(TopicIdentity.SAME, "a person says that it is the topic that was read")
    return found


def _is_another(topic: TopicFacts, recorded_topic_id: str | None) -> bool:
    """Whether the id of a topic proves that it is not the one whose id was written down."""
    return None not in (recorded_topic_id, topic.topic_id) and recorded_topic_id != topic.topic_id


def _identify_by_id(topic: TopicFacts, recorded_topic_id: str | None) -> IdentityAnswer | None:
    if _is_another(topic, recorded_topic_id):
        return IdentityAnswer(TopicIdentity.ANOTHER, f"its id was {recorded_topic_id} and is {topic.topic_id}")
    if recorded_topic_id is None or topic.topic_id is None:
        return None
    return IdentityAnswer(TopicIdentity.SAME, f"its id is still {topic.topic_id}")


def _identify_by_size(topic: TopicFacts, read_ends: Mapping[int, int]) -> IdentityAnswer | None:
    shorter = tuple(
        number
        for number, end in sorted(read_ends.items())
        if (facts := topic.partitions.get(number)) and facts.latest is not None and facts.latest < end
    )
    if shorter:
        return IdentityAnswer(TopicIdentity.SHORTER, "it ends before what was read", shorter)
    fewer = tuple(number for number in read_ends if number not in topic.partitions)
    if fewer:  # Kafka never takes partitions away
        return IdentityAnswer(TopicIdentity.LOOKS_RECREATED, "it has fewer partitions than were read", fewer)
    return None


@dataclass(frozen=True, slots=True)
class _Newer:
    """A record that stands below where a plan ended, and is newer than that plan."""

    record: FoundRecord
    is_sure: bool
    """By more than clocks may be apart."""
    ahead_ms: int
    """By how much, at least."""
    is_of_newest: bool
    """Whether the plan is the newest that read anything: else a clock would have to be wrong over several batches."""


def _find_newer_than_read(
    reads: Sequence[ReadUpTo], asked: Mapping[int, Mapping[int, FoundRecord]], max_clock_skew_ms: int
) -> dict[int, _Newer]:
    """Per partition what cannot stand there, if it is the topic that was read, and if all clocks are right.

    Spark takes the time of a plan after it has fetched its end offsets, so what stands below them is older than that.
    Producers set record times as they like (unless `message.timestamp.type` is `LogAppendTime`), so this is no proof.

    The record is held against the oldest plan that is known to have read its offset: a topic that was created again a
    moment after the newest one holds at its beginning what is much newer than the plans that read up to there.
    """
    found: dict[int, _Newer] = {}
    for after_ms, records in sorted(asked.items()):
        for number, record in sorted(records.items()):
            read = None
            if record.offset is not None:
                read = _find_oldest_read(reads, number, record.offset)
            if record.timestamp_ms is None:
                written_ms = after_ms
            else:
                written_ms = max(after_ms, record.timestamp_ms)
            if read is None or written_ms <= read.batch_timestamp_ms or (number in found and found[number].is_sure):
                continue
            is_sure = record.timestamp_ms is None or written_ms > read.batch_timestamp_ms + max_clock_skew_ms
            ahead_ms = written_ms - read.batch_timestamp_ms
            found[number] = _Newer(record, is_sure, ahead_ms, read.ends[number] in _find_newest_ends(reads, number))
    return dict(sorted(found.items()))


def _find_oldest_read(reads: Sequence[ReadUpTo], partition: int, offset: int) -> ReadUpTo | None:
    """The oldest plan that is known to have read an offset; None if none has.

    Where a plan ends further than a later one, somebody went back: what was read before may be of another topic.
    """
    found, end = None, None
    for read in reads:
        own = read.ends.get(partition)
        if own is None or offset >= own or (end is not None and own > end):
            break
        end = own
        if found is None or read.batch_timestamp_ms <= found.batch_timestamp_ms:
            found = read
    return found


def _find_newest_ends(reads: Sequence[ReadUpTo], partition: int) -> list[int]:
    """Where the two newest plans end that have read something: one may be planned, the other is committed then."""
    ends = [read.ends[partition] for read in reads if partition in read.ends]
    return list(dict.fromkeys(ends))[:2]


def _identify_written_anew(
    topic: TopicFacts,
    read_ends: Mapping[int, int],
    newer: Mapping[int, _Newer],
    by_id: IdentityAnswer,
    first: Mapping[int, int],
) -> IdentityAnswer:
    """A log with the same id that was lost (by an unclean election, with its disks) and has grown again."""
    anew = tuple(
        number
        for number, each in newer.items()
        if each.is_sure
        and each.record.timestamp_ms is not None
        and not _has_older(topic, number, read_ends[number], each.record, first)
    )
    if not anew:
        return by_id
    because = (
        f"{by_id.because}, and yet all that it holds below the end of what was planned is newer than the plan: its log"
        " was lost and has grown again, or a clock is wrong"
    )
    return IdentityAnswer(TopicIdentity.MAY_BE_RECREATED, because, anew)


def _cut(
    newer: Mapping[int, _Newer], asked: Sequence[Mapping[int, FoundRecord]], first: Mapping[int, int]
) -> IdentityAnswer | None:
    """A log whose end was lost (by an unclean election, or with a broker that had not written it) and grew again.

    Then what is newer than the batch was written under a later leader than what stands before it. A clock that is ahead
    has nothing to do with who leads; but leaders change, and what is known to stand before it may be much older.
    """
    found: dict[int, int] = {}
    for number, each in newer.items():
        offset, epoch = each.record.offset, each.record.leader_epoch
        if offset is None or epoch is None or each.ahead_ms <= _ELECTION_MS:
            continue
        before = _find_leader_before(number, offset, asked, first)
        if before is not None and before < epoch:
            found[number] = offset
    if not found:
        return None
    number, offset = next(iter(found.items()))
    because = (
        f"from offset {offset} of partition {number} on, what it holds below the committed end is newer than the batch"
        " that read up to there, and was written under a later leader than what stands before: the end of its log was"
        " lost and has grown again, which no id would show, or a clock is wrong"
    )
    return IdentityAnswer(TopicIdentity.MAY_BE_RECREATED, because, tuple(found))


def _find_leader_before(
    partition: int, offset: int, asked: Sequence[Mapping[int, FoundRecord]], first: Mapping[int, int]
) -> int | None:
    """Under which leader the newest record before an offset was written, of those that are known; None: not told.

    Where no record is left before it, it was the first leader: its number is 0.
    """
    oldest = first.get(partition)
    if oldest is not None and oldest >= offset:
        return 0
    found: FoundRecord | None = None
    for records in asked:
        record = records.get(partition)
        if record is None or record.offset is None or record.offset >= offset:
            continue
        if found is None or found.offset is None or record.offset > found.offset:
            found = record
    return None if found is None else found.leader_epoch


def _identify_by_time(
    topic: TopicFacts,
    reads: Sequence[ReadUpTo],
    asked: Mapping[int, Mapping[int, FoundRecord]],
    newer: Mapping[int, _Newer],
    first: Mapping[int, int],
) -> IdentityAnswer:
    ends = reads[0].ends
    surely = tuple(number for number, each in newer.items() if each.is_sure)
    if surely:
        reason = "records below the committed end are newer than the batch that read up to there"
        return IdentityAnswer(TopicIdentity.LOOKS_RECREATED, reason, surely)
    known = {number: _find_best_known(number, asked) for number in ends}
    is_of_newest = all(each.is_of_newest for each in newer.values())
    if newer and is_of_newest and any(_has_older(topic, each, end, known[each], first) for each, end in ends.items()):
        reason = "the newest of it below the committed end is newer than the batch, by no more than clocks may differ"
        return IdentityAnswer(TopicIdentity.WITHIN_SKEW, reason, tuple(newer))
    if newer:
        what = "all that it holds" if is_of_newest else "what several batches have read of what it holds"
        reason = (
            f"{what} below the committed end is newer than the batch, by no more than clocks may differ: it was created"
            " again, or a clock is wrong"
        )
        return IdentityAnswer(TopicIdentity.MAY_BE_RECREATED, reason, tuple(newer))
    unknown = {number: record.unknown for number, record in sorted(known.items()) if record.unknown is not None}
    if unknown:
        return IdentityAnswer(TopicIdentity.UNKNOWN, next(iter(unknown.values())), tuple(unknown))
    return IdentityAnswer(TopicIdentity.SAME, "nothing below the committed end is newer than the batch")


def _select_asked_by_newest(
    reads: Sequence[ReadUpTo], asked: Mapping[int, Mapping[int, FoundRecord]]
) -> Mapping[int, Mapping[int, FoundRecord]]:
    """Without what was asked by plans before the two newest: if a clock is ahead, they had read what is newer."""
    planned = sorted((read.batch_timestamp_ms + 1 for read in reads), reverse=True)
    older = [each for each in dict.fromkeys(planned) if each in asked][2:]
    return {after_ms: records for after_ms, records in asked.items() if after_ms not in older}


def _read_on(
    first_offsets: Mapping[int, int],
    reads: Sequence[ReadUpTo],
    asked: Mapping[int, Mapping[int, FoundRecord]],
    max_clock_skew_ms: int,
    *,
    is_proven: bool,
) -> IdentityAnswer | None:
    """A topic that was created again some batches ago, and in which the query has read on; None without a sign of it.

    Then all that is left of what an older plan had read is newer than that plan. Of the topic that was read something
    older is left, unless clocks differ and the rest is deleted.

    Args:
        first_offsets: The oldest record of each partition of which that is known.
        reads: The plans, newest first.
        asked: As in `identify_topic`.
        max_clock_skew_ms: How far clocks may be apart.
        is_proven: Whether its id says that it is the same: then a record has to be newer by more than clocks differ.
    """
    for read in _take_onward(reads):
        first = _find_first_left(first_offsets, read, asked.get(read.batch_timestamp_ms + 1, {}))
        ahead_ms = [time_ms - read.batch_timestamp_ms for time_ms in first.values()]
        if not ahead_ms:
            continue
        is_sure = min(ahead_ms) > max_clock_skew_ms
        if is_sure and not is_proven:
            reason = "all that is left of what an older batch had read is newer than that batch"
            return IdentityAnswer(TopicIdentity.LOOKS_RECREATED, reason, tuple(first))
        if is_sure or not is_proven:
            reason = (
                "all that is left of what an older batch had read is newer than that batch: it was created again"
                " since, and read on from the middle, or a clock is wrong"
            )
            return IdentityAnswer(TopicIdentity.MAY_BE_RECREATED, reason, tuple(first))
    return None


def _take_onward(reads: Sequence[ReadUpTo]) -> Iterator[ReadUpTo]:
    """The plans back to the one after which somebody went back: what was read before may be of another topic."""
    lowest: dict[int, int] = {}
    for read in reads:
        if any(end > lowest.get(number, end) for number, end in read.ends.items()):
            return
        lowest.update(read.ends)
        yield read


def _find_first_left(
    first_offsets: Mapping[int, int], read: ReadUpTo, newer: Mapping[int, FoundRecord]
) -> dict[int, int]:
    """Per partition of which something is left that a plan has read: the time of the first of it, if all is newer.

    Nothing if anything that is left is older than the plan, or nobody knows.
    """
    found: dict[int, int] = {}
    for number, end in sorted(read.ends.items()):
        earliest, record = first_offsets.get(number), newer.get(number)
        if earliest is None or record is None or record.unknown is not None:
            return {}
        if earliest >= end:
            continue
        if record.offset is None or record.offset > earliest or record.timestamp_ms is None:
            return {}
        found[number] = record.timestamp_ms
    return found


def _find_best_known(partition: int, asked: Mapping[int, Mapping[int, FoundRecord]]) -> FoundRecord:
    """What was found in a partition by the earliest time for which it was asked, if it answered."""
    told = [records[partition] for _, records in sorted(asked.items()) if partition in records]
    answered = [record for record in told if record.unknown is None]
    return next(iter([*answered, *told]), FoundRecord(unknown="it was not asked by time"))


def _find_first_offsets(topic: TopicFacts, oldest: Mapping[int, FoundRecord]) -> dict[int, int]:
    """The oldest record of each partition of which that is known.

    A partition begins where its log does. Compaction takes records out and leaves the beginning where it was, so that
    nothing may be left there: of a compacted topic the oldest record counts that was found.
    """
    found: dict[int, int] = {}
    for number, facts in topic.partitions.items():
        record = oldest.get(number)
        if topic.is_compacted is not True:
            first = facts.earliest
        elif record is None:
            first = None
        else:
            first = record.offset
        if first is not None:
            found[number] = first
    return found


def _has_older(topic: TopicFacts, partition: int, end: int, first_newer: FoundRecord, first: Mapping[int, int]) -> bool:
    """Whether a partition is known to hold what is below the committed end and no newer than the batch."""
    facts, oldest = topic.partitions.get(partition), first.get(partition)
    if facts is None or oldest is None or facts.latest is None or first_newer.unknown is not None:
        return False
    below = min(end, facts.latest)
    return oldest < (below if first_newer.offset is None else min(below, first_newer.offset))
