"""How far the sinks of a lost query have come, as its rows, its last commit or Kafka itself tell it. Pure.

Where that cannot be told exactly, it is told so that nothing is missed: what lies above is read once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from lastgood.frozen import dataclass
from lastgood.planning.goals.values import Extent
from lastgood.planning.price import Guarantee
from lastgood.planning.pricing import choose_weakest
from lastgood.sinks.offset_columns import TableOffsets, find_first_missing
from lastgood.sources.kafka.facts import KafkaFacts, is_compacted
from lastgood.sources.kafka.ranges import Offsets

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Reads:
    """What a query reads."""

    topics: Mapping[str, Offsets]
    """By the id of the source its partitions, as far as logs, mirror or table tell; the offsets do not count."""
    began: Mapping[str, Offsets] = field(default_factory=dict)
    """Where its sources began, as far as they wrote that down."""
    facts: KafkaFacts | None = None
    """What Kafka serves; None: it was not asked, or gave no answer."""

    def partitions(self, source_id: str, topic: str) -> list[int]:
        """All that anybody knows of."""
        told = None
        if self.facts:
            told = self.facts.topics.get(topic)
        known = (self.topics[source_id].get(topic, {}), self._began(source_id, topic), told.partitions if told else {})
        return sorted({partition for each in known for partition in each})

    def first(self, source_id: str, topic: str, partition: int) -> int | None:
        """The first offset that the query had to read; None if nobody tells, as where it began at the earliest.

        A partition that its source did not write down came later: that is read from its beginning.
        """
        began = self._began(source_id, topic)
        if began:
            first = began.get(partition, 0)
        else:
            first = -1
        return first if first >= 0 else None

    def earliest(self, topic: str, partition: int) -> int | None:
        """What Kafka still has; None if that is not known."""
        if not self.facts:
            return None
        return self.facts.earliest.get(topic, {}).get(partition)

    def _began(self, source_id: str, topic: str) -> Mapping[int, int]:
        return self.began.get(source_id, {}).get(topic, {})


def measure_extent_of_rows(
    found: TableOffsets,
    columns: str,
    reads: Reads,
    doubts: Iterable[tuple[Guarantee, str]],
    anew: Mapping[str, str] | None = None,
) -> Extent:
    """How far a table has come, by the offsets that its rows carry.

    Args:
        found: What its rows carry.
        columns: In which columns; one word for a person.
        reads: What the query reads.
        doubts: What else speaks against the word, such as another query that writes there.
        anew: Topics that look as if they were created again since rows were made of them, and what shows it: they are
            read from their beginning, since rows do not tell of which topic of a name they are.
    """
    created_again = anew or {}
    judged = [
        _Partition(found, reads, source_id, topic, partition, is_anew=topic in created_again)
        for source_id, topics in reads.topics.items()
        for topic in topics
        for partition in sorted({*reads.partitions(source_id, topic), *found.held.get(topic, {})})
    ]
    looks = [
        f"{topic} looks as if it was created again: {because}. What was unread of it before is lost"
        for topic, because in created_again.items()
    ]
    against = [*((Guarantee.LOSSY, line) for line in looks), *_find_against(judged, found, reads), *doubts]
    holds = "which hold every offset once" if not against else "which tell where each partition ends"
    ground = f"the columns {columns} of {found.location}, version {found.version}, {holds} ({found.told})"
    least = _split_by_source((each.source_id, each.topic, each.partition, each.least) for each in judged)
    most = _split_by_source((each.source_id, each.topic, each.partition, each.most) for each in judged)
    words = [word for word, _ in against]
    lines = [line for _, line in against]
    return Extent(
        least=least,
        most=most,
        word=choose_weakest([Guarantee.EXACTLY_ONCE, *words]),
        rests_on=(ground, *lines),
        tables={found.location: found.version},
        anew=tuple(created_again),
    )


def measure_extent_from_beginning(reads: Reads) -> Extent:
    """Nothing is known of what the sinks show: whatever Kafka still has is read."""
    least = (
        (source_id, topic, partition, reads.first(source_id, topic, partition) or 0)
        for source_id, topics in reads.topics.items()
        for topic in topics
        for partition in reads.partitions(source_id, topic)
    )
    line = "all that Kafka still has, which is read again"
    return Extent(_split_by_source(least), None, Guarantee.AT_LEAST_ONCE, (line,))


def measure_extent_since(starts: Mapping[str, Offsets], *, commit: str, behind: str) -> Extent:
    """The sinks show all that was in the topics when the table was last written to, but for how far it was behind.

    Args:
        starts: The first records of that time.
        commit: Which commit of the table it was; a few words.
        behind: How far the query is taken to have been behind; a few words.
    """
    lines = (f"the time of {commit}", f"the assumption that the query was never more than {behind} behind Kafka then")
    return Extent(starts, None, Guarantee.AT_LEAST_ONCE, lines)


def measure_extent_of_batch(
    ends: Mapping[str, Offsets], *, marks: Sequence[str], told_by: str, holes: Sequence[str] = ()
) -> Extent:
    """The sinks show one batch as their newest, and it is known where that ended.

    Args:
        ends: Where it ended.
        marks: What the sinks show; one line each.
        told_by: Who knows where it ended; a few words.
        holes: Which sinks lack older batches; one line each.
    """
    word = Guarantee.LOSSY if holes else Guarantee.EXACTLY_ONCE
    return Extent(ends, ends, word, (*marks, told_by, *holes))


class _Partition:
    """One partition, as a table shows it."""

    def __init__(
        self, found: TableOffsets, reads: Reads, source_id: str, topic: str, partition: int, *, is_anew: bool
    ) -> None:
        self.source_id, self.topic, self.partition, self.is_anew = source_id, topic, partition, is_anew
        held = found.held.get(topic, {})
        spans = held.get(partition, ())
        began, earliest = reads.first(source_id, topic, partition), reads.earliest(topic, partition)
        lowest = None
        if spans:
            lowest = spans[0][0]
        if began is not None:
            self.is_begin_known = True
        elif spans:
            self.is_begin_known = lowest == 0
        else:
            self.is_begin_known = not earliest
        if lowest is None:
            if began is not None:
                first = began
            else:
                first = earliest or 0
        elif began is None:
            first = lowest
        else:
            first = min(began, lowest)
        if is_anew:
            self.least = earliest or 0
        else:
            self.least = find_first_missing(held, partition, first)
        self.most = max(found.ends.get(topic, {}).get(partition, first), self.least)
        self.lowest = earliest if lowest is None else lowest

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def _find_against(judged: list[_Partition], found: TableOffsets, reads: Reads) -> Iterator[tuple[Guarantee, str]]:
    """What keeps a table from being as far as its highest offsets, with what is left to say then."""
    vague = [f"{each.name} (from {each.lowest} on)" for each in judged if not (each.is_begin_known or each.is_anew)]
    if vague:
        line = f"nobody tells whether the query had to read what is before the first rows of {_name_some(vague)}"
        yield Guarantee.LOSSY, line
    torn = [each for each in judged if each.least < each.most and not each.is_anew]
    if torn:
        named = _name_some([f"{each.name} (from {each.least} on)" for each in torn])
        topics = {each.topic for each in torn if is_compacted(reads.facts, each.topic)}
        if topics:
            why = f", perhaps because {', '.join(sorted(topics))} is compacted"
        else:
            why = ""
        yield Guarantee.AT_LEAST_ONCE, f"offsets are missing in {named}{why}: all from there on is read again"
    if found.scattered:
        yield Guarantee.AT_LEAST_ONCE, f"there are too many holes in {_name_some(found.scattered)} to follow them all"
    twice = [f"{topic}-{p} ({count} rows)" for topic, each in found.repeated.items() for p, count in each.items()]
    if twice:
        yield Guarantee.AT_LEAST_ONCE, f"offsets stand in several rows of {_name_some(twice)}"
    if found.unplaced:
        yield Guarantee.AT_LEAST_ONCE, f"{found.unplaced} rows carry no offset"


def _name_some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_NAMED])
    if len(names) > _NAMED:
        return f"{shown} and {len(names) - _NAMED} more"
    return shown


def _split_by_source(each: Iterable[tuple[str, str, int, int]]) -> dict[str, Offsets]:
    found: dict[str, dict[str, dict[int, int]]] = {}
    for source_id, topic, partition, offset in each:
        found.setdefault(source_id, {}).setdefault(topic, {})[partition] = offset
    return dict(found)
