"""What it costs to go on from given offsets: what is read again, lost, or written twice, source by source. Pure.

How far the sinks have come is known as an interval: every sink shows all up to `least`, none shows anything beyond
`most`. Where both are the same plan, the price is exact; else it is a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.file_logs import FileLogEntry, SourceFile
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    FileOffset,
    KafkaOffset,
    SourceOffset,
    VoidOffset,
    get_topics,
)
from lastgood.frozen import dataclass
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.query.spans import BEFORE_FIRST_FILE
from lastgood.query.unresolved_ends import list_unresolved_ends
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Offsets, find_planned_ranges, find_unresolved, select_only_in
from lastgood.sources.kinds import find_source_kind
from lastgood.sources.unasked import Unasked

WORDS = (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY)


def choose_weakest(words: Iterable[Guarantee]) -> Guarantee:
    """The word for all of them together."""
    return max(words, key=WORDS.index, default=Guarantee.EXACTLY_ONCE)


def judge_unasked(sources: Iterable[Unasked], *, is_same: bool) -> Guarantee:
    """The most that can be said where some sources cannot be asked what they still serve.

    Spark's own restart trusts them to serve it again, and so may we while the logs tell what they told before. Where
    they tell something else they may disagree with what such a source keeps of its own, of which we know nothing.
    """
    doubtful = [each for each in sources if not each.is_vouched_for]
    if not doubtful:
        return Guarantee.EXACTLY_ONCE
    is_trusted = is_same and not any(each.is_lost_with_driver for each in doubtful)
    return Guarantee.AT_LEAST_ONCE if is_trusted else Guarantee.LOSSY


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the sinks have come in each source, and how far Spark has read."""

    least: Mapping[str, SourceOffset]
    most: Mapping[str, SourceOffset] | None
    """None: nobody knows."""
    read: Mapping[str, SourceOffset]
    """The end of the newest plan."""

    @property
    def is_exact(self) -> bool:
        """Whether both bounds are the same."""
        return self.least == self.most


def find_ends(entry: OffsetEntry | None) -> dict[str, SourceOffset]:
    """Where a plan ends, by source; empty without one."""
    if not entry:
        return {}
    return {line.source_id: line.offset for line in entry.sources}


def price_start(
    new: Mapping[str, SourceOffset], reached: Reached, checkpoint: Checkpoint, facts: KafkaFacts | None
) -> tuple[SourcePrice, ...]:
    """The price of going on from `new`, in the order of the sources.

    Args:
        new: Where each source starts.
        reached: How far sinks and Spark have come.
        checkpoint: Its source logs name the files.
        facts: What Kafka serves; None if it was not asked.
    """
    return tuple(
        _price_source(index, source_id, start, reached, checkpoint, facts)
        for index, (source_id, start) in enumerate(new.items())
    )


def _price_source(
    index: int,
    source_id: str,
    start: SourceOffset,
    reached: Reached,
    checkpoint: Checkpoint,
    facts: KafkaFacts | None,
) -> SourcePrice:
    least, read = reached.least.get(source_id), reached.read.get(source_id)
    most = None
    if reached.most is not None:
        most = reached.most.get(source_id)
    if isinstance(start, KafkaOffset):
        is_known = reached.is_exact and reached.most is not None and isinstance(least, KafkaOffset)
        bounds = _Topics(*map(get_topics, (least, most, read)))
        return _price_kafka(index, start.topics, bounds, facts, is_bound=not is_known)
    if isinstance(start, FileOffset | VoidOffset) and isinstance(least, FileOffset | VoidOffset | None):
        known = BEFORE_FIRST_FILE if least is None else least  # where files begin is written nowhere
        return _price_files(index, source_id, (start, known, most or known, read or known), reached, checkpoint)
    return SourcePrice(index, find_source_kind(start.kind).price, bound=not start == least == most)


class _Topics(NamedTuple):
    """How far one Kafka source has come, as in `Reached`."""

    least: Offsets
    most: Offsets
    read: Offsets


def _price_kafka(
    index: int, named: Offsets, reached: _Topics, facts: KafkaFacts | None, *, is_bound: bool
) -> SourcePrice:
    added = _find_added(named, reached, facts)
    start = {topic: {**named.get(topic, {}), **added.get(topic, {})} for topic in {**named, **added}}
    at = {
        t: {p: _find_place(offset, facts, reached, t, p) for p, offset in parts.items()} for t, parts in start.items()
    }
    before = {
        t: {p: _find_surely_shown(offset, reached, t, p) for p, offset in parts.items()} for t, parts in start.items()
    }
    is_open = any(offset < 0 for each in (start, *reached) for parts in each.values() for offset in parts.values())
    gone = any(p not in start.get(t, {}) for t, parts in reached.least.items() for p in parts)
    read, most = _raise_to_most(reached.read, facts), _raise_to_most(reached.most, facts)
    return SourcePrice(
        index,
        "kafka",
        reread=find_planned_ranges(at, read),
        lost=find_planned_ranges(before, at),
        duplicated=find_planned_ranges(at, most),
        reread_from=_find_open_ended(at, read),
        duplicated_from=_find_open_ended(at, most),
        bound=is_bound or is_open or gone or bool(added),
    )


def _find_added(start: Offsets, reached: _Topics, facts: KafkaFacts | None) -> dict[str, dict[int, int]]:
    """Partitions that were new to the newest plan: Spark reads one from where it begins, at 0 if nothing is deleted."""
    new = select_only_in(select_only_in(reached.read, reached.least), start)
    return {
        topic: dict.fromkeys(parts, 0)
        for topic, parts in new.items()
        if facts is None or facts.exists(topic) is not False
    }


def _find_place(offset: int, facts: KafkaFacts | None, reached: _Topics, topic: str, partition: int) -> int:
    """Where a partition will be read from; as far as anybody knows, the earliest is the beginning.

    The latest is, where Kafka does not tell it, what was read last: nobody knows how much is left out then.
    """
    if offset == OFFSET_EARLIEST:
        if not facts:
            return 0
        return facts.earliest.get(topic, {}).get(partition, 0)
    if offset == OFFSET_LATEST:
        read = reached.read.get(topic, {}).get(partition, 0)
        if not facts:
            return read
        return facts.latest.get(topic, {}).get(partition, read)
    return offset


def _find_surely_shown(start: int, reached: _Topics, topic: str, partition: int) -> int:
    """Up to where every sink surely shows a partition; -1 where that cannot matter, since all there is is read."""
    least = reached.least.get(topic, {}).get(partition, 0)
    if least >= 0:
        return least
    return -1 if start == OFFSET_EARLIEST else 0


def _raise_to_most(offsets: Offsets, facts: KafkaFacts | None) -> Offsets:
    """The same, where how far a partition was read was overwritten with the earliest or the latest: perhaps to its end.

    Its end stays open where nobody tells it (`_find_open_ended`).
    """
    latest: Offsets = facts.latest if facts else {}

    def end_of(topic: str, partition: int, at: int) -> int:
        if at >= 0:
            return at
        return latest.get(topic, {}).get(partition, OFFSET_LATEST)

    return {
        topic: {partition: end_of(topic, partition, at) for partition, at in parts.items()}
        for topic, parts in offsets.items()
    }


def _find_open_ended(start: Offsets, end: Offsets) -> Offsets:
    """Partitions that begin at a position and end at none, with where they begin: all from there on may be meant."""
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in find_unresolved(start, end).items():
        begins = {each: first for each, (first, _) in partitions.items() if first >= 0}
        if begins:
            found[topic] = begins
    return found


def judge_unresolved(
    new: Mapping[str, SourceOffset], reached: Reached, facts: KafkaFacts | None, recovery: str | None = None
) -> list[tuple[Guarantee, str]]:
    """What is left to say of each partition of which nobody wrote down how far it was read, with its line.

    Args:
        new: Where each source starts.
        reached: How far sinks and Spark have come.
        facts: What Kafka serves; None if it was not asked.
        recovery: The recovery that made it end there; None: somebody else.
    """
    found = []
    for each in list_unresolved_ends(new, reached.least, reached.most or {}, facts, recovery):
        if each.may_lose:
            word = Guarantee.LOSSY
        else:
            word = Guarantee.AT_LEAST_ONCE
        found.append((word, str(each)))
    return found


def _get_log_offset(offset: SourceOffset) -> int:
    if isinstance(offset, FileOffset):
        return offset.log_offset
    return BEFORE_FIRST_FILE.log_offset


def _price_files(
    index: int,
    source_id: str,
    offsets: tuple[SourceOffset, SourceOffset, SourceOffset, SourceOffset],
    reached: Reached,
    checkpoint: Checkpoint,
) -> SourcePrice:
    start, least, most, read = (_get_log_offset(each) for each in offsets)
    return SourcePrice(
        index,
        "file",
        bound=not reached.is_exact,
        reread_files=list_files_between(checkpoint, source_id, start, read),
        lost_files=list_files_between(checkpoint, source_id, least, start),
        duplicated_files=list_files_between(checkpoint, source_id, start, most),
    )


def list_files_between(checkpoint: Checkpoint, source_id: str, after: int, up_to: int) -> tuple[str, ...]:
    """The files that the entries of a file source's log after one up to another name, as far as they were read."""
    log = next((log for log in checkpoint.sources if log.name == source_id), None)
    entries = log.entries.values() if log else ()
    found: Iterator[SourceFile] = (file for entry in entries if isinstance(entry, FileLogEntry) for file in entry)
    return tuple(dict.fromkeys(file.path for file in found if after < file.log_id <= up_to))


def price_batch(
    checkpoint: Checkpoint, start: Mapping[str, SourceOffset], end: Mapping[str, SourceOffset], *, is_repeated: bool
) -> tuple[SourcePrice, ...]:
    """The price of reading a planned range once more.

    Args:
        checkpoint: Its source logs name the files.
        start: Where the range begins.
        end: Where it ends.
        is_repeated: Whether the sinks may show it already, so that it may come twice.
    """
    first_files = {source_id: BEFORE_FIRST_FILE for source_id, offset in end.items() if isinstance(offset, FileOffset)}
    begins = {**first_files, **start}
    reached = Reached(begins, end if is_repeated else begins, end)
    return price_start(
        {source_id: begins.get(source_id, end[source_id]) for source_id in end}, reached, checkpoint, None
    )
